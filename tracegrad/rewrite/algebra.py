"""Algebra that is exact: same bits for every input, NaN and infinities included.

Not here because IEEE arithmetic forbids it for floats: ``x + 0.0`` (for x = -0.0), ``x * 0``
(NaN, infinity, -0.0), ``x - x``, reassociation.  The sign and payload of a NaN are not kept.
"""

from __future__ import annotations

import math

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand
from tracegrad.ops.arithmetic import absolute, add, div, mul, neg, positive, sub
from tracegrad.ops.bitwise import bitwise_and, bitwise_or, bitwise_xor, invert
from tracegrad.ops.compare import eq, logical_and, logical_not, logical_or, ne
from tracegrad.ops.handles import copy
from tracegrad.ops.select import fmax, fmin, maximum, minimum, where
from tracegrad.rewrite.pattern import (
    ProducerOf,
    Rule,
    computed,
    filled,
    fits,
    is_value,
    is_zero,
    made_by,
    other_operand,
    rule,
    same,
    splat,
)


@rule(add)
def add_nothing(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x + (-0.0)`` for floats, ``x + 0`` for integers, ``x or False``: x."""
    zero = -0.0 if node.result.dtype.is_float else 0
    found = other_operand(node, lambda x: is_value(splat(x, producer_of), zero))
    return found[0] if found and fits(found[0], node) else None


@rule(sub)
def subtract_nothing(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x - 0``: x (for floats 0.0 only: ``-0.0 - -0.0`` is 0.0)."""
    x, y = node.operands
    return x if is_value(splat(y, producer_of), 0) and fits(x, node) else None


@rule(mul)
def multiply_by_one(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x * 1``: x."""
    found = other_operand(node, lambda x: is_value(splat(x, producer_of), 1))
    return found[0] if found and fits(found[0], node) else None


@rule(div)
def divide_by_one(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x / 1``: x."""
    x, y = node.operands
    return x if is_value(splat(y, producer_of), 1) and fits(x, node) else None


@rule(mul)
def multiply_by_zero(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x * 0`` for integers and bool: 0.  Not for floats."""
    if node.result.dtype.is_float:
        return None
    if any(is_zero(splat(x, producer_of)) for x in node.operands):
        return filled(b, Literal(0, node.result.dtype), node.result.shape)
    return None


@rule(mul)
def multiply_by_minus_one(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x * -1`` for floats and signed integers: ``-x``."""
    if node.result.dtype.kind not in "fi":
        return None
    found = other_operand(node, lambda x: is_value(splat(x, producer_of), -1))
    if found and fits(found[0], node):
        return neg(b, found[0])  # type: ignore[no-any-return]
    return None


@rule(div)
def divide_by_power_of_two(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x / 2**k``: ``x * 2**-k``, where both powers are normal numbers; exact."""
    x, y = node.operands
    power = splat(y, producer_of)
    if power is None or not power.dtype.is_float or not math.isfinite(power.value):
        return None
    fraction, exponent = math.frexp(power.value)
    limit = 126 if power.dtype.bits == 32 else 1022
    if abs(fraction) != 0.5 or not -limit < exponent - 1 < limit or not fits(x, node):
        return None
    return mul(b, x, Literal(1 / power.value, power.dtype))  # type: ignore[no-any-return]


@rule(mul, add)
def merge_integer_literals(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``(x * a) * c``, ``(x + a) + c`` for integers: one literal (arithmetic wraps, so exact)."""
    if not node.result.dtype.is_integer:
        return None
    outer = other_operand(node, lambda x: splat(x, producer_of))
    inner = made_by(outer[0], node.op, producer_of) if outer else None
    if outer is None or inner is None:
        return None
    deeper = other_operand(inner, lambda x: splat(x, producer_of))
    if not deeper or not fits(deeper[0], node):
        return None
    merged = computed(node.op, node.attrs, (deeper[1], outer[1]))
    return None if merged is None else node.op(b, deeper[0], merged)


@rule(neg, logical_not, invert)
def twice_is_nothing(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``--x``, ``~~x``, and ``not not x`` for bool: x."""
    inner = made_by(node.operands[0], node.op, producer_of)
    if inner and inner.operands[0].dtype is node.result.dtype and fits(inner.operands[0], node):
        return inner.operands[0]
    return None


@rule(absolute)
def absolute_drops_sign(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``abs(-x)`` and ``abs(abs(x))``: ``abs(x)``."""
    x = node.operands[0]
    if made_by(x, absolute, producer_of):
        return x
    inner = made_by(x, neg, producer_of)
    if inner and node.result.dtype.kind in "fi":
        return absolute(b, inner.operands[0])  # type: ignore[no-any-return]
    return None


@rule(positive, copy)
def identity(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``+x`` and ``copy(x)``: x; functional values have no storage to tell apart."""
    return node.operands[0]


@rule(add, sub)
def add_negated(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x + -y``: ``x - y``; ``-x + y``: ``y - x``; ``x - -y``: ``x + y``."""
    x, y = node.operands
    inner = made_by(y, neg, producer_of)
    if inner:
        return (sub if node.op is add else add)(b, x, inner.operands[0])  # type: ignore[no-any-return]
    inner = made_by(x, neg, producer_of) if node.op is add else None
    return sub(b, y, inner.operands[0]) if inner else None


@rule(mul, div)
def multiply_negated(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``-x * -y``: ``x * y``, ``-x * c``: ``x * -c``; division likewise."""
    x, y = node.operands
    left, right = made_by(x, neg, producer_of), made_by(y, neg, producer_of)
    if left and right:
        return node.op(b, left.operands[0], right.operands[0])  # type: ignore[no-any-return]
    if left and isinstance(y, Literal) and (minus := _negated(y)):
        return node.op(b, left.operands[0], minus)  # type: ignore[no-any-return]
    if right and isinstance(x, Literal) and (minus := _negated(x)):
        return node.op(b, minus, right.operands[0])  # type: ignore[no-any-return]
    return None


def _negated(x: Literal) -> Literal | None:
    return computed(neg, neg.attrs(), (x,))


@rule(neg)
def negate_product(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``-(x * c)``: ``x * -c``."""
    inner = made_by(node.operands[0], mul, producer_of)
    found = inner and other_operand(inner, lambda x: splat(x, producer_of))
    if found and fits(found[0], node) and (minus := _negated(found[1])):
        return mul(b, found[0], minus)  # type: ignore[no-any-return]
    return None


# --------------------------------------------------------------------------- logic, choice


@rule(sub, bitwise_xor)
def nothing_remains(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x - x`` and ``x ^ x`` for integers and bool: 0."""
    x, y = node.operands
    if node.result.dtype.is_float or not same(x, y):
        return None
    return filled(b, Literal(0, node.result.dtype), node.result.shape)


@rule(maximum, minimum, fmax, fmin, bitwise_and, bitwise_or, logical_and, logical_or)
def idempotent(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``op(x, x)``: x, for maximum, minimum, `and`, `or` (logical ones on bool)."""
    x, y = node.operands
    return x if same(x, y) and fits(x, node) else None


@rule(logical_and, logical_or)
def known_side(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``x and True``, ``x or False``: x; ``x and False``: False; ``x or True``: True."""
    found = other_operand(node, lambda x: splat(x, producer_of))
    if not found:
        return None
    rest, known = found
    if bool(known.value) is (node.op is logical_and):
        return rest if fits(rest, node) else None
    decided = Literal(node.op is logical_or, node.result.dtype)
    return filled(b, decided, node.result.shape)


@rule(logical_not)
def negate_equality(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``not (x == y)``: ``x != y`` and the reverse; right for NaN too (``<`` would not be)."""
    for op, opposite in ((eq, ne), (ne, eq)):
        inner = made_by(node.operands[0], op, producer_of)
        if inner:
            return opposite(b, *inner.operands)  # type: ignore[no-any-return]
    return None


@rule(where)
def decided_where(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``where(c, x, x)``: x; ``where(True, x, y)``: x; ``where(False, x, y)``: y."""
    cond, x, y = node.operands
    known = splat(cond, producer_of)
    taken = x if same(x, y) else None if known is None else (x if known.value else y)
    if taken is None or fits(taken, node):
        return taken
    if isinstance(taken, Literal):
        return filled(b, taken, node.result.shape)
    return None


@rule(where)
def negated_where(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``where(not c, x, y)``: ``where(c, y, x)``, for a bool c."""
    cond, x, y = node.operands
    inner = made_by(cond, logical_not, producer_of)
    if inner and inner.operands[0].dtype.is_bool:
        return where(b, inner.operands[0], y, x)  # type: ignore[no-any-return]
    return None


@rule(where)
def nested_where(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``where(c, where(c, x, y), z)``: ``where(c, x, z)``;
    ``where(c, x, where(c, y, z))``: ``where(c, x, z)``."""
    cond, x, y = node.operands
    left, right = made_by(x, where, producer_of), made_by(y, where, producer_of)
    if left and same(left.operands[0], cond):
        return where(b, cond, left.operands[1], y)  # type: ignore[no-any-return]
    if right and same(right.operands[0], cond):
        return where(b, cond, x, right.operands[2])  # type: ignore[no-any-return]
    return None


ALGEBRA: tuple[Rule, ...] = (
    identity,
    add_nothing,
    subtract_nothing,
    multiply_by_one,
    divide_by_one,
    multiply_by_zero,
    multiply_by_minus_one,
    divide_by_power_of_two,
    merge_integer_literals,
    twice_is_nothing,
    absolute_drops_sign,
    add_negated,
    multiply_negated,
    negate_product,
    nothing_remains,
    idempotent,
    known_side,
    negate_equality,
    decided_where,
    negated_where,
    nested_where,
)
