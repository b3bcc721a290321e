"""The globals of rebuilt functions: a dictionary that substitutes what it finds."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING, Any

from tracegrad import source
from tracegrad.errors import CaptureError
from tracegrad.trace.guards import ABSENT, Global
from tracegrad.trace.substitute_code import is_callee
from tracegrad.trace.substitute_table import Callee

if TYPE_CHECKING:
    from tracegrad.trace.substitute import Substitution


class Namespace(dict):  # type: ignore[type-arg]
    """The globals of rebuilt functions of one module.

    Every instruction that loads a global from a dict subclass goes through ``__getitem__``;
    class bodies read the storage itself, which therefore holds a copy.
    """

    __slots__ = ("base", "sub", "cache")

    def __init__(self, sub: Substitution, base: dict[str, Any]) -> None:
        super().__init__(base)
        self.base = base
        self.sub = sub
        self.cache: dict[str, tuple[Any, Any]] = {}
        super().__setitem__("__builtins__", sub.builtins)

    def __getitem__(self, name: str) -> Any:
        raw = self.base.get(name, ABSENT)
        found = self.cache.get(name)
        if found is None or found[0] is not raw:
            found = (raw, self._find(name, raw))
            self.cache[name] = found
        value = found[1]
        if type(value) is Callee:
            frame = sys._getframe(1)
            if is_callee(frame.f_code, frame.f_lasti):
                return value.substitute
            return value.real
        return value

    def _find(self, name: str, raw: Any) -> Any:
        if not self.sub.is_open:
            return self.base[name] if raw is not ABSENT else vars(builtins)[name]
        path = Global(self.base, name, self._prefix())
        if raw is ABSENT:
            value = vars(builtins)[name]  # a KeyError becomes the NameError of plain Python
            self.sub.captures.guard(path, ABSENT)
            return self.sub.builtin(value)
        return self.sub.read(path, raw, named=True)

    def _prefix(self) -> str:
        return "" if self.base is self.sub.home else str(self.base.get("__name__", ""))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.base else default

    def __setitem__(self, name: str, value: Any) -> None:
        raise CaptureError(
            f"globals()[{name!r}] is assigned in traced code",
            kind="outside_write",
            loc=source.here(),
            remedy="Return the value from the function.",
        )

    def __delitem__(self, name: str) -> None:
        self[name] = None
