"""Places: items of lists and dictionaries and attributes of objects, as slots of a loop.

An object of traced code is made anew each time the trace starts again, so a place is remembered
by the way that leads to it from a local name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import (
    BuiltinMethodType,
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
)
from typing import Any

from tracegrad.trace import frames
from tracegrad.trace.frames import ABSENT
from tracegrad.trace.loop_reach import Path, contents, has_fields

_PASSAGES = (
    tuple,
    list,
    set,
    frozenset,
    deque,
    bytearray,
    dict,
    type,
    partial,
    CellType,
    FunctionType,
    MethodType,
    BuiltinMethodType,
    GeneratorType,
)
LIST = -1  # the last step of a path to a list that the body appends to


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Position `at` in the contents of `owner`, under `key` there."""

    owner: Any
    at: int
    key: Any

    @property
    def ident(self) -> tuple[int, int]:
        return id(self.owner), self.at

    def read(self) -> Any:
        if isinstance(self.owner, (list, dict)):
            return self.owner[self.key]
        own = getattr(self.owner, "__dict__", {})
        return own[self.key] if self.key in own else getattr(self.owner, self.key)

    def write(self, value: Any) -> None:
        """Past the properties and ``__setattr__`` of the owner's class, which have run."""
        if isinstance(self.owner, (list, dict)):
            self.owner[self.key] = value
        elif self.key in getattr(self.owner, "__dict__", {}):
            self.owner.__dict__[self.key] = value
        else:
            object.__setattr__(self.owner, self.key, value)


class Scope:
    """The slots of a loop in `frame`: local `names` and the places that `paths` lead to now."""

    def __init__(
        self,
        frame: FrameType,
        names: tuple[str, ...],
        paths: Collection[Path],
        containers: Collection[str],
    ) -> None:
        self.frame = frame
        self.names = names
        self.places: dict[str, Place] = {}
        for path in paths:
            if path.steps[-1:] == (LIST,):
                continue
            place, text = find(frame, path)
            if place is None or any(p.ident == place.ident for p in self.places.values()):
                continue
            if any(text.startswith(f"{c}[") for c in containers):
                continue  # a leaf of what is taken apart anyway
            while text in self.places:
                text += "'"
            self.places[text] = place

    def read(self) -> dict[str, Any]:
        out = frames.read(self.frame, self.names)
        out |= {text: place.read() for text, place in self.places.items()}
        return out

    def write(self, values: Mapping[str, Any]) -> None:
        """Bind names and places; ABSENT leaves one as it is."""
        frames.write(self.frame, {n: v for n, v in values.items() if n not in self.places})
        for text, place in self.places.items():
            if values.get(text, ABSENT) is not ABSENT:
                place.write(values[text])

    def idents(self, slots: Collection[str] | None = None) -> set[tuple[int, int]]:
        """The places, or those of `slots` among them."""
        return {p.ident for t, p in self.places.items() if slots is None or t in slots}


def find(frame: FrameType, path: Path) -> tuple[Place | None, str]:
    """The place at `path` (nothing if there is none now), and how it reads in the program."""
    x, text = resolved(frame, path.frame, path.name, path.steps[:-1])
    inside, at = contents(x), path.steps[-1]
    if at == LIST:
        return None, text
    keys = len(inside) // 2
    keyed = type(x) is dict or (has_fields(x) and not _is_passage(x))
    if at >= len(inside) or not (type(x) is list or at >= keys and keyed):
        return None, ""
    key = at if type(x) is list else inside[at - keys]
    return Place(x, at, key), _text(x, text, at, inside)


def resolved(frame: FrameType, depth: int, name: str, steps: tuple[int, ...]) -> tuple[Any, str]:
    """The object that a path leads to (ABSENT if to none), and how it reads in the program."""
    around = [f for f in frames.callers(frame) if f is not frame]
    if depth > len(around):
        return ABSENT, ""
    x, text = frames.everything(around[depth - 1] if depth else frame).get(name, ABSENT), name
    for step in steps:
        inside = contents(x)
        if step >= len(inside):
            return ABSENT, ""
        text = _text(x, text, step, inside)
        x = inside[step]
    return x, text


def _is_passage(x: Any) -> bool:
    """Whether `x` has no keys that it could be read by."""
    return isinstance(x, _PASSAGES)


def _text(x: Any, text: str, step: int, inside: list[Any]) -> str:
    """What stands at position `step` in `x`, which reads `text`."""
    if isinstance(x, (list, tuple)):
        return f"{text}[{step}]"
    if isinstance(x, FunctionType):
        names = x.__code__.co_freevars
        return names[step] if step < len(names) else text
    if not isinstance(x, dict) and _is_passage(x) or step < len(inside) // 2:
        return text
    key = inside[step - len(inside) // 2]
    return f"{text}[{key!r}]" if isinstance(x, dict) else f"{text}.{key}"
