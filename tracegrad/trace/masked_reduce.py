"""Reductions of ``x[mask]`` with a traced mask, which have a shape that is known.

An axis of the selection stands for the axes of the array that the mask covers.  Elements that the
mask leaves out take no part in values, and their gradient is 0 whatever they are.
"""

from __future__ import annotations

from typing import Any

from tracegrad import source
from tracegrad.errors import ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef, Reduction
from tracegrad.graph.storage import Index, NewAxis, Span
from tracegrad.ops import arithmetic, compare
from tracegrad.ops import reduce as reduce_ops
from tracegrad.ops.branch import RequireAttrs, require
from tracegrad.ops.handles import graft
from tracegrad.trace import complex_parts, reduce
from tracegrad.trace.elementwise import apply_op, scalar_flag, select
from tracegrad.trace.masked import MaskedRead
from tracegrad.trace.numpy_table import NO_VALUE
from tracegrad.trace.promote import trace_of
from tracegrad.trace.ragged import is_empty
from tracegrad.trace.shape import axes_of, reshape
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder

# ------------------------------------------------------------------------------------- axes


def _axes(m: MaskedRead, axis: Any) -> tuple[int, ...]:
    """The axes of the part that an `axis` of the selection means."""
    given = axes_of(trace_of(m.values), axis, m.ndim)
    if m.at not in given:
        m.refuse()
    rank = len(m.own.sizes)
    found: list[int] = []
    for k in given:
        if k == m.at:
            found += range(m.at, m.at + rank)
        else:
            found.append(k if k < m.at else k + rank - 1)
    return tuple(sorted(found))


def _kept(m: MaskedRead, out: Tracer, axis: Any, keepdims: bool) -> Tracer:
    """`out` with axes of size 1 in place of the reduced ones."""
    if not keepdims:
        return out
    trace = trace_of(out)
    given = axes_of(trace, axis, m.ndim)
    sizes = iter(out.sizes)
    items = tuple(NewAxis() if k in given else Span(0, next(sizes)) for k in range(m.ndim))
    return trace.read(out, Index(items))  # type: ignore[no-any-return]


def _reduced(m: MaskedRead, function: Any, axis: Any, keepdims: Any, *args: Any) -> Tracer:
    """``function(trace, values, axes, *args, False, ..., where=mask)`` of `trace.reduce`."""
    trace = trace_of(m.values)
    mask, values = trace.lift(m.mask), trace.lift(m.present())
    out = function(trace, values, _axes(m, axis), *args, where=mask)
    return _kept(m, out, axis, bool(keepdims))


def total(m: MaskedRead, axis: Any, dtype: Any, keepdims: Any, initial: Any) -> Tracer:
    return _reduced(m, reduce.sum, axis, keepdims, dtype, False, initial)


def prod(m: MaskedRead, axis: Any, dtype: Any, keepdims: Any, initial: Any) -> Tracer:
    return _reduced(m, reduce.prod, axis, keepdims, dtype, False, initial)


def mean(m: MaskedRead, axis: Any, dtype: Any, keepdims: Any) -> Tracer:
    return _reduced(m, reduce.mean, axis, keepdims, dtype, False)


def var(m: MaskedRead, axis: Any, dtype: Any, ddof: Any, keepdims: Any) -> Tracer:
    return _reduced(m, reduce.var, axis, keepdims, dtype, ddof, False)


def std(m: MaskedRead, axis: Any, dtype: Any, ddof: Any, keepdims: Any) -> Tracer:
    return _reduced(m, reduce.std, axis, keepdims, dtype, ddof, False)


def any(m: MaskedRead, axis: Any, keepdims: Any) -> Tracer:
    return _reduced(m, reduce.any, axis, keepdims, False)


def all(m: MaskedRead, axis: Any, keepdims: Any) -> Tracer:
    return _reduced(m, reduce.all, axis, keepdims, False)


def maximum(m: MaskedRead, axis: Any, keepdims: Any, initial: Any) -> Tracer:
    if reduce.is_given(initial):
        return _reduced(m, reduce.max, axis, keepdims, False, initial)
    found = _extremum(m, reduce_ops.max_, reduce.max, "maximum", _axes(m, axis))
    return _kept(m, found, axis, bool(keepdims))


def minimum(m: MaskedRead, axis: Any, keepdims: Any, initial: Any) -> Tracer:
    if reduce.is_given(initial):
        return _reduced(m, reduce.min, axis, keepdims, False, initial)
    found = _extremum(m, reduce_ops.min_, reduce.min, "minimum", _axes(m, axis))
    return _kept(m, found, axis, bool(keepdims))


def _extremum(m: MaskedRead, op: OpDef, function: Any, name: str, axes: tuple[int, ...]) -> Tracer:
    """The extremum of what is selected; an empty selection stops the call as in NumPy."""
    trace = trace_of(m.values)
    mask, values = trace.lift(m.mask), trace.lift(m.present())
    complex_parts.refuse(values, f"the {name} of x[mask]")
    text = f"zero-size array to reduction operation {name} which has no identity"
    if is_empty(n for k, n in enumerate(values.sizes) if k in axes):
        raise ValueArgumentError(text, loc=source.here())
    if not is_empty(n for k, n in enumerate(values.sizes) if k not in axes):
        some = reduce.any(trace, trace.lift(m.own))
        trace.apply(require, (some,), RequireAttrs(text))
    assert isinstance(op.lowering, Reduction)
    unit = Literal(op.lowering.init(values.element_type), values.element_type)
    out = function(trace, select(trace, mask, values, unit), axes)
    if not out.element_type.is_float:
        return out  # type: ignore[no-any-return]
    return _with_shares(trace, out, values, mask, axes)


def _with_shares(
    trace: Recorder, out: Tracer, values: Tracer, mask: Tracer, axes: tuple[int, ...]
) -> Tracer:
    """`out` with a gradient that only selected elements share.

    By itself the reduction would give a share to elements left out where the extremum is the
    infinity that stands for them.
    """
    items = iter(out.sizes)
    spread = Index(
        tuple(NewAxis() if k in axes else Span(0, next(items)) for k in range(len(values.sizes)))
    )
    same = apply_op(trace, compare.eq, (values, trace.read(out, spread)))
    nan = apply_op(trace, compare.isnan, (values,))
    hit = apply_op(
        trace, compare.logical_and, (mask, apply_op(trace, compare.logical_or, (same, nan)))
    )
    shared = reduce.mean(trace, values, axes, where=hit)
    return trace.apply(  # type: ignore[no-any-return]
        graft, (out, shared), scalar=scalar_flag(trace, out.sizes)
    )


def dot(a: Any, b: Any) -> Tracer:
    """The product of two selections of one dimension by the same mask."""
    m: MaskedRead = a if isinstance(a, MaskedRead) else b
    if not (isinstance(a, MaskedRead) and isinstance(b, MaskedRead) and a.is_like(b)):
        m.refuse()
    if m.ndim != 1:
        m.refuse()
    product = m.apply(arithmetic.mul, (a, b))
    if product.values.element_type.is_bool:
        return any(product, None, False)
    return total(product, None, product.dtype, False, NO_VALUE)


def filled(m: MaskedRead) -> Tracer:
    """The selection as a vector with zeros for what it leaves out."""
    trace = trace_of(m.values)
    values = trace.lift(m.present())
    zeroed = select(trace, trace.lift(m.mask), values, Literal(0, values.element_type))
    return reshape(trace, zeroed, (-1,))
