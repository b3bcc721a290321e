"""Reductions of tracers: NumPy's dtype rules, `axis`, `keepdims`, `where`, `initial`, `ddof`.

Every function takes the trace and a tracer; results of shape () are scalars on the Array face.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dims import product
from tracegrad.dtypes import BOOL, F64, I64, U64, DType
from tracegrad.errors import DTypeError, ShapeError, ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef
from tracegrad.graph.storage import Index, NewAxis, Reshape, Span
from tracegrad.ops import accumulate, arithmetic, compare, order, reduce, select
from tracegrad.ops.compare import logical_not
from tracegrad.ops.create import full
from tracegrad.ops.transcendental import sqrt
from tracegrad.trace import complex_parts, layout
from tracegrad.trace.elementwise import apply_op, prepared, scalar_flag, truth
from tracegrad.trace.elementwise import select as where
from tracegrad.trace.promote import Arg, as_arg, as_int, cast, shape_of
from tracegrad.trace.ragged import is_empty
from tracegrad.trace.shape import axes_of, axis_of
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder

# "no value given", where None has a meaning of its own.
NOT_GIVEN: Any = np._NoValue


def is_given(x: Any) -> bool:
    return x is not NOT_GIVEN and x is not None


def _with_where(trace: Recorder, x: Tracer, mask: Any, neutral: Arg) -> Tracer:
    """`x` with the neutral element where `mask` does not hold."""
    if mask is NOT_GIVEN or mask is True or mask is None:
        return x
    cond = truth(trace, as_arg(trace, mask))
    if isinstance(neutral, (bool, int, float)):
        neutral = Literal(neutral, x.element_type)
    return where(trace, cond, x, cast(trace, neutral, x.element_type))


def _kept(trace: Recorder, out: Tracer, axes: tuple[int, ...], rank: int, keepdims: bool) -> Tracer:
    """Put reduced axes back with size 1; a copy, so that the result is nobody's view."""
    if not keepdims or not axes:
        return out
    sizes = iter(out.sizes)
    items = tuple(NewAxis() if k in axes else Span(0, next(sizes)) for k in range(rank))
    return trace.read(out, Index(items))


def _run(trace: Recorder, op: OpDef, x: Tracer, axes: tuple[int, ...], keepdims: bool) -> Tracer:
    shape = tuple(n for k, n in enumerate(x.sizes) if k not in axes)
    strides = layout.reduced(x.sizes, x.layout.stride, axes)  # type: ignore[arg-type]
    out = trace.apply(
        op,
        (x,),
        op.attrs(axes=axes),
        layout=strides,  # type: ignore[call-arg]
        scalar=scalar_flag(trace, shape),
    )
    return _kept(trace, out, axes, len(x.sizes), keepdims)


def _sum_type(x: Tracer, dtype: Any) -> DType:
    """NumPy accumulates small integers and bool in the platform's integer."""
    if is_given(dtype):
        return dtypes.of(dtype)
    d = x.element_type
    if d.is_bool or (d.kind == "i" and d.bits < 64):
        return I64
    return U64 if d.kind == "u" and d.bits < 64 else d


