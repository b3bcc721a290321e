"""One graph -> kernels in launch order, loops around those of their regions.

Values name buffers here: `root` says which value's buffer holds another one, because an update
runs in place or because a value is carried from one iteration to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Nest, Point
from tracegrad.loops.ir import Kernel
from tracegrad.loops.transform import structure
from tracegrad.ops.branch import CONTROL, CondAttrs, WhileAttrs
from tracegrad.ops.control import LoopAttrs
from tracegrad.ops.create import UndefinedAttrs
from tracegrad.schedule.effects import Copied, Effects, resolve_effects, updated
from tracegrad.schedule.fuse import Fusion, Role, fuse
from tracegrad.schedule.lower import Lowered, lower_copy, lower_group


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One launch: `args` are the values whose buffers are the kernel's params."""

    kernel: Kernel
    lowered: Lowered
    node: Node | None

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self.lowered.args


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """A loop; `kept` are values whose buffers live through all iterations."""

    attrs: LoopAttrs
    blocks: tuple[tuple[Item, ...]]
    kept: tuple[Value, ...]
    node: Node
    count: Value | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """A loop until a condition: blocks of the test, which stores `flag`, and of the body."""

    attrs: WhileAttrs
    blocks: tuple[tuple[Item, ...], tuple[Item, ...]]
    kept: tuple[Value, ...]
    node: Node
    flag: Value


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """One of several blocks."""

    blocks: tuple[tuple[Item, ...], ...]
    kept: tuple[Value, ...]
    node: Node
    selector: Value


Item = Run | Repeat | Cycle | Choose


@dataclass(slots=True, eq=False)
class Shared:
    """What the bodies of one program share."""

    map_kernel: Callable[[Kernel], Kernel]
    root: dict[Value, Value] = field(default_factory=dict)
    producers: dict[Value, Node] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    copies: list[Copied] = field(default_factory=list)
    _kernels: dict[Hashable, Kernel] = field(default_factory=dict)

    def find(self, x: Value) -> Value:
        """The value whose buffer holds `x`."""
        while x in self.root:
            x = self.root[x]
        return x

    def run(self, lowered: Lowered, node: Node | None) -> Run:
        """A launch of the kernel, or of an equal one that is there already."""
        key = structure(lowered.kernel)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self.map_kernel(
                replace(lowered.kernel, name=f"k{len(self._kernels)}")
            )
        return Run(kernel, lowered, node)


