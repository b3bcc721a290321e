"""The methods of ``x[mask]`` with a traced mask on both faces, and NumPy's functions of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, UnsupportedError
from tracegrad.ops import arithmetic
from tracegrad.trace import linalg
from tracegrad.trace import masked_reduce as of
from tracegrad.trace.elementwise import apply_op, truth
from tracegrad.trace.masked import MaskedRead, as_count
from tracegrad.trace.numpy_table import FUNCTIONS, NO_VALUE
from tracegrad.trace.promote import trace_of
from tracegrad.trace.tracer import Tracer


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
        return of.total(self, axis, dtype, _flag(keepdims), initial)

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
        return of.prod(self, axis, dtype, _flag(keepdims), initial)

    def max(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("max", out=out, where=where)
        return of.maximum(self, axis, _flag(keepdims), initial)

    def min(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain("min", out=out, where=where)
        return of.minimum(self, axis, _flag(keepdims), initial)

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
        return of.mean(self, axis, dtype, _flag(keepdims))

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
        return of.var(self, axis, dtype, ddof, _flag(keepdims))

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
        return of.std(self, axis, dtype, ddof, _flag(keepdims))

    def any(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        _plain("any", out=out, where=where)
        return of.any(self, axis, _flag(keepdims))

    def all(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        _plain("all", out=out, where=where)
        return of.all(self, axis, _flag(keepdims))

    def dot(self, b: Any, out: Any = None) -> Any:
        _plain("dot", out=out)
        return of.dot(self, b)


class MaskedTensor(MaskedRead):
    """A selection of a Tensor, with PyTorch's methods."""

    __slots__ = ()

    def sum(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return of.total(self, dim, dtype, keepdim, NO_VALUE)

    def prod(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return of.prod(self, dim, dtype, keepdim, NO_VALUE)

    def mean(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        return of.mean(self, dim, dtype, keepdim)

    def var(
        self, dim: Any = None, unbiased: Any = True, keepdim: Any = False, *, correction: Any = None
    ) -> Any:
        """Divisor n - 1 unless ``correction`` or ``unbiased=False`` says otherwise."""
        return of.var(self, *_spread(dim, unbiased, correction), keepdim)

    def std(
        self, dim: Any = None, unbiased: Any = True, keepdim: Any = False, *, correction: Any = None
    ) -> Any:
        return of.std(self, *_spread(dim, unbiased, correction), keepdim)

    def amax(self, dim: Any = None, keepdim: Any = False) -> Any:
        return of.maximum(self, dim, keepdim, NO_VALUE)

    def amin(self, dim: Any = None, keepdim: Any = False) -> Any:
        return of.minimum(self, dim, keepdim, NO_VALUE)

    def max(self) -> Any:
        return of.maximum(self, None, False, NO_VALUE)

    def min(self) -> Any:
        return of.minimum(self, None, False, NO_VALUE)

    def any(self, dim: Any = None, keepdim: Any = False) -> Any:
        return of.any(self, dim, keepdim)

    def all(self, dim: Any = None, keepdim: Any = False) -> Any:
        return of.all(self, dim, keepdim)

    def dot(self, other: Any) -> Any:
        return of.dot(self, other)

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
    pair = of.maximum(a, axis, keep, NO_VALUE), of.minimum(a, axis, keep, NO_VALUE)
    return apply_op(trace_of(*pair), arithmetic.sub, pair)


def _count_nonzero(a: MaskedRead, axis: Any = None, *, keepdims: Any = False) -> Tracer:
    trace = trace_of(a.values)
    hits = truth(trace, trace.lift(a.present()))
    found = of.total(a.like(hits), axis, None, keepdims, NO_VALUE)
    return as_count(trace, found, axis, keepdims)


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
        return of.mean(a, axis, None, keep)
    if not isinstance(weights, MaskedRead) or not a.is_like(weights):
        a.refuse()
    if not weights.values.element_type.is_inexact:
        weights = weights.astype(np.float64)
    weighted = a.apply(arithmetic.mul, (a, weights))
    scale = weights.astype(weighted.dtype)
    pair = tuple(of.total(x, axis, None, keep, NO_VALUE) for x in (weighted, scale))
    return apply_op(trace_of(*pair), arithmetic.div, pair)


def _norm(x: MaskedRead, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Zeros for what is left out change neither norm."""
    if x.ndim != 1 or ord not in (None, 1, 2) or axis not in (None, 0, -1) or keepdims:
        x.refuse()
    filled = of.filled(x)
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
    np.dot: of.dot,
    np.inner: of.dot,
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
    np.add: of.total,
    np.multiply: of.prod,
    np.maximum: of.maximum,
    np.minimum: of.minimum,
    np.logical_and: of.all,
    np.logical_or: of.any,
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
    name = f"np.{ufunc.__name__}.reduce"
    _plain(name, out=given.pop("out", None), where=given.pop("where", None))
    axis, keep = given.pop("axis", 0), _flag(given.pop("keepdims", NO_VALUE))
    dtype, initial = given.pop("dtype", None), given.pop("initial", NO_VALUE)
    if run is None or given:
        m.refuse()
    if run in (of.total, of.prod):
        return run(m, axis, dtype, keep, initial)  # type: ignore[no-any-return]
    _plain(name, dtype=dtype)
    if run in (of.maximum, of.minimum):
        return run(m, axis, keep, initial)  # type: ignore[no-any-return]
    _plain(name, initial=initial)
    return run(m, axis, keep)  # type: ignore[no-any-return]
