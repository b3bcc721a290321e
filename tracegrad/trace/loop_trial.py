"""One trial of a loop: its body traced once, between two steps of the iterator."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from tracegrad import dims
from tracegrad.dims import symbol
from tracegrad.dtypes import promote
from tracegrad.graph.ir import Graph, Literal, Operand
from tracegrad.ops.control import LoopAttrs, loop
from tracegrad.ops.create import undefined
from tracegrad.ops.views import copy
from tracegrad.trace import frames
from tracegrad.trace.frames import ABSENT
from tracegrad.trace.modes import STATE, current_trace
from tracegrad.trace.promote import cast
from tracegrad.trace.rolling import Kind
from tracegrad.trace.signature import NAMESPACE
from tracegrad.trace.symbolic import Retrace, SymbolicInt
from tracegrad.trace.tracer import Memory, Trace, Tracer
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.trace.rolling import _Driver, _Part


@dataclass(slots=True, eq=False)
class Carry:
    """A value that goes from one iteration to the next.

    `inner` is its tracer at the start of the body, `before` what it is in front of the loop,
    `after` at the end of the body.  `names` share it: array handles over one storage.
    """

    inner: Tracer
    before: Tracer | Literal | None
    names: list[str]
    after: Tracer | Literal | None = None


class Trial:
    """An open loop; `name` is the symbol of its index."""

    def __init__(self, driver: _Driver, part: _Part, frame: FrameType) -> None:
        outer = current_trace()
        assert outer is not None
        self.decision, self.part, self.driver = driver.decision, part, driver
        self.length = len(driver.real)
        self.outer = outer
        self.name = f"i{sum(t.loop is not None for t in STATE.traces)}"
        self.trips = part.trips
        self.decision.trials += 1
        if self.decision.trials > 40:
            self.decision.give_up("its state does not come to rest")
        self.stored = tuple(n for n in driver.code.stored)
        self.before = frames.read(frame, self.stored)
        self.containers = {n: _leaves(v) for n, v in frames.everything(frame).items()
                           if isinstance(v, (list, dict, tuple))}
        outer.place()
        self.location = outer.builder.loc
        self.trace = Trace(f"{outer.name}.loop", outer.face, outer, outer.exact_views)
        self.trace.names, self.trace.check_outside = outer.names, outer.check_outside
        self.trace.rolling, self.trace.loop = outer.rolling, self
        self.carries: list[Carry] = []
        self.placed: dict[str, Any] = {}
        self._enter()
        frames.write(frame, self.placed)
        STATE.traces.append(self.trace)

    def index(self, q: int) -> Any:
        """The user's index in copy q of the body."""
        return self.driver.number(self.part, symbol(self.name, 0, self.trips - 1), q)

    # -- before the body

    def _enter(self) -> None:
        groups: dict[Memory, Carry] = {}
        for name, value in self.before.items():
            if isinstance(value, Tracer):
                if value.scalar or (value.shape == () and not value.alias.is_view
                                    and name in self.decision.scalars):
                    self._carry_scalar(name, value)
                elif name in self.decision.arrays:
                    self._carry_array(name, value, groups)
            elif name in self.decision.scalars and _is_number(value):
                self._carry_scalar(name, value)

    def _carry_scalar(self, name: str, value: Any) -> None:
        kind = self.decision.scalars.get(name)
        if kind is None:
            assert isinstance(value, Tracer)
            kind = Kind(value.element_type, value.weak, value.alias.requires_grad)
        inner = self.trace.argument(
            TensorType((), kind.dtype), name, tracked=kind.tracked,
            scalar=self.trace.face.numpy_scalars, weak=kind.weak)  # type: ignore[attr-defined]
        before: Tracer | Literal
        if isinstance(value, Tracer):
            before = self.outer.lift(value)
            if before.element_type is not kind.dtype:
                before = cast(self.outer, before, kind.dtype)  # type: ignore[assignment]
        else:
            before = Literal(_plain(value), kind.dtype)
        self.carries.append(Carry(inner, before, [name]))
        self.placed[name] = inner

    def _carry_array(self, name: str, value: Tracer, groups: dict[Memory, Carry]) -> None:
        value = self.outer.lift(value)
        memory = value.memory
        if memory.array is not None:
            self.outer._promote(memory)
        carry = groups.get(memory)
        if carry is None:
            assert memory.base is not None
            inner = self.trace.argument(
                memory.base.type, name, layout=memory.layout,
                tracked=value.alias.requires_grad or name in self.decision.tracked)
            carry = groups[memory] = Carry(inner, self.outer.base_of(memory), [])
            self.carries.append(carry)
        carry.names.append(name)
        self.placed[name] = self._over(carry.inner, value, self.trace)

    def _over(self, base: Tracer, like: Tracer, trace: Trace) -> Tracer:
        """The handle over the storage of `base` that `like` is over its own."""
        if not like.alias.view and not like.alias.is_view:
            return base
        return trace.view(base, *like.alias.view.steps)

    # -- after the body

    def close(self, frame: FrameType) -> None:
        """Emit the node and give the frame its results."""
        popped = STATE.traces.pop()
        assert popped is self.trace, "loops are closed in the order of their nesting"
        after = frames.read(frame, self.stored)
        self._check_containers(frame)
        if self.trace.prints:
            self.decision.give_up("it prints")
        results = self._settle(after)
        self._check_arrays(frame)
        self.trace.place()
        self._emit(results, frame)

    def _check_containers(self, frame: FrameType) -> None:
        for name, value in frames.everything(frame).items():
            if isinstance(value, (list, dict, tuple)):
                now = _leaves(value)
                if any(isinstance(x, Tracer) and x.trace is self.trace for x in now) or (
                        name in self.containers and len(now) != len(self.containers[name])):
                    self.decision.give_up(f"it changes the container {name}")

    def _settle(self, after: dict[str, Any]) -> dict[str, Any]:
        """Compare what names hold with what they held; returns what they get afterwards: a
        `Carry`, or a value known now."""
        out: dict[str, Any] = {}
        learned = False
        by_name = {n: c for c in self.carries for n in c.names}
        swapped = self._permutation(after)
        if swapped > 1:
            self.decision.repeat(swapped)
        for name, value in after.items():
            if value is ABSENT:
                continue
            before = self.before[name]
            carry = by_name.get(name)
            if isinstance(value, Tracer) and value.trace is not self.trace:
                value = value if carry is None else self.trace.lift(value)
            if carry is not None:
                learned |= self._settle_carry(name, carry, value)
                out[name] = carry
            elif before is ABSENT or name in self.driver.code.fresh:
                found = self._last(name, value, before)
                learned |= found is None
                out[name] = found
            elif isinstance(value, Tracer):
                learned |= self._learn(name, before, value)
            elif isinstance(value, SymbolicInt) or not _same(value, before):
                if isinstance(before, (int, float)) and _is_number(value) \
                        and not isinstance(value, SymbolicInt):
                    self.decision.give_up(f"{name} changes from {before!r} to {value!r} without "
                                          "depending on an array")
                self.decision.give_up(f"{name} is not the same in every iteration")
        if learned:
            raise Retrace
        return out

    def _settle_carry(self, name: str, carry: Carry, value: Any) -> bool:
        """Whether the trial taught a new type of a carried name."""
        if carry.inner.shape == () and name not in self.decision.arrays:
            if not isinstance(value, Tracer):
                if not _is_number(value):
                    self.decision.give_up(f"{name} becomes {value!r}")
                carry.after = Literal(_plain(value), carry.inner.element_type)
                return False
            if value.shape != ():
                self.decision.give_up(f"{name} changes its shape")
            carry.after = value
            return self._learn_scalar(name, carry.inner, value)
        if not isinstance(value, Tracer) or value.trace is not self.trace:
            self.decision.give_up(f"{name} is sometimes another array")
        base = self.trace.base_of(value.memory) if value.concrete is None else value
        placed = self.placed[name]
        if value.shape != placed.shape or value.element_type is not placed.element_type \
                or value.alias.view != placed.alias.view \
                or base.shape != carry.inner.shape:
            self.decision.give_up(f"{name} changes its shape, dtype or view")
        if carry.after is not None and isinstance(carry.after, Tracer) \
                and carry.after.memory is not base.memory:
            self.decision.give_up(f"{name} stops sharing memory with {carry.names[0]}")
        carry.after = base
        if value.alias.requires_grad and not carry.inner.alias.requires_grad \
                and name not in self.decision.tracked:
            self.decision.tracked.add(name)
            return True
        return False

    def _learn_scalar(self, name: str, entry: Tracer, value: Tracer) -> bool:
        was = Kind(entry.element_type, entry.weak, entry.alias.requires_grad)
        dtype = was.dtype
        if value.element_type is not dtype:
            dtype = promote(dtype, value.element_type)
        new = Kind(dtype, was.weak and value.weak,
                   was.tracked or value.alias.requires_grad)
        if new == was:
            return False
        if name in self.decision.scalars and self.decision.scalars[name] == new:
            self.decision.give_up(f"the type of {name} does not come to rest")
        self.decision.scalars[name] = new
        return True

    def _learn(self, name: str, before: Any, value: Tracer) -> bool:
        """A name that was left alone now holds a traced value: should it be carried?"""
        if value is before:
            return False
        if isinstance(before, Tracer) and not before.scalar:
            mine = self._outer_memory(value)
            if mine is before.memory and value.alias.view == before.alias.view:
                return False
            self.decision.arrays.add(name)
            return True
        if _is_number(before) and value.shape == ():
            dtype = value.element_type
            if not value.weak and isinstance(before, (np.generic, float)):
                dtype = promote(dtype, _dtype_of(before)) if isinstance(
                    before, np.generic) else dtype
            self.decision.scalars[name] = Kind(dtype, value.weak, value.alias.requires_grad)
            return True
        self.decision.give_up(f"{name} becomes a traced array and was {before!r}")
        return False

    def _outer_memory(self, x: Tracer) -> Memory:
        """The storage in front of the loop that `x` is over, or its own."""
        if x.trace is not self.trace:
            return x.memory
        return next((c.outer for c in self.trace.captures.values() if c.inner is x.memory),
                    x.memory)

    def _permutation(self, after: dict[str, Any]) -> int:
        """The period of names that exchanged their arrays; 1 when none did."""
        names = [n for n, v in self.before.items()
                 if isinstance(v, Tracer) and not v.scalar and n not in self.decision.arrays]
        now = {n: self._outer_memory(after[n]) for n in names if isinstance(after[n], Tracer)}
        was = {self.before[n].memory: n for n in names}
        moved = {n: was[m] for n, m in now.items() if m in was and was[m] != n
                 and after[n].alias.view == self.before[was[m]].alias.view}
        if not moved or set(moved.values()) != set(moved):
            return 1
        period, at = 1, dict(moved)
        while any(at[n] != n for n in moved):
            at = {n: moved[at[n]] for n in moved}
            period += 1
        return period if period <= 4 else 1

    def _last(self, name: str, value: Any, before: Any) -> Any:
        """What a name that every iteration binds anew holds after the loop."""
        if isinstance(value, SymbolicInt):
            inside = {self.name: self.trips - 1}
            dim = dims.substitute(value.dim, inside)
            return dim if isinstance(dim, int) else SymbolicInt(dim)
        if not isinstance(value, Tracer):
            return value
        if value.trace is not self.trace or value.concrete is not None:
            return value
        captured = self._outer_memory(value)
        if captured is not value.memory:
            outer = self.outer.base_of(captured)
            steps = value.alias.view.steps
            if any(dims.symbols(d) for step in steps for d in _dims_of(step)):
                return ABSENT  # a view at the index: of no use outside
            return self.outer.view(outer, *steps) if value.alias.is_view else outer
        if value.alias.is_view:
            value = self.trace.read(value)
        flags = {"scalar": value.scalar, "weak": value.weak}
        inner = self.trace.argument(TensorType(value.shape, value.element_type), name,
                                    tracked=False, **flags)
        carry = Carry(inner, None, [name], value)
        self.carries.append(carry)
        return carry

    # -- arrays that are rebound

    def _check_arrays(self, frame: FrameType) -> None:
        """A carried array that the body also writes in place must be the loop's own."""
        for carry in self.carries:
            if carry.inner.shape == () or not isinstance(carry.before, Tracer):
                continue
            memory = carry.before.memory
            captured = self.trace.captures.get(memory)
            if captured is not None and (captured.inner.written or carry.inner.memory.written):
                self._peel(carry, "it is also written under another name")
            if carry.inner.memory.written and self._is_shared(memory, carry, frame):
                self._peel(carry, "its first iteration writes an array of others")

    def _is_shared(self, memory: Memory, carry: Carry, frame: FrameType) -> bool:
        """Whether someone else can see a write to the array that enters the loop."""
        if any(memory.base is x for x in memory.trace.builder.inputs):  # type: ignore
            return True
        for name, value in frames.everything(frame).items():
            if name in carry.names:
                continue
            for x in _leaves(value):
                if isinstance(x, Tracer) and x.memory is memory:
                    return True
        return False

    def _peel(self, carry: Carry, why: str) -> None:
        first = self.part.first + self.decision.period
        if first in self.decision.splits or self.part.first > 2 * self.decision.period:
            self.decision.give_up(f"{carry.names[0]} cannot be carried: {why}")
        self.decision.split((first,))

    # -- the node

    def _emit(self, results: dict[str, Any], frame: FrameType) -> None:
        inner, outer = self.trace, self.outer
        written = [c for c in inner.captures.values() if c.inner.written]
        read = [c for c in inner.captures.values() if not c.inner.written]
        outputs: list[Operand] = []
        for carry in self.carries:
            outputs.append(self._output(carry))
        outputs += [inner.handle(inner.base_of(c.inner)) for c in written]
        region = inner.finish(outputs)
        inputs = [c.inner.memory.base for c in self.carries]
        inputs += [c.inner.base for c in (*written, *read)]
        tracked = dict(zip(region.inputs, region.tracked, strict=True))
        region = Graph(region.name, region.stage, tuple(inputs), region.nodes,  # type: ignore
                       region.outputs, tuple(tracked[x] for x in inputs))  # type: ignore
        types = tuple(x.type for x in inputs[:len(self.carries) + len(written)])  # type: ignore
        attrs = LoopAttrs(self.name, self.trips, False, len(types), len(read), types)
        operands = [self._initial(c) for c in self.carries]
        operands += [outer.base_of(c.outer) for c in (*written, *read)]
        outer.builder.loc = self.location
        found = outer.apply_loop(loop, operands, attrs, region,
                                 [x.hint for x in inputs[:len(types)]])  # type: ignore
        values = dict(zip(self.carries, found, strict=False))
        for c, final in zip(written, found[len(self.carries):], strict=True):
            outer.write(outer.base_of(c.outer), copy, (final,))
        self._bind(results, values, frame)

    def _output(self, carry: Carry) -> Operand:
        after = carry.after if carry.after is not None else carry.inner
        want = carry.inner.element_type
        if isinstance(after, Tracer) and after.element_type is not want:
            after = cast(self.trace, after, want)  # type: ignore[assignment]
        return self.trace.operand(after)  # type: ignore[arg-type]

    def _initial(self, carry: Carry) -> Tracer | Literal:
        if carry.before is None:
            type_ = TensorType(carry.inner.shape, carry.inner.element_type)
            value = self.outer.builder.emit(undefined, (), undefined.attrs(type_))
            return self.outer._base(value, False)
        return carry.before

    def _bind(self, results: dict[str, Any], values: dict[Carry, Tracer], frame: FrameType
              ) -> None:
        """Give each name its value after the loop."""
        out: dict[str, Any] = {}
        for name, found in results.items():
            if not isinstance(found, Carry):
                out[name] = found
                continue
            value = values[found]
            if found.inner.scalar:
                value.scalar, value.weak = True, found.inner.weak
            elif name in self.placed:
                value = self._over(value, self.placed[name], self.outer)
            out[name] = value
        for name, before in self.before.items():
            if name not in results and before is not ABSENT:
                out[name] = before
        frames.write(frame, out)


def _leaves(x: Any) -> list[Any]:
    return optree.tree_leaves(x, namespace=NAMESPACE) if isinstance(
        x, (list, dict, tuple)) else [x]


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float, np.generic)) or (
        isinstance(x, Tracer) and x.concrete is not None and x.shape == ())


def _plain(x: Any) -> Any:
    if isinstance(x, Tracer):
        assert x.concrete is not None
        return x.concrete.item()
    return x.item() if isinstance(x, np.generic) else x


def _dtype_of(x: Any) -> Any:
    from tracegrad import dtypes

    return dtypes.of(x.dtype)


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    return type(a) is type(b) and isinstance(a, (bool, int, float, str, np.generic)) and bool(
        a == b or a != a and b != b)


def _dims_of(step: Any) -> list[Any]:
    from tracegrad.graph.symbols import symbols_of

    return [dims.of_atom(s) for s in symbols_of(step)]
