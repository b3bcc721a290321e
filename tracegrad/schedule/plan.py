"""Functional graph -> `Plan`: kernels in launch order and a buffer for every stored value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tracegrad.dims import Symbol, add, counter, largest, mul, of_atom, product, widened
from tracegrad.dtypes import I64
from tracegrad.graph.ir import Graph, Operand, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.walk import all_nodes
from tracegrad.loops.grown import GROWN, is_grown
from tracegrad.loops.ir import Access, Kernel, Load, Store
from tracegrad.loops.program import (
    NO_MEMORY,
    Branch,
    Buffer,
    CheckSite,
    Copy,
    Grow,
    HostLoop,
    Launch,
    Place,
    Program,
    Step,
    WhileLoop,
    all_steps,
    named,
)
from tracegrad.loops.transform import statements
from tracegrad.ops.branch import last_index, unknown_length
from tracegrad.ops.control import LoopAttrs, Parallel
from tracegrad.ops.create import ConstantAttrs
from tracegrad.schedule.body import Body, Choose, Cycle, Item, Repeat, Run, Shared
from tracegrad.schedule.effects import Copied
from tracegrad.schedule.map_cpu import map_cpu
from tracegrad.schedule.stacks import stacks_to_carries
from tracegrad.schedule.threads import Span, Threads
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a graph output is after a call: output buffer `index`, or input `index` itself,
    which was overwritten with it."""

    place: Place
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A program and where its graph's outputs are; for `explain()`, `notes` on writes and
    `threads` on parallel loops.  `copies` are whole arrays copied for a write."""

    program: Program
    outputs: tuple[Slot, ...]
    notes: tuple[str, ...]
    threads: tuple[str, ...] = ()
    copies: tuple[Copied, ...] = ()


def make_plan(
    graph: Graph,
    *,
    names: Sequence[str] = (),
    map_kernel: Callable[[Kernel], Kernel] = map_cpu,
    threads: int = 1,
) -> Plan:
    """Schedule a functional, simplified graph; `names` are those of its outputs for a header,
    `threads` is the most that a parallel loop runs on.

    Arguments that the call writes may be overwritten in place, unless a run-time check could
    still stop the call: then they are written by the caller of the program, from an output.

    Raises:
        UnsupportedError: iterations of a parallel loop that depend on each other.
    """
    checked = any(
        n.op.has(Trait.CHECKED) or any(is_grown(r.type.size) for r in n.results)
        for n in all_nodes(graph)
    )
    overwritable: set[Value] = set()
    if graph.alias is not None and not checked:
        overwritable = {graph.inputs[w.input] for w in graph.alias.write_backs}
    planner = _Planner(stacks_to_carries(graph), overwritable, names, map_kernel)
    planner.threads = Threads(threads)
    return planner.run()


class _Planner:
    def __init__(
        self,
        graph: Graph,
        overwritable: set[Value],
        names: Sequence[str],
        map_kernel: Callable[[Kernel], Kernel],
    ) -> None:
        self.names = names
        self.overwritable = overwritable
        self.shared = Shared(map_kernel)
        self.body = Body(graph, overwritable, self.shared)
        self.graph = self.body.graph
        self.checks: list[CheckSite] = []
        self.threads = Threads(1)
        self.spans: dict[Value, list[int]] = {}  # first and last launch of what the arena holds
        self.growing: dict[Value, list[int]] = {}  # the same of what grows
        self.launches: dict[Repeat, Span] = {}

    def run(self) -> Plan:
        items = self.body.lower()
        outputs = self._outputs()
        slots, buffers = self._place(items, outputs)
        steps = tuple(self._step(item, buffers) for item in items)
        offsets, parts, arena = self.threads.place(self.spans, 64 if self.checks else 0)
        for v, offset in offsets.items():
            buffers[v] = replace(buffers[v], offset=offset)
        listed = [*{id(b): b for b in buffers.values()}.values(), *parts]
        if self.checks:
            listed.append(Buffer("detail", I64, 1, Place.ARENA, -1))
        program = Program(self.graph.name, tuple(listed), steps, arena, tuple(self.checks))
        notes = tuple(dict.fromkeys(self.threads.notes))
        return Plan(
            program, tuple(slots), tuple(self.shared.notes), notes, tuple(self.shared.copies)
        )

    def _step(self, item: Item, buffers: dict[Value, Buffer]) -> Step:
        if not isinstance(item, Run):
            return self._control(item, buffers)
        if any(is_grown(of_atom(s)) for s in item.lowered.kernel.indices):
            return self._copy(item, buffers)
        base = len(self.checks)
        loc = item.node.loc if item.node is not None else None
        self.checks.extend(CheckSite(message, loc) for message in item.lowered.checks)
        names = tuple(
            "detail" if v is None else buffers[self.shared.find(v)].name for v in item.args
        )
        return Launch(
            item.kernel,
            names,
            base,
            item.lowered.kernel.loc,
            indices=tuple(of_atom(s) for s in item.lowered.kernel.indices),
        )

    def _control(self, item: Repeat | Cycle | Choose, buffers: dict[Value, Buffer]) -> Step:
        """A step with steps inside."""
        if isinstance(item, Repeat) and item.attrs.parallel is not Parallel.NO:
            return self._parallel(item, buffers)
        blocks = [tuple(self._step(x, buffers) for x in block) for block in item.blocks]

        def name(x: Value) -> str:
            return buffers[self.shared.find(x)].name

        if isinstance(item, Choose):
            return Branch(name(item.selector), tuple(blocks), item.node.loc)
        if isinstance(item, Cycle):
            var = Symbol(item.attrs.index, 0, last_index(item.attrs.most))
            test, body = blocks
            body = (*self._grown(item, var, name), *body)
            return WhileLoop(var, name(item.flag), test, body, item.node.loc)
        count = None if item.count is None else name(item.count)
        var = counter(item.attrs.index, item.attrs.trips)
        return self._loop(item, (*self._grown(item, var, name), *blocks[0]), count)

    def _copy(self, item: Run, buffers: dict[Value, Buffer]) -> Copy:
        """A kernel over all elements of what grows: there is no other than a copy of it."""
        loc = item.node.loc if item.node is not None else item.lowered.kernel.loc
        stores = [s for s in statements(item.lowered.kernel.body) if isinstance(s, Store)]
        if len(item.args) != 2 or any(
            not isinstance(s.value, Load) or s.index != s.value.index for s in stores
        ):
            raise unknown_length(loc)
        self.checks.append(CheckSite(NO_MEMORY, loc))
        name = {
            p.access: buffers[self.shared.find(v)].name
            for v, p in zip(item.args, item.lowered.kernel.params, strict=True)
            if v is not None
        }
        return Copy(name[Access.IN], name[Access.OUT], len(self.checks), loc)

    def _grown(
        self, item: Repeat | Cycle, var: Symbol, name: Callable[[Value], str]
    ) -> Iterator[Grow]:
        """Room for the elements that iteration `var` stores."""
        known = isinstance(item.attrs, LoopAttrs) and item.attrs.trips != GROWN
        for r in item.node.results:
            if is_grown(r.type.size) and not known:
                size = mul(add(of_atom(var), 1), product(r.shape[1:]))
                self.checks.append(CheckSite(NO_MEMORY, item.node.loc))
                yield Grow(name(r), size, len(self.checks), item.node.loc)

    def _loop(self, item: Repeat, body: tuple[Step, ...], count: str | None) -> HostLoop:
        attrs = item.attrs
        return HostLoop(
            counter(attrs.index, attrs.trips),
            widened(attrs.trips),
            attrs.reverse,
            body,
            item.node.loc,
            count=count,
        )

    def _parallel(self, item: Repeat, buffers: dict[Value, Buffer]) -> HostLoop:
        """A loop on threads, with loops inside in order; or in order, with those on threads."""
        find, threads = self.shared.find, self.threads
        first, last = self.launches[item]
        kept = {find(v) for v in item.kept}
        private = {
            v: span
            for v, span in (*self.spans.items(), *self.growing.items())
            if first <= span[0] and span[1] <= last and v not in kept
        }
        inputs = item.node.regions[0].inputs
        names: dict[str, str] = {}
        for v, x in zip(item.node.results, inputs, strict=False):
            b = buffers[find(v)]
            derived = b.place is Place.OUTPUT and item.attrs.parallel is Parallel.POSSIBLE
            names[b.name] = b.hint if derived else v.hint or x.hint
        before, outer = (len(self.checks), len(threads.notes)), threads.inside
        threads.inside = True
        body = tuple(self._step(x, buffers) for x in item.blocks[0])
        threads.inside = outer
        assert item.count is None, "loops that values count run in order"
        loop = self._loop(item, body, None)
        span = first, last
        growing = {b.name for b in buffers.values() if b.place is Place.GROWING}
        grows = any(n in growing for s in all_steps(body) for n in named(s))
        reason = "threads do not share what a while_loop leaves" if grows else ""
        loop, apart = threads.arranged(
            loop, item.attrs.parallel, span, private, buffers, names, reason
        )
        if apart or outer:
            return loop
        del self.checks[before[0] :], threads.notes[before[1] : -1]
        return replace(loop, body=tuple(self._step(x, buffers) for x in item.blocks[0]))

    # -- results

    def _outputs(self) -> list[Value]:
        """For each graph output the value whose buffer holds it."""
        outputs: list[Value] = []
        for k, x in enumerate(self.graph.outputs):
            outputs.append(self._own_output(x, set(outputs), k))
        return outputs

    def _own_output(self, x: Operand, taken: set[Value], k: int) -> Value:
        """The value to return for output `k`; copied where its buffer is not its own."""
        written = self.graph.alias is not None and k >= self.graph.alias.results
        if isinstance(x, Value) and x not in taken:
            root = self.shared.find(x)
            is_input = root in self.graph.inputs
            constant = self._constant(root) is not None
            if (not is_input and not constant and x in self.body.produced()) or (
                is_input
                and written
                and root in self.overwritable
                and self._write_back_input(k) == self.graph.inputs.index(root)
            ):
                return x
        target = Value(TensorType(x.shape, x.type.dtype), getattr(x, "hint", "value"))
        self.body.copy(x, target, f"copy{k}")
        return target

    def _write_back_input(self, output: int) -> int:
        assert self.graph.alias is not None
        return next(w.input for w in self.graph.alias.write_backs if w.output == output)

    # -- buffers

    def _constant(self, x: Value) -> ConstantAttrs | None:
        node = self.shared.producers.get(x)
        return node.attrs if node is not None and isinstance(node.attrs, ConstantAttrs) else None

    def _place(
        self, items: Sequence[Item], outputs: list[Value]
    ) -> tuple[list[Slot], dict[Value, Buffer]]:
        buffers: dict[Value, Buffer] = {}
        for k, x in enumerate(self.graph.inputs):
            buffers[x] = self._buffer(x, f"in{k}", Place.INPUT, k)
        slots = []
        for k, held in enumerate(outputs):
            root = self.shared.find(held)
            if root in buffers and buffers[root].place is Place.INPUT:
                buffers[root] = replace(buffers[root], written=True)
                slots.append(Slot(Place.INPUT, buffers[root].index))
                continue
            index = sum(s.place is Place.OUTPUT for s in slots)
            slots.append(Slot(Place.OUTPUT, index))
            buffers[root] = self._buffer(held, f"out{index}", Place.OUTPUT, index)
            if self.names:
                buffers[root] = replace(buffers[root], hint=self.names[k])
        self._walk(items, buffers, self.spans, [])
        for k, v in enumerate([v for v in self.spans if is_grown(v.type.size)]):
            buffers[v] = self._buffer(v, f"grow{k}", Place.GROWING, k)
            self.growing[v] = self.spans.pop(v)
        for k, v in enumerate(self.spans):
            buffers[v] = self._buffer(v, f"tmp{k}", Place.ARENA, k)
        return slots, buffers

    def _walk(
        self,
        items: Sequence[Item],
        buffers: dict[Value, Buffer],
        spans: dict[Value, list[int]],
        runs: list[Run],
    ) -> None:
        """First and last launch of every buffer that the arena has to hold, in `spans`."""
        for item in items:
            if isinstance(item, Run):
                for v, p in zip(item.args, item.kernel.params, strict=True):
                    if v is not None:
                        self._touch(v, p.access, len(runs), buffers, spans)
                runs.append(item)
                continue
            first = len(runs)
            for block in item.blocks:
                self._walk(block, buffers, spans, runs)
            last = max(first, len(runs) - 1)
            if isinstance(item, Repeat):
                self.launches[item] = (first, last)
            for v in item.kept:
                root = self.shared.find(v)
                if root not in buffers:
                    span = spans.setdefault(root, [first, last])
                    span[0], span[1] = min(span[0], first), max(span[1], last)

    def _touch(
        self,
        v: Value,
        access: Access,
        at: int,
        buffers: dict[Value, Buffer],
        spans: dict[Value, list[int]],
    ) -> None:
        root = self.shared.find(v)
        found = buffers.get(root)
        if found is not None:
            # An argument may be used up on the way to its new contents.
            if access is not Access.IN and found.place is Place.INPUT:
                buffers[root] = replace(found, written=True)
            return
        constant = self._constant(root)
        if constant is not None:
            index = sum(b.place is Place.CONSTANT for b in buffers.values())
            buffers[root] = replace(
                self._buffer(root, f"const{index}", Place.CONSTANT, index), data=constant.data.array
            )
            return
        spans.setdefault(root, [at, at])[1] = at

    def _buffer(self, x: Value, name: str, place: Place, index: int) -> Buffer:
        size = largest(x.type.size) if place is Place.ARENA else x.type.size
        return Buffer(name, x.dtype, size, place, index, shape=x.type.shape, hint=x.hint)
