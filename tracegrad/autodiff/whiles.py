"""Derivatives of `while` nodes.

Forward mode carries tangents along.  In reverse mode the forward iterations are counted and tape
what the reverse ones need, in stacks of the size of the bound or in stacks that grow, and a
counted loop runs back over as many iterations as there were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracegrad.autodiff.activity import active_inputs
from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.jvp import Forward
from tracegrad.autodiff.loops import dense, exchange, run_backward, tangent_region
from tracegrad.autodiff.reverse_body import Backward, Body, Derivatives
from tracegrad.autodiff.unwritten import Unwritten
from tracegrad.autodiff.vjp import Reverse
from tracegrad.dtypes import I64
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.loops.grown import GROWN
from tracegrad.ops.arithmetic import add
from tracegrad.ops.branch import WhileAttrs, emit_while
from tracegrad.ops.control import LoopAttrs
from tracegrad.types import TensorType

_COUNT = TensorType((), I64)


def pull_while(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    """Cotangents of the operands; the forward node in `reverse.b` gains a counter and tapes."""
    attrs = node.attrs
    assert isinstance(attrs, WhileAttrs)
    body = Body(node.regions[1], attrs)
    active = active_inputs(body.region, attrs.carries, {k for k, w in enumerate(wanted) if w})
    back = Backward(body, active, cts, Unwritten(node, reverse.around))
    count, tapes = _extend_forward(reverse.b, node, attrs, back)
    trips = attrs.most or GROWN
    loop = LoopAttrs(attrs.index, trips, False, attrs.carries, attrs.consts, attrs.results)
    return run_backward(reverse, node, loop, back, cts, tapes, count)


def _extend_forward(
    b: GraphBuilder, node: Node, attrs: WhileAttrs, back: Backward
) -> tuple[Value, list[Value]]:
    """Let the forward loop count its iterations and stack what the reverse loop needs."""
    test, region = node.regions[0], back.body.region
    n = attrs.carries
    count = Value(_COUNT, "trips", loc=node.loc)
    stacks = [
        Value(
            TensorType((attrs.most or GROWN, *v.type.shape), v.dtype),
            f"{v.hint}_tape",
            loc=node.loc,
        )
        for v in back.tapes
    ]
    inner = GraphBuilder(region.name)
    inner.nodes.extend(back.forward)
    before = Value(_COUNT, "trips")
    after = add(inner, before, 1)
    longer = Graph(
        region.name,
        region.stage,
        (*region.inputs[:n], before, *region.inputs[n:]),
        tuple(inner.nodes),
        (*region.outputs[:n], after, *region.outputs[n:], *back.tapes),
    )
    checked = replace(
        test, inputs=(*test.inputs[:n], Value(_COUNT, "trips"), *test.inputs[n:]), tracked=()
    )
    results = (*node.results[:n], count, *node.results[n:], *stacks)
    exchange(
        b,
        node,
        replace(
            node,
            regions=(checked, longer),
            results=results,
            operands=(*node.operands[:n], Literal(0, I64), *node.operands[n:]),
            attrs=replace(attrs, carries=n + 1, results=tuple(r.type for r in results), counter=n),
        ),
    )
    return count, stacks


def push_while(forward: Forward, node: Node, ts: Derivatives) -> list[Operand | None]:
    """Tangents of the results: values and tangents are carried together."""
    attrs = node.attrs
    assert isinstance(attrs, WhileAttrs)
    body = Body(node.regions[1], attrs)
    active = active_inputs(
        body.region, attrs.carries, {k for k, t in enumerate(ts) if t is not None}
    )
    inner = tangent_region(body, active)
    b, n, operands = forward.b, attrs.carries, node.operands
    moved = [k for k in body.carries if k in active]
    held = [k for k in body.consts if k in active]
    test = node.regions[0]
    checked = replace(
        test,
        tracked=(),
        inputs=(
            *test.inputs[:n],
            *(_unread(test, k) for k in moved),
            *test.inputs[n:],
            *(_unread(test, k) for k in held),
        ),
    )
    dots = {k: dense(b, ts[k], operands[k]) for k in active}
    out = emit_while(
        b,
        checked,
        inner.graph,
        attrs.index,
        attrs.most,
        carries=[*operands[:n], *(dots[k] for k in moved)],
        consts=[*operands[n:], *(dots[k] for k in held)],
        counter=attrs.counter,
    )
    m = n + len(moved)
    ys = len(body.region.outputs) - n
    forward.renamed(node, (*out[:n], *out[m : m + ys]))
    found: list[Operand | None] = [None] * len(node.results)
    for k, t in zip((*moved, *inner.stacked), (*out[n:m], *out[m + ys :]), strict=True):
        found[k] = t
    return found


def _unread(region: Graph, k: int) -> Value:
    x = region.inputs[k]
    return Value(x.type, f"d_{x.hint}")


PULL[WhileAttrs] = pull_while
PUSH[WhileAttrs] = push_while
