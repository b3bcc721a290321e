"""Replaces `transform` nodes by the joint graphs of their regions, innermost first."""

from __future__ import annotations

from tracegrad.autodiff.gradients import pull_gradients
from tracegrad.autodiff.inline import inline
from tracegrad.autodiff.jacobian import jacobian_graph
from tracegrad.autodiff.jvp import jvp_graph
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand
from tracegrad.graph.walk import all_nodes, copy_node, map_regions, rebuild
from tracegrad.ops.control import GradientsAttrs, TransformAttrs, gradients, transform


def expand_transforms(graph: Graph) -> Graph:
    """The functional graph with every transform written out, those in regions too; the graph
    itself if it has none."""
    if not any(node.op is transform or node.op is gradients for node in all_nodes(graph)):
        return graph
    return rebuild(graph, _expand)


def _expand(
    b: GraphBuilder, node: Node, operands: tuple[Operand, ...]
) -> Operand | tuple[Operand, ...]:
    if node.op is transform:
        return inline(b, differentiate(node), operands)
    if node.op is gradients:
        assert isinstance(node.attrs, GradientsAttrs)
        return pull_gradients(b, node.attrs, operands)
    regions = map_regions(node, expand_transforms)
    if regions is node.regions:
        return copy_node(b, node, operands)  # type: ignore[return-value]
    return b.emit(
        node.op,
        operands,
        node.attrs,
        regions=regions,  # type: ignore[no-any-return]
        hints=tuple(r.hint for r in node.results),
    )


def differentiate(node: Node) -> Graph:
    """The joint graph that a transform node stands for."""
    attrs = node.attrs
    assert isinstance(attrs, TransformAttrs)
    region = expand_transforms(node.regions[0])
    if attrs.kind == "call":
        return region
    if attrs.kind in ("jacrev", "jacfwd"):
        return jacobian_graph(region, attrs.wrt, attrs.kind.removeprefix("jac"))
    if attrs.kind == "jvp":
        return jvp_graph(region, attrs.wrt)
    seeds = [1.0 if k in attrs.seeds else None for k in range(len(region.outputs))]
    return vjp_graph(region, attrs.wrt, seeds=seeds if attrs.seeds else None)
