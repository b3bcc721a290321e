"""Functional graph -> `Plan`: kernels in launch order and a buffer for every stored value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.op import Nest, Trait
from tracegrad.loops.ir import Access, Kernel
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program
from tracegrad.loops.transform import structure
from tracegrad.ops.create import ConstantAttrs
from tracegrad.schedule.effects import Effects, resolve_effects
from tracegrad.schedule.fuse import Fusion, Role, fuse
from tracegrad.schedule.lower import Lowered, lower_copy, lower_group
from tracegrad.schedule.map_cpu import map_cpu
from tracegrad.schedule.memory import Lifetime, assign_offsets
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a graph output is after a call: output buffer `index`, or input `index` itself,
    which was overwritten with it."""

    place: Place
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A program and where its graph's outputs are; `notes` are for `explain()`."""

    program: Program
    outputs: tuple[Slot, ...]
    notes: tuple[str, ...]


def make_plan(graph: Graph, *, names: Sequence[str] = (),
              map_kernel: Callable[[Kernel], Kernel] = map_cpu) -> Plan:
    """Schedule a functional, simplified graph; `names` are those of its outputs for a header.

    Arguments that the call writes may be overwritten in place, unless a run-time check could
    still stop the call: then they are written by the caller of the program, from an output.
    """
    checked = any(n.op.has(Trait.CHECKED) for n in graph.nodes)
    overwritable: set[Value] = set()
    if graph.alias is not None and not checked:
        overwritable = {graph.inputs[w.input] for w in graph.alias.write_backs}
    effects = resolve_effects(graph, overwritable)
    return _Planner(effects, fuse(effects), overwritable, names, map_kernel).run()


