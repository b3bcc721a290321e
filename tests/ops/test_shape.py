"""Joining arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.derivative_laws import build, call, check_samples
from tracegrad import dtypes
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Literal
from tracegrad.ops import shape


def test_samples():
    check_samples(shape.concat, np.random.default_rng(1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenate_as_numpy(axis):
    rng = np.random.default_rng(2)
    shapes = [[2, 3, 4] for _ in range(3)]
    for k, s in enumerate(shapes):
        s[axis] = k
    xs = [rng.standard_normal(s) for s in shapes]
    got = call(lambda b, *vs: shape.concatenate(b, vs, axis), *xs)
    np.testing.assert_array_equal(got, np.concatenate(xs, axis))


def test_gradients_are_the_slices():
    xs = [np.zeros((2, 1)), np.zeros((2, 2))]
    graph = vjp_graph(build(lambda b, *vs: shape.concatenate(b, vs, 1), *xs), [0, 1])
    ct = np.arange(6.0).reshape(2, 3)
    _, first, second = evaluate(graph, [*xs, ct])
    np.testing.assert_array_equal(first, ct[:, :1])
    np.testing.assert_array_equal(second, ct[:, 1:])


@pytest.mark.parametrize(
    "shapes, axis, message",
    [
        ([(), ()], 0, "zero-dimensional arrays cannot be concatenated"),
        (
            [(2, 3), (2,)],
            0,
            "the array at index 0 has 2 dimension.s. and the array at index 1 has 1",
        ),
        (
            [(2, 3), (2, 4)],
            0,
            "along dimension 1, the array at index 0 has size 3 and the array at "
            "index 1 has size 4",
        ),
    ],
)
def test_shapes_that_do_not_fit(shapes, axis, message):
    with pytest.raises(ValueError, match=message):
        np.concatenate([np.zeros(s) for s in shapes], axis)
    with pytest.raises(ShapeError, match=message):
        build(lambda b, *vs: shape.concatenate(b, vs, axis), *[np.zeros(s) for s in shapes])


def test_dtypes_must_agree():
    with pytest.raises(DTypeError):
        build(lambda b, *vs: shape.concatenate(b, vs, 0), np.zeros(2), np.zeros(2, np.int64))


def test_dense_fills_a_literal():
    x = np.zeros((2, 3))
    got = call(lambda b, v: shape.dense(b, Literal(2.0, dtypes.F64), v.shape), x)
    np.testing.assert_array_equal(got, np.full((2, 3), 2.0))
