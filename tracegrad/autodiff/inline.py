"""Writes a functional graph out inside another one."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.walk import replay
from tracegrad.ops.create import full


def inline(b: GraphBuilder, graph: Graph, operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """The outputs of `graph` applied to `operands`, emitted into `b`."""
    # A literal is no tensor to ops that move data.
    given = [full(b, shape=(), value=x) if isinstance(x, Literal) else x for x in operands]
    env: dict[Value, Operand] = dict(zip(graph.inputs, given, strict=True))
    return replay(graph, b, env, anew)


def anew(
    b: GraphBuilder, node: Node, operands: tuple[Operand, ...]
) -> Operand | tuple[Operand, ...]:
    """The node with results of its own, since one graph may be written out several times."""
    return b.emit(
        node.op,
        operands,
        node.attrs,
        regions=node.regions,  # type: ignore[no-any-return]
        hints=tuple(r.hint for r in node.results),
    )
