"""Derivatives of `loop` nodes.

The reverse of a loop is a loop over the same indices from the other end.  Cotangents of carries
are its carries; cotangents of constants are carries that accumulate, region by region.  What the
forward iterations computed and the reverse ones need is computed again, read from the final
carries, or taped (`reverse_body`): a tape is a stacked result of the forward loop, read element
by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracegrad.autodiff.activity import active_inputs
from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.grown import count_of, full_grown, grows
from tracegrad.autodiff.jvp import Forward
from tracegrad.autodiff.reverse_body import Backward, Body, Derivatives
from tracegrad.autodiff.unwritten import Unwritten
from tracegrad.autodiff.vjp import Reverse
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.control import LoopAttrs, emit_loop, stacked
from tracegrad.ops.create import full
from tracegrad.types import TensorType


def pull_loop(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    """Cotangents of the operands of a loop; the forward loop in `reverse.b` gains its tapes."""
    assert isinstance(node.attrs, LoopAttrs)
    attrs, body = node.attrs, Body(node.regions[0], node.attrs)
    active = active_inputs(body.region, attrs.carries, {k for k, w in enumerate(wanted) if w})
    back = Backward(body, active, cts, Unwritten(node, reverse.around))
    tapes = _extend_forward(reverse.b, node, attrs, back)
    return run_backward(reverse, node, attrs, back, cts, tapes, _count(node))


def _count(node: Node) -> Operand | None:
    """How many iterations a loop runs, where an operand says it."""
    assert isinstance(node.attrs, LoopAttrs)
    return node.operands[-1] if node.attrs.counted else None


def run_backward(
    reverse: Reverse,
    node: Node,
    attrs: LoopAttrs,
    back: Backward,
    cts: Derivatives,
    tapes: Sequence[Value],
    count: Operand | None,
) -> list[Operand | None]:
    """Emit the reverse of a loop, `attrs`, whose iterations left `tapes`; returns the cotangents
    of the operands of `node`."""
    b, body = reverse.b, back.body
    carries = [
        *(_dense(b, cts[k], node.results[k]) for k in back.carries),
        *(_dense(b, _taken(reverse, node.operands[k]), node.operands[k]) for k in back.accumulated),
    ]
    xs = [
        *(node.operands[k] for k in back.xs),
        *tapes,
        *(_dense(b, cts[k], node.results[k], count) for k in back.stacked),
    ]
    out = emit_loop(
        b,
        back.graph,
        attrs.index,
        attrs.trips,
        carries=carries,
        consts=[*(node.operands[k] for k in back.consts), *back.finals],
        xs=xs,
        reverse=not attrs.reverse,
        count=count,
        parallel=attrs.parallel.derived,
        hints=[
            f"d_{body.region.inputs[k].hint}"
            for k in (*back.carries, *back.accumulated, *back.moving)
        ],
    )
    found: list[Operand | None] = [None] * len(node.operands)
    for k, ct in zip((*back.carries, *back.accumulated, *back.moving), out, strict=True):
        found[k] = ct
    return found


def _taken(reverse: Reverse, x: Operand) -> Operand | None:
    """What has been collected for an array that iterations add to: the loop goes on from there,
    since zeros and a sum of whole arrays would cost more than its iterations in a loop around."""
    if not isinstance(x, Value) or x.shape == () or x not in reverse.pending:
        return None
    return reverse.total(x)


def _dense(
    b: GraphBuilder, ct: Operand | None, like: Operand, count: Operand | None = None
) -> Operand:
    """As `dense`; `count` is how many elements there are of what grows, if known."""
    if isinstance(ct, Value) or not grows(TensorType(like.shape, like.type.dtype)):
        return dense(b, ct, like)
    value = ct if ct is not None else Literal(0, like.type.dtype)
    return full_grown(b, like.type, value, count or count_of(b, like))


def _extend_forward(b: GraphBuilder, node: Node, attrs: LoopAttrs, back: Backward) -> list[Value]:
    """Let the forward loop stack what the reverse loop needs; returns the stacks."""
    region = back.body.region
    stacks = [
        Value(stacked(attrs.index, attrs.trips, v.type), f"{v.hint}_tape", loc=node.loc)
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
    active = active_inputs(
        body.region, attrs.carries, {k for k, t in enumerate(ts) if t is not None}
    )
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
        parallel=attrs.parallel.derived,
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
