"""Running sums and products along an axis, and the linear recurrence that is their derivative.

``recurrence`` is closed under differentiation, which makes products exact to any order even
where factors are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dims, dtypes
from tracegrad.dims import Dim
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import Attrs, Linear, Nest, Rules, Sample, declare
from tracegrad.graph.storage import Index, Span, View
from tracegrad.loops.ir import Const, Expr, LoopTag
from tracegrad.ops.arithmetic import add, mul
from tracegrad.ops.pairs import each_part
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.ops.shape import dense
from tracegrad.ops.views import add_slices, as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """`reverse` runs from the last element; `exclusive` leaves an element out of its own."""

    axis: int
    reverse: bool
    exclusive: bool


@dataclass(frozen=True, slots=True)
class RecurrenceAttrs(Attrs):
    """`lag`: the multiplier is that of the previous position, not of the position itself.

    `shape` is the result's, needed when an operand is a literal.
    """

    axis: int
    reverse: bool
    lag: bool
    shape: Shape


def _infer_scan(attrs: ScanAttrs, x: TensorType) -> TensorType:
    if not 0 <= attrs.axis < x.rank:
        raise ShapeError(f"axis {attrs.axis} is out of bounds for array of dimension {x.rank}")
    if x.dtype.is_bool:
        raise DTypeError("a running sum or product of bool needs a cast to an integer type first")
    return x


def _scan_reference(ufunc: np.ufunc, unit: int) -> Any:
    def reference(attrs: ScanAttrs, x: np.ndarray) -> np.ndarray:
        x = np.flip(x, attrs.axis) if attrs.reverse else x
        with np.errstate(all="ignore"):
            out = ufunc.accumulate(x, axis=attrs.axis, dtype=x.dtype)
        if attrs.exclusive and x.shape[attrs.axis]:
            first = np.full_like(out.take([0], attrs.axis), unit)
            out = np.concatenate(
                [first, out.take(range(x.shape[attrs.axis] - 1), attrs.axis)], attrs.axis
            )
        return np.ascontiguousarray(np.flip(out, attrs.axis) if attrs.reverse else out)

    return reference


@contextmanager
def _scan(
    lb: Any, shape: Sequence[Dim], axis: int, reverse: bool, count: Dim, skip: int
) -> Iterator[tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
    """Loops that visit `count` positions in scan order from number `skip` on; yields the
    position's index and the previous one's."""
    last = shape[axis] - 1
    with (
        lb.loops(shape[:axis]) as lead,
        lb.loop(count, LoopTag.SERIAL, "k") as k,
        lb.loops(shape[axis + 1 :]) as trail,
    ):
        at = last - (k + skip) if reverse else k + skip
        before = at + 1 if reverse else at + -1
        yield (*lead, at, *trail), (*lead, before, *trail)


def _emit_scan(combine: Any, unit: int) -> Any:
    def emit(lb: Any, attrs: ScanAttrs, outs: Any, x: Any) -> None:
        out, shape = outs[0], outs[0].type.shape
        first, rest = _first_and_rest(shape[attrs.axis])
        if first == 0:
            return
        with _scan(lb, shape, attrs.axis, attrs.reverse, first, 0) as (at, _):
            out.store(at, Const(unit, out.type.dtype) if attrs.exclusive else x(at))
        with _scan(lb, shape, attrs.axis, attrs.reverse, rest, 1) as (at, before):
            factor = x(before if attrs.exclusive else at)
            out.store(at, scalar(combine, out.type.dtype, out.load(before), factor))

    return emit


def _scan_samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample((rng.uniform(0.5, 2.0, (2, 3, 2)),), ScanAttrs(axis, reverse, exclusive))
        for axis in (0, 1, 2)
        for reverse in (False, True)
        for exclusive in (False, True)
    ]
    zeros = np.array([2.0, 0.0, 3.0, 0.0, 1.5])
    out += [Sample((zeros,), ScanAttrs(0, r, e)) for r in (False, True) for e in (False, True)]
    out += [
        Sample((random_array(rng, (4,), d),), ScanAttrs(0, False, False))
        for d in dtypes.INTEGERS + dtypes.FLOATS
    ]
    return [
        *out,
        Sample((np.zeros((2, 0)),), ScanAttrs(1, False, False)),
        Sample((np.zeros((2, 0)),), ScanAttrs(1, True, True)),
    ]


def _cumsum_transpose(b: GraphBuilder, a: ScanAttrs, ct: Operand, xs: Any) -> Any:
    whole = dense(b, ct, xs[0].shape)
    return (cumsum(b, whole, axis=a.axis, reverse=not a.reverse, exclusive=a.exclusive),)


cumsum = declare(
    name="cumsum",
    attrs=ScanAttrs,
    infer=_infer_scan,
    reference=_scan_reference(np.add, 0),
    derivative=Linear(_cumsum_transpose),
    lowering=Nest(_emit_scan(add, 0)),
    samples=_scan_samples,
    pairs=each_part,
)


def _cumprod_vjp(b: GraphBuilder, a: ScanAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    x, ct = xs[0], cts[0]
    if a.exclusive:
        ct = _shift(b, ct, x.shape, a.axis, not a.reverse)
    before = cumprod(b, x, axis=a.axis, reverse=a.reverse, exclusive=True)
    after = recurrence(b, x, ct, axis=a.axis, reverse=not a.reverse, lag=True, shape=x.shape)
    return (mul(b, before, after),)


def _cumprod_jvp(b: GraphBuilder, a: ScanAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    if ts[0] is None:
        return ts
    x, before = xs[0], outs[0]
    if not a.exclusive:
        before = cumprod(b, x, axis=a.axis, reverse=a.reverse, exclusive=True)
    moved = mul(b, before, ts[0])
    if a.exclusive:
        moved = _shift(b, moved, x.shape, a.axis, a.reverse)
    return (
        recurrence(b, x, moved, axis=a.axis, reverse=a.reverse, lag=a.exclusive, shape=x.shape),
    )


cumprod = declare(
    name="cumprod",
    attrs=ScanAttrs,
    infer=_infer_scan,
    reference=_scan_reference(np.multiply, 1),
    derivative=Rules(_cumprod_vjp, _cumprod_jvp),
    lowering=Nest(_emit_scan(mul, 1)),
    samples=_scan_samples,
)


# -------------------------------------------------------------------------------- recurrence


def _axis_span(shape: Shape, axis: int, start: Dim, size: Dim) -> Index:
    """Basic indexing that keeps `size` elements of one axis from `start`."""
    return Index(tuple(Span(start, size) if k == axis else Span(0, n) for k, n in enumerate(shape)))


def _first_and_rest(n: Dim) -> tuple[Dim, Dim]:
    """``min(n, 1)`` and ``max(n - 1, 0)``, of a size that may depend on the index of a loop."""
    most = dims.largest(n)
    first = n if most <= 1 else dims.floordiv(dims.add(n, most - 1), most)
    return first, dims.add(n, dims.mul(first, -1))


def _later(shape: Shape, axis: int, reverse: bool) -> Index:
    """All positions but the first in scan order."""
    return _axis_span(shape, axis, 0 if reverse else 1, _first_and_rest(shape[axis])[1])


def _shift(b: GraphBuilder, x: Operand, shape: Shape, axis: int, reverse: bool) -> Operand:
    """Each position's value moved to the next in scan order; 0 at the first."""
    if shape[axis] == 0:
        return dense(b, x, shape)
    earlier = as_view(b, x, _later(shape, axis, not reverse))
    view = View((_later(shape, axis, reverse),))
    return add_slices(b, _zero(x), earlier, view=view, shape=shape)  # type: ignore[no-any-return]


