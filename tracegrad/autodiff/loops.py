"""Derivatives of `loop` nodes.

The reverse of a loop is a loop over the same indices from the other end.  Cotangents of carries
are its carries; cotangents of constants are carries that accumulate, region by region; what the
forward iterations computed and the reverse ones need is taped: a stacked result of the forward
loop, read element by element.  Values that depend on constants and the index alone are computed
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracegrad.autodiff.activity import active_values
from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.jvp import Forward
from tracegrad.autodiff.vjp import Reverse
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.branch import WhileAttrs
from tracegrad.ops.control import LoopAttrs, emit_loop
from tracegrad.ops.create import full
from tracegrad.types import TensorType

Derivatives = Sequence[Operand | None]


def pull_loop(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    """Cotangents of the operands of a loop; the forward loop in `reverse.b` gains its tapes."""
    assert isinstance(node.attrs, LoopAttrs)
    attrs, body = node.attrs, Body(node.regions[0], node.attrs)
    active = active_inputs(body, {k for k, w in enumerate(wanted) if w})
    back = Backward(body, active, cts)
    tapes = _extend_forward(reverse.b, node, attrs, back)
    return run_backward(reverse.b, node, attrs, back, cts, tapes, _count(node))


def _count(node: Node) -> Operand | None:
    """How many iterations a loop runs, where an operand says it."""
    assert isinstance(node.attrs, LoopAttrs)
    return node.operands[-1] if node.attrs.counted else None


def run_backward(
    b: GraphBuilder,
    node: Node,
    attrs: LoopAttrs,
    back: Backward,
    cts: Derivatives,
    tapes: Sequence[Value],
    count: Operand | None,
) -> list[Operand | None]:
    """Emit the reverse of a loop, `attrs`, whose iterations left `tapes`; returns the cotangents
    of the operands of `node`."""
    body = back.body
    carries = [
        *(dense(b, cts[k], node.results[k]) for k in back.carries),
        *(zeros(b, body.region.inputs[k].type) for k in back.accumulated),
    ]
    xs = [
        *(node.operands[k] for k in back.xs),
        *tapes,
        *(dense(b, cts[k], node.results[k]) for k in back.stacked),
    ]
    out = emit_loop(
        b,
        back.graph,
        attrs.index,
        attrs.trips,
        carries=carries,
        consts=[node.operands[k] for k in back.consts],
        xs=xs,
        reverse=not attrs.reverse,
        count=count,
        hints=[
            f"d_{body.region.inputs[k].hint}"
            for k in (*back.carries, *back.accumulated, *back.moving)
        ],
    )
    found: list[Operand | None] = [None] * len(node.operands)
    for k, ct in zip((*back.carries, *back.accumulated, *back.moving), out, strict=True):
        found[k] = ct
    return found


class Body:
    """The region that iterations run and the kinds of its inputs."""

    def __init__(self, region: Graph, attrs: LoopAttrs | WhileAttrs) -> None:
        self.attrs = attrs
        self.region = region
        n, m = self.attrs.carries, self.attrs.consts
        self.carries = range(n)
        self.consts = range(n, n + m)
        self.xs = range(n + m, len(self.region.inputs))


def active_inputs(body: Body, given: set[int]) -> set[int]:
    """Region inputs that a gradient flows through: those asked for, and carries they reach."""
    active = set(given)
    while True:
        values = active_values(body.region, active)
        more = {
            k
            for k in body.carries
            if body.region.outputs[k] in values and body.region.inputs[k].dtype.is_inexact
        }
        if more <= active:
            return active
        active |= more


class Backward:
    """The region of the reverse loop, and what it takes from outside.

    All fields but `graph` and `tapes` are region inputs (equal to operand numbers of the node)
    or, for `stacked`, results of the node.
    """

    def __init__(self, body: Body, active: set[int], cts: Derivatives) -> None:
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
        b = GraphBuilder(f"{region.name}.back")
        same_inputs(region, b)
        b.nodes.extend(region.nodes)
        reverse = Reverse(b, active_values(region, active))
        self._given: dict[int, Value] = {}
        for k in (*self.carries, *self.stacked):
            out = region.outputs[k]
            ct = self._given[k] = b.input(TensorType(out.shape, out.type.dtype), f"ct{k}")
            if isinstance(out, Value):
                reverse.contribute(out, ct)
        sums = {
            k: b.input(region.inputs[k].type, f"sum_{region.inputs[k].hint}")
            for k in self.accumulated
        }
        for k, total in sums.items():
            reverse.contribute(region.inputs[k], total)
        for node in reversed(region.nodes):
            reverse.visit(node)
        outputs = [
            reverse.total_of_input(region.inputs[k])
            for k in (*self.carries, *self.accumulated, *self.moving)
        ]
        self.forward, nodes = _parts_first(region, b.nodes)
        self._split(nodes, outputs, sums)

    def _split(
        self, nodes: tuple[Node, ...], outputs: Sequence[Operand], sums: dict[int, Value]
    ) -> None:
        """Decide for each forward value that `nodes` need: computed again, or taped."""
        region, body = self.body.region, self.body
        again = self._recomputable()
        made = (
            {r for node in nodes for r in node.results}
            | set(self._given.values())
            | set(sums.values())
        )
        producer = {r: node for node in self.forward for r in node.results}
        wanted = [x for node in nodes for x in node.values()]
        wanted += [x for x in outputs if isinstance(x, Value)]
        repeated: dict[Node, None] = {}
        taken: dict[Value, None] = {}
        while wanted:
            x = wanted.pop()
            if x in made or x in taken:
                continue
            node = producer.get(x)
            if node is not None and x in again:
                if node not in repeated:
                    repeated[node] = None
                    wanted.extend(node.values())
            else:
                taken[x] = None
        inputs = {v: k for k, v in enumerate(region.inputs)}
        self.consts = sorted(inputs[v] for v in taken if inputs.get(v) in body.consts)
        self.xs = sorted(inputs[v] for v in taken if inputs.get(v) in body.xs)
        order = {v: k for k, v in enumerate((*region.inputs, *producer))}
        self.tapes = sorted(
            (v for v in taken if inputs.get(v) not in body.consts and inputs.get(v) not in body.xs),
            key=order.__getitem__,
        )
        kept = tuple(node for node in self.forward if node in repeated)
        self.graph = Graph(
            f"{region.name}.back",
            region.stage,
            (
                *(self._given[k] for k in self.carries),
                *sums.values(),
                *(region.inputs[k] for k in self.consts),
                *(region.inputs[k] for k in self.xs),
                *self.tapes,
                *(self._given[k] for k in self.stacked),
            ),
            (*kept, *nodes),
            tuple(outputs),
        )

    def _recomputable(self) -> set[Value]:
        """Forward values that follow from constants, moving inputs and the index alone (and from
        the carries, which are taped, where the loop says so)."""
        everything = self.body.attrs.recompute
        known = {self.body.region.inputs[k] for k in (*self.body.consts, *self.body.xs)}
        if everything:
            known |= {self.body.region.inputs[k] for k in self.body.carries}
        again: set[Value] = set()
        for node in self.forward:
            if (everything or not node.op.has(Trait.EXPENSIVE)) and all(
                v in known or v in again for v in node.values()
            ):
                again.update(node.results)
        return again


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
    sizes = [x.type.size for x in (node.result, *node.values())]
    return all(isinstance(s, int) for s in sizes) and sizes[0] < max(sizes[1:], default=0)  # type: ignore


def _extend_forward(b: GraphBuilder, node: Node, attrs: LoopAttrs, back: Backward) -> list[Value]:
    """Let the forward loop stack what the reverse loop needs; returns the stacks."""
    region = back.body.region
    stacks = [
        Value(TensorType((attrs.trips, *v.type.shape), v.dtype), f"{v.hint}_tape", loc=node.loc)
        for v in back.tapes
    ]
    if not stacks and back.forward == region.nodes:
        return []
    longer = Graph(
        region.name,
        region.stage,
        region.inputs,
        back.forward,
        (*region.outputs, *back.tapes),
        region.tracked,
    )
    exchange(
        b,
        node,
        replace(
            node,
            regions=(longer,),
            results=(*node.results, *stacks),
            attrs=replace(attrs, results=(*attrs.results, *(s.type for s in stacks))),
        ),
    )
    return stacks


def exchange(b: GraphBuilder, node: Node, longer: Node) -> None:
    """Put `longer`, which has the results of `node` and more, in the place of it."""
    at = next(k for k in range(len(b.nodes)) if b.nodes[k] is node)
    b.nodes[at] = longer


def push_loop(forward: Forward, node: Node, ts: Derivatives) -> list[Operand | None]:
    """Tangents of the results of a loop: one loop carries values and tangents together."""
    assert isinstance(node.attrs, LoopAttrs)
    attrs, body = node.attrs, Body(node.regions[0], node.attrs)
    active = active_inputs(body, {k for k, t in enumerate(ts) if t is not None})
    inner = tangent_region(body, active)
    b = forward.b
    c = body.attrs.carries
    moved = [k for k in body.carries if k in active]
    operands = list(node.operands)
    dots = {k: dense(b, ts[k], node.operands[k]) for k in active}
    carries = [*operands[:c], *(dots[k] for k in moved)]
    consts = [*(operands[k] for k in body.consts), *(dots[k] for k in body.consts if k in active)]
    xs = [*(operands[k] for k in body.xs), *(dots[k] for k in body.xs if k in active)]
    ys = range(c, len(body.region.outputs))
    out = emit_loop(
        b,
        inner.graph,
        attrs.index,
        attrs.trips,
        carries=carries,
        consts=consts,
        xs=xs,
        reverse=attrs.reverse,
        count=_count(node),
    )
    forward.renamed(node, (*out[:c], *out[c + len(moved) : c + len(moved) + len(ys)]))
    found: list[Operand | None] = [None] * len(node.results)
    for k, t in zip(
        (*moved, *inner.stacked),
        (*out[c : c + len(moved)], *out[c + len(moved) + len(ys) :]),
        strict=True,
    ):
        found[k] = t
    return found


@dataclass(frozen=True, slots=True)
class _Tangents:
    graph: Graph
    stacked: tuple[int, ...]  # results of the node that have a stacked tangent


def tangent_region(body: Body, active: set[int]) -> _Tangents:
    """The region on values and tangents: carries, their tangents, consts, theirs, xs, theirs."""
    region, c = body.region, body.attrs.carries
    b = GraphBuilder(f"{region.name}.fwd")
    same_inputs(region, b)
    forward = Forward(b)
    dots = {k: b.input(region.inputs[k].type, f"d_{region.inputs[k].hint}") for k in sorted(active)}
    forward.tangents.update({region.inputs[k]: d for k, d in dots.items()})
    for node in region.nodes:
        forward.visit(node)
    outputs = [forward.value(x) for x in region.outputs]

    def dot(k: int) -> Operand:
        return forward.tangent(region.outputs[k])

    stacked = tuple(
        k
        for k in range(c, len(outputs))
        if isinstance(region.outputs[k], Value) and region.outputs[k] in forward.tangents
    )
    inputs: list[Value] = []
    for kind in (body.carries, body.consts, body.xs):
        inputs += [region.inputs[k] for k in kind] + [dots[k] for k in kind if k in active]
    moved = [dot(k) for k in body.carries if k in active]
    return _Tangents(
        Graph(
            b.name,
            b.stage,
            tuple(inputs),
            tuple(b.nodes),
            (*outputs[:c], *moved, *outputs[c:], *(dot(k) for k in stacked)),
        ),
        stacked,
    )


def zeros(b: GraphBuilder, type_: TensorType) -> Value:
    return full(b, shape=type_.shape, value=Literal(0, type_.dtype))  # type: ignore[no-any-return]


def dense(b: GraphBuilder, ct: Operand | None, like: Operand) -> Operand:
    if isinstance(ct, Value):
        return ct
    if ct is None:
        return zeros(b, TensorType(like.shape, like.type.dtype))
    return full(b, shape=like.type.shape, value=ct)  # type: ignore[no-any-return]


PULL[LoopAttrs] = pull_loop
PUSH[LoopAttrs] = push_loop
