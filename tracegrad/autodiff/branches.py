"""Derivatives of `cond` nodes: the region that ran is differentiated, and no other.

The reverse of a branch is a branch by the same selector.  Each of its regions computes the values
of its forward region again, as far as they are needed, so that nothing is kept of a region that
did not run.  Where a cotangent of an array operand is there already, the branch adds to it and
the region that does not need it hands it through, so that a branch in a loop costs no array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tracegrad.autodiff.activity import active_values
from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.jvp import Forward
from tracegrad.autodiff.loops import dense
from tracegrad.autodiff.reverse_body import Derivatives
from tracegrad.autodiff.unwritten import Onwards
from tracegrad.autodiff.vjp import Reverse
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.storage import View
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.branch import CondAttrs, emit_cond
from tracegrad.ops.views import as_strided
from tracegrad.types import TensorType


def pull_cond(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    """Cotangents of the operands of a branch."""
    b, selector, xs = reverse.b, node.operands[0], node.operands[1:]
    wrt = [k for k in range(len(xs)) if wanted[1 + k]]
    given = [j for j, ct in enumerate(cts) if ct is not None]
    totals = _totals(reverse, node, wrt)
    regions = [_pulled(r, wrt, given, list(totals)) for r in node.regions]
    operands = [*xs, *(dense(b, cts[j], node.results[j]) for j in given), *totals.values()]
    regions, operands = _narrowed(b, regions, operands, len(xs))
    regions, operands = _without_unread(regions, operands)
    out = emit_cond(
        b, selector, regions, operands, hints=[f"d_{node.regions[0].inputs[k].hint}" for k in wrt]
    )
    found: list[Operand | None] = [None] * len(node.operands)
    for k, ct in zip(wrt, out, strict=True):
        found[1 + k] = ct
    return found


def _totals(reverse: Reverse, node: Node, wrt: Sequence[int]) -> dict[int, Value]:
    """What has been collected for array operands, which the branch takes over."""
    out: dict[int, Value] = {}
    for k in wrt:
        x = node.operands[1 + k]
        assert isinstance(x, Value)
        if x.shape == () or x not in reverse.pending:
            continue
        total = reverse.total(x)
        if isinstance(total, Value):
            out[k] = total
        elif total is not None:
            reverse.contribute(x, total)
    return out


def _pulled(
    region: Graph, wrt: Sequence[int], given: Sequence[int], totals: Sequence[int]
) -> Graph:
    """The region that takes the operands, cotangents of the outputs `given` and what there is
    for the inputs `totals`; it gives the cotangents of the inputs `wrt`."""
    b = GraphBuilder(f"{region.name}.back")
    same_inputs(region, b)
    b.nodes.extend(region.nodes)
    reverse = Reverse(b, active_values(region, wrt), Onwards(region))
    for j in given:
        out = region.outputs[j]
        ct = b.input(TensorType(out.shape, out.type.dtype), f"ct{j}")
        if isinstance(out, Value):
            reverse.contribute(out, ct)
    for k in totals:
        x = region.inputs[k]
        reverse.contribute(x, b.input(x.type, f"sum_{x.hint}"))
    for node in reversed(region.nodes):
        reverse.visit(node)
    return _needed(b.finish([reverse.total_of_input(region.inputs[k]) for k in wrt]))


def _needed(graph: Graph) -> Graph:
    """`graph` without forward nodes that its outputs do not need; a check among them has been
    made when the region ran."""
    needed = {x for x in graph.outputs if isinstance(x, Value)}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if any(r in needed for r in node.results):
            nodes.append(node)
            needed.update(node.values())
    return Graph(graph.name, graph.stage, graph.inputs, tuple(reversed(nodes)), graph.outputs)


def _narrowed(
    b: GraphBuilder, regions: list[Graph], operands: list[Operand], count: int
) -> tuple[list[Graph], list[Operand]]:
    """The first `count` operands that regions read through views alone are read in front of the
    branch, so that a loop around it keeps those parts for its reverse and not the whole."""
    for k in range(count):
        x = operands[k]
        views = _views(regions, k)
        if not isinstance(x, Value) or not views:
            continue
        parts = {v: as_strided(b, x, view=v) for v in views}
        regions = [_reading(r, k, parts) for r in regions]
        operands = [*operands, *parts.values()]
    return regions, operands


def _without_unread(
    regions: Sequence[Graph], operands: Sequence[Operand]
) -> tuple[list[Graph], list[Operand]]:
    """The operands that a region reads: a loop around the branch need not keep the others."""
    read = {x for r in regions for node in r.nodes for x in node.values()}
    read |= {x for r in regions for x in r.outputs if isinstance(x, Value)}
    kept = [k for k in range(len(operands)) if any(r.inputs[k] in read for r in regions)]
    smaller = [replace(r, inputs=tuple(r.inputs[k] for k in kept), tracked=()) for r in regions]
    return smaller, [operands[k] for k in kept]


def _views(regions: Sequence[Graph], k: int) -> list[View]:
    """The views through which regions read input `k`; none where one needs more, or they are not
    smaller than the whole."""
    found: dict[View, int] = {}
    for region in regions:
        x = region.inputs[k]
        if x in region.outputs:
            return []
        for node in region.nodes:
            if x not in node.operands:
                continue
            if node.op is not as_strided or not isinstance(node.result.type.size, int):
                return []
            found[node.attrs.view] = node.result.type.size  # type: ignore[attr-defined]
    whole = regions[0].inputs[k].type.size
    if not isinstance(whole, int) or sum(found.values()) >= whole:
        return []
    return list(found)


def _reading(region: Graph, k: int, parts: Mapping[View, Value]) -> Graph:
    """The region with its reads of input `k` replaced by inputs of their own."""
    x = region.inputs[k]
    given = {v: Value(part.type, part.hint) for v, part in parts.items()}
    stands = {
        n.result: given[n.attrs.view]  # type: ignore[attr-defined]
        for n in region.nodes
        if x in n.operands
    }

    def put(y: Operand) -> Operand:
        return stands.get(y, y) if isinstance(y, Value) else y

    nodes = tuple(
        replace(n, operands=tuple(map(put, n.operands)))
        for n in region.nodes
        if x not in n.operands
    )
    return replace(
        region,
        inputs=(*region.inputs, *given.values()),
        nodes=nodes,
        tracked=(),
        outputs=tuple(map(put, region.outputs)),
    )


def push_cond(forward: Forward, node: Node, ts: Derivatives) -> list[Operand | None]:
    """Tangents of the results of a branch: one branch gives values and tangents."""
    b, operands = forward.b, node.operands
    moved = [k for k, t in enumerate(ts[1:]) if t is not None]
    pushed = [_pushed(r, moved) for r in node.regions]
    dotted = sorted({j for _, tangents, _ in pushed for j in tangents})
    regions = []
    for inner, _, outputs in pushed:
        dots = [inner.tangent(node_out) for node_out in (outputs[j] for j in dotted)]
        regions.append(inner.b.finish([*map(inner.value, outputs), *dots]))
    given = [*operands[1:], *(dense(b, ts[1 + k], operands[1 + k]) for k in moved)]
    out = emit_cond(
        b,
        operands[0],
        regions,
        given,
        hints=[*(r.hint for r in node.results), *(f"d_{node.results[j].hint}" for j in dotted)],
    )
    n = len(node.results)
    forward.renamed(node, out[:n])
    found: list[Operand | None] = [None] * n
    for j, t in zip(dotted, out[n:], strict=True):
        found[j] = t
    return found


def _pushed(region: Graph, moved: Sequence[int]) -> tuple[Forward, set[int], Sequence[Operand]]:
    """The region on values and tangents of the inputs `moved`: not finished, and which of its
    outputs have a tangent."""
    b = GraphBuilder(f"{region.name}.fwd")
    same_inputs(region, b)
    forward = Forward(b)
    for k in moved:
        x = region.inputs[k]
        forward.tangents[x] = b.input(x.type, f"d_{x.hint}")
    for node in region.nodes:
        forward.visit(node)
    outputs = region.outputs
    return (
        forward,
        {j for j, x in enumerate(outputs) if isinstance(x, Value) and x in forward.tangents},
        outputs,
    )


PULL[CondAttrs] = pull_cond
PUSH[CondAttrs] = push_cond
