"""A trial of a loop whose iterations are counted at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.dims import Expr, symbol
from tracegrad.dtypes import BOOL, C128, F64, I64
from tracegrad.errors import UnsupportedError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal
from tracegrad.ops.branch import WhileAttrs, while_
from tracegrad.ops.compare import lt
from tracegrad.ops.control import PositionAttrs, position
from tracegrad.trace.counted import CountedDriver
from tracegrad.trace.loop_plan import Kind
from tracegrad.trace.loop_trial import Carry, Trial, values_of
from tracegrad.trace.memory import Memory
from tracegrad.trace.regions import emit
from tracegrad.trace.tracer import Tracer
from tracegrad.types import TensorType


class CountedTrial(Trial):
    """An open loop whose index has no upper bound."""

    driver: CountedDriver

    collects = False

    @property
    def index(self) -> Expr:
        return symbol(self.name, 0)

    def peel(self, slot: str, why: str) -> NoReturn:
        name = slot.split("[")[0]
        if name in self.driver.every and name not in self.learned.lost:
            # Each iteration binds it anew: what it was before matters to nobody inside.
            self.learned.lost.add(name)
            self.decision.again()
        self.decision.give_up(f"{slot} {why}")

    def skipped(self, slot: str) -> NoReturn:
        raise UnsupportedError(
            f"{slot} is bound by a loop that may run no time, and is used behind it",
            kind="loop",
            loc=source.here(),
            notes=(("the loop:", self.decision.line),),
            remedy=f"Give {slot.split('[')[0]} a value of the same type and shape in front of the "
            "loop.",
        )

    # -- numbers that take the type of the body

    def hardens(self, now: Kind) -> bool:
        return not now.weak

    def narrows(self, before: Any, now: Kind) -> bool:
        """Where the first iteration cannot run apart, a number that is the same in a narrower
        type has that one from the start."""
        if type(before) is complex or now.dtype.is_complex:
            return now.dtype is C128
        if type(before) not in (int, float) or not now.dtype.is_float:
            return False
        with np.errstate(over="ignore"):
            return float(now.dtype.np.type(before)) == before

    def _check_conversions(self, region: Graph) -> None:
        kinds = {self.learned.scalars[s].dtype for s in self.converted if s in self.learned.scalars}
        narrow = kinds - {I64, BOOL}
        taken = {*narrow, I64, BOOL}
        if all(type(self.slots.values[s]) is complex for s in self.converted):
            taken.add(F64)
        if len(narrow) != 1 or not all(x.dtype in taken for x in values_of(region)):
            super()._check_conversions(region)

    # -- arrays of which it is not known whose they are behind the loop

    def check_moving(self, arrays: list[Carry], shared: Callable[[Carry], bool]) -> None:
        self.doubtful = [c for c in arrays if not c.stays and shared(c)]

    def _node(
        self,
        operands: list[Tracer | Literal],
        types: tuple[TensorType, ...],
        region: Graph,
        hints: list[str],
    ) -> tuple[Tracer, ...]:
        outer, count = self.outer, self.driver.seq.count
        own = GraphBuilder(region.name, region.stage)
        limit = own.input(TensorType((), I64), "trips")
        region = replace(
            region,
            inputs=(*region.inputs, limit),
            tracked=(*region.tracked, False),
        )
        attrs = WhileAttrs(self.name, 0, len(types), len(operands) + 1 - len(types), types)
        found = emit(outer, while_, [*operands, count], attrs, (self._test(region), region), hints)
        for carry in self.doubtful:
            self._doubt(carry, found[self.carries.index(carry)])
        return found

    def _test(self, region: Graph) -> Graph:
        """Whether the index is below the number of iterations, the last input."""
        b = GraphBuilder(f"{region.name}.test", region.stage)
        inputs = [b.input(x.type, x.hint) for x in region.inputs]
        at = b.emit(position, (), PositionAttrs(self.index))
        return b.finish([lt(b, at, inputs[-1])])

    def _doubt(self, carry: Carry, final: Tracer) -> None:
        """Refuse later writes to the array that entered and to the one that comes out."""
        assert isinstance(carry.before, Tracer), "an array was there before"
        final.memory.doubted = self.decision.line
        todo = [carry.before.memory]
        while todo:
            at = todo.pop()
            at.doubted = self.decision.line
            around = self._around(at, carry.slots[0])
            todo += [] if around is None else [around]
            todo += [] if at.window is None else [at.window.part.memory]

    def _around(self, memory: Memory, slot: str) -> Memory | None:
        """The storage of the enclosing trace that `memory` stands for; what an iteration around
        wrote to it would reach the other name in the next one."""
        trace: Any = memory.trace
        found = next((c.outer for c in trace.captures.values() if c.inner is memory), None)
        if found is None and isinstance(trace.loop, Trial):
            carries = trace.loop.carries
            found = next(
                (
                    c.before.memory
                    for c in carries
                    if c.inner.memory is memory and isinstance(c.before, Tracer)
                ),
                None,
            )
        if found is not None and memory.written:
            self.decision.give_up(f"{slot} may be an array that the loop around it writes")
        return found
