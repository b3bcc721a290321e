"""The table of NumPy functions that work on tracers, and its dispatch (NEP 18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, UnsupportedError

FUNCTIONS: dict[Any, Callable[..., Any]] = {}

F = TypeVar("F", bound=Callable[..., Any])


def implements(*functions: Any) -> Callable[[F], F]:
    """Register the decorated function as what these NumPy functions mean on tracers."""

    def register(implementation: F) -> F:
        for function in functions:
            FUNCTIONS[function] = implementation
        return implementation

    return register


def public_name(func: Any) -> str:
    """``np.linalg.eig``: how a user calls it."""
    module = getattr(func, "__module__", "") or "numpy"
    return f"np{module.removeprefix('numpy')}.{func.__name__}"


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``__array_function__`` of both faces.  Raises UnsupportedError by the function's name."""
    found = FUNCTIONS.get(func)
    if found is None:
        raise UnsupportedError(
            f"{public_name(func)} is not supported yet",
            loc=source.here(),
            remedy="Compute it before the traced call and pass the result, or write it with "
            "functions that are.",
        )
    try:
        return found(*args, **kwargs)
    except TypeError as e:
        if type(e) is not TypeError or not _is_signature(e, found):
            raise
        raise ArgumentError(f"{public_name(func)}: {_complaint(e)}", loc=source.here()) from None


def _is_signature(e: TypeError, found: Any) -> bool:
    """Whether the call itself failed, not something inside."""
    return (
        e.__traceback__ is not None
        and e.__traceback__.tb_next is None
        and str(e).startswith(found.__name__)
    )


def _complaint(e: TypeError) -> str:
    return str(e).partition("() ")[2] or str(e)


NO_VALUE: Any = np._NoValue
