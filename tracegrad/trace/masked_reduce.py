"""Reductions of ``x[mask]`` with a traced mask, which have a shape that is known.

An axis of the selection stands for the axes of the array that the mask covers.  Elements that the
mask leaves out take no part in values, and their gradient is 0 whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, UnsupportedError, ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef, Reduction
from tracegrad.graph.storage import Index, NewAxis, Span
from tracegrad.ops import arithmetic, compare
from tracegrad.ops import reduce as reduce_ops
from tracegrad.ops.branch import RequireAttrs, require
from tracegrad.ops.handles import graft
from tracegrad.trace import complex_parts, linalg, reduce
from tracegrad.trace.elementwise import apply_op, scalar_flag, select, truth
from tracegrad.trace.masked import MaskedRead, weak_int
from tracegrad.trace.numpy_table import FUNCTIONS, NO_VALUE
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


def _extremum(
    m: MaskedRead, op: OpDef, function: Any, name: str, axes: tuple[int, ...]
) -> Tracer:
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


def _filled(m: MaskedRead) -> Tracer:
    """The selection as a vector with zeros for what it leaves out."""
    trace = trace_of(m.values)
    values = trace.lift(m.present())
    filled = select(trace, trace.lift(m.mask), values, Literal(0, values.element_type))
    return reshape(trace, filled, (-1,))


# ------------------------------------------------------------------------- NumPy's functions


def _flag(keepdims: Any) -> bool:
    return keepdims is not NO_VALUE and bool(keepdims)


def _plain(name: str, **given: Any) -> None:
    """Refuse `out=`, `where=` and what else has no meaning for a selection."""
    for word, x in given.items():
        if x is not None and x is not NO_VALUE and x is not True:
            raise UnsupportedError(
                f"{name} of x[mask] with {word}= is not supported yet",
                loc=source.here(),
                remedy="Use the function of the whole array with where=mask.",
            )


class MaskedArray(MaskedRead):
    """A selection of an ndarray, with ndarray's methods."""

    __slots__ = ()

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("sum", out=out, where=where)
        return total(self, axis, dtype, _flag(keepdims), initial)

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("prod", out=out, where=where)
        return prod(self, axis, dtype, _flag(keepdims), initial)

    def max(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("max", out=out, where=where)
        return maximum(self, axis, _flag(keepdims), initial)

    def min(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("min", out=out, where=where)
        return minimum(self, axis, _flag(keepdims), initial)

    def mean(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("mean", out=out, where=where)
        return mean(self, axis, dtype, _flag(keepdims))

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        _plain("var", out=out, where=where, mean=mean)
        ddof = ddof if correction is NO_VALUE else correction
        return var(self, axis, dtype, ddof, _flag(keepdims))

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        _plain("std", out=out, where=where, mean=mean)
        ddof = ddof if correction is NO_VALUE else correction
        return std(self, axis, dtype, ddof, _flag(keepdims))

    def any(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        _plain("any", out=out, where=where)
        return any(self, axis, _flag(keepdims))

    def all(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        _plain("all", out=out, where=where)
        return all(self, axis, _flag(keepdims))

    def dot(self, b: Any, out: Any = None) -> Any:
        _plain("dot", out=out)
        return dot(self, b)


class MaskedTensor(MaskedRead):
    """A selection of a Tensor, with PyTorch's methods."""

    __slots__ = ()

    def sum(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return total(self, dim, dtype, keepdim, NO_VALUE)

    def prod(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return prod(self, dim, dtype, keepdim, NO_VALUE)

    def mean(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return mean(self, dim, dtype, keepdim)

    def var(
        self, dim: Any = None, unbiased: Any = True, keepdim: Any = False, *, correction: Any = None
    ) -> Any:
        """Divisor n - 1 unless ``correction`` or ``unbiased=False`` says otherwise."""
        return var(self, *_spread(dim, unbiased, correction), keepdim)

    def std(
        self, dim: Any = None, unbiased: Any = True, keepdim: Any = False, *, correction: Any = None
    ) -> Any:
        return std(self, *_spread(dim, unbiased, correction), keepdim)

    def amax(self, dim: Any = None, keepdim: Any = False) -> Any:
        return maximum(self, dim, keepdim, NO_VALUE)

    def amin(self, dim: Any = None, keepdim: Any = False) -> Any:
        return minimum(self, dim, keepdim, NO_VALUE)

    def max(self) -> Any:
        return maximum(self, None, False, NO_VALUE)

    def min(self) -> Any:
        return minimum(self, None, False, NO_VALUE)

    def any(self, dim: Any = None, keepdim: Any = False) -> Any:
        return any(self, dim, keepdim)

    def all(self, dim: Any = None, keepdim: Any = False) -> Any:
        return all(self, dim, keepdim)

    def dot(self, other: Any) -> Any:
        return dot(self, other)

    def numel(self) -> Any:
        return self.count()

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


def _spread(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, None, Any]:
    """The axis, dtype and ddof that PyTorch's arguments of ``var`` mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return dim, None, (1 if unbiased else 0) if correction is None else correction


# ----------------------------------------------------------------------------- the protocols


def _method(name: str) -> Callable[..., Any]:
    """NumPy's function that is ndarray's method, whatever the face."""
    run: Any = getattr(MaskedArray, name)
    return lambda a, *args, **kwargs: run(a, *args, **kwargs)


def _ptp(a: MaskedRead, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE) -> Tracer:
    _plain("ptp", out=out)
    keep = _flag(keepdims)
    pair = maximum(a, axis, keep, NO_VALUE), minimum(a, axis, keep, NO_VALUE)
    return apply_op(trace_of(*pair), arithmetic.sub, pair)


def _count_nonzero(a: MaskedRead, axis: Any = None, *, keepdims: Any = False) -> Tracer:
    trace = trace_of(a.values)
    hits = truth(trace, trace.lift(a.present()))
    found = total(a.like(hits), axis, None, keepdims, NO_VALUE)
    return weak_int(trace, found) if axis is None and not keepdims else found


def _average(
    a: MaskedRead,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = NO_VALUE,
) -> Tracer:
    if returned:
        a.refuse()
    keep = _flag(keepdims)
    if weights is None:
        return mean(a, axis, None, keep)
    if not isinstance(weights, MaskedRead) or not a.is_like(weights):
        a.refuse()
    if not weights.values.element_type.is_inexact:
        weights = weights.astype(np.float64)
    weighted = a.apply(arithmetic.mul, (a, weights))
    scale = weights.astype(weighted.dtype)
    pair = (total(weighted, axis, None, keep, NO_VALUE), total(scale, axis, None, keep, NO_VALUE))
    return apply_op(trace_of(*pair), arithmetic.div, pair)


def _norm(x: MaskedRead, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Zeros for what is left out change neither norm."""
    if x.ndim != 1 or ord not in (None, 1, 2) or axis not in (None, 0, -1) or keepdims:
        x.refuse()
    filled = _filled(x)
    return linalg.norm(trace_of(filled), filled, ord)


_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _method("sum"),
    np.prod: _method("prod"),
    np.max: _method("max"),
    np.min: _method("min"),
    np.amax: _method("max"),
    np.amin: _method("min"),
    np.mean: _method("mean"),
    np.var: _method("var"),
    np.std: _method("std"),
    np.any: _method("any"),
    np.all: _method("all"),
    np.ptp: _ptp,
    np.count_nonzero: _count_nonzero,
    np.average: _average,
    np.dot: dot,
    np.inner: dot,
    np.linalg.norm: _norm,
    np.size: lambda a, axis=None: a.count() if axis is None else a.shape[axis],
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
}
# Functions of single elements that are no ufuncs: they run on the values of all elements.
_ELEMENTWISE = (
    np.where,
    np.clip,
    np.round,
    np.around,
    np.nan_to_num,
    np.isclose,
    np.real,
    np.imag,
    np.angle,
)
_BY_UFUNC: dict[Any, Any] = {
    np.add: total,
    np.multiply: prod,
    np.maximum: maximum,
    np.minimum: minimum,
    np.logical_and: all,
    np.logical_or: any,
}


def call(m: MaskedRead, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``__array_function__`` of a selection."""
    if func in _ELEMENTWISE:
        return _elementwise(m, func, args, kwargs)
    found = _REDUCTIONS.get(func)
    if found is None or not (isinstance(args[0], MaskedRead) if args else False):
        m.refuse()
    try:
        return found(*args, **kwargs)
    except TypeError as e:
        if type(e) is not TypeError:
            raise
        raise ArgumentError(f"np.{func.__name__} of x[mask]: {e}", loc=source.here()) from None


def _elementwise(m: MaskedRead, func: Any, args: Any, kwargs: dict[str, Any]) -> MaskedRead:
    if func is np.where and len(args) + len(kwargs) != 3:
        m.refuse()

    def values(x: Any) -> Any:
        if isinstance(x, MaskedRead):
            if not m.is_like(x):
                m.refuse()
            return x.present()
        if np.ndim(x) != 0:
            m.refuse()
        return x

    plain = {k: v if k == "copy" else values(v) for k, v in kwargs.items()}
    return m.like(FUNCTIONS[func](*map(values, args), **plain))


def ufunc_reduce(m: MaskedRead, ufunc: Any, inputs: Any, keywords: dict[str, Any]) -> Tracer:
    """``np.add.reduce(x[mask], ...)`` and its kin."""
    run = _BY_UFUNC.get(ufunc)
    names = ("axis", "dtype", "out", "keepdims", "initial", "where")
    given: dict[str, Any] = dict(zip(names, inputs[1:], strict=False)) | keywords
    _plain(f"np.{ufunc.__name__}.reduce", out=given.pop("out", None), where=given.pop("where", None))
    axis, keep = given.pop("axis", 0), _flag(given.pop("keepdims", NO_VALUE))
    dtype, initial = given.pop("dtype", None), given.pop("initial", NO_VALUE)
    if run is None or given:
        m.refuse()
    if run in (total, prod):
        return run(m, axis, dtype, keep, initial)  # type: ignore[no-any-return]
    _plain(f"np.{ufunc.__name__}.reduce", dtype=dtype)
    if run in (maximum, minimum):
        return run(m, axis, keep, initial)  # type: ignore[no-any-return]
    _plain(f"np.{ufunc.__name__}.reduce", initial=initial)
    return run(m, axis, keep)  # type: ignore[no-any-return]
