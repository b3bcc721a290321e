"""Loops made smaller: what no one reads is dropped, what does not change is moved in front.

`prune_loops` removes stacks, carries and operands that nothing needs.  `hoist_invariants` moves
nodes that depend on the constants of a loop alone out of it (not views and patterns, which are
recomputed where they are read).
"""

from __future__ import annotations

from dataclasses import replace

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.symbols import symbols_of
from tracegrad.graph.walk import Replaced, copy_node, map_regions, rebuild
from tracegrad.ops.branch import CondAttrs, WhileAttrs
from tracegrad.ops.control import LoopAttrs, emit_loop
from tracegrad.rewrite.branches import pruned_cond, pruned_while, same_nodes, take_known
from tracegrad.rewrite.cleanup import remove_dead


def prune_loops(graph: Graph) -> Graph:
    """`graph` without results, carries and operands of loops that nothing needs."""
    if not any(n.regions for n in graph.nodes):
        return graph
    graph = take_known(graph)
    needed = {x for x in graph.outputs if isinstance(x, Value)}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if isinstance(node.attrs, LoopAttrs):
            node = _pruned(node, node.attrs, needed)
        elif isinstance(node.attrs, CondAttrs):
            node = pruned_cond(node, node.attrs, needed, prune_loops)
        elif isinstance(node.attrs, WhileAttrs):
            node = pruned_while(node, node.attrs, needed, prune_loops)
        elif node.regions:
            node = replace(node, regions=map_regions(node, prune_loops))
        needed.update(node.values())
        nodes.append(node)
    return remove_dead(replace(graph, nodes=tuple(reversed(nodes))))


def _pruned(node: Node, attrs: LoopAttrs, needed: set[Value]) -> Node:
    region = node.regions[0]
    n = attrs.carries
    stacks = [k for k in range(n, len(node.results)) if node.results[k] in needed]
    carries = {k for k in range(n) if node.results[k] in needed}
    while True:
        outputs = [region.outputs[k] for k in (*sorted(carries), *stacks)]
        inner = prune_loops(remove_dead(replace(region, outputs=tuple(outputs), alias=None)))
        used = {x for m in inner.nodes for x in m.values()}
        used |= {x for x in inner.outputs if isinstance(x, Value)}
        more = {k for k in range(n) if region.inputs[k] in used} - carries
        if not more:
            break
        carries |= more
    kept = sorted(carries)
    m = n + attrs.consts
    consts = [k for k in range(n, m) if region.inputs[k] in used]
    moving = [k for k in range(m, len(region.inputs)) if region.inputs[k] in used]
    inputs = (*kept, *consts, *moving)
    results = (*kept, *stacks)
    if not results:
        return node  # it stays for what it checks
    if (
        len(inputs) == len(region.inputs)
        and len(results) == len(node.results)
        and same_nodes(inner, region)
    ):
        return node
    inner = replace(inner, inputs=tuple(region.inputs[k] for k in inputs), tracked=())
    return replace(
        node,
        regions=(inner,),
        operands=(*(node.operands[k] for k in inputs), *node.operands[len(region.inputs) :]),
        results=tuple(node.results[k] for k in results),
        attrs=replace(
            attrs,
            carries=len(kept),
            consts=len(consts),
            results=tuple(attrs.results[k] for k in results),
        ),
    )


def hoist_invariants(graph: Graph) -> Graph:
    """`graph` with what the iterations of a loop would all compute alike moved in front of it."""
    if not any(n.regions for n in graph.nodes):
        return graph
    return rebuild(graph, _hoist)


