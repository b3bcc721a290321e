"""Functions of the `tg` module for traced code: those on which NumPy and PyTorch agree.

Elementwise functions come from the registry (`OpDef.tg`), creation functions from the tracer.
They work inside a compiled function; eager arrays come with `tg.Tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import UnsupportedError
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.trace import creation
from tracegrad.trace import shape as shapes
from tracegrad.trace.face import operate
from tracegrad.trace.modes import current_trace

float32, float64, bool_ = np.float32, np.float64, np.bool_
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
DTYPES = ("bool_", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64")
CREATION = ("zeros", "ones", "full", "empty", "arange", "linspace", "eye", "zeros_like",
            "ones_like", "full_like", "empty_like", "meshgrid")


def _inside(name: str) -> None:
    if current_trace() is None:
        raise UnsupportedError(
            f"tg.{name} works inside a compiled function", kind="no_trace", loc=source.here(),
            remedy=f"Outside, use np.{name} on ndarrays.")


def _of_op(op: OpDef) -> Callable[..., Any]:
    def function(*xs: Any) -> Any:
        _inside(op.tg)
        return operate(op, *xs)

    function.__name__ = function.__qualname__ = op.tg
    function.__doc__ = op.doc or f"Elementwise `{op.name}`."
    return function


def _of_creation(name: str) -> Callable[..., Any]:
    inner = getattr(creation, name)

    @functools.wraps(inner)
    def function(*args: Any, **keywords: Any) -> Any:
        _inside(name)
        return inner(*args, **keywords)

    function.__doc__ = f"As ``np.{name}``, inside a compiled function."
    return function


def stack(arrays: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Any:
    """Arrays of one shape along a new axis."""
    _inside("stack")
    return shapes.stack(creation.the_trace(*arrays), list(arrays), axis if dim is None else dim)


def cat(arrays: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Any:
    """Arrays joined along an axis they have."""
    _inside("cat")
    return shapes.concatenate(creation.the_trace(*arrays), list(arrays),
                              axis if dim is None else dim)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{op.tg: _of_op(op) for op in REGISTRY if op.tg},
    **{name: _of_creation(name) for name in CREATION},
    "stack": stack, "cat": cat,
}
