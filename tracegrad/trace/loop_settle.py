"""The state of a loop after its body, compared with the state before it.

A body is one node when every slot holds after it what it held before, in kind: a scalar of the
same type, a handle over a storage that shares it with the same other names through the same view.
Otherwise something is learned and the trace starts again: a slot is carried, the first iteration
runs apart, several iterations make one body; or the loop is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.dtypes import F64, I64
from tracegrad.graph.ir import Literal
from tracegrad.trace.frames import ABSENT, Gone
from tracegrad.trace.loop_exit import Exits
from tracegrad.trace.loop_plan import Kind
from tracegrad.trace.loop_reach import same
from tracegrad.trace.loop_slots import equal, is_container
from tracegrad.trace.loop_trial import Carry, Trial, is_number, plain_number
from tracegrad.trace.symbolic import SymbolicInt, dim_of
from tracegrad.trace.tracer import Memory, Tracer
from tracegrad.trace.windows import MOVED

Make = Callable[[dict[Carry, Tracer]], Any]


def settle(trial: Trial) -> dict[str, Make]:
    """How each name or place gets its value after the loop; starts the trace again when it
    learned."""
    return _Settling(trial).run()


class _Settling:
    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.learned = trial.learned
        self.fresh = trial.driver.code.fresh
        self.news = False
        self.exits = Exits(trial)

    def run(self) -> dict[str, Make]:
        trial = self.trial
        after = self._slots(trial.scope.read())
        self._permuted(after)
        later: list[str] = []
        found: dict[str, Make] = {}
        for slot, value in after.items():
            if (
                isinstance(value, Tracer)
                and value.trace is not trial.trace
                and slot in trial.carry_of
                and value.trace.open
            ):  # type: ignore[attr-defined]
                value = after[slot] = trial.trace.lift(value)
            if value is ABSENT:
                continue
            if self._is_last(slot):
                later.append(slot)
            else:
                found[slot] = self._slot(slot, value)
        if self.news:
            trial.decision.again()
        self._check_arrays(after)
        for slot in later:
            found[slot] = self.exits.last(slot, after[slot])
        return self._names(found)

    def _is_last(self, slot: str) -> bool:
        """Whether every iteration binds the slot anew before anything reads it."""
        before = self.trial.slots.values[slot]
        return slot in self.fresh or before is ABSENT or isinstance(before, Gone)

    def _slots(self, after: dict[str, Any]) -> dict[str, Any]:
        """The slots' values; learns which containers to take apart."""
        trial = self.trial
        changed = trial.slots.mutated(trial.placed)
        if changed:
            trial.decision.give_up(f"it changes the container {changed}")
        out: dict[str, Any] = {}
        for name, value in after.items():
            before = trial.slots.names[name]
            if name in trial.slots.forms:
                found = trial.slots.after(name, value)
                if isinstance(found, str):
                    trial.peel(name, found)
                out.update(found)
            elif (
                is_container(value)
                and value is not before
                and name not in self.fresh
                and before is not ABSENT
                and not equal(before, value)
            ):
                if not is_container(before):
                    trial.peel(name, "becomes a container")
                if name in self.learned.containers:
                    trial.decision.give_up(f"{name} does not keep its structure")
                self.learned.containers.add(name)
                self.news = True
            else:
                out[name] = value
        return out

    def _names(self, found: dict[str, Make]) -> dict[str, Make]:
        """Containers put together again."""
        out = {n: m for n, m in found.items() if n in self.trial.slots.names}
        for name, (spec, slots) in self.trial.slots.forms.items():
            out[name] = _assembled(spec, [found[s] for s in slots])
        return out

    # -- one slot

    def _slot(self, slot: str, value: Any) -> Make:
        before = self.trial.slots.values[slot]
        carry = self.trial.carry_of.get(slot)
        if carry is not None and carry.kind is not None:
            self._scalar(slot, carry, value)
            return self.exits.carried(slot, carry)
        if carry is not None:
            self._array(slot, carry, value)
            return self.exits.carried(slot, carry)
        if slot in self.learned.counters:
            return self._counter(slot, value)
        if isinstance(value, Tracer) and not (value.concrete is not None and value is before):
            self._learn(slot, before, value)
        elif dim_of(value) is not None and dim_of(before) is not None:
            self._count(slot, before, value)
        elif type(value) is float and type(before) is float and not same(value, before):
            # Python arithmetic on floats: a scalar that is known only when the kernel runs.
            self.learned.scalars[slot] = Kind(F64, True)
            self.news = True
        elif not same(value, before) and not (is_container(value) and equal(before, value)):
            self.trial.peel(slot, f"is not the same after each iteration ({_short(value)})")
        return lambda values: before

    def _scalar(self, slot: str, carry: Carry, value: Any) -> None:
        kind = carry.kind
        assert kind is not None
        traced = isinstance(value, Tracer) and value.concrete is None
        if isinstance(value, SymbolicInt):
            value, traced = self._inside(value), True
        if not traced and not is_number(value):
            self.trial.peel(slot, f"becomes {_short(value)}")
        if isinstance(value, Tracer) and (
            value.sizes != () or (value.scalar != self.trial.trace.face.numpy_scalars)
        ):  # type: ignore
            self.trial.peel(slot, "becomes an array")
        now = _kind_of(value)
        if now != kind:
            self._convert(slot, kind, now)
            return
        if traced:
            carry.after = value
            if value.alias.requires_grad and not carry.inner.alias.requires_grad:
                self.learned.tracked.add(slot)
                self.news = True
        else:
            carry.after = Literal(plain_number(value), kind.dtype)

    def _inside(self, value: SymbolicInt) -> Tracer:
        """An index as a value of the body, which has just been left."""
        from tracegrad.trace.modes import STATE

        STATE.traces.append(self.trial.trace)
        try:
            return value.value()  # type: ignore[no-any-return]
        finally:
            STATE.traces.pop()

    def _convert(self, slot: str, kind: Kind, now: Kind) -> None:
        """Let a weak number enter with the type it has after the first iteration."""
        if (
            kind.weak
            and (slot not in self.learned.scalars or self.trial.hardens(now))
            and (
                now.dtype is F64
                or now.dtype is kind.dtype is I64
                or self.trial.narrows(self.trial.slots.values[slot], now)
            )
        ):
            self.learned.scalars[slot] = now
            self.news = True
            return
        self.trial.peel(slot, f"becomes {now.dtype} and was {kind.dtype}")

    def _learn(self, slot: str, before: Any, value: Tracer) -> None:
        """A slot that was left alone now holds a traced value: should it be carried?"""
        if value is before:
            return
        scalar = value.scalar or (value.sizes == () and not isinstance(before, Tracer))
        if scalar and type(before) in (int, float, complex) or isinstance(before, SymbolicInt):
            now = _kind_of(value)
            wider = {float: (F64,), complex: ()}.get(type(before), (F64, I64))
            if value.sizes == () and (now.dtype in wider or self.trial.narrows(before, now)):
                self.learned.scalars[slot] = now
                self.news = True
                return
        elif scalar and is_number(before) and _kind_of(before) == _kind_of(value):
            if value.concrete is None or not same(plain_number(before), plain_number(value)):
                self.learned.scalars[slot] = _kind_of(value)
                self.news = True
            return
        elif isinstance(before, Tracer) and not before.scalar and not value.scalar:
            if (
                self.exits.outer_memory(value) is before.memory
                and value.alias.view == before.alias.view
            ):
                return
            self.learned.arrays.add(slot)
            self.news = True
            return
        self.trial.peel(slot, f"becomes a traced value and was {_short(before)}")

    # -- integers that Python counts

    def _count(self, slot: str, before: Any, value: Any) -> None:
        """Learn ``value = before + b`` for each iteration, or the index itself."""
        a, v = dim_of(before), dim_of(value)
        assert a is not None and v is not None
        step = dims.add(v, dims.mul(a, -1))
        if step == 0:
            return
        if not self.trial.decision.counts:
            self.learned.scalars[slot] = Kind(I64, True)
            self.news = True
            return
        if not isinstance(step, int):
            b = dims.coefficient(v, self.trial.name) if not isinstance(v, int) else 0
            at_start = dims.substitute(v, {self.trial.name: -1})
            if not isinstance(b, int) or not b or at_start != a:
                self.trial.peel(slot, "is not the same after each iteration")
            step = b
        self.learned.counters[slot] = step
        self.news = True

    def _counter(self, slot: str, value: Any) -> Make:
        b = self.learned.counters[slot]
        a, v = dim_of(self.trial.slots.values[slot]), dim_of(value)
        assert a is not None, "a counter was an integer on entry"
        at = self.trial.index
        if v is None or dims.add(v, dims.mul(dims.add(a, dims.mul(b, dims.add(at, 1))), -1)) != 0:
            del self.learned.counters[slot]
            self.trial.peel(slot, "is not counted up by the same number each time")
        end = dims.add(a, dims.mul(self.trial.trips, b))
        return lambda values: end if isinstance(end, int) else SymbolicInt(end)

    # -- arrays

    def _array(self, slot: str, carry: Carry, value: Any) -> None:
        trial = self.trial
        placed = trial.placed[slot]
        if not isinstance(value, Tracer) or value.scalar or value.trace is not trial.trace:
            trial.peel(slot, f"becomes {_short(value)}")
        base = trial.trace.base_of(value.memory) if value.concrete is None else _whole(value)
        if (
            value.sizes != placed.sizes
            or value.element_type is not placed.element_type
            or value.alias.view != placed.alias.view
            or base.sizes != carry.inner.sizes
            or value.memory.layout != carry.inner.memory.layout
            or value.readonly != placed.readonly
        ):
            trial.peel(slot, "changes its shape, dtype, memory order or view")
        if self.exits.outer_memory(value) is not value.memory:
            trial.peel(slot, "becomes an array from outside the loop")
        if value.memory.window is not None:
            trial.peel(slot, MOVED)
        if isinstance(carry.after, Tracer) and carry.after.memory is not base.memory:
            trial.peel(slot, f"stops sharing memory with {carry.slots[0]}")
        carry.after = base
        if (
            value.alias.requires_grad
            and not carry.inner.alias.requires_grad
            and slot not in self.learned.tracked
        ):
            self.learned.tracked.add(slot)
            self.news = True

    def _permuted(self, after: dict[str, Any]) -> None:
        """Several iterations make one body when names exchange their arrays."""
        trial = self.trial
        names = [
            s
            for s, v in trial.slots.values.items()
            if isinstance(v, Tracer)
            and not v.scalar
            and s not in trial.carry_of
            and s not in self.fresh
            and s in after
        ]
        now = {s: self.exits.outer_memory(v) for s in names if isinstance(v := after[s], Tracer)}
        was: dict[Memory, str] = {trial.slots.values[s].memory: s for s in names}
        moved = {
            s: was[m]
            for s, m in now.items()
            if m in was
            and was[m] != s
            and trial.slots.values[s].memory is not m
            and after[s].alias.view == trial.slots.values[was[m]].alias.view
        }
        if not moved or set(moved.values()) != set(moved):
            return
        period, at = 1, dict(moved)
        while any(at[s] != s for s in moved):
            at = {s: moved[at[s]] for s in moved}
            period += 1
        if 1 < period <= 4:
            trial.decision.repeat(period)

    def _check_arrays(self, after: dict[str, Any]) -> None:
        """Carried arrays must be the loop's own, apart from each other and from captured ones."""
        trial = self.trial
        arrays = [c for c in trial.carries if c.kind is None]
        seen: dict[Memory, Carry] = {}
        for carry in arrays:
            slot = carry.slots[0]
            assert isinstance(carry.after, Tracer) and isinstance(carry.before, Tracer)
            memory = carry.after.memory
            if seen.setdefault(memory, carry) is not carry:
                trial.peel(slot, f"comes to share memory with {seen[memory].slots[0]}")
            captured = trial.trace.captures.get(carry.before.memory)
            written = carry.inner.memory.written
            if captured is not None and (captured.inner.written or written):
                trial.peel(slot, "is also written under another name")
            if written and not carry.stays and self._is_shared(carry):
                trial.peel(slot, "is an array of others that the first iteration writes")
        trial.check_moving(arrays, self._is_shared)
        self._check_cycles(arrays)

    def _is_shared(self, carry: Carry) -> bool:
        """Whether someone else holds the array that enters."""
        assert isinstance(carry.before, Tracer), "an array was there before"
        return self.exits.is_shared(carry.before.memory, carry.slots)

    def _check_cycles(self, arrays: list[Carry]) -> None:
        """No array that enters may leave: the chain of names that pass it on has an end."""
        owner = {c.inner.memory: c for c in arrays}
        passed: dict[Carry, Carry] = {}
        for c in arrays:
            assert isinstance(c.after, Tracer), "an array stays one"
            if c.after.memory in owner and not c.stays:
                passed[c] = owner[c.after.memory]
        for carry in passed:
            if carry.inner.memory.written and any(map(self._is_shared, _line(passed, carry))):
                self.trial.peel(carry.slots[0], "comes to be an array of others, and is written")
            at, steps = passed[carry], 1
            while at is not carry and at in passed and steps <= len(passed):
                at, steps = passed[at], steps + 1
            if at is carry:
                if steps > 4:
                    self.trial.decision.give_up(f"{carry.slots[0]} changes places with others")
                self.trial.decision.repeat(steps)
            if at not in passed and at.stays:
                self.trial.peel(carry.slots[0], f"comes to be {at.slots[0]}")


