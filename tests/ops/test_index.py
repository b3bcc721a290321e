"""Reading and writing at arrays of indices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.derivative_laws import build, call, check_derivatives, check_samples, cotangents
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.errors import DTypeError, RuntimeIndexError, ShapeError
from tracegrad.graph.evaluate import evaluate
from tracegrad.ops import index, scatter

OPS = [
    index.wrap_index,
    index.gather,
    scatter.scatter_add,
    scatter.scatter_set,
    scatter.last_writer,
    scatter.wrote,
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples(op):
    check_samples(op, np.random.default_rng(1))


def grads(f, *xs, ct):
    """Cotangents of the float inputs."""
    wrt = [k for k, x in enumerate(xs) if x.dtype == np.float64]
    return evaluate(cotangents(build(f, *xs), wrt), [*xs, ct])


def wrapped(f, size):
    """`f` of its operands with the last one wrapped."""
    return lambda b, *vs: f(b, *vs[:-1], index.wrap_index(b, vs[-1], size=size, axis=0))


@pytest.mark.parametrize("at", [[0, -1, 2], [[-3, 1], [0, 0]], []])
def test_gather_as_numpy(at):
    x, at = np.random.default_rng(2).standard_normal((3, 2)), np.array(at, np.int64)
    np.testing.assert_array_equal(call(wrapped(index.gather, 3), x, at), x[at])


@pytest.mark.parametrize("wrong", [3, -4, 100])
def test_an_index_out_of_range_raises_as_numpy(wrong):
    x, at = np.zeros((3, 2)), np.array([0, wrong])
    with pytest.raises(IndexError) as numpy_error:
        x[at]
    with pytest.raises(RuntimeIndexError) as error:
        call(wrapped(index.gather, 3), x, at)
    assert error.value.message == str(numpy_error.value)


def test_indices_must_be_integers():
    with pytest.raises(DTypeError, match="must be of integer"):
        call(wrapped(index.gather, 3), np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(ShapeError, match="too many indices for array"):
        at = np.zeros(1, np.int64)
        build(lambda b, x, i: index.gather(b, x, i, i), np.zeros(3), at)


def test_repeated_reads_add_their_gradients():
    x, at, ct = np.zeros(3), np.array([2, 0, 2]), np.array([1.0, 10.0, 100.0])
    (dx,) = grads(index.gather, x, at, ct=ct)
    np.testing.assert_array_equal(dx, [10.0, 0.0, 101.0])


def set_at(b, base, src, *at):
    return scatter.scatter_set(b, base, src, *at, shape=base.shape, unique=False)


def test_the_last_write_stays_and_alone_has_a_gradient():
    base, src, at = np.arange(4.0), np.array([5.0, 6.0, 7.0]), np.array([1, 3, 1])
    np.testing.assert_array_equal(call(set_at, base, src, at), [0.0, 7.0, 2.0, 6.0])
    d_base, d_src = grads(set_at, base, src, at, ct=np.array([1.0, 10.0, 100.0, 1000.0]))
    np.testing.assert_array_equal(d_base, [1.0, 0.0, 100.0, 0.0])
    np.testing.assert_array_equal(d_src, [0.0, 1000.0, 10.0])


def test_a_scatter_masks_infinite_cotangents():
    base, src, at = np.zeros((2, 2)), np.zeros((2, 2)), np.array([0, 0])
    d_base, d_src = grads(set_at, base, src, at, ct=np.full((2, 2), np.inf))
    np.testing.assert_array_equal(d_base, [[0, 0], [np.inf, np.inf]])
    np.testing.assert_array_equal(d_src, [[0, 0], [np.inf, np.inf]])


def test_unique_writes_need_no_search_for_the_last():
    base, src, at = np.zeros(4), np.zeros(2), np.array([3, 0])

    def f(b, base, src, at):
        return scatter.scatter_set(b, base, src, at, shape=base.shape, unique=True)

    graph = vjp_graph(build(f, base, src, at), [0, 1])
    assert not any(node.op is scatter.last_writer for node in graph.nodes)
    d_base, d_src = grads(f, base, src, at, ct=np.arange(4.0))
    np.testing.assert_array_equal(d_base, [0, 1, 2, 0])
    np.testing.assert_array_equal(d_src, [3, 0])


def test_two_index_arrays():
    base = np.zeros((3, 4, 2))
    rows, cols = np.array([[0, 2], [2, 0]]), np.array([[1, 1], [1, 3]])
    src = np.random.default_rng(3).standard_normal((2, 2, 2))
    expected = base.copy()
    expected[rows, cols] = src
    np.testing.assert_array_equal(call(set_at, base, src, rows, cols), expected)
    expected = base.copy()
    np.add.at(expected, (rows, cols), src)
    got = call(
        lambda b, x, y, i, j: scatter.scatter_add(b, x, y, i, j, shape=x.shape),
        base,
        src,
        rows,
        cols,
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_and_put_along_axis(axis):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 4, 2))
    at = np.argsort(x, axis)
    at = np.take(at, [0, 1, 1], axis)

    def take(b, x, at):
        return index.take_along_axis(b, x, at, axis)

    def put(b, x, src, at):
        return scatter.put_along_axis(b, x, at, src, axis)

    np.testing.assert_array_equal(call(take, x, at), np.take_along_axis(x, at, axis))
    check_derivatives(build(take, x, at), [x, at])
    src = rng.standard_normal(at.shape)
    expected = x.copy()
    np.put_along_axis(expected, at, src, axis)
    np.testing.assert_array_equal(call(put, x, src, at), expected)
    check_derivatives(build(put, x, src, at), [x, src, at])