def _zero(x: Operand) -> Operand:
    return Literal(0, x.dtype)


def _infer_recurrence(attrs: RecurrenceAttrs, a: TensorType, c: TensorType) -> TensorType:
    if a.dtype is not c.dtype or not a.dtype.is_float:
        raise DTypeError(f"recurrence of {a.dtype} and {c.dtype}")
    for t in (a, c):
        if t.shape not in ((), attrs.shape):
            raise ShapeError(f"recurrence of shape {attrs.shape} does not fit an operand {t}")
    return TensorType(attrs.shape, a.dtype)


def _recurrence_reference(attrs: RecurrenceAttrs, a: np.ndarray, c: np.ndarray) -> np.ndarray:
    order = slice(None, None, -1 if attrs.reverse else 1)
    a = np.moveaxis(np.broadcast_to(a, attrs.shape), attrs.axis, 0)[order]  # type: ignore[arg-type]
    c = np.moveaxis(np.broadcast_to(c, attrs.shape), attrs.axis, 0)[order]  # type: ignore[arg-type]
    out = np.array(c)
    with np.errstate(all="ignore"):
        for k in range(1, len(out)):
            out[k] = c[k] + a[k - 1 if attrs.lag else k] * out[k - 1]
    return np.ascontiguousarray(np.moveaxis(out[order], 0, attrs.axis))


