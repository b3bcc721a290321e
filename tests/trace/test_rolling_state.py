"""Types, first iterations, exchanged arrays and lifetimes in rolled loops."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


def matrix(seed=0, n=N, m=4):
    return np.random.default_rng(seed).uniform(0.2, 1.2, (n, m))


# ------------------------------------------------------------------------- types and firsts


@pytest.mark.parametrize(
    "start",
    [
        "0",
        "0.0",
        "x[0]",
        "np.float32(0)",
        "np.zeros(())[()]",
        "c",
        "np.int64(3)",
        "True",
        "x[0] > 0.5",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accumulators_of_any_start(start, dtype):
    space = {"np": np}
    exec(
        f"def f(x, c=0.25):\n    s = {start}\n    for i in range({N}):\n"
        "        s = s + x[i] * 0.3\n    return s",
        space,
    )
    agrees(space["f"], vector().astype(dtype), loops=1)


def test_a_narrow_first_iteration_is_not_widened():
    def f(x, y):
        s = 0.1
        out = np.zeros(N)
        for i in range(N):
            out[i] = s * x[i]  # float32 in the first iteration, float64 in the others
            s = s + y[i]
        return out

    agrees(f, vector().astype(np.float32), vector(1))


def test_the_first_iteration_writes_the_callers_array():
    def f(u):
        for _ in range(N):
            u[0] = 0.0
            u = u + 1
        return u

    agrees(f, vector(), loops=1)


def test_the_callers_array_is_written_until_a_later_iteration_rebinds():
    def f(x, y):
        for i in range(N):
            x[i] += 0.7
            if i > 1:
                x = 0.5 * x + y
        return x

    agrees(f, vector(), vector(1))


def test_a_previous_value_that_is_none_at_first():
    def f(x):
        prev, s = None, 0.0
        for i in range(N):
            if prev is not None:
                s = s + prev * x[i]
            prev = x[i]
        return s

    agrees(f, vector(), loops=1)


def test_a_flag_for_the_first_iteration():
    def f(x):
        first, s = True, 0.0
        for i in range(N):
            if first:
                s, first = x[0] * 10, False
            s = s + x[i]
        return s

    agrees(f, vector(), loops=1)


# ----------------------------------------------------------------- swaps, levels, lifetimes


def test_ping_pong_of_the_callers_arrays():
    def f(a, b):
        for _ in range(N - 1):
            b[1:-1] = 0.5 * (a[2:] + a[:-2])
            a, b = b, a
        return a, b

    agrees(f, vector(), vector(1), loops=1)
    gradients_agree(f, vector(), vector(1))


def test_three_time_levels():
    def f(a, b, c):
        for _ in range(14):
            c[1:-1] = 2 * b[1:-1] - a[1:-1] + 0.1 * (b[2:] - 2 * b[1:-1] + b[:-2])
            a, b, c = b, c, a
        return a, b, c

    agrees(f, vector(), vector(1), vector(2), loops=1)
    gradients_agree(f, vector(), vector(1), vector(2))


def test_an_odd_number_of_swaps_in_an_inner_loop():
    def f(x, y):
        u = y[:]
        for i in range(1, N - 1):
            for _ in range(N - 1):
                tmp = x
                x = y
                y = tmp
            x[i:] = x[i] * 0.5
        return u

    agrees(f, vector(), vector(1))


def test_buffers_born_in_the_body():
    def f(x):
        s = 0.0
        for i in range(N):
            b = np.zeros(N)
            b[i] = x[i]
            b[1:] += 0.5 * b[:-1]
            s = s + b @ x
        return s, b

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_known_arrays_from_before_the_loop_are_written():
    def f(x):
        y, count = np.zeros(N), np.zeros(3)
        for i in range(N):
            y[i] = x[i] * 2
            count[0] += 1
        return y, count

    agrees(f, vector(), loops=1)


def test_an_element_read_before_a_write_keeps_its_value():
    def f(x):
        s = 0.0
        for i in range(N):
            old = x[i]
            x[i] = 0.5 * x[i - 1]
            s = s + old
        return s, old

    agrees(f, vector())
    gradients_agree(f, vector())


def test_a_view_read_before_a_write_does_not_keep_its_value():
    def f(A):
        s = 0.0
        for i in range(N):
            row = A[i]
            A[i] = 0.5 * A[i] + 1
            s = s + row.sum()
        row[0] = 9.0
        return s, row

    agrees(f, matrix(), loops=1)
    gradients_agree(f, matrix())


def test_views_kept_from_the_last_iteration_share_memory():
    def f(x):
        u = x * 1.0
        for _ in range(N):
            v, w = u[1:], u[:3]
            u = u * 0.9
        v[0] = 5.0
        return u, v, w

    agrees(f, vector(), loops=1)


def test_a_temporary_is_read_after_the_loop():
    def f(x):
        for i in range(N):
            t = x[i] * 2
        return t * i

    agrees(f, vector(), loops=1)


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_few_trips(trips):
    def f(x, n):
        s, t = 0, x[0]
        for i in range(n):
            s = s + x[i]
            t = i
        return s, t

    agrees(f, vector(), trips)


def test_a_name_of_a_loop_without_trips_is_unbound():
    def f(x):
        for _ in range(0):
            t = x[0]
        return t

    with pytest.raises(UnboundLocalError):
        tg.compile(f, backend="numpy")(vector())


def test_lists_that_names_of_the_body_hold_are_themselves():
    def f(x):
        kept, s = [x[0]], 0.0
        for v in x:
            known = kept
            made = [v]
            same = made
            both = (kept, made)
            s = s + v
        known.append(s)
        same.append(s)
        return kept, made, known is kept, both[1] is same, both[0] is kept

    agrees(f, vector(), loops=1)


def test_arrays_written_under_two_names_unroll_or_peel():
    def f(x):
        u = x
        for i in range(N):
            u[i] = 0.5 * x[i - 1]
            u = u + x
        return u

    agrees(f, vector())


def test_a_helper_called_with_other_types():
    def total(s, x):
        for i in range(len(x)):
            s = s + x[i]
        return s

    def f(x, k, y):
        return total(0, x), total(0, k), total(0.0, y), total(0, k)

    agrees(f, vector(), np.arange(N), vector(1).astype(np.float32))
    assert loops_in(f, vector(), np.arange(N), vector(1)) == 4