class _Planner:
    def __init__(self, effects: Effects, fusion: Fusion, overwritable: set[Value],
                 names: Sequence[str], map_kernel: Callable[[Kernel], Kernel]) -> None:
        self.names = names
        self.graph = effects.graph
        self.effects = effects
        self.fusion = fusion
        self.overwritable = overwritable
        self.map_kernel = map_kernel
        self.launches: list[tuple[Lowered, Kernel, tuple[Value | None, ...], Node | None]] = []
        self.root: dict[Value, Value] = {}
        self.checks: list[CheckSite] = []
        self._kernels: dict[Hashable, Kernel] = {}
        self._stored: set[Value] = self._find_stored()

    def run(self) -> Plan:
        outputs = self._lower_all()
        slots, buffers = self._place(outputs)
        steps = []
        for (lowered, kernel, args, _), base in zip(self.launches, self._check_bases(),
                                                    strict=True):
            names = tuple("detail" if v is None else buffers[self._find(v)].name for v in args)
            steps.append(Launch(kernel, names, base, lowered.kernel.loc))
        everything = {id(b): b for b in buffers.values()}
        listed = list(everything.values())
        if self.checks:
            from tracegrad.dtypes import I64

            listed.append(Buffer("detail", I64, 1, Place.ARENA, -1))
        program = Program(self.graph.name, tuple(listed), tuple(steps), self.arena,
                          tuple(self.checks))
        return Plan(program, tuple(slots), tuple(self.effects.notes))

    # -- kernels

    def _find_stored(self) -> set[Value]:
        """Values that another kernel, a nest or the caller reads."""
        group_of = {r: g for g in self.fusion.groups for n in g.nodes for r in n.results}
        stored = {x for x in self.graph.outputs if isinstance(x, Value)}
        for node in self.graph.nodes:
            group = group_of.get(node.results[0])
            for x in node.values():
                inside = (group is not None and group_of.get(x) is group
                          and self.fusion.role.get(x) is Role.POINT
                          and not isinstance(node.op.lowering, Nest))
                if not inside:
                    stored.add(x)
        return stored

    def _lower_all(self) -> list[tuple[Value, Value]]:
        """Fill `launches`; returns (graph output, value that holds it) pairs in order."""
        for k, group in enumerate(self.fusion.groups):
            first = group.nodes[0]
            if first.op.has(Trait.UPDATES_FIRST):
                self._prepare_base(first, k)
            for lowered in lower_group(self.fusion, group, self._stored.__contains__, f"k{k}"):
                self._add(lowered, first)
        outputs: list[tuple[Value, Value]] = []
        taken: set[Value] = set()
        for k, x in enumerate(self.graph.outputs):
            held = self._own_output(x, taken, k)
            taken.add(held)
            outputs.append((held, held))
        return outputs

    def _own_output(self, x: Operand, taken: set[Value], k: int) -> Value:
        """The value to return for output `k`; copied where its buffer is not its own."""
        written = self.graph.alias is not None and k >= self.graph.alias.results
        if isinstance(x, Value) and x not in taken:
            root = self._find(x)
            is_input = root in self.graph.inputs
            constant = self._constant(root) is not None
            if (not is_input and not constant and x in self._produced()) or (
                    is_input and written and root in self.overwritable
                    and self._write_back_input(k) == self.graph.inputs.index(root)):
                return x
        target = Value(TensorType(x.shape, x.type.dtype), getattr(x, "hint", "value"))
        self._add(lower_copy(self.fusion, x, target, f"copy{k}"), None)
        return target

    def _produced(self) -> set[Value]:
        return {r for g in self.fusion.groups for n in g.nodes for r in n.results}

    def _write_back_input(self, output: int) -> int:
        assert self.graph.alias is not None
        return next(w.input for w in self.graph.alias.write_backs if w.output == output)

    def _prepare_base(self, node: Node, k: int) -> None:
        """Let the result's buffer hold the base before the update runs."""
        base, result = node.operands[0], node.result
        if result in self.effects.in_place:
            assert isinstance(base, Value)
            self.root[result] = self._find(base)
        else:
            self._add(lower_copy(self.fusion, base, result, f"base{k}"), None)

    def _add(self, lowered: Lowered, node: Node | None) -> None:
        key = structure(lowered.kernel)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self.map_kernel(
                replace(lowered.kernel, name=f"k{len(self._kernels)}"))
        self.launches.append((lowered, kernel, lowered.args, node))

    def _check_bases(self) -> list[int]:
        bases = []
        for lowered, _, _, node in self.launches:
            bases.append(len(self.checks))
            loc = node.loc if node is not None else None
            self.checks.extend(CheckSite(message, loc) for message in lowered.checks)
        return bases

    # -- buffers

    def _find(self, x: Value) -> Value:
        """The value whose buffer holds `x`."""
        while x in self.root:
            x = self.root[x]
        return x

    def _constant(self, x: Value) -> ConstantAttrs | None:
        node = self.fusion.node_of.get(x)
        return node.attrs if node is not None and isinstance(node.attrs, ConstantAttrs) else None

    def _place(self, outputs: list[tuple[Value, Value]]
               ) -> tuple[list[Slot], dict[Value, Buffer]]:
        buffers: dict[Value, Buffer] = {}
        for k, x in enumerate(self.graph.inputs):
            buffers[x] = self._buffer(x, f"in{k}", Place.INPUT, k)
        slots = []
        for k, (held, _) in enumerate(outputs):
            root = self._find(held)
            if root in buffers and buffers[root].place is Place.INPUT:
                buffers[root] = replace(buffers[root], written=True)
                slots.append(Slot(Place.INPUT, buffers[root].index))
                continue
            index = sum(s.place is Place.OUTPUT for s in slots)
            slots.append(Slot(Place.OUTPUT, index))
            buffers[root] = self._buffer(held, f"out{index}", Place.OUTPUT, index)
            if self.names:
                buffers[root] = replace(buffers[root], hint=self.names[k])
        spans: dict[Value, list[int]] = {}
        for k, (_, kernel, args, _) in enumerate(self.launches):
            for v, p in zip(args, kernel.params, strict=True):
                if v is None:
                    continue
                root = self._find(v)
                if root in buffers:
                    # An argument may be used up on the way to its new contents.
                    if p.access is not Access.IN and buffers[root].place is Place.INPUT:
                        buffers[root] = replace(buffers[root], written=True)
                    continue
                constant = self._constant(root)
                if constant is not None:
                    index = sum(b.place is Place.CONSTANT for b in buffers.values())
                    buffers[root] = replace(
                        self._buffer(root, f"const{index}", Place.CONSTANT, index),
                        data=constant.data.array)
                    continue
                spans.setdefault(root, [k, k])[1] = k
        checked = any(lowered.checks for lowered, _, _, _ in self.launches)
        lifetimes = [Lifetime(_nbytes(v), a, b) for v, (a, b) in spans.items()]
        offsets, self.arena = assign_offsets(lifetimes, 64 if checked else 0)
        for k, (v, offset) in enumerate(zip(spans, offsets, strict=True)):
            buffers[v] = replace(self._buffer(v, f"tmp{k}", Place.ARENA, k), offset=offset)
        return slots, buffers

    def _buffer(self, x: Value, name: str, place: Place, index: int) -> Buffer:
        return Buffer(name, x.dtype, x.type.size, place, index, shape=x.type.shape, hint=x.hint)


def _nbytes(x: Value) -> int:
    size = x.type.size
    assert isinstance(size, int)
    return size * x.dtype.nbytes