def _emit_recurrence(lb: Any, attrs: RecurrenceAttrs, outs: Any, a: Any, c: Any) -> None:
    out, shape, dtype = outs[0], attrs.shape, outs[0].type.dtype
    first, rest = _first_and_rest(shape[attrs.axis])
    if first == 0:
        return
    with _scan(lb, shape, attrs.axis, attrs.reverse, first, 0) as (at, _):
        out.store(at, c(at))
    with _scan(lb, shape, attrs.axis, attrs.reverse, rest, 1) as (at, before):
        grown: Expr = scalar(mul, dtype, a(before if attrs.lag else at), out.load(before))
        out.store(at, scalar(add, dtype, c(at), grown))


def _neighbours(b: GraphBuilder, at: RecurrenceAttrs, late: Operand, early: Operand) -> Operand:
    """``late[k] * early[k-1]`` in scan order, at position k (at k-1 with lag), 0 elsewhere."""
    shape = at.shape
    if shape[at.axis] == 0:
        return dense(b, _zero(late), shape)
    first, second = _later(shape, at.axis, not at.reverse), _later(shape, at.axis, at.reverse)
    pairs = mul(b, as_view(b, late, second), as_view(b, early, first))
    view = View((first if at.lag else second,))
    return add_slices(b, _zero(late), pairs, view=view, shape=shape)  # type: ignore[no-any-return]


def _recurrence_vjp(b: GraphBuilder, at: RecurrenceAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    back = recurrence(
        b, xs[0], cts[0], axis=at.axis, reverse=not at.reverse, lag=not at.lag, shape=at.shape
    )
    return _neighbours(b, at, back, outs[0]), back


def _recurrence_jvp(b: GraphBuilder, at: RecurrenceAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    grow, push = ts
    if grow is not None:
        lagless = RecurrenceAttrs(at.axis, at.reverse, False, at.shape)
        if at.lag:
            grow = _shift(b, grow, at.shape, at.axis, at.reverse)
        moved = _neighbours(b, lagless, grow, outs[0])
        push = moved if push is None else add(b, moved, push)
    if push is None:
        return (None,)
    return (
        recurrence(b, xs[0], push, axis=at.axis, reverse=at.reverse, lag=at.lag, shape=at.shape),
    )


def _recurrence_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, axis in (((4,), 0), ((2, 3), 1), ((3, 2), 0), ((2, 0), 1), ((1,), 0)):
        for reverse, lag in ((False, False), (True, False), (False, True), (True, True)):
            a, c = (random_array(rng, shape, dtypes.F64) for _ in range(2))
            out.append(Sample((a, c), RecurrenceAttrs(axis, reverse, lag, shape)))
    return out


recurrence = declare(
    name="recurrence",
    attrs=RecurrenceAttrs,
    infer=_infer_recurrence,
    reference=_recurrence_reference,
    derivative=Rules(_recurrence_vjp, _recurrence_jvp),
    lowering=Nest(_emit_recurrence),
    samples=_recurrence_samples,
    doc="s[k] = c[k] + a[k] * s[k-1] along an axis in scan order, s = c at the first position.",
)
