"""What a nested trace takes from the traces around it: their tracers become its inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracegrad.graph.builder import GraphBuilder
from tracegrad.trace import known
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import is_tracking
from tracegrad.trace.tracking import Recorder
from tracegrad.views import family
from tracegrad.views.family import Alias


@dataclass(slots=True, eq=False)
class Capture:
    """A storage of an outer trace that a nested trace uses: its base there, its copy here.

    `passed`: arguments of the nested function are views of it.  `tracked`: it was reached through
    a tensor that requires a gradient.
    """

    outer: Memory
    inner: Memory
    passed: bool = False
    tracked: bool = False


class Nesting(Recorder):
    """The part of `Trace` that deals with enclosing traces."""

    builder: GraphBuilder
    open: bool
    captures: dict[Memory, Capture]
    _families: dict[object, family.Family]
    _cut: Any
    _has_inference: bool
    _plain: dict[tuple[Alias, int, bool], Tracer]
    loop: Any

    @abstractmethod
    def _follow(self, x: Tracer) -> None:
        """Move a view to its base's new family once that has been written."""

    def lift(self, x: Tracer) -> Tracer:
        """`x` as a tracer of this trace; outer tracers become captures of the region."""
        if x.trace is self:
            if not self.open:
                raise known.leaked(x)
            if self._cut:
                self._follow(x)
            return x
        trace: Any = self.parent
        while trace is not None and trace is not x.trace:
            trace = trace.parent
        if trace is None or not trace.open:
            raise known.leaked(x)
        if x.concrete is not None and not x.memory.written:
            return self._again(x, x.alias, x._array)
        assert self.parent is not None
        if trace is not self.parent:
            x = self.parent.lift(x)
        return self._captured(x)

    def _captured(self, x: Tracer) -> Tracer:
        if x.alias.ruled:
            x = x.trace.plain(x)  # type: ignore[attr-defined]
        outer = x.memory
        if outer.array is not None:
            x.trace._promote(outer)  # type: ignore[attr-defined]
        capture = self.captures.get(outer)
        if capture is None:
            capture = self._capture(outer, tracked=False)
        a = x.alias
        capture.tracked |= a.requires_grad
        fam = self._families.setdefault(a.family, self._family_of(a.family))
        own = a.own and self.loop is not None
        alias = replace(a, storage=capture.inner, family=fam, own=own)  # type: ignore[type-var]
        return self._again(x, alias, None)

    def _family_of(self, outer: family.Family) -> family.Family:
        """What stands here for a family outside: the body of a loop goes on with its history, a
        function that is differentiated has one of its own."""
        return family.Family(False) if self.loop is None else replace(outer)

    def _capture(self, outer: Memory, *, tracked: bool) -> Capture:
        """A new input for a storage of the enclosing trace."""
        assert outer.base is not None and outer.family is not None
        value = self.builder.input(outer.base.type, outer.base.hint, tracked=tracked)
        inner = Memory(
            outer.shape, outer.dtype, outer.version, trace=self, base=value, layout=outer.layout
        )
        inner.inference, inner.doubted = outer.inference, outer.doubted
        self._has_inference |= outer.inference
        fam = family.Family(tracked) if self.loop is None else self._family_of(outer.family)
        inner.family = self._families.setdefault(outer.family, fam)
        capture = self.captures[outer] = Capture(outer, inner)
        return capture

    def receive(self, xs: Sequence[Tracer], *, tracked: bool) -> list[Tracer]:
        """Views of one storage of the enclosing trace as arguments that stay views of it, so that
        writes through one are seen through the others; `tracked`: gradients may be asked."""
        outer = xs[0].memory
        if outer.array is not None:
            xs[0].trace._promote(outer)  # type: ignore[attr-defined]
        capture = self._capture(outer, tracked=tracked)
        capture.passed = True
        inner, fam = capture.inner, capture.inner.family
        assert fam is not None, "a capture has a family from the start"
        return [
            self._again(x, replace(x.alias, storage=inner, family=fam, own=False), None) for x in xs
        ]

    def plain(self, x: Tracer) -> Tracer:
        """The value of a view whose history is a custom function's, for regions, which know
        storages and their bases only; not to be written there."""
        key = (x.alias, x.memory.version, is_tracking())
        found = self._plain.get(key)
        if found is None:
            found = self._plain[key] = self.read(x)
            found.readonly = True
        return found

    def _again(self, x: Tracer, alias: Alias, array: np.ndarray | None) -> Tracer:
        """A tracer of this trace in the place of `x`."""
        flags = {"scalar": x.scalar, "weak": x.weak, "readonly": x.readonly}
        return self.face(self, alias, x.layout, None, array, **flags)
