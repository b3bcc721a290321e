"""Lists to which every iteration of a loop appends: the values of all iterations are stacked.

An element behind the loop is a row of the stack, made when it is used.  Where the array that an
iteration appended goes on under another name, it is the last ones' that some name still holds:
those elements are the arrays of these names, and no stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FrameType
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.graph.storage import Index, Pick, Span, Step, dense_strides
from tracegrad.graph.symbols import bind_symbols
from tracegrad.ops.control import stacked
from tracegrad.trace import frames
from tracegrad.trace.collector import Collector
from tracegrad.trace.loop_exit import Exits
from tracegrad.trace.loop_places import LIST, Place, resolved
from tracegrad.trace.loop_reach import holds
from tracegrad.trace.loop_trial import Carry, Trial
from tracegrad.trace.ragged import has_symbol
from tracegrad.trace.rows import row
from tracegrad.trace.symbolic import SymbolicInt, integer
from tracegrad.trace.tracer import Memory, Tracer
from tracegrad.types import TensorType

# ``(final values of carries, stacks, iteration number) -> the element``.
Make = Callable[[dict[Carry, Tracer], "list[Tracer]", int], Any]
_CONSTANT = (int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True, slots=True)
class _Local:
    """The local variable `name` of a frame."""

    frame: FrameType
    name: str

    def read(self) -> Any:
        return frames.read(self.frame, (self.name,))[self.name]

    def write(self, value: Any) -> None:
        frames.write(self.frame, {self.name: value})


@dataclass(frozen=True, slots=True)
class _Cell:
    cell: CellType

    def read(self) -> Any:
        return self.cell.cell_contents

    def write(self, value: Any) -> None:
        self.cell.cell_contents = value


class Collecting:
    """The lists of one trial."""

    def __init__(self, trial: Trial, frame: FrameType) -> None:
        self.trial, self.frame = trial, frame
        self.stacks: list[Tracer] = []  # what each iteration stacks, in the body
        self._found: list[tuple[Collector, list[_Local | _Cell | Place]]] = []
        self._known: dict[int, int] = {}
        self._appended: list[tuple[Memory, list[Carry]]] = []
        self._makes: list[tuple[list[Any], list[Make]]] = []
        for path in trial.decision.places if trial.collects else ():
            if path.steps and path.steps[-1] == LIST:
                real, text = resolved(frame, path.frame, path.name, path.steps[:-1])
                if type(real) in (list, Collector) and all(real is not c._real for c, _ in
                                                           self._found):  # fmt: skip
                    self._enter(real, text)

    def _enter(self, real: list[Any], text: str) -> None:
        """Put a collector where the list is."""
        reach = self.trial.reach
        holders: list[_Local | _Cell | Place] = [
            _Local(f, name)
            for f in (self.frame, *reach.outer)
            for name, x in frames.everything(f).items()
            if x is real
        ]
        for obj, inside in reach.objects.values():
            for k, x in enumerate(inside):
                if x is not real:
                    continue
                half = 0 if isinstance(obj, list) else len(inside) // 2
                if isinstance(obj, CellType):
                    holders.append(_Cell(obj))
                elif reach.is_owner(obj) and not isinstance(obj, Collector) and k >= half:
                    holders.append(Place(obj, k, k if isinstance(obj, list) else inside[k - half]))
                else:
                    self.trial.decision.give_up(f"it changes the list {text}")
        collector = Collector(real, self.trial, text)
        for holder in holders:
            holder.write(collector)
        self._found.append((collector, holders))

    def leave(self) -> None:
        """Put the lists back; they may be nowhere else now than they were."""
        decision = self.trial.decision
        for collector, holders in self._found:
            why = f"it gives the list {collector._text} another name"
            if any(holder.read() is not collector for holder in holders):
                decision.give_up(why)
            for holder in holders:
                holder.write(collector._real)
            around = [frames.everything(f) for f in (self.frame, *self.trial.reach.outer)]
            if any(holds(names, collector) for names in around):
                decision.give_up(why)
            collector._check_length()

    # -- what was appended

    def promote(self) -> None:
        """Let arrays that the body made of known numbers be values of its graph: there is one for
        each iteration."""
        for collector, _ in self._found:
            for x in _leaves(collector._items()):
                if isinstance(x, Tracer) and not x.scalar and x.memory.array is not None:
                    if x.memory.trace is not self.trial.trace:
                        continue
                    self.trial.trace._promote(x.memory)

    def prepare(self, exits: Exits) -> None:
        """How each element is made, once it is known what becomes of the carries."""
        for collector, _ in self._found:
            made = [self._make(x, collector._text, exits) for x in collector._items()]
            self._makes.append((collector._real, made))
        stacked_ = {id(memory) for memory, _ in self._appended}
        for _, chain in self._appended:
            if any(id(c.inner.memory) in stacked_ for c in chain):
                self.trial.decision.give_up("it appends an array in two iterations")

    def types(self) -> tuple[TensorType, ...]:
        """Those of the stacks."""
        trial = self.trial
        return tuple(
            stacked(trial.name, trial.trips, TensorType(x.sizes, x.element_type))
            for x in self.stacks
        )

    def extend(self, values: dict[Carry, Tracer], stacks: list[Tracer]) -> None:
        """Give the lists the elements of all iterations."""
        for real, makes in self._makes:
            for k in range(self._trips()):
                for make in makes:
                    list.append(real, make(values, stacks, k))

    def _trips(self) -> int:
        trips = self.trial.trips
        assert isinstance(trips, int), "a list gets a number of elements that is known"
        return trips

    def _make(self, x: Any, text: str, exits: Exits) -> Make:
        trial = self.trial
        if type(x) is tuple:
            parts = [self._make(y, text, exits) for y in x]
            return lambda values, stacks, k: tuple(p(values, stacks, k) for p in parts)
        if isinstance(x, SymbolicInt):
            dim = x.dim
            return lambda values, stacks, k: integer(dims.substitute(dim, {trial.name: k}))
        if isinstance(x, _CONSTANT) or isinstance(x, Tracer) and x.trace is not trial.trace:
            return lambda values, stacks, k: x
        if not isinstance(x, Tracer):
            trial.decision.give_up(f"it appends a {type(x).__name__} to the list {text}")
        if x.scalar:
            return self._scalar(x)
        return self._array(x, text, exits)

    def _scalar(self, x: Tracer) -> Make:
        trial = self.trial
        if x.concrete is not None:
            made = trial.outer.concrete(x.concrete, scalar=True, weak=x.weak)
            return lambda values, stacks, k: made
        if trial.converted:  # a Python number of the first iteration, which the list shows
            trial.peel(trial.converted[0], "does not keep its type")
        at = self._stack(id(x), x)

        def make(values: dict[Carry, Tracer], stacks: list[Tracer], k: int) -> Tracer:
            return row(trial.outer, stacks[at], (Index((Pick(k),)),), scalar=True, weak=x.weak)

        return make

    def _array(self, x: Tracer, text: str, exits: Exits) -> Make:
        trial, memory = self.trial, x.memory
        if memory.array is not None:
            trial.decision.give_up(f"it appends an array from outside to the list {text}")
        if x.alias.ruled or x.alias.cut or x.alias.family is not memory.family:
            trial.decision.give_up(f"it appends an array without its gradient to the list {text}")
        if memory.window is not None or memory.doubted is not None:
            trial.decision.give_up(f"it appends a view at a traced index to the list {text}")

        def of(base: Tracer, k: int, *first: Step) -> Tracer:
            steps = bind_symbols(x.alias.view.steps, {trial.name: k})
            if first or steps or x.alias.is_view:
                return row(trial.outer, base, (*first, *steps), readonly=x.readonly)
            return base

        entering = next((c for c in trial.carries if c.inner.memory is memory), None)
        outer = exits.outer_memory(x)
        if outer is not memory:
            return lambda values, stacks, k: of(trial.outer.base_of(outer), k)
        if entering is not None and entering.stays:
            before = entering.before
            assert isinstance(before, Tracer), "an array was there before"
            return lambda values, stacks, k: of(trial.outer.lift(before), k)
        if has_symbol((*memory.shape, *x.sizes), trial.name) or memory.layout != dense_strides(
            memory.shape
        ):
            trial.decision.give_up(f"it appends arrays of several shapes to the list {text}")
        chain = self._kept(memory, text)
        self._appended.append((memory, chain))
        at = self._stack(id(memory), trial.trace.base_of(memory))
        rest = tuple(Span(0, n) for n in memory.shape)

        def make(values: dict[Carry, Tracer], stacks: list[Tracer], k: int) -> Tracer:
            d = self._trips() - 1 - k
            if k == 0 and entering is not None and not memory.written:
                assert isinstance(entering.before, Tracer), "an array was there before"
                return of(trial.outer.lift(entering.before), k)
            if d < len(chain):
                return of(values[chain[d]], k)
            return of(stacks[at], k, Index((Pick(k), *rest)))

        return make

    def _kept(self, memory: Memory, text: str) -> list[Carry]:
        """The carries that hold, at the end, the array of the last iteration, of the one before
        it ..., as long as one does.  No iteration may write what an earlier one appended."""
        found: list[Carry] = []
        at: Memory | None = memory
        while at is not None:
            now = at
            carry = next(
                (
                    c
                    for c in self.trial.carries
                    if c.kind is None
                    and isinstance(c.after, Tracer)
                    and c.after.memory is now
                    and c not in found
                ),
                None,
            )
            if carry is None:
                break
            if carry.inner.memory.written:
                self.trial.decision.give_up(f"it writes an array in the list {text} later on")
            found.append(carry)
            at = carry.inner.memory
        return found

    def _stack(self, key: int, x: Tracer) -> int:
        """The number of the stack of `x`."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.stacks)
            self.stacks.append(x)
        return found


def _leaves(items: list[Any]) -> list[Any]:
    return [y for x in items for y in (_leaves(list(x)) if type(x) is tuple else [x])]
