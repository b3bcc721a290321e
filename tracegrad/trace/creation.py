"""Arrays made inside a trace: creation and conversion functions with NumPy's signatures.

What is made from constants alone is known while tracing; lists that hold traced values are stacked.
Outside a trace these functions are not used.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dtypes import F64, DType
from tracegrad.errors import (
    DataDependentShapeError, LeakedTracerError, ShapeError, UnsupportedError, ValueArgumentError,
)
from tracegrad.graph.ir import Literal
from tracegrad.ops.create import full as full_op
from tracegrad.ops.create import iota
from tracegrad.trace import layout
from tracegrad.trace.elementwise import apply_op, broadcast_to_target, select
from tracegrad.trace.modes import current_trace
from tracegrad.trace.promote import Arg, as_arg, cast, is_known, shape_of, spread_steps
from tracegrad.trace.shape import reshape, sizes_of, stack
from tracegrad.trace.tracer import Trace, Tracer


def the_trace(*xs: Any) -> Trace:
    """The trace that records now."""
    trace = current_trace()
    if trace is None:
        trace = next((x.trace for x in xs if isinstance(x, Tracer)), None)
    if trace is None:
        raise LeakedTracerError("no trace is open", loc=source.here())
    return trace


def made(array: Any) -> Tracer:
    """An array known while tracing."""
    return the_trace().concrete(np.asarray(array))


def materialised(trace: Trace, x: Tracer | Literal, shape: tuple[int, ...]) -> Tracer:
    """`x` as an array of `shape` in a storage of its own."""
    if isinstance(x, Literal):
        return trace.apply(full_op, (), full_op.attrs(shape, x))  # type: ignore[no-any-return, call-arg]
    return trace.read(x, *spread_steps(x.shape, shape))


def tracer(trace: Trace, x: Any) -> Tracer:
    """`x` as a tracer: numbers become known arrays of NumPy's default dtypes."""
    arg = as_arg(trace, x)
    if isinstance(arg, Tracer):
        return arg
    if isinstance(arg, Literal):
        return trace.concrete(np.asarray(arg.value, arg.dtype.np), scalar=True)
    return trace.concrete(np.asarray(arg), scalar=True)


def dtype_of(dtype: Any, default: DType) -> DType:
    return default if dtype is None else dtypes.of(dtype)


# ----------------------------------------------------------------------------- from a shape


