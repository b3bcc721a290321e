"""Derivatives of `custom` nodes: the user's rule is written out, never the forward's own.

A rule given one way serves both: a cotangent rule is linear in the cotangents, so its transpose
is the tangent rule, and the other way round.  A rule that is not linear is refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracegrad.autodiff.by_region import PULL, PUSH
from tracegrad.autodiff.inline import inline
from tracegrad.autodiff.jvp import Forward, jvp_graph
from tracegrad.autodiff.vjp import Reverse, vjp_graph
from tracegrad.errors import GradientError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.walk import Replaced, all_nodes, copy_node, map_regions, rebuild
from tracegrad.ops.create import full
from tracegrad.ops.custom import CustomAttrs, RegionRule, custom, saved

Derivatives = Sequence[Operand | None]


def pull(b: GraphBuilder, node: Node, cts: Derivatives) -> list[Operand | None]:
    """One cotangent an operand (None: zero) from one a result."""
    attrs = _attrs(node)
    out: list[Operand | None] = [None] * len(node.operands)
    kept = len(node.results) - attrs.residuals
    if any(ct is not None for ct in cts[:kept]):
        rule, region = _rule(node, "vjp")
        if rule.kind == "vjp":
            given = [_dense(b, cts[k], node.results[k]) for k in rule.given]
            found, to = _call(b, node, rule, region, given), rule.gives
        else:
            seeds = [_dense(b, cts[k], node.results[k]) for k in rule.gives]
            found, to = _transposed(b, node, rule, region, seeds, "vjp"), rule.given
        for k, ct in zip(to, found, strict=True):
            out[k] = ct
    if attrs.through and any(ct is not None for ct in cts[kept:]):
        _pull_residuals(b, node, cts[kept:], out)
    return out


def push(b: GraphBuilder, node: Node, ts: Derivatives) -> list[Operand | None]:
    """One tangent a result (None: zero) from one an operand."""
    attrs = _attrs(node)
    out: list[Operand | None] = [None] * len(node.results)
    rule, region = _rule(node, "jvp")
    if rule.kind == "jvp":
        given = [_dense(b, ts[k], node.operands[k]) for k in rule.given]
        found, to = _call(b, node, rule, region, given), rule.gives
    else:
        seeds = [_dense(b, ts[k], node.operands[k]) for k in rule.gives]
        found, to = _transposed(b, node, rule, region, seeds, "jvp"), rule.given
    for k, t in zip(to, found, strict=True):
        out[k] = t
    if attrs.through and attrs.residuals:
        _push_residuals(b, node, ts, out)
    return out


def inline_custom(graph: Graph) -> Graph:
    """`graph` with each custom node replaced by its value, once derivatives have been taken."""
    if not any(n.op in (custom, saved) for n in all_nodes(graph)):
        return graph
    return rebuild(graph, _without_rules)


def _without_rules(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    if node.op is saved:
        return operands[0]
    if node.op is custom:
        values = inline(b, inline_custom(node.regions[0]), operands[: _attrs(node).inputs])
        return values[: len(node.results)]
    regions = map_regions(node, inline_custom)
    if regions is node.regions:
        return copy_node(b, node, operands)
    return b.emit(
        node.op,
        operands,
        node.attrs,
        regions=regions,  # type: ignore[no-any-return]
        hints=tuple(r.hint for r in node.results),
    )


# ------------------------------------------------------------------------------- the pieces


def _attrs(node: Node) -> CustomAttrs:
    assert isinstance(node.attrs, CustomAttrs)
    return node.attrs


def _rule(node: Node, wanted: str) -> tuple[RegionRule, Graph]:
    """The rule of the wanted kind, or the other one."""
    attrs = _attrs(node)
    found = sorted(
        zip(attrs.rules, node.regions[1:], strict=True), key=lambda pair: pair[0].kind != wanted
    )
    if not found:
        raise GradientError(
            f"{attrs.name} has no derivative rule",
            kind="custom_rule",
            loc=node.loc,
            remedy="Define backward (or jvp), or mark its results non-differentiable.",
        )
    return found[0]


def _call(
    b: GraphBuilder, node: Node, rule: RegionRule, region: Graph, given: Sequence[Operand]
) -> tuple[Operand, ...]:
    """The outputs of a rule's region."""
    values = inline(b, region, _inputs(b, node, rule, given))
    return values[: len(rule.gives)]


def _inputs(
    b: GraphBuilder, node: Node, rule: RegionRule, given: Sequence[Operand]
) -> list[Operand]:
    return [
        *(_kept(b, node, k) for k in rule.saved),
        *given,
        *(node.operands[k] for k in rule.captured),
    ]


