"""Casts: identities, and chains whose inner step loses nothing."""

from __future__ import annotations

from tracegrad import dtypes
from tracegrad.dtypes import DType
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Node, Operand
from tracegrad.ops.cast import cast
from tracegrad.rewrite.pattern import ProducerOf, Rule, computed, filled, made_by, rule, splat


@rule(cast)
def cast_to_itself(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A cast to the dtype that the operand has: the operand."""
    x = node.operands[0]
    return x if x.dtype is node.result.dtype else None


@rule(cast)
def cast_of_splat(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A cast of a tensor full of one value: a tensor full of the value in the new dtype."""
    value = splat(node.operands[0], producer_of)
    if value is None or node.result.shape == ():
        return None
    done = computed(cast, node.attrs, (value,))
    return None if done is None else filled(b, done, node.result.shape)


@rule(cast)
def cast_chain(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x -> A -> B``: ``x -> B``, where A holds every value of x's dtype."""
    inner = made_by(node.operands[0], cast, producer_of)
    if inner is None:
        return None
    start, through, end = inner.operands[0].dtype, inner.result.dtype, node.result.dtype
    if not _can_skip(start, through, end):
        return None
    return cast(b, inner.operands[0], dtype=end)  # type: ignore[no-any-return]


def _holds(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    if a is b or a.is_bool:
        return True
    if b.is_bool or (a.is_float and not b.is_float):
        return False
    if a.is_float:
        return b.bits >= a.bits
    digits = a.bits - (a.kind == "i")
    if b.is_float:
        return digits <= (24 if b is dtypes.F32 else 53)
    return b.bits - (b.kind == "i") >= digits and not (a.kind == "i" and b.kind == "u")


def _can_skip(start: DType, through: DType, end: DType) -> bool:
    """Out-of-range conversion differs between integers (wraps) and floats (defined apart), so an
    integer may skip a float only on its way to a float or bool, or to what holds it."""
    if not _holds(start, through):
        return False
    detour = start.is_integer and through.is_float
    return not detour or end.is_float or end.is_bool or _holds(start, end)


CASTS: tuple[Rule, ...] = (cast_to_itself, cast_of_splat, cast_chain)
