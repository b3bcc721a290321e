"""What a reverse pass keeps of a forward one: the fewest bytes from which the rest follows.

A minimum cut between what cannot be computed again and what is wanted.  Cutting a value costs its
bytes, so that of ``u = tanh(a); v = u * 2 + 1`` with both wanted, u is kept and v computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tracegrad.dims import Dim, bounds, largest
from tracegrad.graph.ir import Node, Value
from tracegrad.graph.op import Trait

MOST_VALUES = 3000  # of a graph that is cut; of a larger one what is wanted is kept itself
_SHRINKS = 4  # a node that makes so much less of its operands is not run twice to save its result


def kept_values(
    nodes: Sequence[Node],
    wanted: Iterable[Value],
    constant: Collection[Value],
    read: Collection[Value],
    is_repeatable: Callable[[Node], bool],
) -> dict[Value, None]:
    """The results and inputs of `nodes` to keep, so that `wanted` follow from them, from `constant`
    and from `read`, which are there at no cost.

    Only nodes for which `is_repeatable` run again, all those that need constants alone among them.
    Of cuts of equal size it is the one that runs the fewest nodes again.  Deterministic.
    """
    producer = {r: node for node in nodes for r in node.results}
    cone = _cone(wanted, producer, {*constant, *read}, is_repeatable)
    free, same = {*constant, *read}, set(constant)
    for node in nodes:
        if not is_repeatable(node) or not any(r in cone for r in node.results):
            continue
        if all(x in same for x in node.values()):
            same.update(node.results)
            free.update(node.results)
        elif not _shrinks(node) and all(x in free for x in node.values()):
            free.update(node.results)
    needed = [x for x in wanted if x not in free]

    def makers(x: Value) -> list[Value] | None:
        """What `x` is computed again from, at a cost; None where it is not."""
        node = producer.get(x)
        if node is None or not is_repeatable(node) or _shrinks(node):
            return None
        return [y for y in node.values() if y not in free]

    costly = [x for x in cone if x not in free]
    if len(costly) > MOST_VALUES or all(makers(x) is None for x in needed):
        return dict.fromkeys(needed)
    return _cut(costly, needed, makers)


def _cone(
    wanted: Iterable[Value],
    producer: dict[Value, Node],
    given: Collection[Value],
    is_repeatable: Callable[[Node], bool],
) -> dict[Value, None]:
    """`wanted` and what they can be computed again from, through repeatable nodes."""
    cone: dict[Value, None] = {}
    stack = list(wanted)
    while stack:
        x = stack.pop()
        if x in cone or x in given:
            continue
        cone[x] = None
        node = producer.get(x)
        if node is not None and is_repeatable(node):
            stack.extend(node.values())
    return cone


def _shrinks(node: Node) -> bool:
    if node.op.has(Trait.VIEW):
        return False
    sizes = [weight(x.type.size) for x in node.values()]
    return max(sizes, default=0) >= _SHRINKS * max(
        1, min(weight(r.type.size) for r in node.results)
    )


def _cut(
    values: Sequence[Value],
    needed: Sequence[Value],
    makers: Callable[[Value], list[Value] | None],
) -> dict[Value, None]:
    import networkx as nx  # here, since most programs differentiate no loop

    number = {x: k for k, x in enumerate(values)}
    network = nx.DiGraph()
    network.add_nodes_from(["source", "sink"])
    for x, k in number.items():
        network.add_edge((k, 0), (k, 1), capacity=weight(x.type.size) * x.dtype.nbytes)
        made_of = makers(x)
        if made_of is None:
            network.add_edge("source", (k, 0))
        else:
            network.add_edges_from(((number[y], 1), (k, 0)) for y in made_of)
    network.add_edges_from(((number[x], 1), "sink") for x in needed)
    _, (before, _) = nx.minimum_cut(network, "source", "sink")
    return {x: None for x, k in number.items() if (k, 0) in before and (k, 1) not in before}


def weight(d: Dim) -> int:
    """`largest` for comparing costs: where there is no bound, more than any number of bytes."""
    return 1 << 60 if bounds(d)[1] is None else largest(d)
