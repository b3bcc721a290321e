"""``backward()`` inside a trace: reverse mode over the part of a graph that stands before it."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.autodiff.vjp import Reverse
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.op import NoGradient
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.control import GradientsAttrs


def pull_gradients(
    b: GraphBuilder, attrs: GradientsAttrs, operands: Sequence[Operand]
) -> tuple[Value, ...]:
    """What a `gradients` node stands for, written behind the nodes of `b`."""
    reverse, points = _reverse(b, attrs, operands)
    return tuple(reverse.total_of_input(p) for p in points)


def reached_points(
    graph: Graph, attrs: GradientsAttrs, operands: Sequence[Operand]
) -> tuple[bool, ...]:
    """Whether a gradient arrives at each point of a `gradients` node behind `graph`."""
    b = GraphBuilder(graph.name, graph.stage)
    same_inputs(graph, b)
    b.nodes.extend(graph.nodes)
    reverse, points = _reverse(b, attrs, operands)
    return tuple(p in reverse.pending for p in points)


def _reverse(
    b: GraphBuilder, attrs: GradientsAttrs, operands: Sequence[Operand]
) -> tuple[Reverse, list[Value]]:
    n = attrs.outputs
    outputs, cts = operands[:n], operands[n : 2 * n]
    points = [p for p in operands[2 * n :] if isinstance(p, Value)]
    before = list(b.nodes)
    made = {r: node for node in before for r in node.results}
    reverse = Reverse(b, _active(before, points))
    for out, ct in zip(outputs, cts, strict=True):
        if attrs.behind:
            assert isinstance(out, Value)
            out = made[out].operands[0]
        if isinstance(out, Value):
            reverse.contribute(out, ct)
    cut = set(points)
    for node in reversed(before):
        if not cut.intersection(node.results):
            reverse.visit(node)
    return reverse, points


def _active(nodes: Sequence[Node], points: Sequence[Value]) -> set[Value]:
    active = set(points)
    for node in nodes:
        if isinstance(node.op.derivative, NoGradient):
            continue
        if any(isinstance(x, Value) and x in active for x in node.operands):
            active.update(r for r in node.results if r.dtype.is_inexact)
    return active
