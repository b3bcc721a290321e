"""Reductions over axes (dropped; keepdims is a view put on by the tracer)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracegrad.errors import DTypeError
from tracegrad.graph.ir import Operand
from tracegrad.graph.op import Attrs, Linear, Reduction, Sample, declare
from tracegrad.graph.storage import Expand, Index, NewAxis, Span
from tracegrad.loops.ir import Combine
from tracegrad.ops.views import as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """`axes` are sorted and not negative."""

    axes: tuple[int, ...]


def reduced_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def spread(b: GraphBuilder, x: Operand, axes: tuple[int, ...], shape: Shape) -> Operand:
    """`x` (the shape of a reduction over `axes`) repeated to the reduction's input `shape`."""
    items = iter(x.shape)
    index = Index(tuple(NewAxis() if k in axes else Span(0, next(items))
                        for k in range(len(shape))))
    return as_view(b, x, index, Expand(shape))


def _infer_sum(attrs: ReduceAttrs, x: TensorType) -> TensorType:
    if x.dtype.is_bool:
        raise DTypeError("sum of bool needs a cast to an integer type first")
    return TensorType(reduced_shape(x.shape, attrs.axes), x.dtype)


def reduce_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.uniform(0.5, 2.0, (3, 4, 2))
    return [Sample((x, ), ReduceAttrs(axes)) for axes in ((0, 1, 2), (1,), (0, 2), ())] + [
        Sample((np.zeros((2, 0)),), ReduceAttrs((0,)))]


sum_ = declare(
    name="sum", attrs=ReduceAttrs, infer=_infer_sum,
    reference=lambda a, x: np.sum(x, axis=a.axes, dtype=x.dtype),
    derivative=Linear(lambda b, a, ct, xs: (spread(b, ct, a.axes, xs[0].shape),)),
    lowering=Reduction(Combine.ADD, lambda dtype: 0),
    samples=reduce_samples)
