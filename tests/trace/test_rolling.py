"""Loops that roll: rolled = unrolled = NumPy, in values, gradients and written arrays."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg


def recurrence(x):
    y = x * 1.0
    for i in range(1, len(x)):
        y[i] = np.sin(y[i - 1]) * y[i]
    return np.sum(y)


def accumulate(x):
    s = 0
    for i in range(len(x)):
        s = s + x[i] * i
    return s


def wraps_at_first(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i] * x[i - 1]
    return s


def ping_pong(a, b):
    for _ in range(11):
        b[1:-1] = 0.5 * (a[2:] + a[:-2])
        a, b = b, a
    return np.sum(a * a) + np.sum(b)


def rebound(u):
    for _ in range(20):
        u = u + 0.01 * np.sin(u)
    return np.sum(u)


def first_iteration_differs(u):
    for _ in range(20):
        u[0] = 0.5
        u = u * 1.01
    return np.sum(u)


def branch_on_the_index(x):
    s = 0.0
    for i in range(20):
        if i > 3:
            s = s + x[i % 5] * 2
        else:
            s = s - x[0]
    return s


def seidel(a):
    n = len(a)
    b = a.reshape(4, n // 4)
    m = b.shape[1]
    for _ in range(9):
        for i in range(1, 3):
            for j in range(1, m - 1):
                b[i, j] = (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1]) * 0.25
    return np.sum(a**2)


def outer_value_under_two_names(x):
    s = x[0]
    s0 = s
    for _ in range(10):
        s = s * 0.5 + s0
    return s


def two_terms(x):
    cur, prev = x[0], x[1]
    for _ in range(10):
        cur, prev = cur + prev, cur
    return cur * prev


def name_set_only_inside(x):
    for i in range(len(x)):
        last = x[i] * 2
    return last * i


PROGRAMS = [
    recurrence,
    accumulate,
    wraps_at_first,
    rebound,
    first_iteration_differs,
    branch_on_the_index,
    seidel,
    outer_value_under_two_names,
    two_terms,
    name_set_only_inside,
    ping_pong,
]


def arguments(f):
    rng = np.random.default_rng(0)
    return [rng.uniform(0.2, 1.2, 24) for _ in range(f.__code__.co_argcount)]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_rolled_is_numpy(f):
    rolled, plain = arguments(f), arguments(f)
    got, want = tg.compile(f)(*rolled), f(*plain)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert type(got) is type(want)
    for a, b in zip(rolled, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert "= loop(" in tg.compile(f).graph(*arguments(f))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_rolled_gradient_is_that_of_the_unrolled(f):
    nums = tuple(range(f.__code__.co_argcount))
    rolled = tg.grad(f, argnums=nums)(*arguments(f))
    unrolled = tg.grad(f, argnums=nums, loops="unroll")(*arguments(f))
    for a, b in zip(rolled, unrolled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def two_updates_of_a_temporary(u):
    for _ in range(8):
        flux = u[1:] - u[:-1]
        u[1:-1] += flux[1:] - flux[:-1]
    return np.sum(u)


def test_a_cotangent_that_starts_anew_does_not_clear_its_buffer_too_early():
    # The new zeros of `flux`'s cotangent once took the buffer of the old one before it was read.
    (u,) = arguments(two_updates_of_a_temporary)
    np.testing.assert_allclose(
        tg.grad(two_updates_of_a_temporary)(u.copy()),
        tg.grad(two_updates_of_a_temporary, loops="unroll")(u.copy()),
        rtol=1e-9,
        atol=1e-9,
    )
