"""What names hold after a loop: final carries, and what the last iteration left in them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NoReturn

import optree

from tracegrad import dims
from tracegrad.graph.symbols import bind_symbols
from tracegrad.trace.frames import Gone
from tracegrad.trace.leaves import NAMESPACE
from tracegrad.trace.loop_reach import left_behind
from tracegrad.trace.loop_slots import is_container
from tracegrad.trace.loop_trial import Carry, Trial, over
from tracegrad.trace.ragged import has_symbol
from tracegrad.trace.symbolic import SymbolicInt, integer
from tracegrad.trace.tracer import Memory, Tracer
from tracegrad.trace.windows import MOVED
from tracegrad.types import TensorType

Make = Callable[[dict[Carry, Tracer]], Any]


class Exits:
    """Makes values for after the loop; handles that shared a storage still share it."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.final = {trial.name: dims.add(trial.trips, -1)}
        self._holders: dict[Memory, Carry] = {}
        self._containers: dict[int, Make] = {}
        self._known: dict[Memory, Tracer] = {}

    def carried(self, slot: str, carry: Carry) -> Make:
        """The slot's own carry."""
        trial = self.trial

        def make(values: dict[Carry, Tracer]) -> Any:
            if carry.stays:
                return trial.slots.values[slot]
            value = values[carry]
            if carry.kind is not None:
                value.scalar = carry.inner.scalar
                value.weak = carry.kind.weak
                return value
            return over(value, trial.placed[slot], trial.outer)

        return make

    def last(self, slot: str, value: Any) -> Make:
        """What a slot that every iteration binds anew holds at the end."""
        if dims.is_at_most(1, self.trial.trips) is not True:
            return self._gone(partial(self.trial.skipped, slot))
        if isinstance(value, SymbolicInt):
            dim = dims.substitute(value.dim, self.final)
            return lambda values: integer(dim)
        if is_container(value):
            return self._container(slot, value)
        if isinstance(value, Tracer):
            if value.trace is self.trial.trace and has_symbol(value.memory.shape, self.trial.name):
                why = f"{slot}, whose size depends on its index, is used behind it"
                return self._gone(partial(self.trial.decision.give_up, why))
            if value.trace is self.trial.trace and value.memory.window is not None:
                return self._gone(partial(self.trial.decision.give_up, f"{slot} {MOVED}"))
            return self._last_tracer(value)
        trial = self.trial
        found = left_behind(value, trial.trace, trial.name, trial.names, trial.reach.objects)
        if found == "index":
            self.trial.decision.give_up(f"{slot} keeps the index")
        if found:
            self.trial.decision.invented = True
        return lambda values: value

    def _container(self, slot: str, value: Any) -> Make:
        """The one that was there before the loop, or one for all names of a new one."""
        if id(value) in self.trial.reach.objects:
            return lambda values: value
        found = self._containers.get(id(value))
        if found is None:
            inside, spec = optree.tree_flatten(
                value, is_leaf=lambda x: x is not value, none_is_leaf=True, namespace=NAMESPACE
            )
            makes = [self.last(slot, x) for x in inside]
            done: list[Any] = []

            def make(values: dict[Carry, Tracer]) -> Any:
                if not done:
                    done.append(spec.unflatten([m(values) for m in makes]))
                return done[0]

            found = self._containers[id(value)] = make
        return found

    def _gone(self, used: Callable[[], NoReturn]) -> Make:
        """The slot is not carried on; the trace starts again if it is used."""
        self.trial.decision.invented = True
        return lambda values: Gone(used)

    def _last_tracer(self, value: Tracer) -> Make:
        trial = self.trial
        if value.trace is not trial.trace:
            return lambda values: value
        outer = self.outer_memory(value)
        if value.concrete is not None:
            return self._known_value(value)
        steps = bind_symbols(value.alias.view.steps, self.final)
        if outer is not value.memory:

            def captured(values: dict[Carry, Tracer]) -> Any:
                base = trial.outer.base_of(outer)
                return (
                    trial.outer.view(base, *steps, readonly=value.readonly)
                    if value.alias.is_view or steps
                    else base
                )

            return captured
        carry = self._holder(value)

        def made(values: dict[Carry, Tracer]) -> Any:
            found = values[carry]
            if carry.stays:
                assert isinstance(carry.before, Tracer)
                found = carry.before
            if value.alias.is_view or steps:
                return trial.outer.view(found, *steps, readonly=value.readonly)
            if value.scalar or value.weak:
                found.scalar, found.weak = value.scalar, value.weak
            return found

        return made

    def _known_value(self, value: Tracer) -> Make:
        """A value known while tracing stays known."""
        trial = self.trial
        if value.memory.trace is not trial.trace:
            return lambda values: trial.outer._again(value, value.alias, value._array)

        def make(values: dict[Carry, Tracer]) -> Any:
            array = value.memory.array
            assert array is not None
            base = self._known.get(value.memory)
            if base is None:
                base = self._known[value.memory] = trial.outer.concrete(
                    array, scalar=value.scalar, weak=value.weak
                )
            return over(base, value, trial.outer)

        return make

    def _holder(self, value: Tracer) -> Carry:
        """The carry whose final value is what the storage of `value` holds at the end."""
        memory, trial = value.memory, self.trial
        for carry in trial.carries:
            if (
                carry.kind is None
                and isinstance(carry.after, Tracer)
                and carry.after.memory is memory
            ):
                return carry
        found = self._holders.get(memory)
        if found is None:
            inner = trial.trace.argument(
                TensorType(memory.shape, memory.dtype), "last", layout=memory.layout, tracked=False
            )
            found = Carry(inner, None, [], after=trial.trace.base_of(memory))
            self._holders[memory] = found
            trial.carries.append(found)
        return found

    # -- storages

    def outer_memory(self, x: Tracer) -> Memory:
        """The storage in front of the loop that `x` is over, or its own."""
        if x.trace is not self.trial.trace:
            return x.memory
        return next(
            (c.outer for c in self.trial.trace.captures.values() if c.inner is x.memory), x.memory
        )

    def is_shared(self, memory: Memory, slots: Collection[str]) -> bool:
        """Whether someone else can see a write to the array that enters the loop."""
        root = _root(memory)
        if root.window is not None:
            return True
        if any(root.base is x for x in root.trace.builder.inputs):  # type: ignore[attr-defined]
            return True
        trial = self.trial
        apart = [trial.slots.names[name] for name in trial.slots.forms]
        held = [
            *trial.reach.tracers(slots, apart, trial.scope.idents(slots)),
            *(v for s, v in trial.slots.values.items() if s not in slots and isinstance(v, Tracer)),
        ]
        return any(_root(x.memory) is root for x in held)


def _root(memory: Memory) -> Memory:
    """The storage of the outermost trace that `memory` stands for."""
    while True:
        found = next(
            (
                c.outer
                for c in memory.trace.captures.values()  # type: ignore
                if c.inner is memory
            ),
            None,
        )
        if found is None:
            return memory
        memory = found
