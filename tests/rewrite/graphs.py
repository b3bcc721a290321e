"""Graphs and inputs that the tests of the rewriting passes share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import F64, DType
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Operand
from tracegrad.graph.storage import (
    Index,
    Permute,
    Pick,
    Span,
    View,
)
from tracegrad.ops.create import full
from tracegrad.ops.views import add_slices, as_strided, copy_slices
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType

Build = Callable[..., Operand]

ROW = View((Index((Pick(1), Span(0, 3))),))
OTHER_ROW = View((Index((Pick(2), Span(0, 3))),))
EVEN = View((Index((Span(0, 2, 2), Span(0, 3))),))
ODD = View((Index((Span(1, 2, 2), Span(0, 3))),))
PAIR = View((Index((Span(0, 2), Span(0, 3))),))
EMPTY = View((Index((Span(0, 0), Span(0, 3))),))
PART_OF_ROW = View((Index((Pick(1), Span(1, 2))),))
TURNED = View((Permute((1, 0)),))
EVERY_OTHER = View((Index((Pick(1), Span(0, 2, 2))),))
COLUMN = View((Index((Span(0, 4), Pick(1))),))
X, S, T = "f64[4, 3]", "f64[3]", "f64[2, 3]"


def typed(text: str) -> TensorType:
    name, _, sizes = text.rstrip("]").partition("[")
    return TensorType(tuple(int(n) for n in sizes.split(",") if n), dtypes.parse(name))


def make(build: Build, *types: str) -> Graph:
    b = GraphBuilder("f")
    b.loc = SourceLoc("demo.py", 3, 0, 5)
    xs = [b.input(typed(t), f"x{k}") for k, t in enumerate(types)]
    out = build(b, *xs)
    return b.finish(out if isinstance(out, tuple) else (out,))


def hard_array(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    """Random elements, with NaN, infinities, signed zeros and extremes among them."""
    d, shape = type_.dtype, type_.shape
    if d.is_bool:
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if d.is_integer:
        info = np.iinfo(d.np)
        return np.asarray(rng.choice(np.array([info.min, info.max, 0, 1, 2, 5, 77], d.np), shape))
    tiny, huge = np.finfo(d.np).smallest_subnormal, np.finfo(d.np).max
    pool = [np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, huge, 1.0, -1.5, *rng.normal(size=6)]
    return np.asarray(rng.choice(np.asarray(pool, d.np), shape), d.np)


def same_numbers(a: np.ndarray, b: np.ndarray, signed_zeros: bool) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
    if signed_zeros and a.dtype.kind == "f":
        known = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])


def padded(b: GraphBuilder, src: Operand, view: View, shape: tuple[int, ...] = (4, 3)) -> Operand:
    return add_slices(b, Literal(0, src.dtype), src, view=view, shape=shape)


def put(
    b: GraphBuilder, base: Operand, src: object, view: View, shape: tuple[int, ...] = (4, 3)
) -> Operand:
    return copy_slices(b, base, src, view=view, shape=shape)


def read(b: GraphBuilder, x: Operand, view: View) -> Operand:
    return as_strided(b, x, view=view)


def fill(b: GraphBuilder, value: float, shape: tuple[int, ...], dtype: DType = F64) -> Operand:
    return full(b, shape=shape, value=Literal(value, dtype))
