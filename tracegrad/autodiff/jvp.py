"""Symbolic forward mode: a functional graph and its tangents as one joint graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracegrad.autodiff.by_region import PUSH
from tracegrad.autodiff.vjp import report_with
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import AliasReport, Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import ByRegions, Linear, NoGradient, Partials, Rules
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.arithmetic import add
from tracegrad.ops.create import full


def jvp_graph(graph: Graph, wrt: Sequence[int], *, name: str | None = None) -> Graph:
    """The joint graph: one more input (a tangent) for each input numbered `wrt`; outputs are
    those of `graph`, then the tangent of each inexact result, then the write-backs."""
    report = graph.alias or AliasReport(len(graph.outputs))
    b = GraphBuilder(name or f"{graph.name}.jvp", Stage.FUNCTIONAL)
    same_inputs(graph, b)
    forward = Forward(b)
    for k in wrt:
        x = graph.inputs[k]
        forward.tangents[x] = b.input(x.type, f"d_{x.hint}")
    for node in graph.nodes:
        forward.visit(node)
    outputs = [forward.value(x) for x in graph.outputs]
    dots = [forward.tangent(x) for x in graph.outputs[: report.results] if x.type.dtype.is_inexact]
    results = outputs[: report.results] + dots + outputs[report.results :]
    return b.finish(results, report_with(report, len(dots)))


class Forward:
    """Writes nodes into `b` and keeps the tangents of their results."""

    def __init__(self, b: GraphBuilder) -> None:
        self.b = b
        self.tangents: dict[Value, Operand] = {}
        self._env: dict[Value, Operand] = {}

    def visit(self, node: Node) -> None:
        """Add `node` and the tangents of its results."""
        if self._env and any(x in self._env for x in node.values()):
            node = replace(node, operands=tuple(map(self.value, node.operands)))
        with self.b.at(node.loc):
            if not (
                isinstance(node.op.derivative, ByRegions)
                and any(x in self.tangents for x in node.values())
            ):
                self.b.append(node)
                _forward(self.b, node, self.tangents)
                return
            ts = [self.tangents.get(x) if isinstance(x, Value) else None for x in node.operands]
            found = PUSH[type(node.attrs)](self, node, ts)
        for result, t in zip(node.results, found, strict=True):
            if t is not None and result.dtype.is_inexact:
                self.tangents[self.value(result)] = t  # type: ignore[index]
                self.tangents[result] = t

    def value(self, x: Operand) -> Operand:
        """What stands for `x` in the new graph."""
        return self._env.get(x, x) if isinstance(x, Value) else x

    def tangent(self, x: Operand) -> Operand:
        """The tangent of `x` as a tensor; zeros where nothing flows."""
        return _dense(self.b, self.tangents.get(x) if isinstance(x, Value) else None, x)

    def renamed(self, node: Node, values: Sequence[Operand]) -> None:
        """The results of `node`, which a rule has written in another way."""
        self._env.update(zip(node.results, values, strict=True))


def _dense(b: GraphBuilder, t: Operand | None, like: Operand) -> Operand:
    if isinstance(t, Value):
        return t
    return full(
        b,
        shape=like.type.shape,  # type: ignore[no-any-return]
        value=t if t is not None else Literal(0, like.type.dtype),
    )


def _forward(b: GraphBuilder, node: Node, tangents: dict[Value, Operand]) -> None:
    """Tangents of the results of `node`, from those of its operands."""
    xs, outs = node.operands, node.results
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
        filled = [
            t
            if t is not None
            else (
                Literal(0, x.dtype)
                if isinstance(x, Literal)
                else x
                if not x.dtype.is_inexact
                else _dense(b, None, x)
            )
            for t, x in zip(ts, xs, strict=True)
        ]
        results = (b.emit(node.op, filled, node.attrs),)
    else:
        assert isinstance(d, Rules)
        whole = tuple(None if t is None else _dense(b, t, x) for t, x in zip(ts, xs, strict=True))
        results = d.jvp(b, node.attrs, whole, outs, xs)
    for old, t in zip(node.results, results, strict=True):
        if t is not None and old.dtype.is_inexact:
            tangents[old] = t
