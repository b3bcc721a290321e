"""One trial of a loop: its body traced once, between two steps of the iterator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tracegrad import dims
from tracegrad.dims import Expr, symbol
from tracegrad.dtypes import BOOL, F64, I64
from tracegrad.graph.ir import Graph, Literal, Operand
from tracegrad.ops.control import LoopAttrs, Parallel, loop
from tracegrad.ops.create import undefined
from tracegrad.ops.handles import copy
from tracegrad.trace.loop_places import LIST, Scope
from tracegrad.trace.loop_plan import Kind
from tracegrad.trace.loop_reach import Path, Reach
from tracegrad.trace.loop_slots import Slots
from tracegrad.trace.modes import STATE, current_trace
from tracegrad.trace.promote import cast
from tracegrad.trace.symbolic import SymbolicInt, dim_of, integer
from tracegrad.trace.tracer import Memory, Trace, Tracer
from tracegrad.trace.windows import clash
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.trace.loop_driver import Driver, Part


@dataclass(slots=True, eq=False)
class Carry:
    """A value that goes from one iteration to the next.

    `inner` is its tracer at the start of the body, `before` what it is in front of the loop
    (nothing for values that every iteration makes anew), `after` at the end of the body.
    `slots` share it: a scalar, or array handles over one storage.
    """

    inner: Tracer
    before: Tracer | Literal | None
    slots: list[str]
    kind: Kind | None = None  # of a scalar
    after: Tracer | Literal | None = None

    @property
    def stays(self) -> bool:
        """Whether its array is at the end the one of the beginning, perhaps written."""
        return (
            self.kind is None
            and isinstance(self.after, Tracer)
            and self.after.memory is self.inner.memory
        )


class Trial:
    """An open loop; `name` is the symbol of its index."""

    def __init__(self, driver: Driver, part: Part, frame: FrameType) -> None:
        outer = current_trace()
        assert outer is not None
        self.decision, self.part, self.driver = driver.decision, part, driver
        self.length, self.trips = driver.length, part.trips
        self.outer: Trace = outer
        self.name = f"i{sum(t.loop is not None for t in STATE.traces)}"
        self.learned = self.decision.at(part.first)
        self.decision.check_rest()
        self.modes = STATE.grad, STATE.inference
        self.names = (
            *driver.code.stored,
            *(n for n in self.learned.more if n not in driver.code.stored),
        )
        self.reach = Reach(frame, outer.rolling.watched)
        self._promote_known()
        self.scope = Scope(frame, self.names, self.decision.places, self.learned.containers)
        self.slots = Slots(self.scope.read(), self.learned.containers)
        outer.place()
        self.location = outer.builder.loc
        self.trace = Trace(f"{outer.name}.loop", outer.face, outer, outer.exact_views)
        self.trace.names, self.trace.check_outside = outer.names, outer.check_outside
        self.trace.rolling, self.trace.loop = outer.rolling, self
        self.carries: list[Carry] = []
        self.carry_of: dict[str, Carry] = {}
        self.placed: dict[str, Any] = {}
        self.converted: list[str] = []  # slots that enter with another type than they have
        self._enter()
        from tracegrad.trace.loop_collect import Collecting

        self.collecting = Collecting(self, frame)
        self.scope.write(self.slots.placed(self.placed))
        STATE.traces.append(self.trace)

    @property
    def collects(self) -> bool:
        """Whether a list may get elements of all iterations."""
        return isinstance(self.trips, int)

    @property
    def index(self) -> Expr:
        """The index of the node."""
        return symbol(self.name, 0, dims.add(self.trips, -1))

    # -- before the body

    def _promote_known(self) -> None:
        """Known arrays that the body writes become part of the graph."""
        if not self.learned.promoted:
            return
        for x in self.reach.tracers():
            if x.memory.array is not None and promotion_key(x.memory) in self.learned.promoted:
                x.trace._promote(x.memory)  # type: ignore[attr-defined]

    def _enter(self) -> None:
        groups: dict[Memory, Carry] = {}
        for slot, value in self.slots.values.items():
            if slot in self.driver.code.fresh:
                continue
            start = dim_of(value)
            if start is None:
                self.learned.counters.pop(slot, None)
            if start is not None and slot in self.learned.counters:
                self.placed[slot] = integer(
                    dims.add(start, dims.mul(self.index, self.learned.counters[slot]))
                )
            elif slot in self.learned.scalars:
                self._carry_scalar(slot, value, self.learned.scalars[slot])
            elif isinstance(value, Tracer):
                if value.scalar and value.concrete is None:
                    self._carry_scalar(slot, value, Kind(value.element_type, value.weak))
                elif slot in self.learned.arrays:
                    self._carry_array(slot, value, groups)

    def _carry_scalar(self, slot: str, value: Any, kind: Kind) -> None:
        tracked = slot in self.learned.tracked
        before: Tracer | Literal
        if isinstance(value, Tracer) and value.concrete is None:
            before = self.outer.lift(value)
            if Kind(value.element_type, value.weak) != kind:
                self.converted.append(slot)
                before = cast(self.outer, before, kind.dtype)  # type: ignore[assignment]
            tracked |= value.alias.requires_grad
        else:
            if isinstance(value, SymbolicInt):
                before = self.outer.lift(value.value())
                before = cast(self.outer, before, kind.dtype)  # type: ignore[assignment]
            else:
                before = Literal(plain_number(value), kind.dtype)
            if not isinstance(value, (np.generic, Tracer)):
                self.decision.invented = True
                if kind not in (Kind(F64, True), Kind(I64, True)) or type(value) is not (
                    float if kind.dtype is F64 else int
                ):
                    self.converted.append(slot)
        inner = self.trace.argument(
            TensorType((), kind.dtype),
            slot,
            tracked=tracked,
            scalar=self.trace.face.numpy_scalars,
            weak=kind.weak,
        )  # type: ignore[attr-defined]
        carry = self.carry_of[slot] = Carry(inner, before, [slot], kind)
        self.carries.append(carry)
        self.placed[slot] = inner

    def _carry_array(self, slot: str, value: Tracer, groups: dict[Memory, Carry]) -> None:
        value = self.outer.lift(value)
        if value.memory.array is not None:
            value.memory.trace._promote(value.memory)  # type: ignore[attr-defined]
            value = self.outer.lift(value)
        memory = value.memory
        carry = groups.get(memory)
        if carry is None:
            assert memory.base is not None
            inner = self.trace.argument(
                memory.base.type,
                slot,
                layout=memory.layout,
                tracked=value.alias.requires_grad or slot in self.learned.tracked,
            )
            inner.memory.doubted = memory.doubted
            carry = groups[memory] = Carry(inner, self.outer.base_of(memory), [])
            self.carries.append(carry)
        carry.slots.append(slot)
        self.carry_of[slot] = carry
        self.placed[slot] = over(carry.inner, value, self.trace)

    # -- after the body

    def promote(self, memory: Memory) -> NoReturn:
        """The body writes known contents from before it."""
        key = promotion_key(memory)
        if key in self.learned.promoted:
            self.decision.give_up("it writes an array whose contents are known")
        self.learned.promoted.add(key)
        self.decision.again()

    def close(self, frame: FrameType) -> None:
        """Emit the node and give the frame its results."""
        from tracegrad.trace.loop_exit import Exits
        from tracegrad.trace.loop_settle import settle

        popped = STATE.traces.pop()
        if popped is not self.trace:
            popped.loop.decision.give_up("an exception leaves it")
        if (STATE.grad, STATE.inference) != self.modes:
            self.decision.give_up("it switches the gradient mode")
        if self.trace.prints:
            self.decision.give_up("it prints")
        self.collecting.leave()
        more = self.reach.renamed(self.names)
        if more:
            self.learned.more.update(dict.fromkeys(more))
            self.decision.again()
        self._learn_places()
        self.collecting.promote()
        found = settle(self)
        self.trace.place()
        self.collecting.prepare(Exits(self))
        values = self._emit(frame)
        self.scope.write({name: make(values) for name, make in found.items()})

    def _learn_places(self) -> None:
        """Items and attributes that the body changed and that are no slots are slots next time."""
        changes = list(self.reach.changes(self.names, self.scope.idents()))
        if not changes:
            return
        news: dict[Path, None] = {}
        for c in changes:
            path = self.reach.path(c.owner) if c.at or c.grown else None
            collects = c.grown and isinstance(c.owner, list)
            if path is None or collects and not self.collects:
                self.decision.give_up(c.text)
            if collects:
                news[replace(path, steps=(*path.steps, LIST))] = None
            elif c.at:
                news |= {replace(path, steps=(*path.steps, k)): None for k in c.at}
        if not news or not set(news) - set(self.decision.places):
            self.decision.peel(self.part.first, changes[0].text)
        self.decision.places.update(news)
        self.decision.again()

    def peel(self, slot: str, why: str) -> NoReturn:
        self.decision.peel(self.part.first, f"{slot} {why}")

    def skipped(self, slot: str) -> NoReturn:
        """A name that the loop sets is used behind it, where it may not have run."""
        self.decision.never_skip()

    def hardens(self, now: Kind) -> bool:
        """Whether a Python number that is carried as one may enter with the type `now`."""
        return False

    def narrows(self, before: Any, now: Kind) -> bool:
        """Whether the number `before` may enter with a type that is narrower than its own."""
        return False

    def check_moving(self, arrays: list[Carry], shared: Callable[[Carry], bool]) -> None:
        """Names that end with other arrays than they enter with: where they might keep one that
        somebody else holds, because there are too few iterations, there is no loop."""
        if isinstance(self.trips, int):
            if len(arrays) >= self.trips:
                self.decision.give_up("it runs too few times for its arrays")
            return
        least = dims.bounds(self.trips)[0] or 0
        owner = {c.inner.memory: c for c in arrays}
        for carry in arrays:
            chain = [] if carry.stays else [carry]  # its array comes from the last, made anew
            while chain and (up := owner.get(memory_after(chain[-1]))) and up not in chain:
                chain.append(up)
            if least < len(chain) and any(shared(c) for c in chain):
                if len(chain) == 1:
                    self.decision.never_skip()
                self.decision.give_up("it may run too few times for its arrays")

    def _emit(self, frame: FrameType) -> dict[Carry, Tracer]:
        inner, outer = self.trace, self.outer
        written = [c for c in inner.captures.values() if c.inner.written]
        read = [c for c in inner.captures.values() if not c.inner.written]
        self._check_windows()
        outputs: list[Operand] = [self._output(carry) for carry in self.carries]
        outputs += [inner.handle(inner.base_of(c.inner)) for c in written]
        outputs += [self.trace.operand(x) for x in self.collecting.stacks]
        region = inner.finish(outputs)
        inputs: list[Any] = [c.inner.memory.base for c in self.carries]
        inputs += [c.inner.base for c in (*written, *read)]
        tracked = dict(zip(region.inputs, region.tracked, strict=True))
        region = Graph(
            region.name,
            region.stage,
            tuple(inputs),
            region.nodes,
            region.outputs,
            tuple(tracked[x] for x in inputs),
        )
        self._check_conversions(region)
        if not outputs:
            self.collecting.extend({}, [])
            return {}  # nothing that the loop does is seen
        types = tuple(x.type for x in inputs[: len(self.carries) + len(written)])
        operands = [self._initial(c) for c in self.carries]
        operands += [outer.base_of(c.outer) for c in (*written, *read)]
        outer.builder.loc = self.location
        hints = [x.hint for x in inputs[: len(types)]]
        if self.decision.parallel:  # what is refused is called by its name
            names = {x.memory: n for n, x in frame.f_locals.items() if isinstance(x, Tracer)}
            after = [c.after.memory if isinstance(c.after, Tracer) else None for c in self.carries]
            held = [*after, *(c.outer for c in written)]
            hints = [h if m is None else names.get(m, h) for m, h in zip(held, hints, strict=True)]
        found = self._node(operands, types, region, hints)
        stacks = list(found[len(types) :])
        for c, final in zip(written, found[len(self.carries) : len(types)], strict=True):
            outer.write(outer.base_of(c.outer), copy, (final,))
        for carry, final in zip(self.carries, found, strict=False):
            if carry.stays and carry.inner.memory.written:
                assert isinstance(carry.before, Tracer)
                outer.write(carry.before, copy, (final,))
            if isinstance(carry.after, Tracer) and carry.after.memory.doubted is not None:
                final.memory.doubted = carry.after.memory.doubted
        values = dict(zip(self.carries, found, strict=False))
        self.collecting.extend(values, stacks)
        return values

    def _check_windows(self) -> None:
        pairs = [(c.outer, c.inner) for c in self.trace.captures.values()]
        pairs += [
            (c.before.memory, c.inner.memory)
            for c in self.carries
            if isinstance(c.before, Tracer) and c.kind is None
        ]
        both = clash(pairs)
        if both:
            self.decision.give_up(both)

    def _node(
        self,
        operands: list[Tracer | Literal],
        types: tuple[TensorType, ...],
        region: Graph,
        hints: list[str],
    ) -> tuple[Tracer, ...]:
        """Record the loop: `operands` are values for as many carries as `types`, then constants."""
        parallel = Parallel.REQUIRED if self.decision.parallel else Parallel.NO
        n, consts = len(types), len(operands) - len(types)
        stacks = self.collecting.types()
        types, hints = (*types, *stacks), [*hints, *("collected" for _ in stacks)]
        attrs = LoopAttrs(self.name, self.trips, False, n, consts, types, parallel=parallel)
        return self.outer.apply_loop(loop, operands, attrs, region, hints)

    def _check_conversions(self, region: Graph) -> None:
        """A number that enters as float64 is exact only where nothing is narrower."""
        if self.converted and not all(r.dtype in (F64, I64, BOOL) for r in values_of(region)):
            self.peel(self.converted[0], "does not keep its type")

    def _output(self, carry: Carry) -> Operand:
        after = carry.after if carry.after is not None else carry.inner
        return self.trace.operand(after)

    def _initial(self, carry: Carry) -> Tracer | Literal:
        if carry.before is None:
            type_ = TensorType(carry.inner.memory.shape, carry.inner.element_type)
            value = self.outer.builder.emit(undefined, (), undefined.attrs(type_))
            return self.outer._base(value, False)
        return carry.before


def values_of(region: Graph) -> list[Any]:
    out = list(region.inputs)
    for node in region.nodes:
        out += node.results
        for inner in node.regions:
            out += values_of(inner)
    return out


def memory_after(carry: Carry) -> Memory:
    """The storage that an array is over at the end of the body."""
    assert isinstance(carry.after, Tracer), "an array stays one"
    return carry.after.memory


def over(base: Tracer, like: Tracer, trace: Trace) -> Tracer:
    """The handle over the storage of `base` that `like` is over its own."""
    if not like.alias.view and not like.alias.is_view:
        return base
    return trace.view(base, *like.alias.view.steps, readonly=like.readonly)


def promotion_key(memory: Memory) -> Any:
    """What names a known array from one trial to the next."""
    return memory.shape, memory.dtype


def plain_number(x: Any) -> Any:
    if isinstance(x, Tracer):
        assert x.concrete is not None
        return x.concrete.item()
    return x.item() if isinstance(x, np.generic) else x


def is_number(x: Any) -> bool:
    return (
        isinstance(x, (int, float, np.generic))
        and not isinstance(x, bool)
        or (isinstance(x, Tracer) and x.concrete is not None and x.sizes == ())
    )
