"""What may stand in the body of a loop: containers, counters, gradients, helpers."""

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


# -------------------------------------------------------------------------------- containers


def test_a_tuple_of_arrays_is_carried_leaf_by_leaf():
    def f(x, y):
        state = (x * 1.0, y * 1.0, 0.0)
        for i in range(N):
            a, b, s = state
            state = (np.sin(b), 0.5 * a, s + a[i])
        return state

    agrees(f, vector(), vector(1), loops=1)
    gradients_agree(f, vector(), vector(1))


def test_a_dictionary_and_a_list_are_carried_leaf_by_leaf():
    def f(x):
        p, q = {"w": x * 1.0, "b": x[0]}, [x[1], (x[2], 0.0)]
        for _ in range(N):
            p = {"w": p["w"] * 0.9, "b": p["b"] + q[0]}
            q = [q[1][0], (np.sin(q[0]), q[1][1] + p["b"])]
        return p, q

    agrees(f, vector(), loops=1)


def test_written_leaves_of_a_container_that_someone_else_holds():
    def f(x):
        state = [x * 1.0, x * 2.0]
        kept = state
        for i in range(N):
            state[0][i] = 5.0
            state = [state[1], state[0] * 0.5]
        return state, kept

    agrees(f, vector())


CHANGED = {
    "append": "out.append(x[i])",
    "append the index": "out.append(i)",
    "element": "out[0] = x[i]",
    "counted": "out[0] += 1",
    "dictionary": "d[i] = x[i]",
    "dictionary count": "d['n'] = d.get('n', 0) + 1",
    "nested": "box['list'].append(x[i])",
    "object": "obj.value = obj.value + x[i]",
    "method": "obj.add(x[i])",
    "set": "seen.add(i % 3)",
    "closure": "later.append(lambda: x[i])",
    "text": "names = names + str(i)",
    "formatted": "names = names + f'{i}'",
}


ROLL = {
    "append",
    "append the index",
    "element",
    "counted",
    "dictionary count",
    "nested",
    "object",
    "method",
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_a_body_changes_is_not_lost(name):
    body = CHANGED[name]
    space = {"np": np}
    exec(
        "class Thing:\n    def __init__(self):\n        self.value = 0.0\n"
        "    def add(self, v):\n        self.value = self.value + v\n"
        "def f(x):\n    out, d, box, seen, later = [0.0], {}, {'list': [0.0]}, {9}, []\n"
        f"    obj, names, s = Thing(), '', 0.0\n    for i in range({N}):\n        {body}\n"
        "        s = s + x[i]\n"
        "    total = sum(out) + sum(d.values()) + sum(box['list']) + sum(seen) + obj.value\n"
        "    for g in later:\n        total = total + g()\n"
        "    return s, total, len(names), len(d), len(out)",
        space,
    )
    agrees(space["f"], vector(), loops=int(name in ROLL))


def test_a_list_outside_is_appended_to_as_often_as_without_tracing():
    log = []

    def f(x):
        s = 0.0
        log.append("start")
        for i in range(N):
            s = s + x[i]
            log.append(i)
        return s

    tg.compile(f, backend="numpy")(vector())
    assert log == ["start", *range(N)]


# --------------------------------------------------------------------------------- counters


def test_integers_that_python_counts():
    def f(x):
        k, back, s, t = 0, N - 1, 0.0, 0.0
        for i in range(N):  # noqa: B007 (returned)
            s = s + x[k] * x[back] * t
            k += 1
            back -= 1
            t += 0.1
        return s, k, back, t, i

    agrees(f, vector(), loops=1)


def test_a_counter_of_two_loops():
    def f(x):
        k, s = 0, 0.0
        for i in range(9):
            for _ in range(8):
                s = s + x[k % N] * i
                k = k + 1
        return s, k

    agrees(f, vector())


def test_a_count_that_is_needed_while_tracing():
    def f(x):
        t, k = 0.0, 0
        for i in range(N):
            t += 0.5
            k = k + i
        return x[int(t)] + x[k % N] + np.zeros(k).sum()

    agrees(f, vector())


# ------------------------------------------------------------------- gradients in the body


def test_gradients_inside_a_loop():
    def energy(v):
        total = 0
        for q in range(len(v)):
            total = total + v[q] ** 2 * v[q - 1]
        return total

    def f(x):
        for _ in range(N):
            x = x - 0.01 * tg.grad(energy)(x)
        return x

    agrees(f, vector(), loops=2)
    gradients_agree(f, vector())


def test_no_grad_in_a_body():
    def f(x):
        s = 0.0
        for i in range(N):
            with tg.no_grad():
                w = x[i] ** 2
            s = s + w * x[i]
        return s

    agrees(f, vector(), loops=1)
    rolled, unrolled = (
        tg.grad(f, backend="numpy", loops=way)(vector()) for way in ("auto", "unroll")
    )
    np.testing.assert_allclose(rolled, unrolled)
    np.testing.assert_allclose(rolled, vector() ** 2)


def test_methods_and_helpers_roll():
    class Model:
        def __init__(self):
            self.k = 0.1

        def step(self, u):
            for _ in range(9):
                u = u + self.k * np.sin(u)
            return u

    model = Model()

    def f(u):
        for _ in range(N):
            u = model.step(u) * 0.5
        return u

    agrees(f, vector(), loops=2)


def test_inner_loops_whose_length_depends_on_the_index():
    def f(A):
        s = 0.0
        for i in range(N):
            for j in range(i):
                s = s + A[i, j] * A[j, i]
            for j in range(i + 1, N):
                A[j, i] = A[j, i] * 0.5
        return s

    agrees(f, matrix(0, N, N))
    gradients_agree(f, matrix(0, N, N))


def test_the_index_as_an_element_of_an_index_array():
    def read(x):
        s = 0.0
        for i in range(len(x) - 2):
            s = s + np.sum(x[[i, i + 1]] * x[np.array([i + 2, 0])])
        return s

    def write(x):
        y = np.zeros_like(x)
        for i in range(len(x) - 2):
            y[np.array([i, i + 2])] += x[i]
            y[[i, i + 1]] = 2.0 * y[[i + 1, i]]
        return y

    x = np.linspace(0.5, 2.0, 14)
    for f in (read, write):
        agrees(f, x, loops=1)
        gradients_agree(f, x)
