"""What traced code can reach besides the names of a loop: what has the body changed of it?

Lists, dictionaries, sets, objects, classes, closures and the local names of callers are compared
before and after a body is traced once.  Items and attributes that change become slots of the loop
(`loop_places`); a body that changes something else is no loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import (
    BuiltinMethodType,
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.trace import frames
from tracegrad.trace.collector import Collector
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tracer import Trace, Tracer

TRANSFORMS = "__tracegrad_transforms__"  # a cache among the attributes of a function
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
    ModuleType,
)


@dataclass(frozen=True, slots=True)
class Change:
    """What a body did to one object: `text` says it; `owner` is the object where only the
    contents at the positions `at` (of `contents`) changed, `grown` where it has new ones."""

    text: str
    owner: Any = None
    at: tuple[int, ...] = ()
    grown: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """The object that local `name` of a frame (0: that of the loop, then its callers) leads to by
    positions in the contents of one object after the other."""

    frame: int
    name: str
    steps: tuple[int, ...] = ()


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

    def tracers(
        self,
        but: Collection[str] = (),
        apart: Collection[Any] = (),
        places: Collection[tuple[int, int]] = (),
    ) -> Iterator[Tracer]:
        """Every traced value, but those directly under the local names `but`, those at `places`
        (id of an object, position in its contents), and those that only the containers `apart`
        lead to, which no one else holds."""
        for name, value in self.names.items():
            if isinstance(value, Tracer) and name not in but:
                yield value
        held = [v for names in self.locals for v in names.values()]
        for x in held:
            if isinstance(x, Tracer):
                yield x
        for obj, inside in self.objects.values():
            if not any(obj is a for a in apart) or self._times_held(obj) > 1:
                for k, x in enumerate(inside):
                    if isinstance(x, Tracer) and (id(obj), k) not in places:
                        yield x

    def _times_held(self, obj: Any) -> int:
        holders = [
            list(self.names.values()),
            *(list(n.values()) for n in self.locals),
            *(inside for _, inside in self.objects.values()),
        ]
        return sum(x is obj for inside in holders for x in inside)

    def change(self, stored: Collection[str]) -> str:
        """What the body did to something other than the names it stores; empty if nothing."""
        return next((c.text for c in self.changes(stored)), "")

    def changes(
        self, stored: Collection[str], places: Collection[tuple[int, int]] = ()
    ) -> Iterator[Change]:
        """What the body did to something other than the names it stores and the `places`.

        Cells under stored names are those names.
        """
        now = {id(v): n for n, v in frames.everything(self.frame).items() if n in stored}
        for obj, inside in self.objects.values():
            after = contents(obj)
            if isinstance(obj, CellType) and after and id(after[0]) in now:
                continue
            found = self._compared(obj, inside, after, places)
            if found is not None:
                yield found
        for raw, held in self.watched[self.known :]:
            if not _equal(raw, held):
                yield Change(f"it changes a {type(raw).__name__} outside the function")
        for frame, before in zip(self.outer, self.locals, strict=True):
            for name, value in frames.everything(frame).items():
                if not same(before.get(name, frames.ABSENT), value) and id(value) not in now:
                    yield Change(f"it changes {name} of {frame.f_code.co_name}")

    def _compared(
        self, obj: Any, before: list[Any], after: list[Any], places: Collection[tuple[int, int]]
    ) -> Change | None:
        if len(before) == len(after):
            differ = [k for k, (x, y) in enumerate(zip(before, after, strict=True))
                      if not same(x, y) and (id(obj), k) not in places]  # fmt: skip
            if not differ:
                return None
            first = 0 if isinstance(obj, list) else len(before) // 2
            if self.is_owner(obj) and differ[0] >= first:
                return Change(f"it changes {self._describe(obj)}", obj, tuple(differ))
        start = before if isinstance(obj, list) else before[: len(before) // 2]
        grown = len(after) > len(before) and self.is_owner(obj) and all(map(same, start, after))
        return Change(f"it changes {self._describe(obj)}", obj, grown=grown)

    def is_owner(self, obj: Any) -> bool:
        """Whether items or attributes of `obj` may be slots: it was made by traced code."""
        from tracegrad.trace.substitute_objects import is_proxied

        if any(obj is raw for raw, _ in self.watched):
            return False
        return type(obj) in (list, dict, Collector) or has_fields(obj) and is_proxied(obj)

    def path(self, owner: Any) -> Path | None:
        """How to find `owner` when the trace starts again, by the shortest way."""
        frames_ = [self.names, *self.locals]
        todo: deque[tuple[Any, Path]] = deque(
            (v, Path(k, n)) for k, names in enumerate(frames_) for n, v in names.items()
        )
        seen: set[int] = set()
        while todo:
            x, path = todo.popleft()
            if x is owner:
                return path
            if id(x) in seen or id(x) not in self.objects or isinstance(x, (set, frozenset)):
                continue
            seen.add(id(x))
            inside = self.objects[id(x)][1]
            todo.extend((y, Path(path.frame, path.name, (*path.steps, k)))
                        for k, y in enumerate(inside))  # fmt: skip
        return None

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


def left_behind(
    value: Any, trace: Trace, index: str, stored: Collection[str], known: Collection[int]
) -> str:
    """What an object made in the body holds of the body: ``index``, ``value`` or nothing.

    `known`: ids of objects from before the body, whose contents are compared for themselves."""
    found = ""
    for _, inside in _walk([value], stored, known).values():
        for x in inside:
            if isinstance(x, SymbolicInt) and any(s.name == index for s in dims.symbols(x.dim)):
                return "index"
            if isinstance(x, Tracer) and x.trace is trace:
                found = "value"
    return found


def holds(names: Mapping[str, Any], x: Any) -> bool:
    """Whether the values of `names` lead to `x`."""
    found = _walk(list(names.values()))
    return id(x) in found


def _equal(a: Any, b: Any) -> bool:
    x, y = contents(a), contents(b)
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


def _walk(
    roots: list[Any], skip: Collection[str] = (), known: Collection[int] = ()
) -> dict[int, tuple[Any, list[Any]]]:
    """Objects with contents that `roots` lead to; closure cells named `skip` and the objects
    `known` are passed over."""
    seen: dict[int, tuple[Any, list[Any]]] = {}
    stack = list(roots)
    while stack:
        x = stack.pop()
        if isinstance(x, _LEAVES) or id(x) in seen or id(x) in known:
            continue
        inside = contents(x, skip)
        seen[id(x)] = x, inside
        stack.extend(inside)
        if not isinstance(x, type) and has_fields(x):
            stack.append(type(x))
    return seen


def contents(x: Any, skip: Collection[str] = ()) -> list[Any]:
    """The objects directly inside `x`; of dictionaries and objects the keys, then the values."""
    if isinstance(x, dict):
        keys = [k for k in x if k != TRANSFORMS]
        return [*keys, *(x[k] for k in keys)]
    if isinstance(x, Collector):
        return x._items()
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
            *(v for k, v in x.__dict__.items() if not k.startswith("__")),
        ]
    if isinstance(x, BuiltinMethodType):
        return [x.__self__]
    if isinstance(x, MethodType):
        return [x.__self__, x.__func__]
    if isinstance(x, partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, GeneratorType):
        return [] if x.gi_frame is None else list(x.gi_frame.f_locals.values())
    if isinstance(x, bytearray):
        return list(x)
    if isinstance(x, type):
        if not _is_users(x):
            return []
        return [v for k, v in list(vars(x).items()) if k not in ("__dict__", "__weakref__")]
    if has_fields(x):
        found = fields(x)
        return [*found, *found.values()]
    if callable(x) and type(x).__dictoffset__:
        # A compiled function, a transform: what they wrap.  Proxies of objects have no dictionary.
        return [v for v in vars(x).values() if callable(v)]
    return []


def has_fields(x: Any) -> bool:
    """Whether `x` is an object whose attributes are read directly."""
    kind = type(x)
    if kind.__module__.startswith(("tracegrad.", "numpy.")):
        return False
    return bool(kind.__flags__ & _HEAP) or hasattr(x, "__dict__")


def fields(x: Any) -> dict[str, Any]:
    """The attributes of the object itself."""
    out = dict(getattr(x, "__dict__", {}))
    for c in type(x).__mro__:
        for name, d in vars(c).items() if c.__flags__ & _HEAP else ():
            if isinstance(d, MemberDescriptorType):
                try:
                    out[name] = d.__get__(x)
                except AttributeError:
                    continue
    return out


def _is_users(kind: type) -> bool:
    from tracegrad.trace.substitute_objects import is_user_class

    return is_user_class(kind)
