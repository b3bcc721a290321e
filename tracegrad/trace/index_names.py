"""Names of the indices of loops: a region that comes to stand in more loops than it was traced in
gets other ones, so that no loop is inside another one with the same index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from tracegrad import dims
from tracegrad.dims import Dim, Symbol
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.symbols import bind_symbols, symbols_of
from tracegrad.graph.walk import graphs
from tracegrad.ops.branch import WhileAttrs
from tracegrad.ops.control import LoopAttrs
from tracegrad.trace.tracer import Trace

T = TypeVar("T")


def fit_into(graph: Graph, trace: Trace) -> Graph:
    """`graph`, traced somewhere around `trace`, for use as a region there."""
    around = _names_around(trace)
    own = sorted(set(_indices(graph)), key=lambda name: (len(name), name))
    if not set(own) & set(around):
        return graph
    return rename_indices(graph, {old: f"i{len(around) + k}" for k, old in enumerate(own)})


def _names_around(trace: Trace) -> list[str]:
    found = []
    at: Trace | None = trace
    while at is not None:
        if at.loop is not None:
            found.append(at.loop.name)
        at = at.parent
    return found


def _indices(graph: Graph) -> Iterator[str]:
    """The indices of all loops in a graph."""
    for g in graphs(graph):
        for node in g.nodes:
            if isinstance(node.attrs, (LoopAttrs, WhileAttrs)):
                yield node.attrs.index


def rename_indices(graph: Graph, names: Mapping[str, str]) -> Graph:
    """`graph` with the indices of its loops renamed, in all at once."""
    made: dict[Value, Value] = {}

    def value(x: Value) -> Value:
        found = made.get(x)
        if found is None:
            found = made[x] = replace(x, type=_renamed(x.type, names))
        return found

    def operand(x: Operand) -> Operand:
        return value(x) if isinstance(x, Value) else x

    def node(n: Node) -> Node:
        attrs = _renamed(n.attrs, names)
        if isinstance(attrs, (LoopAttrs, WhileAttrs)):
            attrs = replace(attrs, index=names.get(attrs.index, attrs.index))
        return replace(
            n,
            operands=tuple(map(operand, n.operands)),
            attrs=attrs,
            results=tuple(map(value, n.results)),
            regions=tuple(rename_indices(r, names) for r in n.regions),
            target=None if n.target is None else value(n.target),
        )

    return replace(
        graph,
        inputs=tuple(map(value, graph.inputs)),
        nodes=tuple(map(node, graph.nodes)),
        outputs=tuple(map(operand, graph.outputs)),
    )


def _renamed(x: T, names: Mapping[str, str]) -> T:
    """Attributes or a type with symbols renamed."""
    env = {
        s.name: dims.of_atom(Symbol(names.get(s.name, s.name), s.lo, _bound(s.hi, names)))
        for s in symbols_of(x)
    }
    return bind_symbols(x, env) if env else x


def _bound(hi: Dim | None, names: Mapping[str, str]) -> Dim | None:
    return None if hi is None else _renamed(hi, names)
