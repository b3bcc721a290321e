"""Paths to what a trace read outside its arguments, and guards that it is still the same.

A path starts at a namespace, a closure cell or a static argument and can be followed again at
each call.  `Outside` is what a specialisation keeps: `enter` checks the guards and fetches the
captured arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from types import CellType
from typing import Any

import numpy as np

from tracegrad.trace.leaves import array_entry
from tracegrad.types import TensorType


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()

# The leaves of the call, in the order of its `CallSignature`.
Leaves = Sequence[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A name in a module's namespace."""

    namespace: dict[str, Any]
    name: str
    module: str = ""

    @property
    def key(self) -> Hashable:
        return (id(self.namespace), self.name)

    def fetch(self, leaves: Leaves) -> Any:
        return self.namespace.get(self.name, ABSENT)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A variable of an enclosing function."""

    cell: CellType
    name: str

    @property
    def key(self) -> Hashable:
        return id(self.cell)

    def fetch(self, leaves: Leaves) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return ABSENT

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """A static leaf of the call; the key of the specialisation guards it."""

    index: int
    name: str

    @property
    def key(self) -> Hashable:
        return self.index

    def fetch(self, leaves: Leaves) -> Any:
        return leaves[self.index]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An object that the trace holds itself (the traced function, what a frozen object owns)."""

    value: Any
    name: str

    @property
    def key(self) -> Hashable:
        return id(self.value)

    def fetch(self, leaves: Leaves) -> Any:
        return self.value

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """An attribute of what another path leads to."""

    parent: Path
    name: str

    @property
    def key(self) -> Hashable:
        return (self.parent.key, "." + self.name)

    def fetch(self, leaves: Leaves) -> Any:
        owner = self.parent.fetch(leaves)
        return ABSENT if owner is ABSENT else getattr(owner, self.name, ABSENT)

    def __str__(self) -> str:
        return f"{self.parent}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """An element of a list, tuple or dictionary that another path leads to."""

    parent: Path
    index: Any

    @property
    def key(self) -> Hashable:
        return (self.parent.key, self.index)

    def fetch(self, leaves: Leaves) -> Any:
        try:
            return self.parent.fetch(leaves)[self.index]
        except (LookupError, TypeError):
            return ABSENT

    def __str__(self) -> str:
        return f"{self.parent}[{self.index!r}]"


Path = Global | Cell | Argument | Constant | Attribute | Item


def same_value(a: Any, b: Any) -> bool:
    """Equality that a program cannot see through: types and bits, element by element."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_value(a[k], b[k]) for k in a)
    if isinstance(a, (int, str, bytes, frozenset, set, range, slice, np.dtype, complex)):
        return bool(a == b)
    return False


def same_keys(a: Any, expected: Any) -> bool:
    """Whether a container has the type, and a dictionary the keys, that were seen."""
    if type(a) is not expected[0]:
        return False
    keys = tuple(a) if isinstance(a, dict) else tuple(range(len(a)))
    return keys == expected[1]


def is_array_like(a: Any, expected: tuple[Any, ...]) -> bool:
    """Whether `a` is an array of the dtype, shape and layout class that were traced."""
    return isinstance(a, np.ndarray) and array_entry(a) == expected


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """What `path` leads to must satisfy ``holds(it, expected)``."""

    path: Path
    expected: Any
    holds: Callable[[Any, Any], bool] = operator.is_

    def describe(self, found: Any) -> str:
        """A line for `explain()`."""
        if found is ABSENT:
            return f"{self.path} is gone"
        if self.holds is is_array_like:
            return f"{self.path} has another dtype, shape or layout"
        if self.holds is same_value:
            return f"{self.path} changed from {self.expected!r} to {found!r}"
        if self.holds is same_keys:
            return f"{self.path} has other elements"
        return f"{self.path} is another object"


@dataclass(frozen=True, slots=True, eq=False)
class CapturedArray:
    """An array found outside: an implicit argument, fetched anew at each call.

    `also` are further paths that led to the same array and must go on doing so.
    """

    path: Path
    type: TensorType
    layout: tuple[int, ...]
    writable: bool
    entry: tuple[Any, ...]
    also: tuple[Path, ...] = ()

    def fetch(self, leaves: Leaves) -> np.ndarray:
        return self.path.fetch(leaves)  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"{self.path}: {self.type}"


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Everything that a specialisation depends on beside its arguments.

    `quick` are the guards of global names, ``(namespace, name, value, guard)``, checked by
    identity first; `slow` are the others.
    """

    guards: tuple[Guard, ...] = ()
    arrays: tuple[CapturedArray, ...] = ()
    quick: list[tuple[dict[str, Any], str, Any, Guard]] = field(default_factory=list)
    slow: list[Guard] = field(default_factory=list)

    def __post_init__(self) -> None:
        for guard in self.guards:
            if (
                isinstance(guard.path, Global)
                and guard.holds in (operator.is_, same_value)
                and not isinstance(guard.expected, (list, dict, set))
            ):
                self.quick.append((guard.path.namespace, guard.path.name, guard.expected, guard))
            else:
                self.slow.append(guard)

    @property
    def is_empty(self) -> bool:
        return not (self.guards or self.arrays)

    def enter(self, leaves: Leaves) -> list[np.ndarray] | None:
        """The captured arrays of this call; None when a guard fails and a new trace is due."""
        for namespace, name, expected, guard in self.quick:
            found = namespace.get(name, ABSENT)
            if found is not expected and not guard.holds(found, expected):
                return None
        if not (self.slow or self.arrays):
            return []
        for guard in self.slow:
            if not guard.holds(guard.path.fetch(leaves), guard.expected):
                return None
        out = []
        for captured in self.arrays:
            array = captured.path.fetch(leaves)
            if not is_array_like(array, captured.entry):
                return None
            for path in captured.also:
                if path.fetch(leaves) is not array:
                    return None
            out.append(array)
        return out

    def fetch(self, leaves: Leaves) -> list[np.ndarray]:
        """The captured arrays of this call, without a look at the guards."""
        return [captured.fetch(leaves) for captured in self.arrays]

    def explain(self, leaves: Leaves) -> str | None:
        """Why `enter` would answer None, as text; None when it would not."""
        for guard in self.guards:
            found = guard.path.fetch(leaves)
            if not guard.holds(found, guard.expected):
                return guard.describe(found)
        for captured in self.arrays:
            found = captured.path.fetch(leaves)
            if not is_array_like(found, captured.entry):
                return Guard(captured.path, captured.entry, is_array_like).describe(found)
            for path in captured.also:
                if path.fetch(leaves) is not found:
                    return f"{path} and {captured.path} are no longer one array"
        return None
