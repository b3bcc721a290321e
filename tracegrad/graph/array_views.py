"""Views taken of, and written to, NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import complex_of
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Step,
    Strided,
    Unfold,
    View,
)
from tracegrad.types import sizes


def flat_positions(view: View, shape: Sequence[int]) -> np.ndarray:
    """Row-major positions in a base of `shape` that the view's elements read."""
    size = int(np.prod(shape, dtype=np.int64))
    return apply_view(view, np.arange(size, dtype=np.int64).reshape(shape))


def apply_view(view: View, x: np.ndarray) -> np.ndarray:
    """The view of an array: shares its memory wherever NumPy can express that."""
    for step in view.steps:
        x = _apply(step, x)
    return x


def _apply(step: Step, x: np.ndarray) -> np.ndarray:
    """A step on a concrete array (result may be a view of it)."""
    match step:
        case Index(items=items):
            key: list[Any] = []
            for item in items:
                if isinstance(item, Pick):
                    key.append(item.at)
                elif isinstance(item, NewAxis):
                    key.append(None)
                else:
                    stop: Any = item.start + item.size * item.step  # type: ignore[operator]
                    key.append(
                        slice(item.start, None if stop < 0 else stop, item.step)
                        if item.size
                        else slice(0, 0)
                    )
            return x[(*key, ...)]  # an array even where every axis is picked
        case Permute(order=order):
            return x.transpose(order)
        case Expand(to=to):
            # As np.broadcast_to, but writable: one row of it may be written.
            strides = tuple(
                0 if m != n else s for m, n, s in zip(x.shape, to, x.strides, strict=True)
            )
            return np.lib.stride_tricks.as_strided(x, to, strides, writeable=x.flags.writeable)  # type: ignore[arg-type]
        case Reshape(to=to):
            return x.reshape(sizes(to))
        case Strided(size=size, stride=stride, offset=offset):
            if x.flags.c_contiguous and x.size and 0 not in size:
                return np.lib.stride_tricks.as_strided(
                    x.reshape(-1)[offset:], size, tuple(s * x.itemsize for s in stride)
                )
            at = np.full(size, offset, np.int64)
            for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
                at += (np.arange(n) * s).reshape([-1] + [1] * (len(size) - axis - 1))
            return x.reshape(-1)[at]
        case Diagonal(offset=offset, axis1=a, axis2=b):
            diagonal = np.diagonal(x, offset, a, b)
            diagonal.flags.writeable = x.flags.writeable
            return diagonal
        case Unfold(axis=axis, size=width, step=by):
            windows = np.lib.stride_tricks.sliding_window_view(
                x, width, axis, writeable=x.flags.writeable
            )
            return windows[(slice(None),) * axis + (slice(None, None, by),)]
        case AsReal():
            return np.lib.stride_tricks.as_strided(
                x.real, (*x.shape, 2), (*x.strides, x.itemsize // 2), writeable=x.flags.writeable
            )
        case AsComplex():
            last = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
            return last.view(complex_of(dtypes.of(x.dtype)).np)[..., 0]
        case Conj():
            return np.asarray(np.conjugate(x))
        case Bitcast(to=to):
            if x.ndim and x.shape[-1] == 1:  # its stride says nothing, and NumPy looks at it
                x = np.lib.stride_tricks.as_strided(
                    x, x.shape, (*x.strides[:-1], x.itemsize), writeable=x.flags.writeable
                )
            return x.view(to.np)
    raise AssertionError(step)


def write_view(view: View, x: np.ndarray, value: np.ndarray) -> None:
    """``view(x)[...] = value``, through steps that NumPy has no views for, too."""
    for k, step in enumerate(view.steps):
        if isinstance(step, Conj):
            part = apply_view(View(view.steps[:k]), x)
            new = np.array(np.conjugate(part))
            write_view(View(view.steps[k + 1 :]), new, value)
            part[...] = np.conjugate(new)
            return
    apply_view(view, x)[...] = value
