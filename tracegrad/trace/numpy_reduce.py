"""NumPy's reductions and products as functions of tracers, with NumPy's signatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dtypes import I64
from tracegrad.errors import UnsupportedError
from tracegrad.ops import arithmetic
from tracegrad.trace import linalg, reduce
from tracegrad.trace.creation import tracer
from tracegrad.trace.elementwise import apply_op, truth
from tracegrad.trace.masked import as_count
from tracegrad.trace.numpy_table import NO_VALUE, implements
from tracegrad.trace.numpy_ufuncs import into
from tracegrad.trace.promote import cast, trace_of
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def _start(a: Any, *others: Any) -> tuple[Recorder, Tracer]:
    from tracegrad.trace.creation import array, the_trace

    trace = the_trace(a, *others)
    return trace, array(a) if isinstance(a, (list, tuple)) else tracer(trace, a)


def _flag(keepdims: Any) -> bool:
    return False if keepdims is NO_VALUE or keepdims is None else bool(keepdims)


def _out(trace: Recorder, value: Tracer, out: Any) -> Tracer:
    return value if out is None else into(trace, value, (out,))


@implements(np.sum)
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NO_VALUE,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.sum(trace, x, axis, dtype, _flag(keepdims), initial, where), out)


@implements(np.prod)
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NO_VALUE,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.prod(trace, x, axis, dtype, _flag(keepdims), initial, where), out)


@implements(np.max, np.amax)
def max(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = NO_VALUE,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.max(trace, x, axis, _flag(keepdims), initial, where), out)


@implements(np.min, np.amin)
def min(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = NO_VALUE,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.min(trace, x, axis, _flag(keepdims), initial, where), out)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE) -> Any:
    trace, x = _start(a, out)
    top = reduce.max(trace, x, axis, _flag(keepdims))
    low = reduce.min(trace, x, axis, _flag(keepdims))
    return _out(trace, apply_op(trace, arithmetic.sub, (top, low)), out)


@implements(np.any)
def any(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.any(trace, x, axis, _flag(keepdims), where), out)


@implements(np.all)
def all(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.all(trace, x, axis, _flag(keepdims), where), out)


@implements(np.mean)
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NO_VALUE,
    *,
    where: Any = NO_VALUE,
) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.mean(trace, x, axis, dtype, _flag(keepdims), where), out)


def _ddof(name: str, ddof: Any, correction: Any, mean: Any) -> Any:
    if mean is not NO_VALUE:
        raise UnsupportedError(
            f"{name} with mean= is not supported yet",
            loc=source.here(),
            remedy="Write np.mean((x - mean) ** 2), which is the variance about any value.",
        )
    return ddof if correction is NO_VALUE else correction


@implements(np.var)
def var(
    a: Any,
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
    trace, x = _start(a, out)
    return _out(
        trace,
        reduce.var(
            trace, x, axis, dtype, _ddof("np.var", ddof, correction, mean), _flag(keepdims), where
        ),
        out,
    )


@implements(np.std)
def std(
    a: Any,
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
    trace, x = _start(a, out)
    return _out(
        trace,
        reduce.std(
            trace, x, axis, dtype, _ddof("np.std", ddof, correction, mean), _flag(keepdims), where
        ),
        out,
    )


@implements(np.argmax)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NO_VALUE) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.argmax(trace, x, axis, _flag(keepdims)), out)


@implements(np.argmin)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NO_VALUE) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.argmin(trace, x, axis, _flag(keepdims)), out)


@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.cumsum(trace, x, axis, dtype), out)


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    trace, x = _start(a, out)
    return _out(trace, reduce.cumprod(trace, x, axis, dtype), out)


@implements(np.diff)
def diff(
    a: Any, n: Any = 1, axis: Any = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE
) -> Any:
    from tracegrad.trace.numpy_shape import concatenate

    parts = [p for p in (prepend, a, append) if p is not NO_VALUE]
    trace, x = _start(a if len(parts) == 1 else concatenate(parts, axis))
    return reduce.diff(trace, x, n, axis)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    trace, x = _start(a)
    hits = cast(trace, truth(trace, x), I64)
    found = reduce.sum(trace, hits, axis, None, keepdims)  # type: ignore[arg-type]
    return as_count(trace, found, axis, keepdims)


@implements(np.trace)
def trace(
    a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: Any = None
) -> Any:
    t, x = _start(a, out)
    return _out(t, linalg.trace_of_matrix(t, x, offset, axis1, axis2, dtype), out)


# ----------------------------------------------------------------------------------- products


@implements(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    t = trace_of(*[x for x in (a, b, out) if x is not None])
    return _out(t, linalg.dot(t, a, b), out)


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    return linalg.vdot(trace_of(a, b), a, b)


@implements(np.inner)
def inner(a: Any, b: Any) -> Any:
    return linalg.inner(trace_of(a, b), a, b)


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    t = trace_of(*[x for x in (a, b, out) if x is not None])
    return _out(t, linalg.outer(t, a, b), out)


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return linalg.tensordot(trace_of(a, b), a, b, axes)


@implements(np.einsum)
def einsum(*operands: Any, out: Any = None, optimize: Any = False) -> Any:
    t = trace_of(*operands)
    return _out(t, linalg.einsum_call(t, operands[0], list(operands[1:])), out)


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    t, a = _start(x)
    return linalg.norm(t, a, ord, axis, keepdims)


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    from tracegrad.trace.shape import ravel, reshape

    t, a = _start(x)
    if axis is None:
        out = linalg.norm(t, ravel(t, a), ord, 0)
        return reshape(t, out, (1,) * len(a.sizes)) if keepdims else out
    return linalg.norm(t, a, ord, axis, keepdims)


@implements(np.linalg.matmul)
def matmul(x1: Any, x2: Any, /) -> Any:
    return linalg.matmul(trace_of(x1, x2), x1, x2)
