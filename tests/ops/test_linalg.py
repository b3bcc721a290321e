"""Matrix products and contractions by subscripts, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.derivative_laws import build, call, check_derivatives, check_samples
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.errors import ShapeError, ValueArgumentError
from tracegrad.graph.op import Trait
from tracegrad.ops import einsum, linalg

RNG = np.random.default_rng(5)


def test_samples():
    check_samples(linalg.matmul, np.random.default_rng(1))


def test_gradients_of_a_product_copy_no_transpose():
    x, y = np.zeros((2, 3)), np.zeros((3, 4))
    graph = vjp_graph(build(linalg.matmul, x, y), [0, 1])
    assert sum(node.op is linalg.matmul for node in graph.nodes) == 3
    assert not any(node.op.has(Trait.VIEW) for node in graph.nodes)


TWO = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("ji,jk->ik", (3, 2), (3, 4)),
    ("ij,j->i", (2, 3), (3,)),
    ("j,jk->k", (3,), (3, 4)),
    ("i,i->", (3,), (3,)),
    ("i,i", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("i,j->ij", (2,), (3,)),
    ("i,j->ji", (2,), (3,)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 4)),
    ("bij,bjk->kib", (2, 2, 3), (2, 3, 4)),
    ("ibj,jkb->bki", (2, 2, 3), (3, 4, 2)),
    ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("...ij,...jk", (5, 1, 2, 3), (2, 3, 4)),
    ("ij...,j->i...", (2, 3, 4, 2), (3,)),
    ("...,...->...", (2, 3), (3,)),
    ("ii,i->i", (3, 3), (3,)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("iji,kj->k", (2, 3, 2), (4, 3)),
    ("iii,i->i", (2, 2, 2), (2,)),
    ("ij,kl->", (2, 3), (2, 2)),
    ("ij,kl->jl", (2, 3), (2, 2)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ji->", (2, 3), (3, 2)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ijkl,jlm->mik", (2, 3, 2, 2), (3, 2, 4)),
    ("ijkl,lj->ki", (2, 3, 2, 2), (2, 3)),
    ("i,i->i", (1,), (3,)),
    ("ij,jk->ik", (2, 1), (3, 2)),
    ("i,i->", (1,), (3,)),
    (",i->i", (), (3,)),
    (",->", (), ()),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,jk->ik", (0, 2), (2, 3)),
    ("Ab,bA", (2, 3), (3, 2)),
    (" i j , j -> i ", (2, 3), (3,)),
    ("bi,bj->bij", (2, 3), (2, 4)),
    ("bi,bi->b", (2, 3), (2, 3)),
    ("k,...kj->...j", (3,), (2, 3, 4)),
]


@pytest.mark.parametrize("spec, p, q", TWO)
def test_einsum_of_two(spec, p, q):
    for dtype in (np.float64, np.int32):
        x, y = (RNG.integers(-4, 5, s).astype(dtype) for s in (p, q))
        got = call(lambda b, x, y: einsum.einsum_two(b, spec, x, y), x, y)
        expected = np.einsum(spec, x, y)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("spec, p, q", TWO[::4])
def test_derivatives_of_einsum(spec, p, q):
    x, y = RNG.standard_normal(p), RNG.standard_normal(q)
    check_derivatives(build(lambda b, x, y: einsum.einsum_two(b, spec, x, y), x, y), [x, y])


@pytest.mark.parametrize(
    "spec, shape",
    [
        ("ij->ji", (2, 3)),
        ("ji", (2, 3)),
        ("ii", (3, 3)),
        ("ii->i", (3, 3)),
        ("ij->", (2, 3)),
        ("ijk->kj", (2, 3, 4)),
        ("...ij->...ji", (2, 3, 4)),
        ("i...", (2, 3)),
        ("iij->ji", (2, 2, 3)),
        ("...->...", (2, 3)),
        ("", ()),
        ("iiii->i", (2, 2, 2, 2)),
        ("ijji->ij", (2, 3, 3, 2)),
    ],
)
def test_einsum_of_one(spec, shape):
    x = RNG.standard_normal(shape)
    got = call(lambda b, x: einsum.einsum_one(b, spec, x), x)
    np.testing.assert_allclose(got, np.einsum(spec, x), rtol=1e-14)


@pytest.mark.parametrize(
    "spec, p, q",
    [
        ("ij,jk->ik", (2, 3), (4, 5)),
        ("ij,jk->il", (2, 3), (3, 4)),
        ("ij,jk->ii", (2, 3), (3, 4)),
        ("ij->ik", (2, 3), (3, 4)),
        ("i,j->ij", (2, 3), (3,)),
        ("i1,j->ij", (2, 3), (3,)),
        ("...i,i->i", (2, 3), (3,)),
        ("ii,i->i", (2, 3), (3,)),
        ("i.j,j->i", (2, 3), (3,)),
    ],
)
def test_subscripts_that_numpy_refuses(spec, p, q):
    x, y = np.zeros(p), np.zeros(q)
    with pytest.raises(ValueError):
        np.einsum(spec, x, y)
    with pytest.raises((ShapeError, ValueArgumentError)):
        build(lambda b, x, y: einsum.einsum_two(b, spec, x, y), x, y)


@pytest.mark.parametrize(
    "p, q",
    [
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 0), (0, 3)),
        ((1, 1), (1, 1)),
        ((2, 2, 3), (2, 3, 2)),
        ((1, 2, 3), (4, 3, 2)),
    ],
)
def test_matmul_of_any_shapes(p, q):
    x, y = RNG.standard_normal(p), RNG.standard_normal(q)
    graph = build(einsum.matmul_any, x, y)
    np.testing.assert_allclose(call(einsum.matmul_any, x, y), np.matmul(x, y), rtol=1e-13)
    check_derivatives(graph, [x, y])


@pytest.mark.parametrize(
    "p, q, message",
    [
        ((2, 3), (4, 3), "mismatch in its core dimension 0"),
        ((3,), (4,), "core dimension 0"),
        ((), (3,), "Input operand 0 does not have enough dimensions"),
        ((2, 1), (3, 2), "mismatch in its core dimension 0"),
        ((2, 2, 3), (3, 3, 2), "operands could not be broadcast together"),
    ],
)
def test_matmul_of_shapes_that_numpy_refuses(p, q, message):
    with pytest.raises(ValueError, match=message):
        np.matmul(np.zeros(p), np.zeros(q))
    with pytest.raises(ShapeError, match=message):
        build(einsum.matmul_any, np.zeros(p), np.zeros(q))


@pytest.mark.parametrize("axes", [([1], [0]), ([0, 1], [1, 0]), ([], []), ([1, 0], [0, 1])])
def test_tensordot(axes):
    x, y = RNG.standard_normal((3, 3, 2)), RNG.standard_normal((3, 3, 4))
    got = call(lambda b, x, y: einsum.tensordot(b, x, y, *axes), x, y)
    np.testing.assert_allclose(got, np.tensordot(x, y, axes), rtol=1e-13)


def test_bool_products():
    x, y = RNG.random((3, 4)) < 0.4, RNG.random((4, 2)) < 0.4
    np.testing.assert_array_equal(call(einsum.matmul_any, x, y), np.matmul(x, y))
    np.testing.assert_array_equal(call(einsum.matmul_any, x[0], y[:, 0]), x[0] @ y[:, 0])
