"""Questions about graphs and the replay that passes are made of; all linear in nodes.

Nodes are walked by loops, never by recursion: a graph of 100,000 nodes is ordinary.  Only the
nesting of regions, which is as deep as the user's control flow, is followed with a stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from tracegrad.errors import VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Partials, Trait

# What a replayed node turns into: one operand, one a result, or None when it has no results.
Replaced = Operand | Sequence[Operand] | None
Replay = Callable[[GraphBuilder, Node, tuple[Operand, ...]], Replaced]


class Use(NamedTuple):
    """`node` reads a value as operand `position`; `position` is -1 for its write target."""

    node: Node
    position: int


def uses(graph: Graph) -> dict[Value, list[Use]]:
    """Every use of each value by a node of this graph, in order; inputs included."""
    found: dict[Value, list[Use]] = {v: [] for v in graph.inputs}
    for node in graph.nodes:
        for position, x in enumerate(node.operands):
            if isinstance(x, Value):
                found.setdefault(x, []).append(Use(node, position))
        if node.target is not None:
            found.setdefault(node.target, []).append(Use(node, -1))
        for result in node.results:
            found.setdefault(result, [])
    return found


def use_counts(graph: Graph) -> Counter[Value]:
    """How often each value is read, by nodes and by the graph's outputs."""
    counts: Counter[Value] = Counter()
    for node in graph.nodes:
        counts.update(node.values())
    counts.update(x for x in graph.outputs if isinstance(x, Value))
    return counts


def producers(graph: Graph) -> dict[Value, Node]:
    """The node that made each value; inputs have none."""
    return {result: node for node in graph.nodes for result in node.results}


def last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values whose last mention it is; outputs never die."""
    outputs = {x for x in graph.outputs if isinstance(x, Value)}
    seen: set[Value] = set()
    dying: list[list[Value]] = []
    for node in reversed(graph.nodes):
        here: list[Value] = []
        for value in (*node.values(), *node.results):
            if value not in seen:
                seen.add(value)
                if value not in outputs:
                    here.append(value)
        dying.append(here)
    dying.reverse()
    return dying


def topological(nodes: Iterable[Node], defined: Iterable[Value]) -> list[Node]:
    """`nodes` with every value made before it is used; keeps the given order where it can.

    `defined` are the values available from the start.  Raises `VerifyError` on a cycle or when
    a value is made nowhere.
    """
    todo = list(nodes)
    available = set(defined)
    waiting: dict[Value, list[int]] = {}
    missing = [0] * len(todo)
    ready: list[int] = []
    for k, node in enumerate(todo):
        needs = {v for v in node.values() if v not in available}
        missing[k] = len(needs)
        for v in needs:
            waiting.setdefault(v, []).append(k)
        if not needs:
            ready.append(k)
    from heapq import heapify, heappop, heappush

    heapify(ready)
    out: list[Node] = []
    while ready:
        node = todo[heappop(ready)]
        out.append(node)
        for result in node.results:
            for k in waiting.pop(result, ()):
                missing[k] -= 1
                if missing[k] == 0:
                    heappush(ready, k)
    if len(out) != len(todo):
        stuck = next(node for k, node in enumerate(todo) if missing[k])
        raise VerifyError(
            f"{stuck.op.name} uses a value that nothing makes before it", loc=stuck.loc
        )
    return out


def graphs(graph: Graph) -> Iterator[Graph]:
    """`graph` and the regions of its nodes, outer ones first."""
    stack = [graph]
    while stack:
        current = stack.pop()
        yield current
        inner = [region for node in current.nodes for region in node.regions]
        stack.extend(reversed(inner))


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of `graph` and of all regions inside it."""
    for g in graphs(graph):
        yield from g.nodes


def is_elementwise(node: Node) -> bool:
    """Whether element i of the result depends on element i of the operands alone, so that a
    `Literal` operand stands for a tensor of that value."""
    return node.op.intrinsic is not None or isinstance(node.op.derivative, Partials)


def is_observable(node: Node) -> bool:
    """Whether a node matters although nothing reads its results: it writes, prints, or may stop
    the call as NumPy would (in a region of it, too)."""
    if node.target is not None or node.op.has(Trait.EFFECT) or node.op.has(Trait.CHECKED):
        return True
    return any(is_observable(n) for region in node.regions for n in region.nodes)


def live_nodes(graph: Graph) -> list[bool]:
    """For each node, whether an output or an observable node needs it."""
    needed: set[Value] = {x for x in graph.outputs if isinstance(x, Value)}
    live = [False] * len(graph.nodes)
    for k in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[k]
        if is_observable(node) or any(r in needed for r in node.results):
            live[k] = True
            needed.update(node.values())
    return live


def substitute(x: Operand, env: Mapping[Value, Operand]) -> Operand:
    """`x` in the new graph: literals are themselves, values are looked up."""
    return x if isinstance(x, Literal) else env[x]


def copy_node(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    """The same operation on new operands; the node itself when they are the old ones."""
    if node.target is None and all(x is y for x, y in zip(operands, node.operands, strict=True)):
        b.append(node)
        return node.results
    out = b.emit(
        node.op,
        operands,
        node.attrs,
        regions=node.regions,
        hints=tuple(r.hint for r in node.results),
    )
    return () if out is None else out  # type: ignore[no-any-return]


def replay(
    graph: Graph, b: GraphBuilder, env: MutableMapping[Value, Operand], fn: Replay = copy_node
) -> tuple[Operand, ...]:
    """Walk a functional graph once and let `fn` write each node anew into `b`.

    `env` maps the graph's inputs to operands of the new graph and is extended by every result.
    `fn(b, node, operands)` gets the operands already translated and returns what stands for the
    node's results.  While it runs, `b.loc` and `b.grad` are the node's.  Returns the graph's
    outputs, translated.
    """
    before = b.loc, b.grad
    try:
        for node in graph.nodes:
            b.loc, b.grad = node.loc, node.grad
            operands = tuple([x if isinstance(x, Literal) else env[x] for x in node.operands])
            bind(env, node, fn(b, node, operands))
    finally:
        b.loc, b.grad = before
    return tuple(substitute(x, env) for x in graph.outputs)


def bind(env: MutableMapping[Value, Operand], node: Node, replaced: Replaced) -> None:
    """Enter what stands for the results of `node`."""
    if replaced is None:
        replaced = ()
    elif isinstance(replaced, (Value, Literal)):
        replaced = (replaced,)
    for old, new in zip(node.results, replaced, strict=True):
        env[old] = new


def same_inputs(graph: Graph, b: GraphBuilder) -> dict[Value, Operand]:
    """Give builder `b` the very inputs of `graph`; returns the environment to replay with."""
    b.inputs.extend(graph.inputs)
    b.tracked.extend(graph.tracked or (False,) * len(graph.inputs))
    b.storages = max([b.storages, *(v.storage + 1 for v in graph.inputs if v.storage is not None)])
    return {v: v for v in graph.inputs}


def rebuild(graph: Graph, fn: Replay) -> Graph:
    """`graph` with each node rewritten by `fn`; inputs, name and alias report are kept."""
    b = GraphBuilder(graph.name, graph.stage)
    env = same_inputs(graph, b)
    return b.finish(replay(graph, b, env, fn), graph.alias)


def map_regions(node: Node, fn: Callable[[Graph], Graph]) -> tuple[Graph, ...]:
    """The regions of `node`, each passed through `fn`; the same tuple when nothing changed."""
    if not node.regions:
        return ()
    out = tuple(fn(region) for region in node.regions)
    same = all(x is y for x, y in zip(out, node.regions, strict=True))
    return node.regions if same else out
