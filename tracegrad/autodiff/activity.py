"""Which values a gradient can flow through."""

from __future__ import annotations

from collections.abc import Collection

from tracegrad.graph.ir import Graph, Value
from tracegrad.graph.op import NoGradient


def active_values(graph: Graph, wrt: Collection[int]) -> set[Value]:
    """Values that depend differentiably on the inputs numbered `wrt` (linear in nodes)."""
    active = {graph.inputs[k] for k in wrt if graph.inputs[k].dtype.is_inexact}
    for node in graph.nodes:
        if isinstance(node.op.derivative, NoGradient):
            continue
        if any(isinstance(x, Value) and x in active for x in node.operands):
            active.update(r for r in node.results if r.dtype.is_inexact)
    return active