def _line(passed: dict[Carry, Carry], carry: Carry) -> list[Carry]:
    """The carries whose entering arrays `carry` gets, one iteration after the other."""
    found: list[Carry] = []
    at = passed.get(carry)
    while at is not None and at not in found:
        found.append(at)
        at = passed.get(at)
    return found


def _assembled(spec: Any, makes: list[Make]) -> Make:
    return lambda values: spec.unflatten([m(values) for m in makes])


def _whole(x: Tracer) -> Tracer:
    """The whole known array that `x` is a view of."""
    return x.trace.base_of(x.memory)  # type: ignore[attr-defined, no-any-return]


def _kind_of(x: Any) -> Kind:
    from tracegrad import dtypes

    if isinstance(x, Tracer):
        return Kind(x.element_type, x.weak)
    if isinstance(x, np.generic):
        return Kind(dtypes.of(x.dtype), False)
    return Kind(F64 if isinstance(x, float) else I64, True)


def _short(x: Any) -> str:
    if isinstance(x, Tracer):
        return f"a {x.element_type} {'scalar' if x.scalar else f'array of shape {x.sizes}'}"
    if isinstance(x, SymbolicInt):
        return "the index"
    text = repr(x)
    return text if len(text) < 40 else f"a {type(x).__name__}"
