"""Symbolic reverse mode: a functional graph and its cotangents as one joint graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracegrad.autodiff.activity import active_values
from tracegrad.autodiff.by_region import PULL
from tracegrad.autodiff.grown import add_grown, count_of, grows
from tracegrad.autodiff.unwritten import Onwards, Unwritten
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import (
    AliasReport,
    Graph,
    Literal,
    Node,
    Operand,
    Stage,
    Value,
    WriteBack,
)
from tracegrad.graph.op import ByRegions, Linear, NoGradient, Partials, Rules
from tracegrad.graph.walk import same_inputs
from tracegrad.ops.arithmetic import add
from tracegrad.ops.create import full
from tracegrad.ops.scatter import scatter_add
from tracegrad.ops.views import SlicesAttrs, add_slices, copy_slices


def vjp_graph(
    graph: Graph,
    wrt: Sequence[int],
    *,
    seeds: Sequence[float | None] | None = None,
    name: str | None = None,
) -> Graph:
    """The joint graph: outputs of `graph`, then one cotangent for each input numbered `wrt`.

    With `seeds`, output k has the constant cotangent ``seeds[k]`` (None: zero).  Without, one
    input is appended for each inexact output, in order: its cotangent, of the output's type.
    Write-back outputs of `graph` never have a cotangent; the alias report is kept.
    """
    report = graph.alias or AliasReport(len(graph.outputs))
    b = GraphBuilder(name or f"{graph.name}.vjp", Stage.FUNCTIONAL)
    same_inputs(graph, b)
    b.nodes.extend(graph.nodes)
    outputs = list(graph.outputs)
    cotangents: list[Operand | None] = []
    for k, out in enumerate(outputs):
        ct: Operand | None = None
        if isinstance(out, Value) and out.dtype.is_inexact and k < report.results:
            if seeds is None:
                ct = b.input(out.type, f"ct{k}")
            elif seeds[k] is not None:
                ct = Literal(seeds[k] or 0.0, out.dtype)
        elif seeds is None and k < report.results and out.type.dtype.is_inexact:
            b.input(out.type, f"ct{k}")
        cotangents.append(ct)
    reverse = Reverse(b, active_values(graph, wrt), Onwards(graph))
    for out, ct in zip(outputs, cotangents, strict=True):
        if ct is not None and isinstance(out, Value):
            reverse.contribute(out, ct)
    for node in reversed(graph.nodes):
        reverse.visit(node)
    grads = [reverse.total_of_input(graph.inputs[k]) for k in wrt]
    results = outputs[: report.results] + grads + outputs[report.results :]
    return b.finish(results, report_with(report, len(grads)))


def report_with(report: AliasReport, extra: int) -> AliasReport:
    """`report` after `extra` results were inserted behind the old ones."""
    return replace(
        report,
        results=report.results + extra,
        write_backs=tuple(WriteBack(w.input, w.output + extra) for w in report.write_backs),
    )


class Reverse:
    """Collects cotangents; a value's contributions are summed when its producer is reached.

    `around` says to loops where what they leave behind is read; None: in their results.
    """

    def __init__(
        self, b: GraphBuilder, active: set[Value], around: Unwritten | Onwards | None = None
    ) -> None:
        self.b = b
        self.active = active
        self.around = around
        self.pending: dict[Value, list[Operand]] = {}
        self._made: dict[Value, Node] = {}
        self._seen = len(b.nodes)

    def contribute(self, x: Value, ct: Operand) -> None:
        self.pending.setdefault(x, []).append(ct)

    def visit(self, node: Node) -> None:
        """Send the cotangents of a node's results to its operands."""
        if isinstance(node.op.derivative, NoGradient):
            return
        if not any(r in self.pending for r in node.results):
            return
        wanted = [isinstance(x, Value) and x in self.active for x in node.operands]
        with self.b.at(node.loc):
            cts = [self.total(r) for r in node.results]
            if not any(wanted) or all(ct is None for ct in cts):
                return
            for x, keep, ct in zip(
                node.operands, wanted, self._apply(node, cts, wanted), strict=True
            ):
                if keep and ct is not None:
                    assert isinstance(x, Value)
                    self.contribute(x, ct)

    def _apply(
        self, node: Node, cts: list[Operand | None], wanted: list[bool]
    ) -> Sequence[Operand | None]:
        b, xs, d = self.b, node.operands, node.op.derivative
        if isinstance(d, Partials):
            return [
                partial(b, cts[0], node.result, *xs) if keep and partial is not None else None
                for partial, keep in zip(d.of, wanted, strict=True)
            ]
        if isinstance(d, Linear):
            return d.transpose(b, node.attrs, cts[0], xs)
        if isinstance(d, ByRegions):
            return PULL[type(node.attrs)](self, node, cts, wanted)  # type: ignore[no-any-return]
        assert isinstance(d, Rules)
        whole = tuple(
            None if ct is None else self._dense(ct, r)
            for ct, r in zip(cts, node.results, strict=True)
        )
        return d.vjp(b, node.attrs, whole, node.results, xs)

    def total(self, x: Value) -> Operand | None:
        """The sum of all contributions to `x`: dense ones first, then regions added onto it."""
        parts = self.pending.pop(x, None)
        if not parts:
            return None
        for node in self.b.nodes[self._seen :]:
            for r in node.results:
                self._made[r] = node
        self._seen = len(self.b.nodes)
        regions = [p for p in parts if self._is_region(p)]
        dense = [p for p in parts if not self._is_region(p)]
        total: Operand | None = None
        for p in dense:
            total = p if total is None else self._sum(x, total, p)
        for p in self._replacements_first(total, regions):
            if total is None:
                total = p
                continue
            node = self._made[p]  # type: ignore[index]
            total = self.b.emit(node.op, (total, *node.operands[1:]), node.attrs)
        return total

    def _sum(self, x: Value, a: Operand, b: Operand) -> Operand:
        if grows(x.type):
            assert isinstance(a, Value) and isinstance(b, Value), "no literal stands for a tape"
            return add_grown(self.b, a, b, count_of(self.b, a, b))
        return add(self.b, a, b)  # type: ignore[no-any-return]

    def _replacements_first(self, total: Operand | None, regions: list[Operand]) -> list[Operand]:
        """`regions`, those first whose place in `total` was zeroed by a write: simplification
        makes the pair one `copy_slices`, which is PyTorch's CopySlices procedure."""
        node = self._made.get(total) if isinstance(total, Value) else None
        if node is None or node.op is not copy_slices:
            return regions
        assert isinstance(node.attrs, SlicesAttrs)
        view = node.attrs.view

        def is_elsewhere(p: Any) -> bool:
            return getattr(self._made[p].attrs, "view", None) != view

        return sorted(regions, key=is_elsewhere)

    def _is_region(self, p: Operand) -> bool:
        """Whether `p` is a part put into zeros, which is cheaper added in place."""
        node = self._made.get(p) if isinstance(p, Value) else None
        return (
            node is not None
            and node.op in (add_slices, scatter_add)
            and isinstance(node.operands[0], Literal)
            and node.operands[0].value == 0
        )

    def total_of_input(self, x: Value) -> Value:
        return self._dense(self.total(x) or Literal(0, x.dtype), x)

    def _dense(self, ct: Operand, like: Value) -> Value:
        """`ct` as a tensor of the type of `like` (a literal stands for a constant tensor)."""
        if isinstance(ct, Value):
            assert ct.type == like.type, f"cotangent {ct.type} of a value {like.type}"
            return ct
        return full(self.b, shape=like.type.shape, value=ct)  # type: ignore[no-any-return]
