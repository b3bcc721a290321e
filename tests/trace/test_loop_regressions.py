"""Programs with loops that once went wrong, as the random ones of `tests.fuzz` found them."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree
from tracegrad.errors import ArgumentError, RuntimeValueError


@pytest.fixture
def x():
    return np.linspace(-1.0, 1.2, 9)


# ------------------------------------------------------------------- functions given to fori_loop


@pytest.mark.parametrize("loops", ["auto", "unroll"])
def test_fori_loop_keeps_max_trips_with_known_bounds(x, loops):
    def f(x):
        return tg.fori_loop(0, 9, lambda i, s: s + x[i], 0.0, max_trips=8)

    for run in (f, tg.compile(f, loops=loops, backend="numpy")):
        with pytest.raises(RuntimeValueError, match="max_trips=8") as e:
            run(x)
        assert "tg.fori_loop(0, 9" in e.value.loc.quote()
    with pytest.raises(ArgumentError, match="positive int"):
        tg.fori_loop(0, 2, lambda i, s: s, 0.0, max_trips=0)


@pytest.mark.parametrize("loops", ["auto", "unroll"])
def test_fori_loop_keeps_max_trips_with_bounds_of_an_outer_loop(x, loops):
    def f(x):
        s = np.float64(0.0)
        for i in range(9):
            s = tg.fori_loop(0, i, lambda k, s: s * 0.5 + x[k], s, max_trips=7)
        return s

    for run in (f, tg.compile(f, loops=loops, backend="numpy")):
        with pytest.raises(RuntimeValueError, match="max_trips=7"):
            run(x)


# ------------------------------------------------------------------- counters met more than once


def test_a_counter_starts_where_it_is_when_the_loop_is_met_again(x):
    def f(x):
        s, y = 3, np.zeros(9 * len(x))
        for i in range(9):
            for _ in range(len(x)):
                s += len(str(i))
                y[s - 4] = x[i] * s
        return np.sum(y * np.arange(len(y))), s

    agrees(f, x)


def test_a_counter_with_another_step_when_the_loop_is_met_again(x):
    def f(x):
        s, total = 0, 0.0
        for i in range(4):
            for _ in range(9):
                s += i
                total = total + x[s % 9] * s
        return total, s

    agrees(f, x)
    gradients_agree(f, x)


def test_a_counter_in_a_container_that_held_something_else(x):
    def f(x):
        box = [x[0], 0]
        for i in range(3):
            box[1 - i % 2] = i
            for _ in range(9):
                box[1 - i % 2] += 2
        return box[1] * x[1], box[0] * 1.0

    agrees(f, x)


# ----------------------------------------------------------------------- many copies of one body


@pytest.mark.parametrize("part", [np.s_[:2], np.s_[:4:2], np.s_[::-1]], ids=str)
def test_many_unrolled_writes_of_one_part(x, part):
    """What an update absorbs is written by recursion, which Python's stack bounds."""

    def f(x):
        y = x * 1.0
        for _ in range(500):
            y[part] *= 0.99
        return y

    run = tg.compile(f, loops="unroll", backend="numpy")
    np.testing.assert_allclose(run(x), f(x), rtol=1e-10)
    g = tg.grad(lambda x: np.sum(f(x)), loops="unroll", backend="numpy")(x)
    np.testing.assert_allclose(g, np.where(f(x) == x, 1.0, 0.99**500), rtol=1e-10)


# -------------------------------------------------------------------- functions within functions


def test_a_loop_in_a_function_given_to_fori_loop_in_a_loop(x):
    def f(x):
        s = np.float64(0.5)
        for i in range(1, 9):

            def body(g, v, i=i):
                for q in range(i):
                    v = v * 0.9 + x[q] * 0.1
                return v * 0.5 + x[g] * g

            s = tg.fori_loop(i, 9, body, s, max_trips=12)
        return s

    agrees(f, x)
    gradients_agree(f, x)


# ------------------------------------------------------------- empty parts, in the gradient as well


@pytest.mark.parametrize("name", ["vector", "rows", "columns", "block"])
def test_products_of_parts_that_may_be_empty(x, name):
    def f(x, a):
        t = 0.0
        for i in range(9):
            if name == "vector":
                t = t * 0.5 + np.prod(x[:i])
            elif name == "rows":
                t = t * 0.5 + np.sum(np.prod(a[:i, i:], axis=1))
            elif name == "columns":
                t = t * 0.5 + np.sum(np.prod(a[:i, i:], axis=0))
            else:
                t = t * 0.5 + np.prod(a[:i, :i])
        return t

    a = np.linspace(0.5, 1.5, 81).reshape(9, 9)

    def slope(x, a):
        gx, ga = tg.grad(f, argnums=(0, 1))(x, a)
        return np.sum(np.sin(gx)) + np.sum(np.sin(ga))

    agrees(f, x, a)
    for g, backend in ((f, "c"), (slope, "numpy")):
        rolled, unrolled = (
            tg.grad(g, argnums=(0, 1), backend=backend, loops=way)(x, a)
            for backend, way in ((backend, "auto"), ("numpy", "unroll"))
        )
        for one, other in zip(rolled, unrolled, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loops", ["auto", "unroll"])
def test_logsumexp_of_a_part_that_may_be_empty(x, loops):
    """-inf, as in PyTorch and SciPy; what is multiplied away stays away from the gradient."""

    def f(x):
        s = x[0] * 0.0
        for i in range(9):
            s = s * 0.5 + x[:i].logsumexp(0).exp()
        return s

    want = 0.0
    for i in range(9):
        want = want * 0.5 + np.sum(np.exp(x[:i]))
    options = {"arrays": "torch", "backend": "numpy", "loops": loops}
    np.testing.assert_allclose(tg.compile(f, **options)(x), want, rtol=1e-12)
    slope = np.exp(x) * [sum(0.5 ** (8 - i) for i in range(k + 1, 9)) for k in range(9)]
    np.testing.assert_allclose(tg.grad(f, **options)(x), slope, rtol=1e-12)