def _hoist(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    attrs = node.attrs
    if not isinstance(attrs, LoopAttrs):
        regions = map_regions(node, hoist_invariants)
        if regions is node.regions:
            return copy_node(b, node, operands)
        return b.emit(
            node.op,
            operands,
            node.attrs,
            regions=regions,  # type: ignore[no-any-return]
            hints=tuple(r.hint for r in node.results),
        )
    region = hoist_invariants(node.regions[0])
    n, m = attrs.carries, attrs.carries + attrs.consts
    count = None
    if attrs.counted:
        *front, count = operands
        operands = tuple(front)
    outside: dict[Value, Operand] = dict(zip(region.inputs[n:m], operands[n:m], strict=True))
    moved: dict[Value, Operand] = {}
    stay: list[Node] = []
    virtual: set[Value] = set()  # can move, and is worth moving only for what needs it
    invariant: dict[Value, Node] = {}
    for inner in region.nodes:
        fixed = _is_fixed(inner, attrs.index) and all(
            x in outside or x in invariant for x in inner.values()
        )
        if fixed:
            invariant.update((r, inner) for r in inner.results)
        if fixed and (not inner.operands or inner.op.has(Trait.VIEW)):
            virtual.update(inner.results)
            stay.append(inner)
        elif fixed:
            _move(b, inner, outside, invariant, moved)
        else:
            stay.append(inner)
    if not moved:
        if region is node.regions[0]:
            return copy_node(b, node, operands if count is None else (*operands, count))
        return emit_loop(
            b,
            region,
            attrs.index,
            attrs.trips,
            carries=operands[:n],
            consts=operands[n:m],
            xs=operands[m:],
            reverse=attrs.reverse,
            hints=[r.hint for r in node.results],
            count=count,
            parallel=attrs.parallel,
        )
    read = {x for inner in stay for x in inner.values()}
    read |= {x for x in region.outputs if isinstance(x, Value)}
    extra = [v for v in moved if v in read and v not in virtual]
    literal = {v: x for v, x in moved.items() if isinstance(x, Literal)}
    extra = [v for v in extra if v not in literal]

    def put(x: Operand) -> Operand:
        return literal.get(x, x) if isinstance(x, Value) else x

    inner_graph = remove_dead(
        Graph(
            region.name,
            region.stage,
            (*region.inputs[:m], *extra, *region.inputs[m:]),
            tuple(replace(s, operands=tuple(map(put, s.operands))) for s in stay),
            tuple(map(put, region.outputs)),
        )
    )
    return emit_loop(
        b,
        inner_graph,
        attrs.index,
        attrs.trips,
        carries=operands[:n],
        consts=[*operands[n:m], *(moved[v] for v in extra)],
        xs=operands[m:],
        reverse=attrs.reverse,
        hints=[r.hint for r in node.results],
        count=count,
        parallel=attrs.parallel,
    )


def _is_fixed(node: Node, index: str) -> bool:
    """Whether a node computes the same whatever the index, and nothing else."""
    if node.op.has(Trait.EFFECT) or node.op.has(Trait.CHECKED):
        return False
    if isinstance(node.attrs, WhileAttrs):
        return False  # it may have no end where it would not have been reached
    if any(s.name == index for s in symbols_of(node.attrs)):
        return False
    return all(_is_fixed(n, index) for region in node.regions for n in region.nodes)


def _move(
    b: GraphBuilder,
    node: Node,
    outside: dict[Value, Operand],
    invariant: dict[Value, Node],
    moved: dict[Value, Operand],
) -> None:
    """Write `node` (and the views it reads) in front of the loop."""
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [invariant[x] for x in top.values() if x not in outside and x not in moved]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if top.results[0] in moved:
            continue
        with b.at(top.loc):
            out = b.emit(
                top.op,
                [_look(x, outside, moved) for x in top.operands],
                top.attrs,
                regions=top.regions,
                hint=top.results[0].hint,
            )
        moved.update(zip(top.results, out if isinstance(out, tuple) else (out,), strict=True))


def _look(x: Operand, outside: dict[Value, Operand], moved: dict[Value, Operand]) -> Operand:
    if not isinstance(x, Value):
        return x
    return outside[x] if x in outside else moved[x]