class Body:
    """Lowers one graph; `indices` are the names of the loops around it."""

    def __init__(
        self, graph: Graph, overwritable: set[Value], shared: Shared, indices: tuple[str, ...] = ()
    ) -> None:
        self.effects: Effects = resolve_effects(graph, overwritable)
        self.graph = self.effects.graph
        self.fusion: Fusion = fuse(self.effects)
        self.shared = shared
        self.indices = indices
        self.items: list[Item] = []
        shared.notes.extend(self.effects.notes)
        shared.copies.extend(c for c in self.effects.copies if indices or not c.given)
        shared.producers.update(self.fusion.node_of)
        self._stored = self._find_stored()

    def lower(self) -> list[Item]:
        for k, group in enumerate(self.fusion.groups):
            first = group.nodes[0]
            for at, result in updated(first):
                self._prepare(first.operands[at], result, f"base{k}")
            if isinstance(first.attrs, CONTROL):
                self._control(first)
                continue
            for lowered in lower_group(
                self.fusion, group, self._stored.__contains__, f"k{k}", self.indices
            ):
                self.items.append(self.shared.run(lowered, first))
        return self.items

    def copy(self, source: Operand, target: Value, name: str) -> None:
        """Store `source` into the buffer of `target`."""
        self.items.append(
            self.shared.run(lower_copy(self.fusion, source, target, name, self.indices), None)
        )

    def produced(self) -> set[Value]:
        """Values that a kernel or loop of this body computes."""
        return {r for g in self.fusion.groups for n in g.nodes for r in n.results}

    def _find_stored(self) -> set[Value]:
        """Values that another kernel, a nest, a loop or the caller reads."""
        group_of = {r: g for g in self.fusion.groups for n in g.nodes for r in n.results}
        stored = {x for x in self.graph.outputs if isinstance(x, Value)}
        for node in self.graph.nodes:
            group = group_of.get(node.results[0])
            for x in node.values():
                inside = (
                    group is not None
                    and group_of.get(x) is group
                    and self.fusion.role.get(x) is Role.POINT
                    and not isinstance(node.op.lowering, Nest)
                )
                if not inside:
                    stored.add(x)
        return stored

    def _prepare(self, base: Operand, result: Value, name: str) -> None:
        """Let the buffer of `result` hold `base` before it is updated."""
        if result in self.effects.in_place:
            assert isinstance(base, Value)
            self.shared.root[result] = self.shared.find(base)
            return
        made = self.fusion.node_of.get(base) if isinstance(base, Value) else None
        if made is None or not isinstance(made.attrs, UndefinedAttrs):
            self.copy(base, result, name)

    # -- regions

    def _control(self, node: Node) -> None:
        """The kernels of the node's regions, with their inputs bound to buffers of this body."""
        attrs, xs = node.attrs, node.operands
        assert isinstance(attrs, (CondAttrs, WhileAttrs, LoopAttrs))
        kept = (*node.results, *(x for x in xs[attrs.carries :] if isinstance(x, Value)))
        if isinstance(attrs, CondAttrs):
            selector, n = xs[0], 1 + attrs.carries
            assert isinstance(selector, Value), "scheduling stores the selector"
            cases = [self._inner(r, node.results, xs[n:], self.indices) for r in node.regions]
            self.items.append(Choose(tuple(cases), (*kept, selector), node, selector))
        elif isinstance(attrs, WhileAttrs):
            given, inside = xs[attrs.carries :], (*self.indices, attrs.index)
            flag, test = self._test(node.regions[0], node.results, given, inside)
            body = self._inner(node.regions[1], node.results, given, inside)
            self.items.append(Cycle(attrs, (test, body), (*kept, flag), node, flag))
        else:
            count = xs[-1] if attrs.counted else None
            assert not isinstance(count, Literal), "scheduling stores the count"
            given = xs[attrs.carries : len(xs) - attrs.counted]
            body = self._inner(node.regions[0], node.results, given, (*self.indices, attrs.index))
            self.items.append(Repeat(attrs, (body,), kept, node, count))

    def _bind(self, region: Graph, results: Sequence[Value], given: Sequence[Operand]) -> Graph:
        """The region with its inputs in the buffers of `results`, then of `given`."""
        n = len(results)
        bound: dict[Value, Operand] = {}
        for x, result in zip(region.inputs[:n], results, strict=True):
            self.shared.root[x] = self.shared.find(result)
        for x, y in zip(region.inputs[n:], given, strict=True):
            if isinstance(y, Literal):
                bound[x] = y
            else:
                self.shared.root[x] = self.shared.find(y)
        return _with_literals(region, bound) if bound else region

    def _inner(
        self,
        region: Graph,
        results: Sequence[Value],
        given: Sequence[Operand],
        indices: tuple[str, ...],
    ) -> tuple[Item, ...]:
        """What a region computes into the buffers of `results`."""
        n = len(results)
        region = self._bind(region, results, given)
        body = Body(region, set(region.inputs[:n]), self.shared, indices)
        for carry, out in zip(region.inputs[:n], region.outputs, strict=True):
            if isinstance(out, Value) and body.can_share(carry, out):
                self.shared.root[out] = self.shared.find(carry)
        body.lower()
        body.carry_back(region.inputs[:n])
        return tuple(body.items)

    def _test(
        self,
        region: Graph,
        results: Sequence[Value],
        given: Sequence[Operand],
        indices: tuple[str, ...],
    ) -> tuple[Value, tuple[Item, ...]]:
        """What a region of one bool computes, and the value whose buffer holds it."""
        region = self._bind(region, results, given)
        body = Body(region, set(), self.shared, indices)
        body.lower()
        flag = Value(region.outputs[0].type, "go")
        body.copy(region.outputs[0], flag, "go")
        return flag, tuple(body.items)

    def can_share(self, carry: Value, out: Value) -> bool:
        """Whether `out` may be computed into the buffer of `carry`: its kernel is the last to
        read the carry, and reads only the element that it writes."""
        group_at = {
            r: k for k, g in enumerate(self.fusion.groups) for m in g.nodes for r in m.results
        }
        if (
            out.type != carry.type
            or out in self.shared.root
            or carry in self.graph.outputs
            or self.graph.outputs.count(out) != 1
        ):
            return False
        if (
            out in group_at
            and out not in self.effects.in_place
            and not any(carry in node.operands for node in self.graph.nodes)
        ):
            return True
        if self.fusion.role.get(out) is not Role.POINT:
            return False
        here = group_at[out]
        stack: list[tuple[Value, bool]] = [(carry, True)]
        while stack:
            x, direct = stack.pop()
            if x in self.graph.outputs:
                return False
            for node in self.graph.nodes:
                if x not in node.operands:
                    continue
                result = node.results[0]
                role = self.fusion.role[result]
                # What is updated in place lives in the carry's buffer as well.
                stack.extend(
                    (r, direct)
                    for at, r in updated(node)
                    if node.operands[at] is x and r in self.effects.in_place
                )
                if role in (Role.VIRTUAL, Role.ABSORBED):
                    stack.append((result, False))
                    continue
                same = (
                    direct
                    and isinstance(node.op.lowering, Point)
                    and node.op.lowering.same_index
                    and role is Role.POINT
                )
                if group_at[result] > here or (group_at[result] == here and not same):
                    return False
        return True

    def carry_back(self, carries: tuple[Value, ...]) -> None:
        """Move the values of an iteration into the buffers that the next one reads."""
        find = self.shared.find
        moves = [
            (out, carry)
            for out, carry in zip(self.graph.outputs, carries, strict=True)
            if not (isinstance(out, Value) and find(out) is find(carry))
        ]
        targets = {find(carry) for _, carry in moves}
        for k, (out, carry) in enumerate(moves):
            if isinstance(out, Value) and find(out) in targets:
                # Another carry's old value: it would be gone when its turn comes.
                aside = Value(out.type, f"{out.hint}_old")
                self.copy(out, aside, f"aside{k}")
                moves[k] = (aside, carry)
        for k, (out, carry) in enumerate(moves):
            self.copy(out, carry, f"carry{k}")
            if carry.type.size != 1:
                text = f"{carry.hint} is copied into its place at the end of each iteration"
                self.shared.notes.append(text)
                self.shared.copies.append(Copied(text, carry.loc))


def _with_literals(region: Graph, bound: dict[Value, Operand]) -> Graph:
    """The region with some inputs replaced by literals (its other values are the same)."""

    def put(x: Operand) -> Operand:
        return bound.get(x, x) if isinstance(x, Value) else x

    nodes = tuple(replace(m, operands=tuple(map(put, m.operands))) for m in region.nodes)
    return replace(
        region,
        inputs=tuple(x for x in region.inputs if x not in bound),
        nodes=nodes,
        outputs=tuple(map(put, region.outputs)),
    )
