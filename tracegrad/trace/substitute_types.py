"""The builtin types `range`, `enumerate`, `zip`, `reversed` and `map` as traced code sees them.

Code hands them on: ``over = range``, ``partial(range, 3)``, a default argument.  So a call makes a
sequence that may roll wherever it is written, and everything else finds the type itself.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from tracegrad.trace import rolling
from tracegrad.trace.rolling import RollingRange, SymbolicRange


class _Seen(type):
    """A class that stands for the builtin type `_real`."""

    _real: type
    _make: Callable[..., Any]
    _forms: tuple[type, ...]

    def __new__(meta, real: type, make: Callable[..., Any], forms: tuple[type, ...] = ()) -> _Seen:
        space = {"__doc__": real.__doc__, "__module__": real.__module__}
        return super().__new__(meta, real.__name__, (), space)

    def __init__(cls, real: type, make: Callable[..., Any], forms: tuple[type, ...] = ()) -> None:
        cls._real, cls._make, cls._forms = real, staticmethod(make), forms

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return cls._make(*args, **keywords)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, (cls._real, *cls._forms))

    def __subclasscheck__(cls, kind: type) -> bool:
        return kind is cls or issubclass(kind, cls._real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls._real

    def __hash__(cls) -> int:
        return hash(cls._real)

    def __repr__(cls) -> str:
        return repr(cls._real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._real, name)


RANGE = _Seen(builtins.range, rolling.rolling_range, (RollingRange, SymbolicRange))


def iterating() -> Iterator[tuple[Any, Any]]:
    """``(builtin, its substitute)``."""
    yield builtins.range, RANGE
    yield builtins.reversed, _Seen(builtins.reversed, rolling.rolling_reversed)
    yield builtins.enumerate, _Seen(builtins.enumerate, rolling.rolling_enumerate)
    yield builtins.zip, _Seen(builtins.zip, rolling.rolling_zip)
    yield builtins.map, _Seen(builtins.map, rolling_map)
    yield builtins.iter, rolling.rolling_iter


def rolling_map(function: Any, *iterables: Any) -> Any:
    """``map``, whose function is called as if it were written out."""
    from tracegrad.trace.substitute_table import Callee, find_substitute

    found = find_substitute(function)
    seen = found.substitute if type(found) is Callee else function
    return rolling.rolling_map(seen, *iterables)


def is_range(x: Any) -> bool:
    """Whether `x` is what a call of ``range`` makes in traced code."""
    return isinstance(x, (RollingRange, SymbolicRange))
