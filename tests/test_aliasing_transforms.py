"""Transforms of functions whose arguments share memory, at the prompt and inside a trace."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg


def numbers(*shape):
    return np.sin(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def slope(f, arguments, x):
    """Central differences of ``f(*arguments(x))`` with respect to x."""
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * 1e-6
            out[at] += sign * f(*arguments(moved)) / 2e-6
    return out


def overlap_loss(a, b):
    a *= 2.0
    b[...] = b * a[0]
    return np.sum(np.sin(a)) + np.sum(b * b)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda x: (x, x[1:]),
        lambda x: (x[:3], x[1:]),
        lambda x: (x[::-1], x[1:3]),
        lambda x: (x[:2], x),
        lambda x: (x, x),
    ],
    ids=["view", "partly", "reversed", "base second", "same"],
)
def test_every_element_of_shared_memory_is_reported_once(arguments):
    x = numbers(4)
    want = slope(overlap_loss, arguments, numbers(4))
    a, b = arguments(x)
    first, second = tg.grad(overlap_loss, argnums=(0, 1))(a, b)
    places = arguments(np.arange(4))
    total = np.zeros(4)
    np.add.at(total, places[0], first)
    np.add.at(total, places[1], second)
    np.testing.assert_allclose(total, want, atol=1e-7)
    root = 0 if a.size >= b.size else 1
    covers = set(places[1 - root]) <= set(places[root])
    assert not covers or not (first, second)[1 - root].any()

    plain = numbers(4)
    overlap_loss(*arguments(plain))
    np.testing.assert_allclose(x, plain)

    # Each alone: the whole gradient of what it reads.
    for n in (0, 1):
        got = tg.grad(overlap_loss, argnums=n)(*arguments(numbers(4)))
        np.testing.assert_allclose(got, want[places[n]], atol=1e-7)

    # Forward mode is the transpose.
    x = numbers(4)
    t = [np.cos(np.arange(1.0, 1 + p.size)) for p in places]
    _, moved = tg.jvp(overlap_loss, arguments(x), tuple(t))
    assert moved == pytest.approx(first @ t[0] + second @ t[1])

    x = numbers(4)
    value, pull = tg.vjp(overlap_loss, *arguments(x))
    np.testing.assert_allclose(x, plain)
    again = pull(1.0)
    np.testing.assert_allclose(again[0], first)
    np.testing.assert_allclose(again[1], second)


def test_jacobians_and_hessians_of_shared_memory():
    def f(a, b):
        a *= 2.0
        return a * b

    def of(x):
        return (x, x[::-1])

    x = numbers(3)
    want = np.array([slope(lambda a, b, k=k: f(a, b)[k], of, x) for k in range(3)])
    for jacobian in (tg.jacrev, tg.jacfwd):
        whole, rest = jacobian(f, argnums=(0, 1))(*of(numbers(3)))
        np.testing.assert_allclose(whole, want, atol=1e-7)
        np.testing.assert_array_equal(rest, np.zeros((3, 3)))
        np.testing.assert_allclose(
            jacobian(f, argnums=1)(*of(numbers(3))), want[:, ::-1], atol=1e-7
        )
    x = numbers(3)
    want = tg.hessian(lambda x: np.sum(4 * x * x[::-1]))(x)
    np.testing.assert_allclose(tg.hessian(lambda a, b: np.sum(f(a, b)))(*of(x)), want)


def test_views_of_one_array_stay_views_in_a_transform_inside_a_trace():
    @tg.compile
    def outer(x):
        z = x * 1.0
        grads = tg.grad(overlap_loss, argnums=(0, 1))(z, z[1:])
        return grads, z

    (first, second), z = outer(numbers(4))
    plain = numbers(4)
    want = slope(overlap_loss, lambda x: (x, x[1:]), plain)
    overlap_loss(plain, plain[1:])
    np.testing.assert_allclose(first, want, atol=1e-7)
    np.testing.assert_array_equal(second, np.zeros(3))
    np.testing.assert_allclose(z, plain)


def test_an_argument_and_a_closed_over_view_of_it_in_a_transform_inside_a_trace():
    def inner_of(z):
        def inner(a):
            a *= 2.0
            return np.sum(a * a * z[: a.size])

        return inner

    @tg.compile
    def outer(x):
        z = x * 1.0
        return tg.grad(inner_of(z))(z[:3]), z

    grad, z = outer(numbers(4))
    np.testing.assert_allclose(grad, 24 * numbers(4)[:3] ** 2)
    np.testing.assert_allclose(z, numbers(4) * [2, 2, 2, 1])


def test_an_array_passed_to_a_transform_inside_a_trace_that_only_reads_it_is_apart():
    @tg.compile
    def outer(x):
        return tg.grad(lambda a, b: np.sum(a * b * x), argnums=(0, 1))(x, x)

    for got in outer(numbers(3)):
        np.testing.assert_allclose(got, numbers(3) ** 2)


def test_second_derivatives_through_shared_memory_inside_a_trace():
    def inner(a, b):
        a *= a
        return np.sum(a[1:] * b)

    def outer(x):
        z = x * 1.0
        return np.sum(tg.grad(inner)(z, z[1:]) ** 2)

    x = numbers(3)
    # inner is the sum of x_k ** 4 over k >= 1
    np.testing.assert_allclose(tg.grad(outer)(x), 2 * 4 * x**3 * 12 * x**2 * [0, 1, 1])


def test_a_tangent_that_is_the_primal_itself():
    def f(x):
        x *= 3.0
        return np.sum(x * x)

    x = numbers(3)
    value, moved = tg.jvp(f, (x,), (x,))
    assert value == pytest.approx(9 * (numbers(3) ** 2).sum())
    assert moved == pytest.approx(18 * (numbers(3) ** 2).sum())
