"""Dead code, constant folding, and the removal of gradient marks once gradients are taken."""

from __future__ import annotations

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import OpDef, Partials, Trait
from tracegrad.graph.walk import Replaced, copy_node, live_nodes, map_regions, rebuild
from tracegrad.ops.create import full
from tracegrad.ops.handles import graft, stop_gradient
from tracegrad.rewrite.pattern import ProducerOf, Rule, computed, filled, fits, made_by, rule


def has_effect(node: Node) -> bool:
    """Whether a node, or one in its regions, does something besides computing its results;
    merging two such nodes would lose an effect.  A check that stops the call is not one."""
    if node.op.has(Trait.EFFECT):
        return True
    return any(has_effect(n) for region in node.regions for n in region.nodes)


def remove_dead(graph: Graph) -> Graph:
    """`graph` without the nodes that no output needs.  Effects stay, and so do CHECKED nodes:
    NumPy would raise there."""
    live = live_nodes(graph)
    if all(live):
        return graph
    nodes = tuple(node for node, keep in zip(graph.nodes, live, strict=True) if keep)
    return Graph(
        graph.name, graph.stage, graph.inputs, nodes, graph.outputs, graph.tracked, graph.alias
    )


def drop_grafts(graph: Graph) -> Graph:
    """`graph` without gradient marks: ``graft(v, p)`` and ``stop_gradient(v)`` become ``v``, and
    no node counts as recorded with gradients off.  To be run when nothing will be
    differentiated any more.
    """
    return remove_dead(rebuild(graph, _without_mark))


def _without_mark(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    if node.op in (graft, stop_gradient):
        return operands[0]
    regions = map_regions(node, drop_grafts)
    b.grad = True
    if node.grad and regions is node.regions:
        return copy_node(b, node, operands)
    b.append(Node(node.op, operands, node.attrs, node.results, regions, None, True, node.loc))
    return node.results


# ---------------------------------------------------------------------------------- folding


def _is_elementwise(op: OpDef) -> bool:
    return op.intrinsic is not None or isinstance(op.derivative, Partials)


@rule(when=lambda op: not op.has(Trait.CHECKED) and not op.has(Trait.TRACED_ONLY))
def fold(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A scalar node whose operands are all literals becomes a literal, computed by the op's NumPy
    reference (elementary functions: as exact as NumPy's)."""
    if node.regions or node.result.shape != ():
        return None
    if not node.operands and node.op is not full:
        return None
    operands = tuple(x for x in node.operands if isinstance(x, Literal))
    if len(operands) < len(node.operands):
        return None
    value = computed(node.op, node.attrs, operands)
    return value if value is not None and fits(value, node) else None


@rule(when=_is_elementwise)
def splat_operands(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """An elementwise op reads a literal instead of a tensor that is full of one value; with
    nothing but such operands the result is full of one value itself."""
    if node.regions or not any(
        isinstance(x, Value) and made_by(x, full, producer_of) for x in node.operands
    ):
        return None
    shape = node.result.shape
    operands = tuple(_splat(x, producer_of) for x in node.operands)
    known = [x for x in operands if isinstance(x, Literal)]
    if len(known) == len(operands):
        value = None if node.op.has(Trait.CHECKED) else computed(node.op, node.attrs, known)
        return None if value is None else filled(b, value, shape)
    if any(isinstance(x, Value) and x.shape == shape for x in operands):
        return b.emit(node.op, operands, node.attrs, hint=node.result.hint)
    return None


def _splat(x: Operand, producer_of: ProducerOf) -> Operand:
    node = made_by(x, full, producer_of)
    return x if node is None else node.attrs.value  # type: ignore[attr-defined]


FOLDING: tuple[Rule, ...] = (fold, splat_operands)
