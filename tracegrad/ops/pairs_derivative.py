"""Derivatives of complex ops outside a compiled graph: through their form on pairs.

A compiled graph has no complex values left where it is differentiated (`aliasing.pairs`).  The
prompt differentiates op by op; there the rule of a complex op is: see operands as real pairs, pull
the gradient back through what the op does with them, see the result as complex.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.graph.ir import Literal, Node, Operand, Value
from tracegrad.graph.op import Linear, NoGradient, OpDef, Partials, Rules
from tracegrad.graph.storage import AsComplex, AsReal
from tracegrad.ops.arithmetic import add
from tracegrad.ops.create import full
from tracegrad.ops.pairs import Pair, joined
from tracegrad.ops.views import SlicesAttrs, ViewAttrs, as_view

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def is_by_pairs(op: OpDef, attrs: Any, types: Sequence[Any]) -> bool:
    """Whether the derivative goes through pairs; types are those of operands and results."""
    return (
        any(t.dtype.is_complex for t in types)
        and op.pairs is not None
        and not isinstance(op.derivative, NoGradient)
        and not isinstance(attrs, (ViewAttrs, SlicesAttrs))
    )


def pull_pairs(
    b: GraphBuilder, op: OpDef, attrs: Any, ct: Value, xs: Sequence[Operand]
) -> list[Operand | None]:
    """The gradient of each operand, for the gradient `ct` of the one result."""
    wholes: list[Value | None] = []
    given: list[Any] = []
    for x in xs:
        whole: Value | None = None
        if isinstance(x, Value):
            whole = x
            if x.dtype.is_complex:
                whole = as_view(b, x, AsReal())  # type: ignore[assignment]
                given.append(Pair.of(b, whole))  # type: ignore[arg-type]
            else:
                given.append(x)
        else:
            given.append(Pair.literal(x) if x.dtype.is_complex else x)
        wholes.append(whole)
    start = len(b.nodes)
    out: Any = op.pairs(b, op, attrs, *given)  # type: ignore[misc]
    if isinstance(out, Pair):
        out = joined(b, out.re, out.im, ct.type.shape)
    nodes = b.nodes[start:]
    seed: Operand = as_view(b, ct, AsReal()) if ct.dtype.is_complex else ct
    found = _reverse(b, nodes, {out: seed})
    grads: list[Operand | None] = []
    for x, whole in zip(xs, wholes, strict=True):
        g = None if whole is None else found.get(whole)
        if isinstance(g, Literal) and whole is not None:
            g = full(b, shape=whole.type.shape, value=g)
        grads.append(as_view(b, g, AsComplex()) if g is not None and x.type.dtype.is_complex else g)
    return grads


def _reverse(
    b: GraphBuilder, nodes: Sequence[Node], found: dict[Value, Operand]
) -> dict[Value, Operand]:
    """Gradients of all values that `nodes` compute or read, from those of some results."""
    for node in reversed(nodes):
        cts = [found.get(r) for r in node.results]
        if isinstance(node.op.derivative, NoGradient) or all(ct is None for ct in cts):
            continue
        for x, g in zip(node.operands, _pull(b, node, cts), strict=True):
            if isinstance(x, Value) and g is not None and x.dtype.is_inexact:
                found[x] = add(b, found[x], g) if x in found else g
    return found


def _pull(b: GraphBuilder, node: Node, cts: list[Operand | None]) -> Sequence[Operand | None]:
    d, xs = node.op.derivative, node.operands
    if isinstance(d, Partials):
        return [None if p is None else p(b, cts[0], node.results[0], *xs) for p in d.of]
    if isinstance(d, Linear):
        return d.transpose(b, node.attrs, cts[0], xs)
    assert isinstance(d, Rules), f"{node.op.name} is made of ops with regions"
    dense = tuple(
        full(b, shape=r.type.shape, value=ct) if isinstance(ct, Literal) else ct
        for r, ct in zip(node.results, cts, strict=True)
    )
    return d.vjp(b, node.attrs, dense, node.results, xs)
