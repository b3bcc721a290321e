"""Which values a gradient can flow through."""

from __future__ import annotations

from collections.abc import Collection

from tracegrad.graph.ir import Graph, Node, Value
from tracegrad.graph.op import NoGradient
from tracegrad.ops.branch import CondAttrs, WhileAttrs
from tracegrad.ops.control import LoopAttrs


def active_values(graph: Graph, wrt: Collection[int]) -> set[Value]:
    """Values that depend differentiably on the inputs numbered `wrt` (linear in nodes)."""
    active = {graph.inputs[k] for k in wrt if graph.inputs[k].dtype.is_inexact}
    for node in graph.nodes:
        if isinstance(node.op.derivative, NoGradient):
            continue
        given = {k for k, x in enumerate(node.operands) if isinstance(x, Value) and x in active}
        if given:
            active.update(r for r in _active_results(node, given) if r.dtype.is_inexact)
    return active


def _active_results(node: Node, given: set[int]) -> Collection[Value]:
    """The results that depend on the operands `given`."""
    attrs = node.attrs
    if isinstance(attrs, (LoopAttrs, WhileAttrs)):
        region = node.regions[-1]
        reached = [active_values(region, active_inputs(region, attrs.carries, given))]
        regions = [region]
    elif isinstance(attrs, CondAttrs):
        regions = list(node.regions)
        reached = [active_values(r, {k - 1 for k in given}) for r in regions]
    else:
        return node.results
    return {
        node.results[k]
        for region, found in zip(regions, reached, strict=True)
        for k, out in enumerate(region.outputs)
        if out in found
    }


def active_inputs(region: Graph, carries: int, given: Collection[int]) -> set[int]:
    """Inputs of the region of a loop that a gradient flows through: those `given`, and carries
    that they reach in any number of iterations."""
    active = set(given)
    while True:
        values = active_values(region, active)
        more = {
            k
            for k in range(carries)
            if region.outputs[k] in values and region.inputs[k].dtype.is_inexact
        }
        if more <= active:
            return active
        active |= more
