"""Reductions, running products and positions of extrema."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.derivative_laws import build, call, check_derivatives, check_samples, cotangents
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.evaluate import evaluate
from tracegrad.ops import accumulate, order, reduce

OPS = [
    reduce.sum_,
    reduce.prod,
    reduce.max_,
    reduce.min_,
    reduce.all_,
    reduce.any_,
    order.argmax,
    order.argmin,
    accumulate.cumsum,
    accumulate.cumprod,
    accumulate.recurrence,
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples(op):
    check_samples(op, np.random.default_rng(1))


def grad(f, x):
    graph = build(f, x)
    return evaluate(vjp_graph(graph, [0], seeds=[1.0]), [x])[1]


@pytest.mark.parametrize(
    "x, expected",
    [
        ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]),
        ([0.0, 3.0, 4.0], [12.0, 0.0, 0.0]),
        ([0.0, 0.0, 4.0], [0.0, 0.0, 0.0]),
        ([5.0], [1.0]),
        ([], []),
    ],
)
def test_prod_gradient_is_exact_at_zeros(x, expected):
    x = np.array(x)
    np.testing.assert_array_equal(grad(lambda b, v: reduce.prod(b, v, axes=(0,)), x), expected)


def test_prod_hessian_with_two_zeros():
    x = np.array([0.0, 0.0, 4.0])

    def row(k):
        g = build(lambda b, v: reduce.prod(b, v, axes=(0,)), x)
        one = cotangents(g, [0], [1.0])
        ct = np.zeros(3)
        ct[k] = 1.0
        return evaluate(cotangents(one, [0]), [x, ct])[0]

    np.testing.assert_array_equal([row(k) for k in range(3)], [[0, 4, 0], [4, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("op", [reduce.max_, reduce.min_], ids=lambda op: op.name)
def test_ties_share_the_gradient(op):
    x = np.array([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(grad(lambda b, v: op(b, v, axes=(1,)), x[:1]), [[1 / 3] * 3])
    expected = [[1 / 3] * 3, [0.0] * 3] if op is reduce.max_ else [[0.0] * 3, [1 / 3] * 3]
    np.testing.assert_allclose(grad(lambda b, v: op(b, v, axes=(0, 1)), x), expected)


def test_nan_takes_the_gradient_of_max():
    x = np.array([1.0, np.nan, 2.0])
    np.testing.assert_array_equal(grad(lambda b, v: reduce.max_(b, v, axes=(0,)), x), [0, 1, 0])


def test_max_of_nothing_is_refused():
    with pytest.raises(ShapeError, match="zero-size array to reduction operation maximum"):
        build(lambda b, v: reduce.max_(b, v, axes=(0,)), np.zeros((0, 3)))
    with pytest.raises(ShapeError, match="attempt to get argmin of an empty sequence"):
        build(lambda b, v: order.argmin(b, v, axis=1), np.zeros((2, 0)))


def test_sum_of_bool_is_refused():
    with pytest.raises(DTypeError, match="cast"):
        build(lambda b, v: reduce.sum_(b, v, axes=(0,)), np.zeros(3, bool))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
@pytest.mark.parametrize("ddof", [0, 1])
def test_mean_and_var(axes, ddof):
    x = np.random.default_rng(2).standard_normal((4, 5)) + 100.0
    np.testing.assert_allclose(call(lambda b, v: reduce.mean(b, v, axes), x), x.mean(axis=axes))
    if axes:
        got = call(lambda b, v: reduce.var(b, v, axes, ddof), x)
        np.testing.assert_allclose(got, x.var(axis=axes, ddof=ddof))
        check_derivatives(build(lambda b, v: reduce.var(b, v, axes, ddof), x), [x])


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 2.0, 3.0],
        [1000.0, 1000.0],
        [-1000.0, -1001.0],
        [-np.inf, 0.0],
        [-np.inf, -np.inf],
        [np.inf, 0.0],
        [np.inf, -np.inf],
        [np.nan, 1.0],
    ],
)
def test_logsumexp_values(row):
    x = np.array(row)
    got = call(lambda b, v: reduce.logsumexp(b, v, (0,)), x)
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.reduce(x)
    np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_logsumexp_derivatives():
    x = np.random.default_rng(3).standard_normal((3, 4)) * 3
    check_derivatives(build(lambda b, v: reduce.logsumexp(b, v, (1,)), x), [x])
    big = np.array([1000.0, 999.0])
    np.testing.assert_allclose(
        grad(lambda b, v: reduce.logsumexp(b, v, (0,)), big),
        [1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(1.0))],
    )
    half = np.array([-np.inf, 0.0])
    np.testing.assert_array_equal(grad(lambda b, v: reduce.logsumexp(b, v, (0,)), half), [0, 1])


def test_cumprod_gradient_at_zeros():
    x = np.array([2.0, 0.0, 3.0, 0.0])
    got = grad(
        lambda b, v: reduce.sum_(
            b, accumulate.cumprod(b, v, axis=0, reverse=False, exclusive=False), axes=(0,)
        ),
        x,
    )
    np.testing.assert_array_equal(got, [1.0, 2.0 + 6.0, 0.0, 0.0])


def test_argmax_prefers_the_first_nan():
    x = np.array([[1.0, np.nan, np.nan], [3.0, 3.0, 1.0]])
    np.testing.assert_array_equal(call(lambda b, v: order.argmax(b, v, axis=1), x), [1, 0])
