"""Symbols inside attributes: which occur, and the attributes with values put in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tracegrad import dims
from tracegrad.dims import Dim, Expr, Symbol

T = TypeVar("T")


def bind_symbols(x: T, env: Mapping[str, Dim]) -> T:
    """`x` (attributes, views, types, tuples of them) with symbols replaced by name."""
    return _bind(x, env)  # type: ignore[no-any-return]


def _bind(x: Any, env: Mapping[str, Dim]) -> Any:
    if isinstance(x, Expr):
        return dims.substitute(x, env)
    if isinstance(x, tuple):
        bound = [_bind(e, env) for e in x]
        return x if all(a is b for a, b in zip(x, bound, strict=True)) else tuple(bound)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x) if f.init}
        changed = {name: _bind(value, env) for name, value in fields.items()}
        if all(changed[name] is value for name, value in fields.items()):
            return x
        return dataclasses.replace(x, **changed)
    return x


def symbols_of(x: Any) -> frozenset[Symbol]:
    """The symbols that occur in attributes, views, types or tuples of them."""
    return frozenset(_symbols(x))


def _symbols(x: Any) -> Iterator[Symbol]:
    if isinstance(x, Expr):
        yield from dims.symbols(x)
    elif isinstance(x, tuple):
        for e in x:
            yield from _symbols(e)
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        for f in dataclasses.fields(x):
            yield from _symbols(getattr(x, f.name))