def _kept(b: GraphBuilder, node: Node, k: int) -> Operand:
    """Operand k, or result ~k; a constant where the forward computed it for the rule alone."""
    if k >= 0:
        return node.operands[k]
    attrs, value = _attrs(node), node.results[~k]
    computed = ~k >= len(node.results) - attrs.residuals
    if not computed or attrs.through or not value.dtype.is_inexact:
        return value
    return saved(b, value, *node.operands, name=attrs.name)  # type: ignore[no-any-return]


def _transposed(
    b: GraphBuilder,
    node: Node,
    rule: RegionRule,
    region: Graph,
    seeds: Sequence[Operand],
    wanted: str,
) -> tuple[Operand, ...]:
    """The transpose of a rule in what it is given, applied to `seeds` (one an output)."""
    first = len(rule.saved)
    spots = range(first, first + len(rule.given))
    wrt = [k for k in spots if region.inputs[k].dtype.is_inexact]
    results = len(rule.gives)
    region = replace(region, outputs=region.outputs[:results], alias=None)
    joint = vjp_graph(region, wrt)
    outputs = joint.outputs[results : results + len(wrt)]
    if _depends(joint, [region.inputs[k] for k in wrt], outputs):
        other = "backward" if rule.kind == "vjp" else "jvp"
        raise GradientError(
            f"the {other} rule of {_attrs(node).name} is not linear, so it does not say what the "
            f"{'tangent' if wanted == 'jvp' else 'gradient'} is",
            kind="custom_rule",
            loc=node.loc,
            remedy=f"Define {'jvp' if wanted == 'jvp' else 'a vjp rule'} too.",
        )
    zeros = [_dense(b, None, region.inputs[k]) for k in spots]
    operands = [*_inputs(b, node, rule, zeros), *seeds]
    return inline(b, replace(joint, outputs=outputs, alias=None), operands)


def _depends(graph: Graph, inputs: Iterable[Value], outputs: Sequence[Operand]) -> bool:
    """Whether an output is computed from any of the inputs."""
    reached: set[Operand] = set(inputs)
    for node in graph.nodes:
        if any(x in reached for x in node.operands):
            reached.update(node.results)
    return any(x in reached for x in outputs)


def _pull_residuals(
    b: GraphBuilder, node: Node, cts: Derivatives, out: list[Operand | None]
) -> None:
    """Add the cotangents that reach the operands through the kept values."""
    from tracegrad.ops.arithmetic import add

    wrt = [k for k in range(_attrs(node).inputs) if node.operands[k].dtype.is_inexact]
    forward, at = _residual_graph(node)
    joint = vjp_graph(forward, wrt)
    seeds = [_dense(b, cts[k], forward.outputs[k]) for k in at]
    grads = joint.outputs[len(forward.outputs) : len(forward.outputs) + len(wrt)]
    found = inline(
        b,
        replace(joint, outputs=grads, alias=None),
        [*node.operands[: _attrs(node).inputs], *seeds],
    )
    for k, ct in zip(wrt, found, strict=True):
        before = out[k]
        out[k] = ct if before is None else add(b, before, ct)


def _push_residuals(
    b: GraphBuilder, node: Node, ts: Derivatives, out: list[Operand | None]
) -> None:
    inputs = _attrs(node).inputs
    wrt = [k for k in range(inputs) if ts[k] is not None]
    forward, at = _residual_graph(node)
    joint = jvp_graph(forward, wrt)
    first, n = len(node.results) - len(forward.outputs), len(forward.outputs)
    moved = inline(
        b,
        replace(joint, outputs=joint.outputs[n : n + len(at)], alias=None),
        [*node.operands[:inputs], *(_dense(b, ts[k], node.operands[k]) for k in wrt)],
    )
    for k, t in zip(at, moved, strict=True):
        out[first + k] = t


def _residual_graph(node: Node) -> tuple[Graph, list[int]]:
    """The kept values alone, and which of them are inexact."""
    n = len(node.results)
    outputs = node.regions[0].outputs[n - _attrs(node).residuals : n]
    return (
        replace(node.regions[0], outputs=outputs, alias=None),
        [k for k, x in enumerate(outputs) if x.type.dtype.is_inexact],
    )


def _dense(b: GraphBuilder, x: Operand | None, like: Operand) -> Operand:
    """A tensor of the type of `like`; None is zero."""
    if isinstance(x, Value):
        return x
    value = x if x is not None else Literal(0, like.type.dtype)
    return full(b, shape=like.type.shape, value=value)  # type: ignore[no-any-return]


def _pull(
    reverse: Reverse, node: Node, cts: Derivatives, wanted: Sequence[bool]
) -> list[Operand | None]:
    return pull(reverse.b, node, cts)


def _push(forward: Forward, node: Node, ts: Derivatives) -> list[Operand | None]:
    forward.b.append(node)
    return push(forward.b, node, ts)


PULL[CustomAttrs] = _pull
PUSH[CustomAttrs] = _push
