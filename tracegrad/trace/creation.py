"""Arrays made inside a trace: creation and conversion functions with NumPy's signatures.

What is made from constants alone is known while tracing; lists that hold traced values are stacked.
Outside a trace these functions are not used.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dtypes import F64, DType
from tracegrad.errors import ShapeError, ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.ops.create import full as full_op
from tracegrad.trace import layout
from tracegrad.trace.creation_data import (
    array,
    as_dtype,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    copy,
    dtype_of,
    made,
    materialised,
    python_float,
    the_trace,
    tracer,
)
from tracegrad.trace.creation_range import arange, c_, linspace, meshgrid, r_
from tracegrad.trace.elementwise import broadcast_to_target
from tracegrad.trace.promote import as_arg, cast, spread_steps
from tracegrad.trace.ragged import is_ragged
from tracegrad.trace.shape import sizes_of
from tracegrad.trace.strided import numpy_as_strided as as_strided
from tracegrad.trace.tracer import Tracer
from tracegrad.types import shape_text


def zeros(shape: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return _filled(sizes_of(shape), 0, dtype_of(dtype, F64), order)


def ones(shape: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return _filled(sizes_of(shape), 1, dtype_of(dtype, F64), order)


def _filled(shape: tuple[int, ...], value: int, dtype: DType, order: str) -> Tracer:
    if not is_ragged(shape):
        return made(np.full(shape, value, dtype.np, _order(order)))
    strides = layout.packed(shape, range(len(shape))) if _order(order) == "F" else None
    return _ragged(shape, value, dtype, strides)


def _ragged(
    shape: tuple[int, ...], value: int, dtype: DType, strides: layout.Strides | None
) -> Tracer:
    """A new array of a size that depends on the index of a loop."""
    attrs = full_op.attrs(shape, Literal(bool(value) if dtype.is_bool else value, dtype))
    return the_trace().apply(full_op, (), attrs, layout=strides)  # type: ignore[no-any-return]


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
        _check_fill(x.sizes, to)
        steps = spread_steps(x.sizes, to)
        strides = layout.packed(to, range(len(to))) if _order(order) == "F" else None
        return trace.read(x, *steps, layout=strides)
    known: Any = (
        value.concrete
        if isinstance(value, Tracer)
        else np.asarray(value.value, value.dtype.np)
        if isinstance(value, Literal)
        else value
    )
    return made(
        np.full(
            sizes_of(shape), known, None if dtype is None else dtypes.of(dtype).np, _order(order)
        )
    )


def _check_fill(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    if not broadcast_to_target(shape, to):
        raise ShapeError(
            f"could not broadcast input array from shape {shape_text(shape)} into shape "
            f"{shape_text(to)}",
            loc=source.here(),
        )


def _order(order: str) -> Any:
    if order not in ("C", "F"):
        raise ValueArgumentError(
            f"order must be 'C' or 'F' here (got {order!r})", loc=source.here()
        )
    return order


def _form_like(
    prototype: Any, dtype: Any, order: str, shape: Any
) -> tuple[tuple[int, ...], DType, layout.Strides]:
    """Shape, dtype and layout of NumPy's own `*_like`."""
    x = tracer(the_trace(prototype), prototype)
    to = x.sizes if shape is None else sizes_of(shape)
    if order in ("K", "A") and to == x.sizes:
        strides = layout.copied(x.layout, order) or layout.dense(to)
    else:
        strides = layout.packed(to, range(len(to))) if order == "F" else layout.dense(to)
    return to, dtype_of(dtype, x.element_type), strides


def _like(to: tuple[int, ...], dtype: DType, strides: layout.Strides) -> np.ndarray:
    """An array of zeros laid out so."""
    d = dtype.np
    buffer = np.zeros(int(np.prod(to)), d)
    return np.lib.stride_tricks.as_strided(buffer, to, tuple(s * d.itemsize for s in strides))


def _filled_like(prototype: Any, value: int, dtype: Any, order: str, shape: Any) -> Tracer:
    to, d, strides = _form_like(prototype, dtype, order, shape)
    if is_ragged(to):
        return _ragged(to, value, d, strides)
    out = _like(to, d, strides)
    out[...] = value
    return made(out)


def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Tracer:
    return _filled_like(a, 0, dtype, order, shape)


def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Tracer:
    return _filled_like(a, 1, dtype, order, shape)


def empty_like(
    prototype: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Tracer:
    return zeros_like(prototype, dtype, order, shape=shape)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
) -> Tracer:
    like = _like(*_form_like(a, dtype, order, shape))
    trace = the_trace(a, fill_value)
    value = as_arg(trace, fill_value)
    if isinstance(value, Tracer) and value.concrete is None:
        x = cast(trace, value, dtypes.of(like.dtype))
        assert isinstance(x, Tracer)
        _check_fill(x.sizes, like.shape)
        return trace.read(x, *spread_steps(x.sizes, like.shape))
    like[...] = value.concrete if isinstance(value, Tracer) else getattr(value, "value", value)
    return made(like)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C") -> Tracer:
    return made(
        np.eye(
            operator.index(N),
            None if M is None else operator.index(M),
            operator.index(k),
            dtypes.of(dtype).np,
            _order(order),
        )
    )


def identity(n: Any, dtype: Any = None) -> Tracer:
    return eye(n, dtype=F64 if dtype is None else dtype)


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Tracer:
    return made(
        np.tri(
            operator.index(N),
            None if M is None else operator.index(M),
            operator.index(k),
            dtypes.of(dtype).np,
        )
    )


__all__ = [
    "arange",
    "array",
    "as_dtype",
    "as_strided",
    "asanyarray",
    "asarray",
    "ascontiguousarray",
    "asfortranarray",
    "c_",
    "copy",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "identity",
    "linspace",
    "made",
    "materialised",
    "meshgrid",
    "ones",
    "ones_like",
    "python_float",
    "r_",
    "the_trace",
    "tracer",
    "tri",
    "zeros",
    "zeros_like",
]
