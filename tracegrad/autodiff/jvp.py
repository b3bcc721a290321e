"""Symbolic forward mode: a functional graph and its tangents as one joint graph."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.autodiff.vjp import report_with
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import AliasReport, Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import Linear, NoGradient, Partials, Rules
from tracegrad.ops.arithmetic import add
from tracegrad.ops.create import full


def jvp_graph(graph: Graph, wrt: Sequence[int], *, name: str | None = None) -> Graph:
    """The joint graph: one more input (a tangent) for each input numbered `wrt`; outputs are
    those of `graph`, then the tangent of each inexact result, then the write-backs."""
    report = graph.alias or AliasReport(len(graph.outputs))
    b = GraphBuilder(name or f"{graph.name}.jvp", Stage.FUNCTIONAL)
    env: dict[Value, Operand] = {}
    for x in graph.inputs:
        env[x] = b.input(x.type, x.hint, loc=x.loc)
    tangents: dict[Value, Operand] = {}
    for k in wrt:
        x = graph.inputs[k]
        tangents[x] = b.input(x.type, f"d_{x.hint}")
    for node in graph.nodes:
        with b.at(node.loc):
            _forward(b, node, env, tangents)
    outputs = [env[x] if isinstance(x, Value) else x for x in graph.outputs]
    dots: list[Operand] = []
    for x in graph.outputs[:report.results]:
        if x.type.dtype.is_inexact:
            t = tangents.get(x) if isinstance(x, Value) else None
            dots.append(_dense(b, t, x))
    results = outputs[:report.results] + dots + outputs[report.results:]
    return b.finish(results, report_with(report, len(dots)))


def _dense(b: GraphBuilder, t: Operand | None, like: Operand) -> Operand:
    if isinstance(t, Value):
        return t
    return full(b, shape=like.type.shape,  # type: ignore[no-any-return]
                value=t if t is not None else Literal(0, like.type.dtype))


def _forward(b: GraphBuilder, node: Node, env: dict[Value, Operand],
             tangents: dict[Value, Operand]) -> None:
    xs = [env[x] if isinstance(x, Value) else x for x in node.operands]
    out = b.emit(node.op, xs, node.attrs, hint=node.results[0].hint, regions=node.regions)
    outs = out if isinstance(out, tuple) else (out,)
    for old, new in zip(node.results, outs, strict=True):
        env[old] = new
    ts = [tangents.get(x) if isinstance(x, Value) else None for x in node.operands]
    d = node.op.derivative
    if all(t is None for t in ts) or isinstance(d, NoGradient):
        return
    results: Sequence[Operand | None]
    if isinstance(d, Partials):
        total: Operand | None = None
        for partial, t in zip(d.of, ts, strict=True):
            if t is None or partial is None:
                continue
            part = partial(b, t, outs[0], *xs)
            total = part if total is None else add(b, total, part)
        results = (total,)
    elif isinstance(d, Linear):
        filled = [t if t is not None else (Literal(0, x.dtype) if isinstance(x, Literal)
                                           else x if not x.dtype.is_inexact
                                           else _dense(b, None, x))
                  for t, x in zip(ts, xs, strict=True)]
        results = (b.emit(node.op, filled, node.attrs),)
    else:
        assert isinstance(d, Rules)
        whole = tuple(None if t is None else _dense(b, t, x) for t, x in zip(ts, xs, strict=True))
        results = d.jvp(b, node.attrs, whole, outs, xs)
    for old, t in zip(node.results, results, strict=True):
        if t is not None and old.dtype.is_inexact:
            tangents[old] = t