def sum(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tracer:
    return _fold(trace, reduce.sum_, arithmetic.add, 0, x, axis, dtype, keepdims, initial, where)


def prod(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tracer:
    return _fold(trace, reduce.prod, arithmetic.mul, 1, x, axis, dtype, keepdims, initial, where)


def _fold(
    trace: Recorder,
    op: OpDef,
    combine: OpDef,
    unit: int,
    x: Tracer,
    axis: Any,
    dtype: Any,
    keepdims: bool,
    initial: Any,
    mask: Any,
) -> Tracer:
    axes = axes_of(trace, axis, len(x.sizes))
    wide = _sum_type(x, dtype)
    if wide.is_bool:
        return _logical(trace, reduce.any_ if unit == 0 else reduce.all_, x, axis, keepdims, mask)
    y = cast(trace, x, wide)
    assert isinstance(y, Tracer)
    y = _with_where(trace, y, mask, unit)
    out = _run(trace, op, y, axes, keepdims)
    if is_given(initial):
        out = apply_op(trace, combine, (out, cast(trace, as_arg(trace, initial), wide)))
    return out


def max(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    keepdims: bool = False,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tracer:
    return _extremum(trace, reduce.max_, select.maximum, x, axis, keepdims, initial, where)


def min(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    keepdims: bool = False,
    initial: Any = NOT_GIVEN,
    where: Any = NOT_GIVEN,
) -> Tracer:
    return _extremum(trace, reduce.min_, select.minimum, x, axis, keepdims, initial, where)


def _extremum(
    trace: Recorder,
    op: OpDef,
    combine: OpDef,
    x: Tracer,
    axis: Any,
    keepdims: bool,
    initial: Any,
    mask: Any,
) -> Tracer:
    axes = axes_of(trace, axis, len(x.sizes))
    masked = mask is not NOT_GIVEN and mask is not True and mask is not None
    if masked and not is_given(initial):
        raise ValueArgumentError(
            f"reduction operation '{combine.name}' does not have an identity, so to use a where "
            "mask one has to specify 'initial'",
            loc=source.here(),
        )
    if not is_given(initial):
        is_empty(n for k, n in enumerate(x.sizes) if k in axes)  # a loop splits where it is
        return _run(trace, op, x, axes, keepdims)
    start = cast(trace, as_arg(trace, initial), x.element_type)
    if shape_of(start) != ():
        raise ValueArgumentError("initial must be a scalar", loc=source.here())
    if is_empty(n for k, n in enumerate(x.sizes) if k in axes):
        shape = tuple(n for k, n in enumerate(x.sizes) if k not in axes)
        (full,) = prepared(trace, (start,), (x.element_type,), shape)
        from tracegrad.trace.creation_data import materialised

        return _kept(trace, materialised(trace, full, shape), axes, len(x.sizes), keepdims)
    out = _run(trace, op, _with_where(trace, x, mask, start), axes, keepdims)
    return apply_op(trace, combine, (out, start))


def any(
    trace: Recorder, x: Tracer, axis: Any = None, keepdims: bool = False, where: Any = NOT_GIVEN
) -> Tracer:
    return _logical(trace, reduce.any_, x, axis, keepdims, where)


def all(
    trace: Recorder, x: Tracer, axis: Any = None, keepdims: bool = False, where: Any = NOT_GIVEN
) -> Tracer:
    return _logical(trace, reduce.all_, x, axis, keepdims, where)


def _logical(trace: Recorder, op: OpDef, x: Tracer, axis: Any, keepdims: bool, mask: Any) -> Tracer:
    axes = axes_of(trace, axis, len(x.sizes))
    y = truth(trace, x)
    assert isinstance(y, Tracer)
    y = _with_where(trace, y, mask, op is reduce.all_)
    return _run(trace, op, y, axes, keepdims)


# --------------------------------------------------------------------------------- statistics


def _float(trace: Recorder, x: Tracer, dtype: Any) -> Tracer:
    """`x` in the dtype of its mean."""
    own = x.element_type
    wide = dtypes.of(dtype) if is_given(dtype) else own if own.is_inexact else F64
    if not wide.is_inexact:
        raise DTypeError(
            f"a mean in dtype {wide.np} is not supported",
            loc=source.here(),
            remedy="Leave dtype= out, and convert the result.",
        )
    y = cast(trace, x, wide)
    assert isinstance(y, Tracer)
    return y


def mean(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    where: Any = NOT_GIVEN,
) -> Tracer:
    y = _float(trace, x, dtype)
    axes = axes_of(trace, axis, len(x.sizes))
    if where is NOT_GIVEN or where is True:
        return _composed(trace, reduce.mean, y, axes, keepdims)
    total = sum(trace, y, axis, None, keepdims, where=where)
    return apply_op(trace, arithmetic.div, (total, _count(trace, y, axis, keepdims, where)))


def _composed(
    trace: Recorder, build: Any, x: Tracer, axes: tuple[int, ...], keepdims: bool, *more: Any
) -> Tracer:
    shape = tuple(n for k, n in enumerate(x.sizes) if k not in axes)
    out = trace.compose(
        lambda b, v: build(b, v, axes, *more),
        (x,),
        hint=build.__name__,
        scalar=scalar_flag(trace, shape),
    )
    return _kept(trace, out, axes, len(x.sizes), keepdims)


def _count(trace: Recorder, x: Tracer, axis: Any, keepdims: bool, mask: Any) -> Tracer:
    """How many elements `mask` lets into each result, in the dtype of `x`; exact in float32 too."""
    ones = trace.apply(full, (), full.attrs(x.sizes, Literal(1, I64)))  # type: ignore[call-arg]
    out = cast(trace, sum(trace, ones, axis, None, keepdims, where=mask), x.element_type)
    assert isinstance(out, Tracer)
    return out


def var(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = NOT_GIVEN,
) -> Tracer:
    y = _float(trace, x, dtype)
    if y.element_type.is_complex:
        parts = [
            var(trace, p, axis, None, ddof, keepdims, where)
            for p in (complex_parts.real(trace, y), complex_parts.imag(trace, y))
        ]
        return apply_op(trace, arithmetic.add, parts)
    axes = axes_of(trace, axis, len(x.sizes))
    if where is NOT_GIVEN or where is True:
        return _composed(trace, reduce.var, y, axes, keepdims, ddof)
    y = _with_where(trace, y, where, 0)  # what is left out may be NaN; its gradient is 0
    middle = mean(trace, y, axis, None, True, where)
    away = apply_op(trace, arithmetic.sub, (y, middle))
    total = sum(
        trace, apply_op(trace, arithmetic.mul, (away, away)), axis, None, keepdims, where=where
    )
    count = apply_op(trace, arithmetic.sub, (_count(trace, y, axis, keepdims, where), ddof))
    return apply_op(trace, arithmetic.div, (total, apply_op(trace, select.maximum, (count, 0))))


def std(
    trace: Recorder,
    x: Tracer,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = NOT_GIVEN,
) -> Tracer:
    return root(trace, var(trace, x, axis, dtype, ddof, keepdims, where))


def root(trace: Recorder, total: Tracer, op: OpDef = sqrt, *others: Arg) -> Tracer:
    """``op(total, *others)``, a root of a sum of powers, with derivative 0 where `total` is 0."""
    is_zero = apply_op(trace, compare.eq, (total, Literal(0, total.element_type)))
    some = where(trace, is_zero, Literal(1, total.element_type), total)
    found = apply_op(trace, op, (some, *others))
    return apply_op(trace, arithmetic.mul, (found, apply_op(trace, logical_not, (is_zero,))))


def logsumexp(trace: Recorder, x: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    y = _float(trace, x, None)
    complex_parts.refuse(y, "logsumexp")
    return _composed(trace, reduce.logsumexp, y, axes_of(trace, axis, len(x.sizes)), keepdims)


# ------------------------------------------------------------------------- along one axis


def argmax(trace: Recorder, x: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    return _position(trace, order.argmax, x, axis, keepdims)


def argmin(trace: Recorder, x: Tracer, axis: Any = None, keepdims: bool = False) -> Tracer:
    return _position(trace, order.argmin, x, axis, keepdims)


def _position(trace: Recorder, op: OpDef, x: Tracer, axis: Any, keepdims: bool) -> Tracer:
    rank = len(x.sizes)
    if axis is None or not rank:
        flat = trace.read(x, Reshape((product(x.sizes),)))
        out = trace.apply(
            op,
            (flat,),
            op.attrs(axis=0),  # type: ignore[call-arg]
            scalar=scalar_flag(trace, ()),
        )
        return _kept(trace, out, tuple(range(rank)), rank, keepdims)
    k = axis_of(trace, axis, rank)
    out = trace.apply(
        op,
        (x,),
        op.attrs(axis=k),  # type: ignore[call-arg]
        scalar=scalar_flag(trace, x.sizes[1:]),
    )
    return _kept(trace, out, (k,), rank, keepdims)


def scan(trace: Recorder, op: OpDef, x: Tracer, axis: Any = None, dtype: Any = None) -> Tracer:
    """Running sum or product (`op`); flattened when `axis` is None."""
    y = cast(trace, x, _sum_type(x, dtype))
    assert isinstance(y, Tracer)
    if axis is None or not y.sizes:
        y = trace.read(y, Reshape((product(y.sizes),)))
        axis = 0
    k = axis_of(trace, axis, len(y.sizes))
    return trace.apply(
        op,
        (y,),
        op.attrs(
            axis=k,
            reverse=False,  # type: ignore[call-arg, no-any-return]
            exclusive=False,
        ),
    )


def cumsum(trace: Recorder, x: Tracer, axis: Any = None, dtype: Any = None) -> Tracer:
    return scan(trace, accumulate.cumsum, x, axis, dtype)


def cumprod(trace: Recorder, x: Tracer, axis: Any = None, dtype: Any = None) -> Tracer:
    return scan(trace, accumulate.cumprod, x, axis, dtype)


def diff(trace: Recorder, x: Tracer, n: Any = 1, axis: Any = -1) -> Tracer:
    """Differences of neighbours along an axis, `n` times."""
    from tracegrad.ops.compare import ne
    from tracegrad.trace.shape import span

    times = as_int(n, "n")
    if times < 0:
        raise ValueArgumentError(f"order must be non-negative but got {times}", loc=source.here())
    if not x.sizes:
        raise ShapeError("diff requires input that is at least one dimensional", loc=source.here())
    k = axis_of(trace, axis, len(x.sizes))
    op = ne if x.element_type is BOOL else arithmetic.sub
    for _ in range(times):
        count = x.sizes[k] - 1 if x.sizes[k] else 0
        start = x.sizes[k] - count
        x = apply_op(trace, op, (span(trace, x, k, start, count), span(trace, x, k, 0, count)))
    return x
