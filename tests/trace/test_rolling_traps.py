"""Each trap of rolling loops by name: what a naive rolling gets wrong, and NumPy does not."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


def matrix(seed=0, n=N, m=4):
    return np.random.default_rng(seed).uniform(0.2, 1.2, (n, m))


# ------------------------------------------------------------- carries in the caller's frame


def test_an_outer_value_under_two_names_stays_apart():
    def f(x):
        s = x[0]
        s0 = s
        for _ in range(10):
            s = s * 0.5 + s0
        return s

    agrees(f, np.array([2.0]), loops=1)

    def short(x):  # the probe: 3.75, not 6.75
        s = x[0]
        s0 = s
        for _ in tg.range(3):
            s = s * 0.5 + s0
        return s

    assert tg.compile(short, backend="numpy")(np.array([2.0])) == 3.75


def test_a_pair_of_names_moves_together():
    def f(x):  # the probe: 8, not 16
        cur, prev = x[0], x[0]
        for _ in tg.range(4):
            cur, prev = cur + prev, cur
        return cur

    assert tg.compile(f, backend="numpy")(np.array([1.0])) == 8.0


def test_an_array_is_renamed_before_it_is_rebound():
    def f(u):
        prev = u
        for _ in range(N):
            prev = u
            u = np.sin(u) + 0.1 * prev
        return u, prev

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_an_alias_made_at_the_end_of_the_body_sees_the_next_write():
    def f(x):
        u, p = x * 1.0, x * 2.0
        for i in range(N):
            u[i] = 0.5
            s = p[i]
            u = u * 0.9
            p = u
        p[0] = 7.0
        return u, p, s

    agrees(f, vector())


def test_a_cell_shared_with_an_inner_function_is_carried():
    def f(x):
        s = 0.0

        def scaled():
            return s * 0.5

        for i in range(N):
            s = scaled() + x[i]
        return s + scaled()

    agrees(f, vector(), loops=1)


def test_a_variable_changed_by_an_inner_function_is_carried():
    def f(x):
        s = 0.0

        def add(v):
            nonlocal s
            s = s + v

        for i in range(N):
            add(x[i])
        return s

    agrees(f, vector(), loops=1)


def test_what_handlers_and_branches_store_is_noticed():
    def f(x):
        s, seen = 0.0, 0.0
        for i in range(N):
            try:
                s = s + x[i + 1]
            except IndexError:
                seen = s
        return s, seen

    agrees(f, vector())


def test_no_exception_of_the_machinery_is_caught_by_user_code():
    def f(x):
        s = 0.0
        for i in range(N):
            try:
                if i > 4:
                    s = s + x[i]
            except Exception:
                s = -100.0
        return s

    agrees(f, vector(), loops=1)


def test_an_exception_that_leaves_a_loop():
    def f(x):
        s = 0.0
        try:
            for i in range(N + 4):
                s = s + x[i]
        except IndexError:
            s = s * 2
        return s

    agrees(f, vector(), loops=0)


# ------------------------------------------------------------------------- symbolic indices

INDICES = {
    "before": "A[i - 1]",
    "from the end": "A[i - n]",
    "until minus i": "A[:-i]",
    "three": "A[i:i + 3]",
    "around": "A[i - 1:i + 1]",
    "every second": "A[i::2]",
    "reversed": "A[::-1][i]",
    "modulo": "A[i % 3]",
    "mirrored": "A[n - 1 - i]",
    "negated": "A[-i]",
    "halved": "A[i // 2]",
    "until i": "A[:i]",
    "beyond": "A[i + 1:i + n]",
    "backwards": "A[i:0:-1]",
    "last ones": "A[-i:]",
    "both": "A[-i:i]",
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES.keys())
@pytest.mark.parametrize("bounds", ["n", "1, n", "n - 1, -1, -1", "2, n - 2"])
def test_an_index_keeps_numpys_meaning_at_each_boundary(index, bounds):
    space = {"np": np}
    exec(
        f"def f(A, n={N}):\n    s = 0.0\n    for i in range({bounds}):\n"
        f"        s = s + np.sum({index}) * (i + 1)\n    return s",
        space,
    )
    agrees(space["f"], vector())


def test_rows_columns_and_elements():
    def f(A, S):
        s = 0.0
        for i in range(N):
            s = s + A[i, 1:-1].sum() * A[:, i % 4].sum() + S[i, 3] * S[3, i]
            for j in range(N):
                s = s + S[i, j] * S[j, i] * 0.01
        return s

    agrees(f, matrix(), matrix(1, N, N))
    gradients_agree(f, matrix(), matrix(1, N, N))


def test_the_index_is_a_python_int_in_arithmetic():
    def f(x, k):
        t = 0
        z = np.zeros(N, np.float32)
        for i in range(1, N):
            z[i] = x[i] * i + i / 3 + i**2 + np.sin(i * 0.1) + 0.9**i - abs(i - 5)
            t = t + k[i] * i
        return z, t, i

    agrees(f, vector().astype(np.float32), np.arange(N), loops=2)  # abs splits it


@pytest.mark.parametrize(
    "expression",
    [
        "x * i",
        "k * i",
        "k8 * i",
        "i / 4",
        "np.sqrt(i)",
        "np.float32(i)",
        "x + np.int8(3) * i",
        "x ** 2 * i",
        "np.multiply(k, i)",
        "np.full(3, i)",
        "np.array([i, 2])",
        "x * float(i)",
        "np.where(x > i, x, i)",
        "np.maximum(x, i)",
        "i % 3 * x",
        "(i & 1) * x",
        "divmod(i, 3)[0] * x",
        "x[i % 3] * True + i",
        "np.arange(3) * i",
        "max(i, 4) * x",
        "min(i, 4) * x",
        "-i * x",
        "k[i] // (i + 1)",
        "round(i) * x",
        "i.real * x",
        "int(i) * x",
        "bool(i) * x",
        "~i * x",
    ],
)
def test_types_of_expressions_of_the_index(expression):
    space = {"np": np}
    exec(
        f"def f(x, k, k8):\n    for i in range({N}):\n        out = {expression}\n    return out",
        space,
    )
    agrees(space["f"], vector().astype(np.float32), np.arange(N), np.arange(N, dtype=np.int8))


# -------------------------------------------------------------------- branches on the index

CONDITIONS = [
    "i > 0",
    "i == 4",
    "i % 2 == 0",
    "i < n - 1",
    "not i",
    "i % 3",
    "2 < i <= 7",
    "i in (2, 5)",
    "i == n // 2",
    "i != 3",
    "i >= n",
    "i == n - 1 or i == 0",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_branch_on_the_index(condition):
    space = {"np": np}
    exec(
        f"def f(x, n={N}):\n    s = 0.0\n    for i in range(n):\n        if {condition}:\n"
        "            s = s * 0.5 + x[i]\n        else:\n            s = s - x[0]\n"
        "            x[i] = s\n    return s",
        space,
    )
    agrees(space["f"], vector())
    gradients_agree(space["f"], vector())


def test_a_branch_on_two_indices():
    def f(S):
        s = 0.0
        for i in range(N):
            for j in range(N):
                if j < i:
                    s = s + S[i, j]
                elif i == j:
                    s = s * 0.9
        return s

    agrees(f, matrix(0, N, N))
