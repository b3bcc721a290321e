"""Calls whose result changes from call to call: refused while tracing, by identity."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.errors import ImpureCallError
from tracegrad.trace.substitute_table import Callee

_DRAW = "Draw before the call and pass the array as an argument."
_CLOCK = "Read the clock before the call and pass the number as an argument."
_FILE = "Read the file before the call and pass the array as an argument."

# Names of `time` that depend on their arguments alone.
_PURE = {"sleep", "strftime", "strptime", "mktime", "asctime", "struct_time", "tzset"}


def _entries() -> Iterator[tuple[str, Any, str]]:
    """``(name as called, object, remedy)`` of what is impure, in modules that are imported."""
    for spelling, remedy in (
        ("numpy.random", _DRAW),
        ("random", _DRAW),
        ("secrets", _DRAW),
        ("time", _CLOCK),
        ("uuid", "Make it before the call and pass it as an argument."),
    ):
        module = sys.modules.get(spelling)
        if module is None:
            continue
        for name, value in vars(module).items():
            if (
                name.startswith("_")
                or not callable(value)
                or isinstance(value, ModuleType)
                or (spelling == "time" and name in _PURE)
                or (spelling == "uuid" and not name.startswith("uuid"))
                or (spelling == "uuid" and name in ("uuid3", "uuid5"))
                or (isinstance(value, type) and value.__module__ == "builtins")
            ):
                continue
            yield f"{spelling.replace('numpy', 'np')}.{name}", value, remedy
    os = sys.modules["os"]
    for name in ("urandom", "getrandom"):
        if hasattr(os, name):
            yield f"os.{name}", getattr(os, name), _DRAW
    yield "open", builtins.open, _FILE
    yield "input", builtins.input, "Read the input before the call and pass it."
    for name in ("load", "loadtxt", "genfromtxt", "fromfile"):
        yield f"np.{name}", getattr(np, name), _FILE


def _modules() -> tuple[bool, ...]:
    return tuple(
        name in sys.modules for name in ("random", "secrets", "time", "uuid", "numpy.random")
    )


@lru_cache(maxsize=8)
def _table(modules: tuple[bool, ...]) -> dict[int, tuple[Any, str, str]]:
    out: dict[int, tuple[Any, str, str]] = {}
    for name, value, remedy in _entries():
        try:
            if getattr(value, "__module__", "") in ("typing", "warnings", "collections.abc"):
                continue
        except Exception:  # an object whose attributes raise is no function of these modules
            continue
        out.setdefault(id(value), (value, name, remedy))
    return out


def impure(value: Any) -> Any:
    """A substitute that refuses to be used, for impure functions and random generators."""
    found = _table(_modules()).get(id(value))
    if found is not None and found[0] is value:
        refuse = _refusing(found[1], found[2])
        return Callee(value, refuse) if isinstance(value, type) else refuse
    if isinstance(value, type) and value.__module__ == "datetime":
        return _clock(value)
    generators = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    random = sys.modules.get("random")
    if isinstance(value, generators) or (random is not None and isinstance(value, random.Random)):
        return RandomSource(type(value))
    return None


@lru_cache(maxsize=8)
def _clock(kind: type) -> Any:
    """``datetime.datetime`` or ``datetime.date`` that does not tell the time; None for others."""
    asking = [n for n in ("now", "utcnow", "today") if hasattr(kind, n)]
    if not asking:
        return None
    refused = {n: staticmethod(_refusing(f"{kind.__name__}.{n}", _CLOCK)) for n in asking}
    return type(kind.__name__, (kind,), refused)


def _refusing(name: str, remedy: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise_impure(f"{name}()", remedy)

    refuse.__name__ = name
    return refuse


def raise_impure(what: str, remedy: str = _DRAW) -> NoReturn:
    """Refuse `what` at the user's line."""
    raise ImpureCallError(
        f"{what} gives another result at each call, and a traced function must depend on its "
        "arguments alone",
        loc=source.here(),
        remedy=remedy,
    )


class RandomSource:
    """Stands for a random generator in traced code; every method of it is refused."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __getattribute__(self, name: str) -> Any:
        kind = object.__getattribute__(self, "_kind")
        if name == "__class__":
            return kind
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise_impure(f"{kind.__name__}.{name}")

    def __repr__(self) -> str:
        kind = object.__getattribute__(self, "_kind")
        return f"<random {kind.__name__} in traced code>"
