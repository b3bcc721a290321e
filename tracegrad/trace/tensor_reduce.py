"""PyTorch's reductions as methods: ``dim`` and ``keepdim`` (``axis`` and ``keepdims`` too)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from tracegrad.trace import linalg, numpy_api, reduce
from tracegrad.trace.elementwise import apply_op
from tracegrad.trace.promote import as_arg, trace_of
from tracegrad.trace.tracer import Tracer

Extremum = namedtuple("Extremum", ["values", "indices"])


def _where(dim: Any, keepdim: Any, given: dict[str, Any]) -> tuple[Any, bool]:
    axis = given.pop("axis", dim)
    keep = given.pop("keepdims", keepdim)
    if given:
        raise TypeError(f"unexpected argument {next(iter(given))!r}")
    return axis, bool(keep)


class TensorReductions(Tracer):
    """Mixin of `Tensor`."""

    __slots__ = ()

    def sum(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.sum(trace_of(self), self, axis, dtype, keep)

    def prod(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.prod(trace_of(self), self, axis, dtype, keep)

    def mean(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.mean(trace_of(self), self, axis, dtype, keep)

    def var(
        self,
        dim: Any = None,
        unbiased: Any = True,
        keepdim: Any = False,
        *,
        correction: Any = None,
        **k: Any,
    ) -> Any:
        """Divisor n - 1 unless ``correction`` or ``unbiased=False`` says otherwise."""
        return self._spread(reduce.var, dim, unbiased, keepdim, correction, k)

    def std(
        self,
        dim: Any = None,
        unbiased: Any = True,
        keepdim: Any = False,
        *,
        correction: Any = None,
        **k: Any,
    ) -> Any:
        return self._spread(reduce.std, dim, unbiased, keepdim, correction, k)

    def _spread(
        self, of: Any, dim: Any, unbiased: Any, keepdim: Any, correction: Any, k: dict[str, Any]
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        axis, keep = _where(dim, keepdim, k)
        ddof = (1 if unbiased else 0) if correction is None else correction
        return of(trace_of(self), self, axis, None, ddof, keep)

    def amax(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.max(trace_of(self), self, axis, keep)

    def amin(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.min(trace_of(self), self, axis, keep)

    def max(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        """The largest element; with a dim, values and indices; with a tensor, `maximum`."""
        return self._extremum(reduce.max, reduce.argmax, np.maximum, dim, keepdim, k)

    def min(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        """The smallest element; with a dim, values and indices; with a tensor, `minimum`."""
        return self._extremum(reduce.min, reduce.argmin, np.minimum, dim, keepdim, k)

    def _extremum(
        self, whole: Any, position: Any, pairwise: Any, dim: Any, keepdim: Any, k: dict[str, Any]
    ) -> Any:
        trace = trace_of(self)
        if isinstance(dim, Tracer):
            from tracegrad.trace.promote import ufunc_ops

            return apply_op(trace, ufunc_ops()[pairwise], [as_arg(trace, self), as_arg(trace, dim)])
        axis, keep = _where(dim, keepdim, k)
        if axis is None:
            return whole(trace, self, None, keep)
        at = position(trace, self, axis, True)
        values = numpy_api.take_along_axis(self, at, axis)
        if keep:
            return Extremum(values, at)
        return Extremum(_dropped(values, axis), _dropped(at, axis))

    def argmax(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.argmax(trace_of(self), self, axis, keep)

    def argmin(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.argmin(trace_of(self), self, axis, keep)

    def any(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.any(trace_of(self), self, axis, keep)

    def all(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.all(trace_of(self), self, axis, keep)

    def cumsum(self, dim: Any, *, dtype: Any = None) -> Any:
        return reduce.cumsum(trace_of(self), self, dim, dtype)

    def cumprod(self, dim: Any, *, dtype: Any = None) -> Any:
        return reduce.cumprod(trace_of(self), self, dim, dtype)

    def logsumexp(self, dim: Any = None, keepdim: Any = False, **k: Any) -> Any:
        axis, keep = _where(dim, keepdim, k)
        return reduce.logsumexp(trace_of(self), self, axis, keep)

    def norm(self, p: Any = "fro", dim: Any = None, keepdim: Any = False) -> Any:
        trace = trace_of(self)
        order = 2 if p in ("fro", None) else p
        if dim is None:
            from tracegrad.trace.shape import reshape

            flat = reshape(trace, self, (int(np.prod(self.sizes)),))
            out = linalg.norm(trace, flat, order, 0)
            return reshape(trace, out, (1,) * len(self.sizes)) if keepdim else out
        return linalg.norm(trace, self, None if order == 2 else order, dim, bool(keepdim))


def _dropped(x: Tracer, axis: Any) -> Tracer:
    """`x`, a fresh value, without an axis of size 1."""
    from tracegrad.graph.storage import Reshape

    k = axis % len(x.sizes)
    return x.trace.read(x, Reshape((*x.sizes[:k], *x.sizes[k + 1 :])))
