"""Functions given to `scan`, `while_loop`, `cond` ...: traced into the regions of one node.

A function runs in a trace of its own.  What it takes from outside become operands, those that it
writes in place become carries (or results of a branch) that are written back behind the node.
Values that go from one iteration to the next keep their type; a Python number takes the type that
it turns into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.errors import ArgumentError, UnsupportedError
from tracegrad.graph.ir import Graph, Literal, Operand, Value
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.ops.handles import copy
from tracegrad.trace.loop_reach import Reach
from tracegrad.trace.modes import STATE, is_tracking
from tracegrad.trace.promote import as_arg
from tracegrad.trace.promote import literal as literal_of
from tracegrad.trace.tracer import Memory, Trace, Tracer


class Asked(BaseException):
    """`index` decides something while it is an expression; it has to be a value."""

    def __init__(self, index: Index) -> None:
        super().__init__("the index decides")
        self.index = index


class Index:
    """What stands in `Trace.loop` while a region is traced, and the index of its iterations:
    questions about it have no answer for all of them at once."""

    period = 1
    first = 0
    length = 0
    strict = True
    index: Dim = 0  # none, where no function gets it

    def __init__(self, symbolic: bool = False) -> None:
        self.name = f"i{sum(t.loop is not None for t in STATE.traces)}"
        self.symbolic = symbolic
        self.part = self.decision = self

    def split(self, points: Any) -> NoReturn:
        raise Asked(self)

    repeat = split

    def give_up(self, reason: str) -> NoReturn:
        """A question that has no answer here: for this index, or the next one outside."""
        if self.symbolic:
            raise Asked(self)
        inside = True
        for trace in reversed(STATE.traces):
            if not inside and trace.loop is not None:
                trace.loop.decision.give_up(reason)
            inside = inside and trace.loop is not self
        raise UnsupportedError(
            f"a function given to control flow cannot be traced: {reason}",
            kind="loop",
            loc=source.here(),
        )

    def promote(self, memory: Memory) -> NoReturn:
        """The region writes contents that were known outside."""
        memory.trace._promote(memory)  # type: ignore[attr-defined]
        raise _KnownWrite


def dtype_of_number(x: Any) -> DType:
    """What a Python number is in an array of its own."""
    return dtypes.of(np.asarray(x).dtype)


# ------------------------------------------------------------------------------- one function


@dataclass(slots=True, eq=False)
class Region:
    """A function that has been traced: `outputs` of `trace`, which is still open."""

    trace: Trace
    inputs: list[Value]
    outputs: list[Operand]

    def base(self, memory: Memory) -> Value:
        """The input that is the storage `memory` of the enclosing trace."""
        capture = self.trace.captures.get(memory)
        if capture is None:
            assert memory.base is not None
            return self.trace.builder.input(memory.base.type, memory.base.hint)
        assert capture.inner.base is not None
        return capture.inner.base

    def writes(self, memory: Memory) -> bool:
        capture = self.trace.captures.get(memory)
        return capture is not None and bool(capture.inner.written)

    def final(self, memory: Memory, entry: Value) -> Operand:
        """The contents of a storage of the enclosing trace at the end."""
        capture = self.trace.captures.get(memory)
        if capture is None:
            return entry
        return self.trace.handle(self.trace.base_of(capture.inner))


def run_region(
    outer: Trace, name: str, call: Callable[[Trace], Any], index: Index
) -> tuple[Trace, Any]:
    """A new trace inside `outer`, with what ``call(trace)`` recorded in it, and its result."""
    depth = len(STATE.traces)
    frame = source.user_frame()
    reach = None if frame is None else Reach(frame, outer.rolling.watched)
    while True:
        outer.place()
        trace = Trace(f"{outer.name}.{name}", outer.face, outer, outer.exact_views)
        trace.names, trace.check_outside = outer.names, outer.check_outside
        trace.rolling, trace.loop = outer.rolling, index
        STATE.traces.append(trace)
        modes = STATE.grad, STATE.inference
        try:
            result = call(trace)
        except _KnownWrite:
            del STATE.traces[depth:]
            continue
        except BaseException:
            _leave(trace, depth)
            raise
        finally:
            STATE.grad, STATE.inference = modes
        break
    popped = STATE.traces.pop()
    assert popped is trace, "regions are closed in the order of their nesting"
    if reach is not None:
        _check_effects(reach, name)
    if trace.prints:
        raise UnsupportedError(
            "debug.print inside a function given to control flow is not supported",
            kind="control_print",
            loc=source.here(),
            remedy="Return the value and print it behind.",
        )
    return trace, result


def _check_effects(reach: Reach, name: str) -> None:
    """Refuse changes of lists, objects and variables outside: a node makes none."""
    change = reach.change(()) or "".join(f"it assigns {n}" for n in reach.renamed(())[:1])
    if change:
        raise UnsupportedError(
            f"a function given to {name} has an effect outside of it: {change}",
            kind="control_effect",
            loc=source.here(),
            remedy="Return the value, or write into an array: y[...] = value.",
        )


def _leave(trace: Trace, depth: int) -> None:
    """After an exception: `for` loops on trial inside stay open, for whom starts again."""
    trace.loop = None
    if not any(t.loop is not None for t in STATE.traces[depth:]):
        del STATE.traces[depth:]


class _KnownWrite(Exception):
    """A region writes an array whose contents were known, and are no longer."""


def operands_of(trace: Trace, leaves: Sequence[Any], what: str) -> list[Tracer | Literal]:
    """Leaves of a result as operands; Python numbers become literals."""
    out: list[Tracer | Literal] = []
    for x in leaves:
        given = as_arg(trace, _plain(x, what))
        out.append(
            given
            if isinstance(given, (Tracer, Literal))
            else literal_of(given, dtype_of_number(given))
        )
    return out


def _plain(x: Any, what: str) -> Any:
    if isinstance(x, (str, bytes)) or callable(x):
        raise ArgumentError(f"{what} returns {x!r}, which is no array or number", loc=source.here())
    return x


def were_numbers(leaves: Sequence[Any]) -> list[bool]:
    return [isinstance(x, (bool, int, float, complex)) and not hasattr(x, "dtype") for x in leaves]


# ------------------------------------------------------------------------- several as one node


@dataclass(slots=True, eq=False)
class Joined:
    """Regions that take the same storages from outside: those that one writes, then others."""

    regions: list[Region]
    written: list[Memory]
    read: list[Memory]

    def close(self, outer: Trace, *, first: int, writers: Sequence[Region]) -> tuple[Graph, ...]:
        """The finished graphs.  Inputs: the own ones of each, the written storages, the others.
        Outputs of `writers`: their first `first` ones, the written storages' contents, the rest.
        """
        out = []
        for r in self.regions:
            bases = [r.base(m) for m in (*self.written, *self.read)]
            outputs = list(r.outputs)
            if any(r is w for w in writers):
                finals = [r.final(m, x) for m, x in zip(self.written, bases, strict=False)]
                outputs[first:first] = finals
            graph = r.trace.finish(outputs)
            tracked = dict(zip(graph.inputs, graph.tracked, strict=True))
            inputs = (*r.inputs, *bases)
            out.append(
                Graph(
                    graph.name,
                    graph.stage,
                    inputs,
                    graph.nodes,
                    graph.outputs,
                    tuple(tracked[x] for x in inputs),
                )
            )
            for capture in r.trace.captures.values():
                if capture.inner in r.trace.touched:
                    outer.touched.add(capture.outer)
        return tuple(out)


def join(regions: Sequence[Region]) -> Joined:
    """What the regions take from the enclosing trace."""
    found: dict[Memory, bool] = {}
    for r in regions:
        for memory in r.trace.captures:
            found[memory] = found.get(memory, False) or r.writes(memory)
    return Joined(
        list(regions), [m for m, w in found.items() if w], [m for m, w in found.items() if not w]
    )


def emit(
    outer: Trace,
    op: OpDef,
    operands: Sequence[Tracer | Literal],
    attrs: Attrs,
    regions: tuple[Graph, ...],
    hints: Sequence[str],
) -> tuple[Tracer, ...]:
    """Record a node with regions in `outer`; its results are fresh, tracked if an operand is."""
    outer.place()
    xs = [outer.lift(x) if isinstance(x, Tracer) else x for x in operands]
    tracked = False
    for x in xs:
        if isinstance(x, Tracer) and x.concrete is None:
            outer._check_use(x)
            tracked |= is_tracking() and x.alias.requires_grad
    first = outer.mark()
    results = outer.builder.emit(
        op, [outer.operand(x) for x in xs], attrs, regions=regions, hints=hints
    )
    outer.check_saved(first, xs)
    return tuple(outer._base(r, tracked and r.dtype.is_inexact) for r in results)


def write_back(outer: Trace, memories: Sequence[Memory], finals: Sequence[Tracer]) -> None:
    """Give storages of the enclosing trace the contents that a node left."""
    for memory, final in zip(memories, finals, strict=True):
        outer.write(outer.base_of(memory), copy, (final,))


def as_leaf(x: Tracer, like: Any) -> Tracer:
    """Mark a fresh result as the scalar that `like` (a tracer, literal or leaf) is."""
    if x.shape == () and x.trace.face.numpy_scalars:  # type: ignore[attr-defined]
        x.scalar = isinstance(like, Literal) or like.scalar
        x.weak = not isinstance(like, Literal) and like.weak
    return x
