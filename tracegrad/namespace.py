"""Functions of the `tg` module: those on which NumPy and PyTorch agree.

Elementwise functions come from the registry (`OpDef.tg`), creation functions from the tracer.
Inside a compiled function they are traced; at the prompt they make and take `tg.Tensor`s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.custom import prompt as _prompt  # noqa: F401 (Function at the prompt)
from tracegrad.eager.make import asarray, tensor
from tracegrad.errors import UnsupportedError
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.trace import creation
from tracegrad.trace import shape as shapes
from tracegrad.trace.complex_parts import view_as_complex, view_as_real
from tracegrad.trace.elementwise import select
from tracegrad.trace.face import operate
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.promote import as_arg, trace_of
from tracegrad.trace.tensor import Tensor

float32, float64, bool_ = np.float32, np.float64, np.bool_
complex64, complex128 = np.complex64, np.complex128
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
DTYPES = (
    "bool_",
    "complex64",
    "complex128",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
CREATION = (
    "zeros",
    "ones",
    "full",
    "empty",
    "arange",
    "linspace",
    "eye",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "meshgrid",
)
BY_SIZES = ("zeros", "ones", "empty")  # PyTorch takes sizes one by one, too


def _need_tensor(name: str, xs: Sequence[Any]) -> None:
    if current_trace() is None and not any(isinstance(x, Tracer) for x in xs):
        raise UnsupportedError(
            f"tg.{name} works on Tensors, or inside a compiled function",
            kind="no_trace",
            loc=source.here(),
            remedy=f"Use np.{name} on ndarrays, or tg.{name}(tg.asarray(x)).",
        )


def _of_op(op: OpDef) -> Callable[..., Any]:
    def function(*xs: Any) -> Any:
        _need_tensor(op.tg, xs)
        return operate(op, *xs)

    function.__name__ = function.__qualname__ = op.tg
    function.__doc__ = op.doc or f"Elementwise `{op.name}`."
    return function


def _of_creation(name: str) -> Callable[..., Any]:
    inner = getattr(creation, name)

    @functools.wraps(inner)
    def function(*args: Any, requires_grad: bool = False, **keywords: Any) -> Any:
        if name in BY_SIZES and len(args) > 1 and all(type(n) is int for n in args):
            args = (args,)
        out = inner(*args, **keywords)
        return out.requires_grad_() if requires_grad else out

    function.__doc__ = (
        f"As ``np.{name}``: a Tensor at the prompt, traced inside a compiled "
        "function.  `requires_grad` makes it a leaf (at the prompt)."
    )
    return function


def where(condition: Any, x: Any, y: Any) -> Any:
    """Elements of `x` where `condition` holds, else of `y`."""
    _need_tensor("where", (condition, x, y))
    trace = trace_of(condition, x, y)
    return select(trace, *(as_arg(trace, v) for v in (condition, x, y)))


def stack(arrays: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Any:
    """Arrays of one shape along a new axis."""
    return shapes.stack(creation.the_trace(*arrays), list(arrays), axis if dim is None else dim)


def cat(arrays: Sequence[Any], axis: int = 0, *, dim: int | None = None) -> Any:
    """Arrays joined along an axis they have."""
    return shapes.concatenate(
        creation.the_trace(*arrays), list(arrays), axis if dim is None else dim
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{op.tg: _of_op(op) for op in REGISTRY if op.tg},
    **{name: _of_creation(name) for name in CREATION},
    "view_as_real": view_as_real,
    "view_as_complex": view_as_complex,
    "stack": stack,
    "cat": cat,
    "concatenate": cat,
    "where": where,
    "tensor": tensor,
    "asarray": asarray,
    "Tensor": Tensor,
}
