"""Joining and filling arrays.  Everything else that only changes shape is a view (`ops.views`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim, add
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, Nest, Rules, Sample, declare
from tracegrad.graph.storage import Index, Span
from tracegrad.ops.create import full
from tracegrad.ops.pairs import each_part
from tracegrad.ops.pointwise import random_array
from tracegrad.ops.views import as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def dense(b: GraphBuilder, x: Operand, shape: Shape) -> Operand:
    """`x`, or the tensor of `shape` that a literal stands for."""
    if isinstance(x, Value) or shape == ():
        return x
    return full(b, shape=shape, value=x)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ConcatAttrs(Attrs):
    """`sizes` are the operands' along `axis`; `shape` is the result's (operands may be
    literals)."""

    axis: int
    sizes: tuple[Dim, ...]
    shape: Shape


def _part(attrs: ConcatAttrs, k: int) -> Shape:
    return (*attrs.shape[: attrs.axis], attrs.sizes[k], *attrs.shape[attrs.axis + 1 :])


def _starts(attrs: ConcatAttrs) -> tuple[Dim, ...]:
    out: list[Dim] = [0]
    for n in attrs.sizes:
        out.append(add(out[-1], n))
    return tuple(out)


def _infer(attrs: ConcatAttrs, *xs: TensorType) -> TensorType:
    if len(xs) != len(attrs.sizes) or not xs:
        raise ShapeError(f"concat of {len(attrs.sizes)} parts got {len(xs)} operands")
    if len({t.dtype for t in xs}) != 1:
        raise DTypeError(f"concat: dtypes differ: {', '.join(t.dtype.name for t in xs)}")
    if not 0 <= attrs.axis < len(attrs.shape) or _starts(attrs)[-1] != attrs.shape[attrs.axis]:
        raise ShapeError(f"concat along axis {attrs.axis} of {attrs.sizes} is not {attrs.shape}")
    for k, t in enumerate(xs):
        if t.shape not in ((), _part(attrs, k)):
            raise ShapeError(f"concat: part {k} has shape {t.shape}, not {_part(attrs, k)}")
    return TensorType(attrs.shape, xs[0].dtype)


def _reference(attrs: ConcatAttrs, *xs: np.ndarray) -> np.ndarray:
    parts = [np.broadcast_to(x, _part(attrs, k)) for k, x in enumerate(xs)]  # type: ignore[arg-type]
    return np.concatenate(parts, attrs.axis)


def _emit(lb: Any, attrs: ConcatAttrs, outs: Any, *xs: Any) -> None:
    for k, (x, start) in enumerate(zip(xs, _starts(attrs), strict=False)):
        if 0 in _part(attrs, k):
            continue
        with lb.loops(_part(attrs, k)) as at:
            axis = attrs.axis
            outs[0].store((*at[:axis], add(at[axis], start), *at[axis + 1 :]), x(at))


def _vjp(b: GraphBuilder, a: ConcatAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    def slice_of(k: int, start: Dim) -> Operand:
        spans = tuple(Span(start if axis == a.axis else 0, n) for axis, n in enumerate(_part(a, k)))
        return as_view(b, cts[0], Index(spans))

    return tuple(slice_of(k, start) for k, start in enumerate(_starts(a)[:-1]))


def _jvp(b: GraphBuilder, a: ConcatAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    if all(t is None for t in ts):
        return (None,)
    zero = Literal(0, outs[0].dtype)
    parts = [zero if t is None else t for t in ts]
    return (b.emit(concat, parts, a),)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(axis: int, *shapes: tuple[int, ...], dtype: Any = dtypes.F64) -> Sample:
        xs = tuple(random_array(rng, s, dtype) for s in shapes)
        return Sample(xs, concat_attrs([x.shape for x in xs], axis))

    out = [
        sample(0, (2, 3), (1, 3)),
        sample(1, (2, 3), (2, 1), (2, 4)),
        sample(0, (3,)),
        sample(0, (0, 2), (3, 2)),
        sample(1, (2, 0), (2, 0)),
    ]
    out += [sample(0, (2,), (3,), dtype=d) for d in dtypes.ALL]
    x = random_array(rng, (2, 2), dtypes.F64)
    return [*out, Sample((Literal(0.5, dtypes.F64), x), ConcatAttrs(1, (3, 2), (2, 5)))]


concat = declare(
    name="concat",
    attrs=ConcatAttrs,
    infer=_infer,
    reference=_reference,
    derivative=Rules(_vjp, _jvp),
    lowering=Nest(_emit),
    samples=_samples,
    pairs=each_part,
    doc="The operands one after the other along an axis.",
)


def concat_attrs(shapes: Sequence[Shape], axis: int) -> ConcatAttrs:
    """Attributes for operands of these shapes.

    Raises ShapeError, in NumPy's words, when they differ beside `axis`.
    """
    first = shapes[0]
    if not first:
        raise ShapeError("zero-dimensional arrays cannot be concatenated")
    total: Dim = 0
    for k, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise ShapeError(
                "all the input array dimensions must match exactly, but the array at index 0 has "
                f"{len(first)} dimension(s) and the array at index {k} has {len(shape)} "
                "dimension(s)"
            )
        for d, (n, m) in enumerate(zip(first, shape, strict=True)):
            if d != axis and n != m:
                raise ShapeError(
                    "all the input array dimensions except for the concatenation axis must match "
                    f"exactly, but along dimension {d}, the array at index 0 has size {n} and the "
                    f"array at index {k} has size {m}"
                )
        total = add(total, shape[axis])
    return ConcatAttrs(
        axis, tuple(s[axis] for s in shapes), (*first[:axis], total, *first[axis + 1 :])
    )


def concatenate(b: GraphBuilder, xs: Sequence[Operand], axis: int) -> Operand:
    """The values `xs` (one dtype) joined along `axis`, which is not negative."""
    return b.emit(concat, xs, concat_attrs([x.shape for x in xs], axis))  # type: ignore[no-any-return]
