"""Lists and dictionaries found outside a trace, as traced code sees them.

They are real lists and dictionaries whose elements are substituted; what traced code does to
them it also does to the original, as a Python side effect of tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tracegrad import source
from tracegrad.errors import CaptureError
from tracegrad.trace.leaves import tree_leaves
from tracegrad.trace.symbolic import outside_change
from tracegrad.trace.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.trace.substitute import Substitution


class GuardedList(list):  # type: ignore[type-arg]
    """A captured list."""

    def __init__(self, raw: list[Any], sub: Substitution) -> None:
        super().__init__()
        self._raw = raw
        self._sub = sub

    def fill(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Append the substituted elements."""
        super().extend(value for _, value in pairs)


class GuardedDict(dict):  # type: ignore[type-arg]
    """A captured dictionary."""

    def __init__(self, raw: dict[Any, Any], sub: Substitution) -> None:
        super().__init__()
        self._raw = raw
        self._sub = sub

    def fill(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Set the substituted elements."""
        super().update(pairs)


# Appending happens when tracing, like `print`; replacing an element would be lost later.
_STORES = {"__setitem__", "update", "setdefault", "__ior__"}


def _restoring(raw: Any) -> Callable[[], None]:
    """Gives a list or dictionary the contents that it has now."""
    held = raw.copy()

    def restore() -> None:
        raw.clear()
        raw.update(held) if isinstance(raw, dict) else raw.extend(held)

    return restore


def _both(base: type, name: str) -> Any:
    """A mutating method that runs on the substitute and on the original."""
    plain = getattr(base, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _STORES and any(isinstance(x, Tracer) for x in tree_leaves(args)):
            raise CaptureError(
                f"a traced value is stored in a {base.__name__} outside the function",
                kind="outside_write",
                loc=source.here(),
                remedy="Return it, or write into the array that is there: x[...] = value.",
            )
        original = self._sub.original
        outside_change(_restoring(self._raw))
        raw_args = [original(x) for x in args]
        plain(self._raw, *raw_args, **{k: original(v) for k, v in kwargs.items()})
        out = plain(self, *args, **kwargs)
        return self if name.startswith("__i") else out

    method.__name__ = name
    return method


for _name in (
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "reverse",
    "__setitem__",
    "__delitem__",
    "__iadd__",
    "__imul__",
):
    setattr(GuardedList, _name, _both(list, _name))
for _name in (
    "pop",
    "popitem",
    "clear",
    "update",
    "setdefault",
    "__setitem__",
    "__delitem__",
    "__ior__",
):
    setattr(GuardedDict, _name, _both(dict, _name))
