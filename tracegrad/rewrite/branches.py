"""Branches and loops by a condition made smaller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.walk import Replaced, copy_node, rebuild, replay
from tracegrad.ops.branch import CondAttrs, WhileAttrs
from tracegrad.ops.create import full
from tracegrad.rewrite.cleanup import remove_dead

Prune = Callable[[Graph], Graph]


def take_known(graph: Graph) -> Graph:
    """`graph` with a branch by a literal replaced by the region that it chooses, and results that
    all regions of a branch hand through taken from in front of it."""
    if not any(isinstance(n.attrs, CondAttrs) for n in graph.nodes):
        return graph
    return rebuild(graph, _known)


def _known(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    if not isinstance(node.attrs, CondAttrs):
        return copy_node(b, node, operands)
    selector, *given = operands
    if isinstance(selector, Literal):
        at = min(max(int(selector.value), 0), len(node.regions) - 1)  # type: ignore[arg-type]
        region = node.regions[at]
        # A literal is no tensor to ops that move data.
        dense = [full(b, shape=(), value=x) if isinstance(x, Literal) else x for x in given]
        return replay(region, b, dict(zip(region.inputs, dense, strict=True)), _anew)
    out = copy_node(b, node, operands)
    made = out if isinstance(out, (tuple, list)) else (out,)
    return tuple(_passed(node, j, given) or r for j, r in enumerate(made))  # type: ignore


def _anew(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    """With results of its own, since regions may be shared."""
    return b.emit(
        node.op,
        operands,
        node.attrs,
        regions=node.regions,  # type: ignore
        hints=tuple(r.hint for r in node.results),
    )


def _passed(node: Node, j: int, given: list[Operand]) -> Operand | None:
    """The operand that every region gives as output `j`."""
    out = node.regions[0].outputs[j]
    if not isinstance(out, Value) or out not in node.regions[0].inputs:
        return None
    k = node.regions[0].inputs.index(out)
    same = all(r.outputs[j] is r.inputs[k] for r in node.regions)
    return given[k] if same else None


def pruned_cond(node: Node, attrs: CondAttrs, needed: set[Value], prune: Prune) -> Node:
    """The branch without results that nothing needs and operands that no region reads."""
    results = [j for j, r in enumerate(node.results) if r in needed] or [0]
    regions = [
        prune(remove_dead(replace(r, outputs=tuple(r.outputs[j] for j in results), alias=None)))
        for r in node.regions
    ]
    read = [_read(r) for r in regions]
    inputs = [
        k
        for k in range(len(node.operands) - 1)
        if any(r.inputs[k] in used for r, used in zip(regions, read, strict=True))
    ]
    if (
        len(results) == len(node.results)
        and len(inputs) == len(node.operands) - 1
        and all(same_nodes(a, b) for a, b in zip(regions, node.regions, strict=True))
    ):
        return node
    return replace(
        node,
        operands=(node.operands[0], *(node.operands[1 + k] for k in inputs)),
        results=tuple(node.results[j] for j in results),
        regions=tuple(
            replace(r, inputs=tuple(r.inputs[k] for k in inputs), tracked=()) for r in regions
        ),
        attrs=replace(attrs, results=tuple(attrs.results[j] for j in results)),
    )


def pruned_while(node: Node, attrs: WhileAttrs, needed: set[Value], prune: Prune) -> Node:
    """The loop without stacks, carries and operands that nothing needs."""
    test, body = node.regions[0], node.regions[1]
    n = attrs.carries
    test = prune(remove_dead(replace(test, alias=None)))
    tested = _read(test)
    stacks = [j for j in range(n, len(node.results)) if node.results[j] in needed]
    carries = {k for k in range(n) if node.results[k] in needed or test.inputs[k] in tested}
    while True:
        outputs = tuple(body.outputs[j] for j in (*sorted(carries), *stacks))
        inner = prune(remove_dead(replace(body, outputs=outputs, alias=None)))
        used = _read(inner)
        more = {k for k in range(n) if body.inputs[k] in used} - carries
        if not more:
            break
        carries |= more
    kept = sorted(carries)
    consts = [
        k
        for k in range(n, len(node.operands))
        if body.inputs[k] in used or test.inputs[k] in tested
    ]
    inputs, results = (*kept, *consts), (*kept, *stacks)
    if not results:
        return node
    return replace(
        node,
        operands=tuple(node.operands[k] for k in inputs),
        results=tuple(node.results[j] for j in results),
        regions=(
            replace(test, inputs=tuple(test.inputs[k] for k in inputs), tracked=()),
            replace(inner, inputs=tuple(body.inputs[k] for k in inputs), tracked=()),
        ),
        attrs=replace(
            attrs,
            carries=len(kept),
            consts=len(consts),
            results=tuple(attrs.results[j] for j in results),
            counter=kept.index(attrs.counter) if attrs.counter in kept else -1,
        ),
    )


def same_nodes(a: Graph, b: Graph) -> bool:
    """Whether nothing was taken from the nodes of `b`, or from regions inside, to make `a`."""
    return len(a.nodes) == len(b.nodes) and all(
        x is y for x, y in zip(a.nodes, b.nodes, strict=True)
    )


def _read(graph: Graph) -> set[Value]:
    used = {x for node in graph.nodes for x in node.values()}
    return used | {x for x in graph.outputs if isinstance(x, Value)}
