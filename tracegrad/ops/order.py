"""Positions of extrema along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import ShapeError
from tracegrad.graph.op import Attrs, Nest, NoGradient, OpDef, Sample, declare
from tracegrad.loops.ir import TRUE, Const, Expr, Index, LoopTag, Select
from tracegrad.ops.compare import eq, gt, lt, ne
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True)
class ArgAttrs(Attrs):
    """`axis` is not negative; the tracer flattens for NumPy's ``axis=None``."""

    axis: int


def _infer(name: str) -> Callable[..., TensorType]:
    def infer(attrs: ArgAttrs, x: TensorType) -> TensorType:
        if not 0 <= attrs.axis < x.rank:
            raise ShapeError(f"axis {attrs.axis} is out of bounds for array of dimension {x.rank}")
        if x.shape[attrs.axis] == 0:
            raise ShapeError(f"attempt to get {name} of an empty sequence")
        return TensorType(x.shape[: attrs.axis] + x.shape[attrs.axis + 1 :], I64)

    return infer


def _emit(beats: OpDef) -> Callable[..., None]:
    """Scan an axis in order; a candidate replaces the best so far only when it beats it."""

    def emit(lb: Any, attrs: ArgAttrs, outs: Any, x: Any) -> None:
        axis, shape, out = attrs.axis, x.type.shape, outs[0]
        with lb.loops(out.type.shape) as at:
            out.store(at, Const(0, I64))
            with lb.loop(shape[axis], LoopTag.SERIAL, "k") as k:
                best = lb.index_of(out.load(at), shape[axis], "best")
                top = lb.let(x((*at[:axis], best, *at[axis:])), "top")
                new = lb.let(x((*at[:axis], k, *at[axis:])), "new")
                with lb.when(_improves(beats, new, top)):
                    out.store(at, Index(k))

    return emit


def _improves(beats: OpDef, new: Expr, top: Expr) -> Expr:
    wins = scalar(beats, BOOL, new, top)
    if not new.dtype.is_float:
        return wins
    first_nan = Select(
        scalar(eq, BOOL, top, top),
        scalar(ne, BOOL, new, new),
        Const(False, BOOL),
    )
    return Select(wins, TRUE, first_nan)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample((random_array(rng, (3, 4, 2), d),), ArgAttrs(axis))
        for d in dtypes.ALL
        for axis in (0, 1, 2)
    ]
    nan, inf = np.nan, np.inf
    rows = np.array([[1, nan, 2, nan], [2, 2, 1, 1], [-inf, -inf, -inf, -inf], [0.0, -0.0, 0, 0]])
    return [*out, Sample((rows,), ArgAttrs(1)), Sample((np.zeros((0, 3)),), ArgAttrs(1))]


argmax = declare(
    name="argmax",
    attrs=ArgAttrs,
    infer=_infer("argmax"),
    reference=lambda a, x: np.asarray(np.argmax(x, axis=a.axis), np.int64),
    derivative=NoGradient("argmax gives integers"),
    lowering=Nest(_emit(gt)),
    samples=_samples,
    doc="Position of the first largest element along an axis; the first NaN wins.",
)

argmin = declare(
    name="argmin",
    attrs=ArgAttrs,
    infer=_infer("argmin"),
    reference=lambda a, x: np.asarray(np.argmin(x, axis=a.axis), np.int64),
    derivative=NoGradient("argmin gives integers"),
    lowering=Nest(_emit(lt)),
    samples=_samples,
    doc="Position of the first smallest element along an axis; the first NaN wins.",
)
