"""The region that reverses an iteration, and what it takes from outside.

A value of the forward iteration that the reverse one needs is, in this order: computed again from
constants, moving inputs and the index; read from what the loop left behind (`unwritten`); taped,
or computed again from what is taped (`kept`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.autodiff.activity import active_values
from tracegrad.autodiff.grown import grows
from tracegrad.autodiff.kept import kept_values
from tracegrad.autodiff.same_values import merged, same_values
from tracegrad.autodiff.unwritten import Keep, Read, Unwritten
from tracegrad.autodiff.vjp import Reverse
from tracegrad.dims import largest
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.walk import live_nodes, same_inputs
from tracegrad.ops.branch import WhileAttrs, unknown_length
from tracegrad.ops.control import LoopAttrs
from tracegrad.ops.views import ViewAttrs, as_strided
from tracegrad.types import TensorType

Derivatives = Sequence[Operand | None]


class Body:
    """The region that iterations run and the kinds of its inputs."""

    def __init__(self, region: Graph, attrs: LoopAttrs | WhileAttrs) -> None:
        self.attrs = attrs
        self.region = region
        n, m = self.attrs.carries, self.attrs.consts
        self.carries = range(n)
        self.consts = range(n, n + m)
        self.xs = range(n + m, len(self.region.inputs))


class Backward:
    """The region of the reverse loop, and what it takes from outside.

    `carries`, `accumulated`, `moving`, `consts` and `xs` are region inputs (equal to operand
    numbers of the node), `stacked` results of the node, `finals` values around the node, and
    `tapes` values of the region `forward`.  Without `unwritten` nothing is read from the final
    carries.
    """

    def __init__(
        self,
        body: Body,
        active: set[int],
        cts: Derivatives,
        unwritten: Unwritten | None = None,
    ) -> None:
        self.body = body
        region, attrs = body.region, body.attrs
        self.carries = [k for k in body.carries if k in active]
        self.accumulated = [k for k in body.consts if k in active]
        self.moving = [k for k in body.xs if k in active]
        self.stacked = [
            attrs.carries + j
            for j in range(len(region.outputs) - attrs.carries)
            if cts[attrs.carries + j] is not None
        ]
        self._given: dict[int, Value] = {}
        self._sums: list[Value] = []
        self._outputs: list[Value] = []
        self.forward, self._nodes = self._reversed(active, unwritten)
        self._again = self.forward
        self._unwritten = unwritten
        if unwritten is not None:
            self._merge(unwritten)
        self._sources()
        self.graph = self._region()

    def _reversed(
        self, active: set[int], unwritten: Unwritten | None
    ) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """Differentiate the region; returns the nodes of the forward loop and those that send
        cotangents back."""
        region = self.body.region
        b = GraphBuilder(f"{region.name}.back")
        same_inputs(region, b)
        b.nodes.extend(region.nodes)
        reverse = Reverse(b, active_values(region, active), unwritten)
        for k in (*self.carries, *self.stacked):
            out = region.outputs[k]
            ct = self._given[k] = b.input(TensorType(out.shape, out.type.dtype), f"ct{k}")
            if isinstance(out, Value):
                reverse.contribute(out, ct)
        for k in self.accumulated:
            x = region.inputs[k]
            self._sums.append(b.input(x.type, f"sum_{x.hint}"))
            reverse.contribute(x, self._sums[-1])
        for node in reversed(region.nodes):
            reverse.visit(node)
        self._outputs += [
            reverse.total_of_input(region.inputs[k])
            for k in (*self.carries, *self.accumulated, *self.moving)
        ]
        live = live_nodes(b.finish(self._outputs))
        n = len(region.nodes)
        return _parts_first(region, [node for k, node in enumerate(b.nodes) if k < n or live[k]])

    def _merge(self, unwritten: Unwritten) -> None:
        """Let nodes that need equal values need the first of them: reverse ones, and forward ones
        where they run again.  The forward loop stays as it is, since reading a region early would
        take a copy of it there."""
        same = same_values((*self.forward, *self._nodes), unwritten.prints)
        self._again = tuple(merged(node, same) for node in self.forward)
        self._nodes = tuple(
            merged(node, same) for node in self._nodes if not all(r in same for r in node.results)
        )
        self._outputs = [same.get(x, x) for x in self._outputs]

    def _sources(self) -> None:
        """Decide for each forward value that the reverse nodes need how they get it."""
        body, inputs = self.body, self.body.region.inputs
        outside = [] if self._unwritten is None else list(self._unwritten.inputs.values())
        self._made = {*self._given.values(), *self._sums, *outside}
        self._made.update(r for node in self._nodes for r in node.results)
        self._producer = {r: node for node in self._again for r in node.results}
        self._constant = {inputs[k] for k in (*body.consts, *body.xs)}
        if body.attrs.recompute:
            self._constant |= {inputs[k] for k in body.carries}
        wanted = [x for node in self._nodes for x in node.values() if x not in self._made]
        wanted += [x for x in self._outputs if x not in self._made]
        wanted = self._rerun(wanted)
        self._reads: dict[Value, Read] = {}
        self._dear: set[Value] = set()
        if self._unwritten is not None and not body.attrs.recompute:
            self._look(self._unwritten, wanted)
        self._keep = kept_values(
            self._again, dict.fromkeys(wanted), self._constant, self._reads, self._is_repeatable
        )
        self._wanted = wanted

    def _rerun(self, wanted: Sequence[Value]) -> list[Value]:
        """What is wanted instead of tapes of unknown length: they cannot be elements of another
        one, so the loops that make them run again."""
        self._reruns: set[Node] = set()
        stack, rest = list(wanted), []
        while stack:
            x = stack.pop()
            node = self._producer.get(x)
            if x in self._made or node is None or not grows(x.type):
                rest.append(x)
                continue
            self._made.update(node.results)
            self._reruns.add(node)
            stack.extend(node.values())
        return [x for x in rest if x not in self._made]

    def _look(self, unwritten: Unwritten, wanted: Sequence[Value]) -> None:
        """Find what the loop left behind of `wanted` and of what they can be computed from."""
        written: dict[Value, list[Node]] = {}
        for node in self._again:
            if node.op.has(Trait.UPDATES_FIRST):
                for x in node.values():
                    written.setdefault(unwritten.original(x), []).append(node)
        stack, seen = list(wanted), set(self._made)
        while stack:
            x = stack.pop()
            if x in seen or x in self._constant:
                continue
            seen.add(x)
            found = unwritten.read(x, self._producer, written.get(unwritten.original(x), ()))
            maker = self._producer.get(x)
            if isinstance(found, Read):
                self._reads[x] = found
            elif found is Keep.TAPE:
                self._dear.add(x)
            elif maker is not None and self._is_repeatable(maker):
                stack.extend(maker.values())

    def _is_repeatable(self, node: Node) -> bool:
        if self.body.attrs.recompute:
            return True
        return not node.op.has(Trait.EXPENSIVE) and not any(r in self._dear for r in node.results)

    def _region(self) -> Graph:
        """The reverse region, whose inputs are in the order of `run_backward`."""
        region, body = self.body.region, self.body
        repeated, taken, read = self._taken()
        order = {v: k for k, v in enumerate((*region.inputs, *self._producer))}
        inputs = {v: k for k, v in enumerate(region.inputs)}
        self.consts = sorted(inputs[v] for v in taken if inputs.get(v) in body.consts)
        self.xs = sorted(inputs[v] for v in taken if inputs.get(v) in body.xs)
        self.tapes = sorted(
            (v for v in taken if inputs.get(v) not in body.consts and inputs.get(v) not in body.xs),
            key=order.__getitem__,
        )
        for x in self.tapes:
            if grows(x.type):
                raise unknown_length(x.loc)
        b = GraphBuilder(f"{region.name}.back", region.stage)
        for x in sorted(read, key=order.__getitem__):
            found = self._reads[x]
            b.append(Node(as_strided, (found.source,), ViewAttrs(found.view), (x,), loc=x.loc))
        b.nodes += [node for node in self._again if node in repeated | self._reruns]
        b.nodes += self._nodes
        used = {x for node in b.nodes for x in node.values()}
        outside = {} if self._unwritten is None else self._unwritten.inputs
        self.finals = [x for x, inner in outside.items() if inner in used]
        b.inputs += [self._given[k] for k in self.carries]
        b.inputs += self._sums
        b.inputs += [region.inputs[k] for k in self.consts]
        b.inputs += [outside[x] for x in self.finals]
        b.inputs += [region.inputs[k] for k in self.xs]
        b.inputs += self.tapes
        b.inputs += [self._given[k] for k in self.stacked]
        return b.finish(self._outputs)

    def _taken(self) -> tuple[set[Node], set[Value], set[Value]]:
        """Nodes that run again, values that come from outside, values that are read."""
        repeated: set[Node] = set()
        taken: set[Value] = set()
        read: set[Value] = set()
        stack = list(self._wanted)
        while stack:
            x = stack.pop()
            if x in self._made or x in taken:
                continue
            node = self._producer.get(x)
            if x in self._reads:
                read.add(x)
            elif x in self._keep or node is None or not self._is_repeatable(node):
                taken.add(x)
            elif node not in repeated:
                repeated.add(node)
                stack.extend(node.values())
        return repeated, taken, read


def _parts_first(region: Graph, nodes: Sequence[Node]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The forward nodes, and with them those reverse ones that read a part of a forward value, so
    that this part is what is kept; then the others."""
    n = len(region.nodes)
    known = {*region.inputs, *(r for node in nodes[:n] for r in node.results)}
    forward, rest = list(nodes[:n]), []
    for node in nodes[n:]:
        if node.op.has(Trait.VIEW) and all(x in known for x in node.values()) and _is_part(node):
            forward.append(node)
            known.update(node.results)
        else:
            rest.append(node)
    return tuple(forward), tuple(rest)


def _is_part(node: Node) -> bool:
    """Whether what a view reads is certain to be smaller than its base."""
    try:
        sizes = [largest(x.type.size) for x in (node.result, *node.values())]
    except ValueError:
        return False
    return sizes[0] < max(sizes[1:], default=0)
