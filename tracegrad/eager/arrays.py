"""Memory layout of real arrays: strides in elements, and copies laid out as asked."""

from __future__ import annotations

import numpy as np

from tracegrad.graph.storage import dense_strides


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements; of a C-contiguous array always the canonical ones."""
    if array.flags.c_contiguous:
        return dense_strides(array.shape)  # type: ignore[return-value]
    return tuple(s // array.itemsize for s in array.strides)


def laid_out(array: np.ndarray, strides: tuple[int, ...] | None) -> np.ndarray:
    """`array` itself, or a copy, with these strides in elements (None: row-major)."""
    if strides is None:
        return array if array.flags.c_contiguous else np.array(array, order="C")
    if strides_of(array) == strides:
        return array
    outer = sorted(range(array.ndim), key=lambda k: -abs(strides[k]))
    back = sorted(range(array.ndim), key=outer.__getitem__)
    out = np.empty([array.shape[k] for k in outer], array.dtype).transpose(back)
    out[...] = array
    return out
