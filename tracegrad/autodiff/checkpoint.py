"""`checkpoint` nodes: the gradient of their region is taken from values computed again."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.inline import inline
from tracegrad.autodiff.jvp import Forward, jvp_graph
from tracegrad.autodiff.vjp import Reverse, vjp_graph
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.walk import Replaced, all_nodes, copy_node, map_regions, rebuild
from tracegrad.ops.control import CheckpointAttrs, after, checkpoint
from tracegrad.ops.create import full

Derivatives = Sequence[Operand | None]


def _pull(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    """Cotangents of the operands; the region is run again once a cotangent is there."""
    b, region = reverse.b, node.regions[0]
    wrt = [k for k, w in enumerate(wanted) if w]
    given = [
        _dense(b, ct, r) for ct, r in zip(cts, node.results, strict=True) if r.dtype.is_inexact
    ]
    late = [after(b, x, given[0]) if isinstance(x, Value) else x for x in node.operands]
    found = inline(b, vjp_graph(region, wrt), [*late, *given])
    out: list[Operand | None] = [None] * len(node.operands)
    for k, ct in zip(wrt, found[len(region.outputs) :], strict=True):
        out[k] = ct
    return out


def _push(forward: Forward, node: Node, ts: Derivatives) -> list[Operand | None]:
    """Tangents of the results: forward mode keeps nothing, so it is the region's own."""
    b, region = forward.b, node.regions[0]
    b.append(node)
    wrt = [k for k, t in enumerate(ts) if t is not None]
    given = [_dense(b, ts[k], node.operands[k]) for k in wrt]
    found = inline(b, jvp_graph(region, wrt), [*node.operands, *given])
    dots = iter(found[len(region.outputs) :])
    return [next(dots) if r.dtype.is_inexact else None for r in node.results]


def inline_checkpoints(graph: Graph) -> Graph:
    """`graph` with each checkpoint replaced by its region, once derivatives have been taken."""
    if not any(n.op is checkpoint for n in all_nodes(graph)):
        return graph
    return rebuild(graph, _without)


def _without(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    if node.op is checkpoint:
        return inline(b, inline_checkpoints(node.regions[0]), operands)
    regions = map_regions(node, inline_checkpoints)
    if regions is node.regions:
        return copy_node(b, node, operands)
    return b.emit(
        node.op,
        operands,
        node.attrs,
        regions=regions,  # type: ignore[no-any-return]
        hints=tuple(r.hint for r in node.results),
    )


def _dense(b: GraphBuilder, t: Operand | None, like: Operand) -> Operand:
    if isinstance(t, Value):
        return t
    value = t if t is not None else Literal(0, like.type.dtype)
    return full(b, shape=like.type.shape, value=value)  # type: ignore[no-any-return]


PULL[CheckpointAttrs] = _pull
PUSH[CheckpointAttrs] = _push
