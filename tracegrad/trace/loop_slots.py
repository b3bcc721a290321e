"""The names of a loop as slots: a name, or each leaf of a list, tuple or dictionary it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import optree

from tracegrad.trace.frames import ABSENT
from tracegrad.trace.leaves import NAMESPACE
from tracegrad.trace.loop_reach import same


class Slots:
    """`values` of the slots; names in `apart` that hold containers are taken apart."""

    def __init__(self, values: Mapping[str, Any], apart: Collection[str]) -> None:
        self.names = dict(values)
        self.values: dict[str, Any] = {}
        self.forms: dict[str, tuple[Any, list[str]]] = {}
        self._fresh: dict[str, Any] = {}  # the container that the body sees
        for name, value in values.items():
            if name in apart and is_container(value):
                leaves, spec = flatten(value)
                slots = [f"{name}[{k}]" for k in range(len(leaves))]
                self.forms[name] = spec, slots
                self.values.update(zip(slots, leaves, strict=True))
            else:
                self.values[name] = value

    def placed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What names hold in the body, with `values` in some slots; others stay as they are."""
        out = {n: v for n, v in values.items() if n in self.names}
        for name, (spec, slots) in self.forms.items():
            leaves = [values.get(s, self.values[s]) for s in slots]
            out[name] = self._fresh[name] = spec.unflatten(leaves)
        return out

    def after(self, name: str, value: Any) -> dict[str, Any] | str:
        """The slots of a name that was taken apart, at the end of the body, or what is wrong."""
        spec, slots = self.forms[name]
        if not is_container(value):
            return "becomes something other than a container"
        leaves, now = flatten(value)
        if now != spec:
            return "changes its structure"
        return dict(zip(slots, leaves, strict=True))

    def mutated(self, placed: Mapping[str, Any]) -> str:
        """The name of a container that the body changed in place; empty if none."""
        for name, (spec, slots) in self.forms.items():
            leaves, now = flatten(self._fresh[name])
            want = [placed.get(s, self.values[s]) for s in slots]
            if now != spec or not all(map(same, leaves, want)):
                return name
        return ""


def is_container(x: Any) -> bool:
    return isinstance(x, (list, dict, tuple))


def flatten(x: Any) -> tuple[list[Any], Any]:
    leaves, spec = optree.tree_flatten(x, none_is_leaf=True, namespace=NAMESPACE)
    return leaves, spec


def equal(a: Any, b: Any) -> bool:
    """Containers of one structure with the same leaves."""
    if a is ABSENT or not is_container(a) or not is_container(b):
        return False
    (x, s), (y, t) = flatten(a), flatten(b)
    return bool(s == t) and all(map(same, x, y))
