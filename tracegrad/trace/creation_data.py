"""Arrays and scalars made of other data inside a trace: ``np.array`` and its kin, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dtypes import F64, DType
from tracegrad.errors import ArgumentError, LeakedTracerError, ShapeError
from tracegrad.graph.ir import Literal
from tracegrad.ops.create import full as full_op
from tracegrad.trace import layout
from tracegrad.trace.modes import at_prompt, current_trace
from tracegrad.trace.promote import as_arg, cast, spread_steps
from tracegrad.trace.rows import Block, blocks
from tracegrad.trace.shape import reshape, stack
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def the_trace(*xs: Any) -> Recorder:
    """The trace that records now."""
    trace: Recorder | None = current_trace()
    if trace is None:
        trace = next((x.trace for x in xs if isinstance(x, Tracer)), None) or at_prompt()
    if trace is None:
        raise LeakedTracerError("no trace is open", loc=source.here())
    return trace


def made(array: Any) -> Tracer:
    """An array known while tracing."""
    return the_trace().concrete(np.asarray(array))


def materialised(trace: Recorder, x: Tracer | Literal, shape: tuple[int, ...]) -> Tracer:
    """`x` as an array of `shape` in a storage of its own."""
    if isinstance(x, Literal):
        return trace.apply(full_op, (), full_op.attrs(shape, x))  # type: ignore[no-any-return, call-arg]
    return trace.read(x, *spread_steps(x.sizes, shape))


def tracer(trace: Recorder, x: Any) -> Tracer:
    """`x` as a tracer: numbers become known arrays of NumPy's default dtypes."""
    arg = as_arg(trace, x)
    if isinstance(arg, Tracer):
        return arg
    if isinstance(arg, Literal):
        return trace.concrete(np.asarray(arg.value, arg.dtype.np), scalar=True)
    return trace.concrete(np.asarray(arg), scalar=True)


def dtype_of(dtype: Any, default: DType) -> DType:
    return default if dtype is None else dtypes.of(dtype)


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Tracer:
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
    if len(out.sizes) < ndmin:
        out = reshape(trace, out, (1,) * (ndmin - len(out.sizes)) + out.sizes)
    return out


def _relaid(x: Tracer, order: str) -> bool:
    """Whether `order` asks for a layout that `x` does not have."""
    shape, strides = x.sizes, x.layout.stride
    if order == "C":
        return not layout.is_c_ordered(shape, strides)  # type: ignore[arg-type]
    return order == "F" and not layout.is_f_ordered(shape, strides)  # type: ignore[arg-type]


def _from_list(trace: Recorder, items: Sequence[Any], to: DType | None) -> Tracer:
    if not _holds_arrays(items):
        try:
            return trace.concrete(np.array(items, None if to is None else to.np))
        except ValueError as e:
            raise ShapeError(str(e), loc=source.here()) from None
    rows = [
        x
        if isinstance(x, Block)
        else _from_list(trace, x, None)
        if isinstance(x, (list, tuple))
        else _strong(trace, x)
        for x in blocks(trace, items)
    ]
    shapes = {x.sizes for x in rows}
    if len(shapes) > 1:
        raise ShapeError(
            "setting an array element with a sequence. The requested array has an inhomogeneous "
            f"shape after 1 dimensions. The detected shapes were {sorted(shapes)}",
            loc=source.here(),
        )
    common = to or dtypes.promote(*(x.element_type for x in rows))
    return stack(trace, [_typed(trace, x, common) for x in rows], 0)


def _typed(trace: Recorder, x: Tracer | Block, dtype: DType) -> Any:
    return x.cast(trace, dtype) if isinstance(x, Block) else cast(trace, x, dtype)


def _holds_arrays(items: Sequence[Any]) -> bool:
    return any(
        _holds_arrays(x)
        if isinstance(x, (list, tuple))
        else isinstance(x, (Tracer, np.ndarray, SymbolicInt))
        for x in items
    )


def _strong(trace: Recorder, x: Any) -> Tracer:
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
    if int(np.prod(x.sizes)) != 1:
        raise ArgumentError(
            "only 0-dimensional arrays can be converted to Python scalars", loc=source.here()
        )
    y = cast(trace, x, F64)
    assert isinstance(y, Tracer)
    return trace.read(reshape(trace, y, ()), scalar=True, weak=True)
