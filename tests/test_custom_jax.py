"""`tg.custom_vjp` and `tg.custom_jvp`."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tracegrad as tg
from tests.custom_rules import X, gradient
from tracegrad.errors import GradientError, UnsupportedError


@tg.custom_vjp
def sine(x, y):
    return {"s": np.sin(x) * y}


def _sine_fwd(x, y):
    return {"s": np.sin(x) * y}, (np.cos(x), np.sin(x), y)


def _sine_bwd(residuals, ct):
    cosine, s, y = residuals
    return ct["s"] * cosine * y, ct["s"] * s


sine.defvjp(_sine_fwd, _sine_bwd)


def test_custom_vjp_first_and_second_order():
    def f(x, y):
        return np.sum(sine(x, y)["s"])

    dx, dy = tg.grad(f, argnums=(0, 1))(X, X + 1)
    np.testing.assert_allclose(dx, np.cos(X) * (X + 1))
    np.testing.assert_allclose(dy, np.sin(X))
    dxx, dxy = tg.grad(lambda x, y: np.sum(tg.grad(f)(x, y)), argnums=(0, 1))(X, X + 1)
    np.testing.assert_allclose(dxx, -np.sin(X) * (X + 1))
    np.testing.assert_allclose(dxy, np.cos(X))
    _, t = tg.jvp(tg.grad(f), (X, X + 1), (X, None))
    np.testing.assert_allclose(t, -np.sin(X) * (X + 1) * X)
    np.testing.assert_allclose(sine(X, X)["s"], np.sin(X) * X)
    assert sine.__name__ == "sine"


def test_custom_vjp_nondiff_arguments_and_containers():
    @functools.partial(tg.custom_vjp, nondiff_argnums=(0,))
    def apply(op, pair, scale=1.0):
        return op(pair["a"]) * pair["b"][0] * scale

    def fwd(op, pair, scale):
        return apply.fun(op, pair, scale), (pair, scale)

    def bwd(op, residuals, ct):
        pair, scale = residuals
        return {"a": ct * 10.0, "b": (ct * pair["a"] * scale,)}, None

    apply.defvjp(fwd, bwd)

    def f(pair):
        return np.sum(apply(np.sin, pair))

    got = tg.grad(f)({"a": X, "b": (X + 1,)})
    np.testing.assert_allclose(got["a"], 10 + 0 * X)
    np.testing.assert_allclose(got["b"][0], X)


def test_custom_vjp_refusals():
    @tg.custom_vjp
    def f(x):
        return x * 2.0

    with pytest.raises(GradientError, match="f has no rules"):
        gradient(lambda x: np.sum(f(x)), X)
    f.defvjp(lambda x: (x * 2.0, None), lambda residuals, ct: ct)
    with pytest.raises(GradientError, match="tuple of 1 cotangents"):
        gradient(lambda x: np.sum(f(x)), X)

    def writes(x):
        x *= 2.0
        return x, None

    f.defvjp(writes, lambda residuals, ct: (ct,))
    with pytest.raises(UnsupportedError, match="writes one of its arguments"):
        gradient(lambda x: np.sum(f(x * 1.0)), X)


def test_custom_jvp():
    @tg.custom_jvp
    def square(x, n):
        return x * x * n

    @square.defjvp
    def rule(primals, tangents):
        (x, n), (t, s) = primals, tangents
        return square(x, n), 2.0 * x * t * n + x * x * s

    def f(x, n):
        return np.sum(square(x, n) * x)

    np.testing.assert_allclose(tg.grad(f)(X, 2.0), 6 * X**2)
    np.testing.assert_allclose(tg.grad(f, argnums=1)(X, 2.0), np.sum(X**3))
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(tg.grad(f)(x, 2.0)))(X), 12 * X)
    np.testing.assert_allclose(tg.jvp(lambda x: square(x, 3.0), (X,), (X,))[1], 6 * X * X)
    np.testing.assert_allclose(square(X, 2.0), 2 * X * X)


def test_custom_jvp_by_argument():
    @tg.custom_jvp
    def product(x, y):
        return x * y

    product.defjvps(lambda t, out, x, y: 7.0 * t, None)
    dx, dy = tg.grad(lambda x, y: np.sum(product(x, y)), argnums=(0, 1))(X, X)
    np.testing.assert_allclose(dx, 7 + 0 * X)
    np.testing.assert_array_equal(dy, 0 * X)
