"""What a trace reads outside its arguments: arrays become implicit arguments, the rest is guarded.

Nested traces share the record of the outermost one, so a captured array is an input there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import CaptureError, TracegradError
from tracegrad.graph.ir import Value
from tracegrad.trace.guards import (
    Argument,
    CapturedArray,
    Constant,
    Guard,
    Outside,
    Path,
    same_value,
)
from tracegrad.trace.leaves import array_entry, check_array, element_strides
from tracegrad.trace.tracer import Memory, Trace, Tracer
from tracegrad.types import TensorType


@dataclass(slots=True, eq=False)
class _Found:
    """A captured array while the trace is open."""

    array: np.ndarray
    tracer: Tracer
    paths: list[Path]
    entry: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Captures:
    """The record of one outermost trace.

    `places` are functions that list ``(path, value)`` of what is reachable, used to give a path
    to an array that was not read through a substituted name.  `shared` are arrays that are views
    of memory with an input of its own; `passed` is such memory that arguments are views of too;
    `kept` are the tracers of the arrays of `Outside`, once closed.
    """

    trace: Trace
    found: dict[int, _Found] = field(default_factory=dict)
    shared: dict[int, Tracer] = field(default_factory=dict)  # by id, given before tracing
    passed: set[Memory] = field(default_factory=set)
    kept: list[Tracer] = field(default_factory=list)
    places: list[Callable[[], Iterator[tuple[Path, Any]]]] = field(default_factory=list)
    _guards: dict[Hashable, Guard] = field(default_factory=dict)

    def guard(
        self, path: Path, expected: Any, holds: Callable[[Any, Any], bool] = operator.is_
    ) -> None:
        """Require at later calls what is true now; the first value read at a path counts."""
        if isinstance(path, (Argument, Constant)):
            return
        key = (type(path), path.key)
        if key not in self._guards:
            self._guards[key] = Guard(path, expected, holds)

    def value(self, path: Path, value: Any) -> Any:
        """`value`, guarded by type and bits."""
        self.guard(path, value, same_value)
        return value

    def array(self, path: Path, array: np.ndarray) -> Tracer:
        """The input of the outermost trace that stands for `array`."""
        found = self.found.get(id(array))
        if found is not None:
            if all(p.key != path.key for p in found.paths):
                found.paths.append(path)
            return found.tracer
        try:
            check_array(array)
        except TracegradError as e:
            e.message = f"{path}: {e.message}"
            raise e.at(source.here()) from None
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in str(path)).strip("_")
        tracer = self.shared.get(id(array))
        if tracer is None:
            tracer = self.trace.argument(
                TensorType(array.shape, dtypes.of(array.dtype)),
                name,
                tracked=False,
                layout=element_strides(array),
                readonly=not array.flags.writeable,
            )
        self.found[id(array)] = _Found(array, tracer, [path], array_entry(array))
        return tracer

    def lookup(self, array: np.ndarray) -> Tracer | None:
        """The tracer of an outside array that met a traced value; None when no path is known."""
        found = self.found.get(id(array))
        if found is not None:
            return found.tracer
        for place in self.places:
            for path, value in place():
                if value is array:
                    return self.array(path, array)
        return None

    def check_write(self, target: Tracer, tracked: bool) -> None:
        """Refuse to store a differentiated value in an outside array.

        Raises:
            CaptureError: kind ``closure_mutation``.
        """
        if tracked and self._owner(target.memory) is not None:
            raise CaptureError(
                f"a value that is being differentiated is stored in {self._owner(target.memory)}, "
                "an array outside the function",
                kind="closure_mutation",
                loc=source.here(),
                remedy="Pass the array as an argument, or store the value under tg.no_grad().",
            )

    def _owner(self, memory: Memory) -> Path | None:
        trace: Any = memory.trace
        while trace is not None and trace is not self.trace:
            capture = next((c for c in trace.captures.values() if c.inner is memory), None)
            if capture is None or capture.passed:
                return None
            memory, trace = capture.outer, capture.outer.trace
        if memory in self.passed:
            return None
        for found in self.found.values():
            if found.tracer.memory is memory:
                return found.paths[0]
        return None

    def close(self, used: set[Value]) -> tuple[Outside, list[Value]]:
        """What the specialisation keeps, and the graph inputs to drop.

        `used` are the values that the graph reads; captured arrays that it never does are
        dropped with their inputs.
        """
        arrays, dropped = [], []
        for key, f in self.found.items():
            base = f.tracer.memory.base
            assert base is not None
            if base not in used and key not in self.shared:
                dropped.append(base)
                continue
            self.kept.append(f.tracer)
            arrays.append(
                CapturedArray(
                    f.paths[0],
                    TensorType(f.tracer.sizes, base.dtype),
                    f.tracer.layout.stride,  # type: ignore[arg-type]
                    bool(f.array.flags.writeable),
                    f.entry,
                    tuple(f.paths[1:]),
                )
            )
        return Outside(tuple(self._guards.values()), tuple(arrays)), dropped