def zeros(shape: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return made(np.zeros(sizes_of(shape), dtype_of(dtype, F64).np, _order(order)))


def ones(shape: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return made(np.ones(sizes_of(shape), dtype_of(dtype, F64).np, _order(order)))


def empty(shape: Any, dtype: Any = None, order: str = "C") -> Tracer:
    """As `zeros`: what NumPy leaves undefined is zero."""
    return zeros(shape, dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Tracer:
    """`fill_value` may be traced and broadcasts to `shape`."""
    trace = the_trace(fill_value)
    value = as_arg(trace, fill_value)
    if isinstance(value, Tracer) and value.concrete is None:
        x = value if dtype is None else cast(trace, value, dtypes.of(dtype))
        to = sizes_of(shape)
        assert isinstance(x, Tracer)
        _check_fill(x.shape, to)
        steps = spread_steps(x.shape, to)
        strides = layout.packed(to, range(len(to))) if _order(order) == "F" else None
        return trace.read(x, *steps, layout=strides)
    known: Any = value.concrete if isinstance(value, Tracer) else \
        np.asarray(value.value, value.dtype.np) if isinstance(value, Literal) else value
    return made(np.full(sizes_of(shape), known, None if dtype is None else dtypes.of(dtype).np,
                        _order(order)))


def _check_fill(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    if not broadcast_to_target(shape, to):
        raise ShapeError(f"could not broadcast input array from shape {shape} into shape {to}",
                         loc=source.here())


def _order(order: str) -> Any:
    if order not in ("C", "F"):
        raise ValueArgumentError(f"order must be 'C' or 'F' here (got {order!r})",
                                 loc=source.here())
    return order


def _like(prototype: Any, dtype: Any, order: str, shape: Any) -> np.ndarray:
    """A prototype of NumPy's own `*_like`: right shape, dtype and layout, contents unused."""
    trace = the_trace(prototype)
    x = tracer(trace, prototype)
    to = x.shape if shape is None else sizes_of(shape)
    d = dtype_of(dtype, x.element_type).np
    if order in ("K", "A") and to == x.shape:
        strides = layout.copied(x.layout, order) or layout.dense(to)
    else:
        strides = layout.packed(to, range(len(to))) if order == "F" else layout.dense(to)
    buffer = np.zeros(int(np.prod(to)), d)
    return np.lib.stride_tricks.as_strided(buffer, to, tuple(s * d.itemsize for s in strides))


def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
               ) -> Tracer:
    return made(_like(a, dtype, order, shape))


def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
              ) -> Tracer:
    out = _like(a, dtype, order, shape)
    out[...] = 1
    return made(out)


def empty_like(prototype: Any, dtype: Any = None, order: str = "K", subok: bool = True,
               shape: Any = None) -> Tracer:
    return made(_like(prototype, dtype, order, shape))


def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
              shape: Any = None) -> Tracer:
    like = _like(a, dtype, order, shape)
    trace = the_trace(a, fill_value)
    value = as_arg(trace, fill_value)
    if isinstance(value, Tracer) and value.concrete is None:
        x = cast(trace, value, dtypes.of(like.dtype))
        assert isinstance(x, Tracer)
        _check_fill(x.shape, like.shape)
        return trace.read(x, *spread_steps(x.shape, like.shape))
    like[...] = value.concrete if isinstance(value, Tracer) else getattr(value, "value", value)
    return made(like)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C") -> Tracer:
    return made(np.eye(operator.index(N), None if M is None else operator.index(M),
                       operator.index(k), dtypes.of(dtype).np, _order(order)))


def identity(n: Any, dtype: Any = None) -> Tracer:
    return eye(n, dtype=F64 if dtype is None else dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Tracer:
    return made(np.tri(operator.index(N), None if M is None else operator.index(M),
                       operator.index(k), dtypes.of(dtype).np))


# ------------------------------------------------------------------------------ from a range


def arange(*args: Any, dtype: Any = None, **keywords: Any) -> Tracer:
    """``np.arange``; its length may not depend on traced values."""
    return made(np.arange(*[_bound(a) for a in args], dtype=_given(dtype),
                          **{k: _bound(v) for k, v in keywords.items()
                             if k in ("start", "stop", "step")}))


def _given(dtype: Any) -> Any:
    return None if dtype is None else dtypes.of(dtype).np


def _bound(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    if x.concrete is None:
        raise DataDependentShapeError(
            "the length of arange would depend on a traced value", loc=source.here(),
            remedy="Pass the bound as a Python int, or use np.linspace(a, b, n) or a + h * "
                   "np.arange(n) with a fixed n.")
    return x.concrete[()]


def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False,
             dtype: Any = None, axis: int = 0) -> Any:
    """``np.linspace``; traced end points must be scalars."""
    trace = the_trace(start, stop)
    a, b = as_arg(trace, start), as_arg(trace, stop)
    n = operator.index(num)
    if is_known((a, b)):
        out = np.linspace(_value(a), _value(b), n, endpoint, retstep, _given(dtype), axis)
        return (made(out[0]), made(out[1])) if retstep else made(out)
    if shape_of(a) != () or shape_of(b) != () or retstep:
        raise UnsupportedError("np.linspace of traced arrays, or with retstep, is not supported",
                               loc=source.here())
    div = max(n - 1 if endpoint else n, 1)
    from tracegrad.ops.arithmetic import add, mul, sub
    from tracegrad.ops.arithmetic import div as divide

    step = apply_op(trace, divide, (apply_op(trace, sub, (b, a)), float(div)))
    at = trace.apply(iota, (), iota.attrs((n,), 0, F64))  # type: ignore[call-arg]
    out = apply_op(trace, add, (apply_op(trace, mul, (at, step)), a))
    if endpoint and n > 1:
        out = select(trace, made(np.arange(n) == n - 1), b, out)
    return out if dtype is None else cast(trace, out, dtypes.of(dtype))


def _value(x: Arg) -> Any:
    if isinstance(x, Tracer):
        assert x.concrete is not None
        return x.concrete[()]
    return x.value if isinstance(x, Literal) else x


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
             ) -> tuple[Tracer, ...]:
    """Coordinate arrays of 1-d arrays; always copies."""
    if indexing not in ("xy", "ij"):
        raise ValueArgumentError("Valid values for `indexing` are 'xy' and 'ij'.",
                                 loc=source.here())
    trace = the_trace(*xi)
    xs = [reshape(trace, tracer(trace, x), (-1,)) for x in xi]
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    shape = [1] * len(xs)
    for k, x in enumerate(xs):
        shape[order[k]] = x.shape[0]
    out = []
    for k, x in enumerate(xs):
        own = tuple(n if d == order[k] else 1 for d, n in enumerate(shape))
        thin = reshape(trace, x, own, copy=True)
        out.append(thin if sparse else trace.read(thin, *spread_steps(own, tuple(shape))))
    return tuple(out)


# ---------------------------------------------------------------------------- from other data


def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K",
          subok: bool = False, ndmin: int = 0, like: Any = None) -> Tracer:
    """``np.array`` of arrays, numbers, and nested lists that may hold traced values."""
    trace = the_trace(object)
    to = None if dtype is None else dtypes.of(dtype)
    if isinstance(object, (list, tuple)):
        out = _from_list(trace, object, to)
    else:
        x = tracer(trace, object)
        y = x if to is None else cast(trace, x, to)
        assert isinstance(y, Tracer)
        strides = layout.copied(y.layout, order)
        fresh = (copy or y.scalar or _relaid(y, order)) and y is x
        out = trace.read(y, layout=strides) if fresh else y
        if out.scalar:
            out = trace.read(out)
    if len(out.shape) < ndmin:
        out = reshape(trace, out, (1,) * (ndmin - len(out.shape)) + out.shape)
    return out


