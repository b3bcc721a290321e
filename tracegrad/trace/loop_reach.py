"""What traced code can reach besides the names of a loop: has the body changed it?

Lists, dictionaries, sets, objects, closures and the local names of callers cannot be carried.
They are compared before and after a body is traced once; a body that changes them is no loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.trace import frames
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tracer import Trace, Tracer

_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement
_LEAVES = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.generic,
    np.ndarray,
    Tracer,
    SymbolicInt,
    frames.Gone,
    type,
)


class Reach:
    """The objects that can be reached from `frame` and its callers, with their contents now."""

    def __init__(self, frame: FrameType, watched: list[tuple[Any, Any]]) -> None:
        self.frame = frame
        self.watched, self.known = watched, len(watched)
        self.outer = [f for f in frames.callers(frame) if f is not frame]
        self.names = frames.everything(frame)
        self.locals = [frames.everything(f) for f in self.outer]
        self.objects = _walk(
            [
                *(raw for raw, _ in watched),
                *self.names.values(),
                *(v for names in self.locals for v in names.values()),
            ]
        )

    def tracers(self, but: Collection[str] = (), apart: Collection[Any] = ()) -> Iterator[Tracer]:
        """Every traced value, but those directly under the local names `but`, and those that only
        the containers `apart` lead to, which no one else holds."""
        for name, value in self.names.items():
            if isinstance(value, Tracer) and name not in but:
                yield value
        held = [v for names in self.locals for v in names.values()]
        for x in held:
            if isinstance(x, Tracer):
                yield x
        for obj, inside in self.objects.values():
            if not any(obj is a for a in apart) or self._times_held(obj) > 1:
                yield from (x for x in inside if isinstance(x, Tracer))

    def _times_held(self, obj: Any) -> int:
        holders = [
            list(self.names.values()),
            *(list(n.values()) for n in self.locals),
            *(inside for _, inside in self.objects.values()),
        ]
        return sum(x is obj for inside in holders for x in inside)

    def change(self, stored: Collection[str]) -> str:
        """What the body did to something other than the names it stores; empty if nothing.

        Cells under stored names are those names.
        """
        now = {id(v): n for n, v in frames.everything(self.frame).items() if n in stored}
        for obj, inside in self.objects.values():
            after = _contents(obj)
            if isinstance(obj, CellType) and after and id(after[0]) in now:
                continue
            if len(after) != len(inside) or not all(map(same, inside, after)):
                return f"it changes {self._describe(obj)}"
        for raw, held in self.watched[self.known :]:
            if not _equal(raw, held):
                return f"it changes a {type(raw).__name__} outside the function"
        for frame, before in zip(self.outer, self.locals, strict=True):
            for name, value in frames.everything(frame).items():
                if not same(before.get(name, frames.ABSENT), value) and id(value) not in now:
                    return f"it changes {name} of {frame.f_code.co_name}"
        return ""

    def renamed(self, stored: Collection[str]) -> list[str]:
        """Local names that hold something else now, although the body's code stores others."""
        return [
            n
            for n, v in frames.everything(self.frame).items()
            if n not in stored and not same(self.names.get(n, frames.ABSENT), v)
        ]

    def _describe(self, obj: Any) -> str:
        kind = type(obj).__name__
        for name, value in self.names.items():
            if value is obj:
                return f"the {kind} {name}"
        for names in self.locals:
            for name, value in names.items():
                if value is obj:
                    return f"the {kind} {name}"
        if isinstance(obj, CellType):
            return "a variable of an inner function"
        return f"a {kind}"


def left_behind(value: Any, trace: Trace, index: str, stored: Collection[str]) -> str:
    """What an object made in the body holds of the body: ``index``, ``value`` or nothing."""
    found = ""
    for _, inside in _walk([value], stored).values():
        for x in inside:
            if isinstance(x, SymbolicInt) and any(s.name == index for s in dims.symbols(x.dim)):
                return "index"
            if isinstance(x, Tracer) and x.trace is trace:
                found = "value"
    return found


def _equal(a: Any, b: Any) -> bool:
    x, y = _contents(a), _contents(b)
    return len(x) == len(y) and all(map(same, x, y))


def same(a: Any, b: Any) -> bool:
    """One object, or equal numbers or text of one type."""
    if a is b:
        return True
    return (
        type(a) is type(b)
        and isinstance(a, (bool, int, float, complex, str, np.generic))
        and bool(a == b or (a != a and b != b))
    )


def _walk(roots: list[Any], skip: Collection[str] = ()) -> dict[int, tuple[Any, list[Any]]]:
    """Objects with contents that `roots` lead to; closure cells named `skip` are passed over."""
    seen: dict[int, tuple[Any, list[Any]]] = {}
    stack = list(roots)
    while stack:
        x = stack.pop()
        if isinstance(x, _LEAVES) or id(x) in seen:
            continue
        inside = _contents(x, skip)
        seen[id(x)] = x, inside
        stack.extend(inside)
    return seen


def _contents(x: Any, skip: Collection[str] = ()) -> list[Any]:
    """The objects directly inside `x`."""
    if isinstance(x, dict):
        return [*x.keys(), *x.values()]
    if isinstance(x, (list, tuple, set, frozenset, deque)):
        return list(x)
    if isinstance(x, CellType):
        try:
            return [x.cell_contents]
        except ValueError:
            return []
    if isinstance(x, FunctionType):
        cells = zip(x.__code__.co_freevars, x.__closure__ or (), strict=False)
        return [
            *(c for name, c in cells if name not in skip),
            *(x.__defaults__ or ()),
            *(x.__kwdefaults__ or {}).values(),
        ]
    if isinstance(x, MethodType):
        return [x.__self__, x.__func__]
    if isinstance(x, partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, GeneratorType):
        return [] if x.gi_frame is None else list(x.gi_frame.f_locals.values())
    kind = type(x)
    if kind.__flags__ & _HEAP and not kind.__module__.startswith(("tracegrad.", "numpy.")):
        out = list(getattr(x, "__dict__", {}).values())
        for c in kind.__mro__:
            slots = c.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(x, name) and name not in ("__dict__", "__weakref__"):
                    out.append(getattr(x, name))
        return out
    return []
