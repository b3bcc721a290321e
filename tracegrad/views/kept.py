"""Which operands' values the reverse pass of a node reads: what PyTorch saves for backward."""

from __future__ import annotations

from collections.abc import Collection

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import ByRegions, Linear, NoGradient, Partials, Rules
from tracegrad.ops.custom import CustomAttrs
from tracegrad.ops.pairs_derivative import is_by_pairs, pull_pairs


def kept_operands(node: Node, tracked: Collection[int]) -> frozenset[int]:
    """The operands whose values the cotangents of the operands `tracked` are computed from."""
    d = node.op.derivative
    if isinstance(d, NoGradient):
        return frozenset()
    if isinstance(d, ByRegions):
        attrs = node.attrs
        if not isinstance(attrs, CustomAttrs):
            return frozenset()  # a loop: its body decides, and a constant's value is at hand
        return frozenset(k for rule in attrs.rules for k in (*rule.saved, *rule.captured) if k >= 0)
    b = GraphBuilder("kept", Stage.FUNCTIONAL)
    xs = [x if isinstance(x, Literal) else b.input(x.type, "x") for x in node.operands]
    types = node.op.infer(node.attrs, *[x.type for x in node.operands])
    several = types if isinstance(types, tuple) else (types,)
    outs = tuple(b.input(t, "out") for t in several)
    cts = tuple(b.input(t, "ct") if t.dtype.is_inexact else None for t in several)
    found: list[Operand | None]
    if is_by_pairs(node.op, node.attrs, [*several, *(x.type for x in xs)]):
        assert cts[0] is not None
        pulled = pull_pairs(b, node.op, node.attrs, cts[0], xs)
        found = [pulled[k] for k in tracked]
    elif isinstance(d, Partials):
        partials = [d.of[k] for k in tracked]
        found = [p(b, cts[0], outs[0], *xs) for p in partials if p is not None]
    elif isinstance(d, Linear):
        found = list(d.transpose(b, node.attrs, cts[0], tuple(xs)))
    else:
        assert isinstance(d, Rules)
        given = d.vjp(b, node.attrs, cts, outs, tuple(xs))
        found = [given[k] for k in tracked]
    return _read(b, xs, [x for x in found if isinstance(x, Value)])


def _read(b: GraphBuilder, xs: list[Operand], outputs: list[Value]) -> frozenset[int]:
    """Positions of `xs` that `outputs` are computed from."""
    needed: set[Operand] = set(outputs)
    for node in reversed(b.nodes):
        if any(r in needed for r in node.results):
            needed.update(node.operands)
    return frozenset(k for k, x in enumerate(xs) if isinstance(x, Value) and x in needed)