def _relaid(x: Tracer, order: str) -> bool:
    """Whether `order` asks for a layout that `x` does not have."""
    shape, strides = x.shape, x.layout.stride
    if order == "C":
        return not layout.is_c_ordered(shape, strides)  # type: ignore[arg-type]
    return order == "F" and not layout.is_f_ordered(shape, strides)  # type: ignore[arg-type]


def _from_list(trace: Trace, items: Sequence[Any], to: DType | None) -> Tracer:
    if not _holds_arrays(items):
        try:
            return trace.concrete(np.array(items, None if to is None else to.np))
        except ValueError as e:
            raise ShapeError(str(e), loc=source.here()) from None
    rows = [_from_list(trace, x, None) if isinstance(x, (list, tuple)) else
            _strong(trace, x) for x in items]
    shapes = {x.shape for x in rows}
    if len(shapes) > 1:
        raise ShapeError(
            "setting an array element with a sequence. The requested array has an inhomogeneous "
            f"shape after 1 dimensions. The detected shapes were {sorted(shapes)}",
            loc=source.here())
    common = to or dtypes.promote(*(x.element_type for x in rows))
    return stack(trace, [cast(trace, x, common) for x in rows], 0)


def _holds_arrays(items: Sequence[Any]) -> bool:
    return any(_holds_arrays(x) if isinstance(x, (list, tuple)) else
               isinstance(x, (Tracer, np.ndarray)) for x in items)


def _strong(trace: Trace, x: Any) -> Tracer:
    """An element of a list: Python numbers and weak scalars have NumPy's default dtypes."""
    out = tracer(trace, x)
    return trace.read(out) if out.weak else out


def asarray(a: Any, dtype: Any = None, order: str = "K", *, copy: Any = None, **_: Any) -> Tracer:
    return array(a, dtype, copy=bool(copy), order=order or "K")


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    return array(a, dtype, copy=False, order="C", ndmin=1)


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    return array(a, dtype, copy=False, order="F", ndmin=1)


def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return array(a, order=order)


def as_dtype(x: Any, dtype: Any) -> Tracer:
    """``np.float64(x)`` and its kin: a scalar of a scalar, an array of an array."""
    trace = the_trace(x)
    given = array(x) if isinstance(x, (list, tuple)) else tracer(trace, x)
    to = dtypes.of(dtype)
    out = cast(trace, given, to) if given.element_type is not to else trace.read(given)
    assert isinstance(out, Tracer)
    if out.shape == () and trace.face.numpy_scalars:  # type: ignore[attr-defined]
        out = trace.read(out, scalar=True)
    return out


def python_float(x: Tracer) -> Tracer:
    """``float(x)`` of a traced scalar: a weak float64 scalar."""
    trace = the_trace(x)
    x = trace.lift(x)
    if int(np.prod(x.shape)) != 1:
        raise ShapeError("only length-1 arrays can be converted to Python scalars",
                         loc=source.here())
    y = cast(trace, x, F64)
    assert isinstance(y, Tracer)
    return trace.read(reshape(trace, y, ()), scalar=True, weak=True)


# ------------------------------------------------------------------------------- np.r_, np.c_


class _Joiner:
    """``np.r_`` (`columns` false) and ``np.c_``: slices, numbers and arrays joined."""

    def __init__(self, columns: bool) -> None:
        self._columns = columns

    def __getitem__(self, key: Any) -> Tracer:
        from tracegrad.trace.shape import concatenate

        parts = key if isinstance(key, tuple) else (key,)
        trace = the_trace(*parts)
        xs = [self._part(trace, p) for p in parts]
        if not self._columns:
            return concatenate(trace, xs, 0)
        wide = [reshape(trace, x, (-1, 1)) if len(x.shape) == 1 else x for x in xs]
        return concatenate(trace, wide, len(wide[0].shape) - 1)

    def _part(self, trace: Trace, p: Any) -> Tracer:
        if isinstance(p, str):
            raise UnsupportedError(f"np.r_ with the directive {p!r} is not supported",
                                   loc=source.here())
        if isinstance(p, slice):
            start = 0 if p.start is None else p.start
            if isinstance(p.step, complex):
                return linspace(start, p.stop, int(abs(p.step)))  # type: ignore[no-any-return]
            return arange(start, p.stop, 1 if p.step is None else p.step)
        x = array(p) if isinstance(p, (list, tuple)) else tracer(trace, p)
        return x if x.shape else trace.read(reshape(trace, x, (1,)))


r_ = _Joiner(False)
c_ = _Joiner(True)


def refuse(name: str) -> NoReturn:
    """A function that cannot work on traced values, refused by name."""
    raise UnsupportedError(f"{name} is not supported yet", loc=source.here())

