"""What is substituted, by identity: the one list of NumPy, `math`, SciPy and builtin names.

A type that code only calls, compares or hands on (`range`) is seen as a class that stands for it;
one that NumPy or Python must get as it is (`float` as a dtype), as a `Callee`.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import CaptureError, UnsupportedError
from tracegrad.trace.modes import current_trace
from tracegrad.trace.substitute_types import iterating
from tracegrad.trace.tracer import Tracer


@dataclass(frozen=True, slots=True, eq=False)
class Callee:
    """A function that is substituted only where it is called: a type, or a NumPy function
    that may be compared or have its attributes read."""

    real: Any
    substitute: Callable[..., Any]


_CREATION = (
    "zeros",
    "ones",
    "full",
    "empty",
    "arange",
    "linspace",
    "logspace",
    "geomspace",
    "eye",
    "identity",
    "tri",
    "array",
    "asarray",
    "asanyarray",
    "ascontiguousarray",
    "asfortranarray",
    "require",
    "copy",
    "isscalar",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "asarray_chkfinite",
    "fromfunction",
    "indices",
    "block",
)
_SCALARS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
# These take sequences of arrays, which NumPy dispatches on.
_SEQUENCES = {
    "stack",
    "concatenate",
    "concat",
    "hstack",
    "vstack",
    "dstack",
    "column_stack",
    "block",
    "select",
    "choose",
    "piecewise",
    "meshgrid",
    "ix_",
    "einsum",
    "broadcast_arrays",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "lexsort",
}


def find_substitute(value: Any) -> Any:
    """The substitute of a function or type, or None."""
    found = _table("scipy.special" in sys.modules).get(id(value))
    return found[1] if found is not None and found[0] is value else None


@lru_cache(maxsize=2)
def _table(with_scipy: bool) -> dict[int, tuple[Any, Any]]:
    out: dict[int, tuple[Any, Any]] = {}
    pairs = [*_builtins(), *_numpy()]
    if with_scipy:
        from tracegrad.trace.substitute_scipy import special_functions

        pairs += special_functions(concrete)
    for real, substitute in pairs:
        out.setdefault(id(real), (real, substitute))
    return out


def _builtins() -> Iterator[tuple[Any, Any]]:
    from tracegrad.trace import substitute_builtins as sb

    yield builtins.float, Callee(float, sb.as_float)
    yield builtins.int, Callee(int, sb.as_int)
    yield builtins.type, Callee(type, sb.as_type)
    yield builtins.super, Callee(super, sb.as_super)
    yield builtins.isinstance, sb.is_instance
    yield builtins.len, sb.as_len
    yield from iterating()
    yield builtins.max, sb.as_max
    yield builtins.min, sb.as_min
    yield from sb.math_functions()


def _numpy() -> Iterator[tuple[Any, Any]]:
    from tracegrad.trace import creation, floating

    for name in _CREATION:
        if hasattr(creation, name):
            yield getattr(np, name), getattr(creation, name)
    yield np.isscalar, _isscalar
    for name in _SCALARS:
        kind = np.dtype(name).type
        yield kind, Callee(kind, _scalar_type(kind, creation.as_dtype))
    yield np.errstate, Callee(np.errstate, floating.errstate)
    yield np.seterr, Callee(np.seterr, floating.seterr)
    yield np.ndarray, Callee(np.ndarray, _no_ndarray)
    as_strided = getattr(creation, "as_strided", None)
    if as_strided is not None:
        yield np.lib.stride_tricks.as_strided, as_strided
    yield np.r_, creation.r_
    yield np.c_, creation.c_
    yield np.mgrid, _Grid(np.mgrid)
    yield np.ogrid, _Grid(np.ogrid)


def _isscalar(x: Any) -> bool:
    return x.scalar if isinstance(x, Tracer) else np.isscalar(x)


def _scalar_type(kind: type[np.generic], convert: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if len(args) == 1 and (
            isinstance(args[0], Tracer)
            or (type(args[0]) in (list, tuple) and _holds_tracer(args[0]))
        ):
            return convert(args[0], kind)
        return concrete(kind(*args))

    return call


def _no_ndarray(*args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        "np.ndarray(...) is not supported in traced code",
        loc=source.here(),
        remedy="Use np.empty(shape, dtype).",
    )


class _Grid:
    """``np.mgrid`` and ``np.ogrid`` in traced code: constants of the trace."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getitem__(self, key: Any) -> Any:
        return concrete(self._real[key])


# ------------------------------------------------------------------------ installed functions


def is_installed_function(value: Any) -> bool:
    """A function of NumPy or another installed package that is not written in Python."""
    return isinstance(value, (np.ufunc, type(np.sum), BuiltinFunctionType))


def wrap_installed(real: Callable[..., Any]) -> Any:
    """An installed function: arrays it makes are constants of the trace, and lists of traced
    values given to NumPy become arrays first.  Functions of the standard library, which makes
    no arrays, and of tracegrad stay as they are."""
    module = str(getattr(real, "__module__", None) or "builtins").partition(".")[0]
    if isinstance(real, np.ufunc):
        module = "numpy"
    if module == "tracegrad" or module in sys.stdlib_module_names:
        return real
    is_numpy = module == "numpy"
    gathers = is_numpy and getattr(real, "__name__", "") not in _SEQUENCES

    def call(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is None:
            return real(*args, **kwargs)
        if gathers:
            args = tuple(_gathered(x) for x in args)
        if is_numpy:
            args = tuple(known_array(x) if type(x) is np.ndarray else x for x in args)
        return concrete(real(*args, **kwargs))

    return Callee(real, call)


def _gathered(x: Any) -> Any:
    if type(x) in (list, tuple) and _holds_tracer(x):
        from tracegrad.trace import creation

        return creation.array(x)
    return x


def _holds_tracer(x: Any) -> bool:
    return any(isinstance(y, Tracer) or (type(y) in (list, tuple) and _holds_tracer(y)) for y in x)


def known_array(array: np.ndarray) -> Any:
    """The tracer of a real array that traced code got hold of.

    Raises:
        CaptureError: no path leads to it, so a later change would go unseen.
    """
    trace = current_trace()
    while trace is not None:
        found = trace.lookup_array(array) if trace.lookup_array is not None else None
        if found is not None:
            return found
        trace = trace.parent
    raise CaptureError(
        f"an array of shape {array.shape} is used in traced code, and it is not known where it "
        "comes from",
        loc=source.here(),
        remedy="Pass it as an argument.",
    )


def concrete(out: Any) -> Any:
    """Arrays made while tracing from constants alone, as constants of the trace."""
    trace = current_trace()
    if trace is None:
        return out
    if type(out) is np.ndarray:
        return trace.concrete(out) if out.dtype.kind in "biuf" else out
    if type(out) in (list, tuple) and any(type(x) is np.ndarray for x in out):
        return type(out)(concrete(x) for x in out)
    if (
        isinstance(out, tuple)
        and hasattr(type(out), "_make")
        and any(type(x) is np.ndarray for x in out)
    ):
        return type(out)._make(concrete(x) for x in out)  # type: ignore[attr-defined]
    return out


__all__ = [
    "Callee",
    "concrete",
    "find_substitute",
    "is_installed_function",
    "known_array",
    "wrap_installed",
]
