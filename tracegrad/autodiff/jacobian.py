"""Dense Jacobians: one loop over the basis vectors of the smaller side.

``jacrev`` pulls the unit cotangents of an output back, ``jacfwd`` pushes the unit tangents of an
input forward; the function itself is computed once, outside the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.autodiff.activity import active_values
from tracegrad.autodiff.jvp import Forward
from tracegrad.autodiff.unwritten import Onwards
from tracegrad.autodiff.vjp import Reverse, report_with
from tracegrad.dims import Dim, symbol
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import AliasReport, Graph, Literal, Node, Operand, Value
from tracegrad.graph.storage import Index, Permute, Pick, Reshape, View
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.control import emit_loop
from tracegrad.ops.create import full
from tracegrad.ops.views import as_view, copy_slices
from tracegrad.types import TensorType


def jacobian_graph(graph: Graph, wrt: Sequence[int], mode: str, *, depth: int = 0) -> Graph:
    """The joint graph: outputs of `graph`, then for each inexact output and each of `wrt` the
    Jacobian of shape ``output.shape + input.shape``, then the write-backs.

    `mode` is ``rev`` or ``fwd``.
    """
    report = graph.alias or AliasReport(len(graph.outputs))
    b = GraphBuilder(f"{graph.name}.jac{mode}")
    same_inputs(graph, b)
    b.nodes.extend(graph.nodes)
    outputs = list(graph.outputs)
    targets = [x for x in outputs[: report.results] if x.type.dtype.is_inexact]
    blocks: list[Operand] = []
    if mode == "rev":
        for x in targets:
            blocks += _pulled(b, graph, x, wrt)
    else:
        columns = [_pushed(b, graph, k, targets) for k in wrt]
        blocks = [columns[j][i] for i in range(len(targets)) for j in range(len(wrt))]
    results = outputs[: report.results] + blocks + outputs[report.results :]
    return b.finish(results, report_with(report, len(blocks)))


def _index_name(graph: Graph) -> str:
    """A loop index that no loop inside `graph` uses."""
    used = {getattr(n.attrs, "index", "") for n in graph.nodes}
    stack = [r for n in graph.nodes for r in n.regions]
    while stack:
        region = stack.pop()
        used |= {getattr(n.attrs, "index", "") for n in region.nodes}
        stack += [r for n in region.nodes for r in n.regions]
    k = 0
    while f"basis{k}" in used:
        k += 1
    return f"basis{k}"


def _unit(b: GraphBuilder, type_: TensorType, at: Dim) -> Operand:
    """The basis vector number `at` (row-major) of a type."""
    if type_.shape == ():
        return full(b, shape=(), value=Literal(1, type_.dtype))  # type: ignore[no-any-return]
    size = type_.size
    zeros = full(b, shape=(size,), value=Literal(0, type_.dtype))
    one = full(b, shape=(), value=Literal(1, type_.dtype))
    flat = copy_slices(b, zeros, one, view=View((Index((Pick(at),)),)), shape=(size,))
    return as_view(b, flat, Reshape(type_.shape))


def _pulled(b: GraphBuilder, graph: Graph, target: Operand, wrt: Sequence[int]) -> list[Operand]:
    """Rows of the Jacobian of one output, by reverse mode."""
    out = TensorType(target.shape, target.type.dtype)
    size = out.size
    assert isinstance(size, int)
    inner = GraphBuilder(f"{graph.name}.rows")
    same_inputs(graph, inner)
    inner.nodes.extend(graph.nodes)
    index = _index_name(graph)
    reverse = Reverse(inner, active_values(graph, wrt), Onwards(graph))
    if isinstance(target, Value):
        reverse.contribute(target, _unit(inner, out, symbol(index, 0, size - 1)))
    for node in reversed(graph.nodes):
        reverse.visit(node)
    rows = [reverse.total_of_input(graph.inputs[k]) for k in wrt]
    # Loops of the function may have gained tapes: the outer graph takes over their new form.
    b.nodes[: len(graph.nodes)] = inner.nodes[: len(graph.nodes)]
    stacks = _stacked(b, graph, inner.nodes[len(graph.nodes) :], rows, index, size)
    return [
        as_view(b, s, Reshape((*out.shape, *graph.inputs[k].type.shape)))
        for s, k in zip(stacks, wrt, strict=True)
    ]


def _pushed(b: GraphBuilder, graph: Graph, k: int, targets: Sequence[Operand]) -> list[Operand]:
    """The Jacobians of all outputs by input k, by forward mode."""
    x = graph.inputs[k]
    size = x.type.size
    assert isinstance(size, int)
    inner = GraphBuilder(f"{graph.name}.columns")
    same_inputs(graph, inner)
    index = _index_name(graph)
    forward = Forward(inner)
    forward.tangents[x] = _unit(inner, x.type, symbol(index, 0, size - 1))
    for node in graph.nodes:
        forward.visit(node)
    columns = [forward.tangent(t) for t in targets]
    stacks = _stacked(b, graph, inner.nodes, columns, index, size)
    blocks = []
    for s, t in zip(stacks, targets, strict=True):
        rank = len(t.shape)
        turned = as_view(b, s, Permute((*range(1, rank + 1), 0)))
        blocks.append(as_view(b, turned, Reshape((*t.shape, *x.type.shape))))
    return blocks


def _stacked(
    b: GraphBuilder,
    graph: Graph,
    nodes: Sequence[Node],
    values: Sequence[Operand],
    index: str,
    trips: int,
) -> list[Operand]:
    """A loop that runs `nodes` for each index and stacks `values`; what they need of `b` are
    its constants."""
    made = {r for n in nodes for r in n.results}
    taken: dict[Value, None] = {}
    for n in nodes:
        for x in n.values():
            if x not in made:
                taken[x] = None
    for v in values:
        if isinstance(v, Value) and v not in made:
            taken[v] = None
    region = Graph(f"{graph.name}.basis", graph.stage, tuple(taken), tuple(nodes), tuple(values))
    return list(emit_loop(b, region, index, trips, carries=(), consts=tuple(taken)))
