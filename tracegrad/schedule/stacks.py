"""Loops before they are scheduled: arrays read and written at the index become views.

A moving input ``x[i]`` becomes a constant read through a view; a stacked result becomes a carry
into which each iteration writes its element.  Every loop gets a region of its own, so that its
values name buffers of that loop alone.
"""

from __future__ import annotations

from tracegrad.dims import Dim, symbol
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.graph.walk import Replaced, copy_node, rebuild, substitute
from tracegrad.ops.control import LoopAttrs, emit_loop, loop
from tracegrad.ops.create import undefined
from tracegrad.ops.views import as_strided, copy_slices
from tracegrad.types import Shape


def stacks_to_carries(graph: Graph) -> Graph:
    """`graph` with every loop reading and writing at its index through views."""
    if not any(isinstance(n.attrs, LoopAttrs) for n in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    if not isinstance(node.attrs, LoopAttrs):
        return copy_node(b, node, operands)
    attrs = node.attrs
    n, m = attrs.carries, attrs.carries + attrs.consts
    region = _unstacked(node, attrs)
    stacks = [undefined(b, type=t) for t in attrs.results[n:]]
    return emit_loop(
        b, region, attrs.index, attrs.trips, carries=[*operands[:n], *stacks],
        consts=[*operands[n:m], *operands[m:]], reverse=attrs.reverse,
        hints=[r.hint for r in node.results])


def _unstacked(node: Node, attrs: LoopAttrs) -> Graph:
    """The region with stacks as carries and moving inputs as whole arrays."""
    region = node.regions[0]
    n, m = attrs.carries, attrs.carries + attrs.consts
    hi = attrs.trips - 1 if isinstance(attrs.trips, int) else None
    at: Dim = symbol(attrs.index, 0, hi)
    b = GraphBuilder(region.name)
    env: dict[Value, Operand] = {}
    for x in region.inputs[:n]:
        env[x] = b.input(x.type, x.hint)
    stacks = [b.input(t, f"{node.results[n + j].hint}") for j, t in enumerate(attrs.results[n:])]
    for x in region.inputs[n:m]:
        env[x] = b.input(x.type, x.hint)
    for x, whole in zip(region.inputs[m:], node.operands[m:], strict=True):
        source = b.input(whole.type, x.hint)  # type: ignore[arg-type]
        env[x] = as_strided(b, source, view=_element(at, x.type.shape))
    for inner in region.nodes:
        with b.at(inner.loc):
            operands = tuple(substitute(x, env) for x in inner.operands)
            if inner.op is loop:
                out = _visit(b, inner, operands)
            else:
                out = b.emit(inner.op, operands, inner.attrs, regions=inner.regions,
                             hint=inner.results[0].hint)
        outs = out if isinstance(out, tuple) else (out,)
        env.update(zip(inner.results, outs, strict=True))  # type: ignore[arg-type]
    outputs = [substitute(x, env) for x in region.outputs]
    written = [copy_slices(b, stack, y, view=_element(at, y.type.shape), shape=stack.type.shape)
               for stack, y in zip(stacks, outputs[n:], strict=True)]
    return b.finish([*outputs[:n], *written])


def _element(at: Dim, shape: Shape) -> View:
    """Element `at` of the leading axis."""
    return View((Index((Pick(at), *(Span(0, size) for size in shape))),))
