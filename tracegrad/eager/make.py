"""Tensors from data: `tensor` copies, `asarray` shares memory; in a trace both make constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.eager.recorder import EAGER
from tracegrad.eager.tensor import EagerTensor
from tracegrad.trace import creation_data
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Any:
    """A tensor with a copy of `data` (an array, a number, nested lists) and no history.

    Raises kind requires_grad_dtype when an integer tensor shall require a gradient.
    """
    if current_trace() is not None:
        made: Any = creation_data.array(data, dtype)
        return made.requires_grad_() if requires_grad else made
    given = _array(data)
    to = given.dtype if dtype is None else dtypes.of(dtype).np
    out = EAGER.base(np.array(given, to, order="C"))
    return out.requires_grad_() if requires_grad else out


def asarray(a: Any, dtype: Any = None) -> Any:
    """A tensor that shares the memory of `a` where it can; a Tensor is returned as it is."""
    if current_trace() is not None:
        return creation_data.asarray(a, dtype)
    if isinstance(a, Tracer):
        x = EAGER.lift(a)
        return x if dtype is None else x.to(dtype)  # type: ignore[attr-defined]
    given = _array(a)
    return EAGER.base(given if dtype is None else np.asarray(given, dtypes.of(dtype).np))


def _array(data: Any) -> np.ndarray:
    if isinstance(data, EagerTensor):
        return data.array
    if isinstance(data, Tracer):
        EAGER.lift(data)  # refuses
    if isinstance(data, (list, tuple)):
        return np.array(_plain(data))
    out = np.asarray(data)
    dtypes.of(out.dtype)
    return out


def _plain(data: Any) -> Any:
    """Nested lists with tensors replaced by their elements."""
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data]
    return data.array if isinstance(data, EagerTensor) else data
