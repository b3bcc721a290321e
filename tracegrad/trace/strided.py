"""``as_strided`` on both faces: geometry checked against the storage."""

from __future__ import annotations

from typing import Any

from tracegrad import source
from tracegrad.dims import product
from tracegrad.errors import UnsupportedError, ValueArgumentError, ViewMutationError
from tracegrad.graph.storage import Retype, dense_strides
from tracegrad.trace.promote import as_int, trace_of
from tracegrad.trace.shape import sizes_of
from tracegrad.trace.tracer import Tracer


def as_strided(x: Tracer, size: Any, stride: Any, storage_offset: Any = None) -> Tracer:
    """PyTorch's ``as_strided``: elements of the whole storage, `storage_offset` from its start.

    Raises kind bad_geometry for negative strides or mismatched lengths, out_of_bounds when an
    element would lie outside the storage.
    """
    trace = trace_of(x)
    x = trace.lift(x)
    to, by = sizes_of(size), sizes_of(stride)
    offset: int = (
        _own_offset(x) if storage_offset is None else as_int(storage_offset, "storage_offset")
    )
    if len(to) != len(by):
        raise _refused("mismatch in length of strides and shape", "bad_geometry")
    if any(s < 0 for s in by) or any(n < 0 for n in to):
        raise _refused(
            "as_strided: Negative strides are not supported at the moment, got "
            f"strides: {list(by)}",
            "bad_geometry",
        )
    _check_dense(x)
    total: Any = product(x.memory.shape)
    last = offset + sum((n - 1) * s for n, s in zip(to, by, strict=True))
    if offset < 0 or (0 not in to and last >= total):
        raise _refused(
            f"setStorage: sizes {list(to)}, strides {list(by)}, storage offset {offset} "
            f"are out of bounds for storage of size {total}",
            "out_of_bounds",
        )
    return trace.strided(x, to, by, offset)


def _refused(message: str, kind: str) -> ViewMutationError:
    return ViewMutationError(message, kind=kind, loc=source.here(), op_name="as_strided")


def _own_offset(x: Tracer) -> int:
    geometry = x.alias.view.geometry(x.memory.shape)
    if geometry is None or not isinstance(geometry.offset, int):
        raise UnsupportedError(
            "as_strided of this view needs an explicit offset", loc=source.here()
        )
    return geometry.offset


def _check_dense(x: Tracer) -> None:
    if any(isinstance(s, Retype) for s in x.alias.view.steps):
        raise UnsupportedError(
            "as_strided of a view as another element type is not supported",
            loc=source.here(),
            remedy="Take it from a clone() of the view.",
        )
    if x.memory.layout != dense_strides(x.memory.shape):
        raise UnsupportedError(
            "as_strided of an array that is not C-contiguous is not supported",
            loc=source.here(),
            remedy="Use np.ascontiguousarray first.",
        )


def numpy_as_strided(
    x: Tracer, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True
) -> Tracer:
    """``np.lib.stride_tricks.as_strided``: `strides` in bytes, from the array's first element."""
    trace = trace_of(x)
    x = trace.lift(x)
    _check_dense(x)
    to = x.sizes if shape is None else sizes_of(shape)
    if strides is None:
        by: tuple[int, ...] = x.layout.stride  # type: ignore[assignment]
    else:
        width = x.element_type.nbytes
        given = sizes_of(strides)
        if any(s % width for s in given):
            raise _refused("as_strided: strides must be multiples of the item size", "bad_geometry")
        by = tuple(s // width for s in given)
    out = as_strided(x, to, by, _own_offset(x))
    out.readonly = out.readonly or not writeable
    return out


def sliding_window_view(x: Tracer, window_shape: Any, axis: Any = None, **_: Any) -> Tracer:
    """``np.lib.stride_tricks.sliding_window_view``: read-only windows."""
    from tracegrad.graph.storage import Unfold
    from tracegrad.trace.shape import axis_of, view

    trace = trace_of(x)
    x = trace.lift(x)
    widths = sizes_of(window_shape)
    axes = (
        tuple(range(len(x.sizes)))
        if axis is None
        else tuple(
            axis_of(trace, k, len(x.sizes))
            for k in (axis if isinstance(axis, (tuple, list)) else (axis,))
        )
    )
    if len(axes) != len(widths):
        raise _refused("window_shape and axis must have the same length", "bad_geometry")
    for k, n in zip(axes, widths, strict=True):
        if n > x.sizes[k]:
            raise ValueArgumentError(
                "window shape cannot be larger than input array shape",
                kind="out_of_bounds",
                loc=source.here(),
            )
        x = view(trace, x, Unfold(k, n, 1), origin="sliding_window_view", readonly=True)
    return x
