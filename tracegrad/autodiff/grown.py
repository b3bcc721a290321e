"""Arrays with an element for each iteration of a `while` that has no bound: cotangents of tapes.

Nothing but loops by the same count can handle them, since nothing else knows how long they are.
"""

from __future__ import annotations

from tracegrad.dims import symbol
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.loops.grown import GROWN, is_grown
from tracegrad.ops.branch import WhileAttrs, unknown_length
from tracegrad.ops.control import LoopAttrs, emit_loop
from tracegrad.ops.create import full
from tracegrad.ops.views import add_slices
from tracegrad.types import TensorType

INDEX = "row"


def grows(type_: TensorType) -> bool:
    """Whether a value of this type has an element for each of an unknown number of iterations."""
    return any(map(is_grown, type_.shape))


def count_of(b: GraphBuilder, *xs: Operand) -> Operand:
    """The number of elements of values that grew together, from the node that made one of them.

    Raises GradientError (kind ``while_reverse``) where none was made in `b`.
    """
    for node in reversed(b.nodes):
        if any(x in node.results for x in xs):
            attrs = node.attrs
            if isinstance(attrs, LoopAttrs) and attrs.counted:
                return node.operands[-1]
            if isinstance(attrs, WhileAttrs) and attrs.counter >= 0:
                return node.results[attrs.counter]
    raise unknown_length(b.loc)


def add_grown(b: GraphBuilder, x: Value, y: Value, count: Operand) -> Value:
    """``x + y``, element by element into the place of `x`."""
    inner = GraphBuilder("sum")
    total = inner.input(x.type, "total")
    row = inner.input(TensorType(x.shape[1:], x.dtype), "row")
    at = Index((Pick(symbol(INDEX, 0)), *(Span(0, n) for n in row.shape)))
    region = inner.finish([add_slices(inner, total, row, view=View((at,)), shape=total.type.shape)])
    return emit_loop(b, region, INDEX, GROWN, carries=(x,), xs=(y,), count=count)[0]


def full_grown(b: GraphBuilder, type_: TensorType, value: Literal, count: Operand) -> Value:
    """`value` in every element of an array of `type_`."""
    inner = GraphBuilder("full")
    region = inner.finish([full(inner, shape=type_.shape[1:], value=value)])
    return emit_loop(b, region, INDEX, GROWN, carries=(), count=count)[0]
