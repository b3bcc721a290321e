"""`Rule`: one named rewriting of one node; and the questions that rules ask of operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tracegrad import dtypes
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand, Value
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.ops.create import full
from tracegrad.types import Shape


class ProducerOf(Protocol):
    """What a rule may ask of the graph around its node."""

    def __call__(self, x: Operand) -> Node | None:
        """The node that made `x`; None for inputs and literals."""

    def is_read_once(self, x: Operand) -> bool:
        """Whether nothing but the node at hand reads `x`, so that `x` dies with it."""


Apply = Callable[[GraphBuilder, Node, ProducerOf], "Operand | None"]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """``apply(b, node, producer_of)`` gives what stands for the single result of `node`, or None.

    The replacement has the type of the result; new nodes are emitted through `b`.
    `producer_of(x)` is the node that made operand `x`.
    `looks_at` selects the ops to which the rule applies.  `doc` says what it does and, where it
    is not exact bit for bit, the exception.
    """

    name: str
    doc: str
    looks_at: Callable[[OpDef], bool]
    apply: Apply


def rule(*ops: OpDef, when: Callable[[OpDef], bool] | None = None) -> Callable[[Apply], Rule]:
    """Decorator: a function with a docstring as a rule for `ops`, or for the ops that `when`
    accepts."""
    looks_at = when if when is not None else frozenset(ops).__contains__

    def make(fn: Apply) -> Rule:
        assert fn.__doc__, f"rule {fn.__name__} has no docstring"
        return Rule(fn.__name__.strip("_"), " ".join(fn.__doc__.split()), looks_at, fn)

    return make


def made_by(x: Operand, op: OpDef, producer_of: ProducerOf) -> Node | None:
    """The node that made `x`, if its op is `op`."""
    node = producer_of(x)
    return node if node is not None and node.op is op else None


def splat(x: Operand, producer_of: ProducerOf) -> Literal | None:
    """The one value that every element of `x` has, if that is known."""
    if isinstance(x, Literal):
        return x
    node = made_by(x, full, producer_of)
    return node.attrs.value if node is not None else None  # type: ignore[attr-defined]


def is_value(x: Literal | None, number: bool | int | float) -> bool:
    """Whether a literal has just this value; 0.0 and -0.0 differ."""
    return x is not None and Literal(number, x.dtype) == x


def is_zero(x: Literal | None) -> bool:
    """Whether a literal is zero of either sign."""
    return x is not None and x.value == 0


def fits(x: Operand, node: Node) -> bool:
    """Whether `x` has the type of the single result of `node`."""
    return x.type == node.result.type


def computed(op: OpDef, attrs: Attrs, operands: Sequence[Literal]) -> Literal | None:
    """The value of a scalar op on literals, by its NumPy reference."""
    with np.errstate(all="ignore"):
        out = np.asarray(op.reference(attrs, *[x.dtype.np.type(x.value) for x in operands]))
    if out.shape != ():
        return None
    folded = Literal(out.item(), dtypes.of(out.dtype))
    # A NaN's payload does not always survive the way through a Python float.
    return folded if folded.key == out.tobytes() else None


def filled(b: GraphBuilder, value: Literal, shape: Shape) -> Operand:
    """`value` in every element of `shape`: the literal itself for a scalar."""
    if shape == ():
        return value
    return full(b, shape=shape, value=value)  # type: ignore[no-any-return]


def same(x: Operand, y: Operand) -> bool:
    """Whether two operands are one value."""
    return x is y if isinstance(x, Value) or isinstance(y, Value) else x == y


def other_operand(node: Node, is_it: Callable[[Operand], Any]) -> tuple[Operand, Any] | None:
    """For two operands: the one that is not, and what `is_it` answers for the one that is."""
    x, y = node.operands
    for it, rest in ((y, x), (x, y)):
        found = is_it(it)
        if found:
            return rest, found
    return None
