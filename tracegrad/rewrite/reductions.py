"""Reductions: of nothing, of a reduction, of one value.

Summing over two sets of axes in one go combines the same elements in another order; that is
what "sum" promises (pairwise or by several accumulators, see the numbers policy), so merging is
allowed for floats and may change the last bits.  The sum of n equal
elements may become a product, which is at least as exact.
"""

from __future__ import annotations

from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand
from tracegrad.graph.op import OpDef, Reduction
from tracegrad.graph.storage import Expand, Index, Item, Pick, Span, View
from tracegrad.ops.arithmetic import mul
from tracegrad.ops.reduce import ReduceAttrs, reduced_count, sum_
from tracegrad.ops.views import as_strided, as_view
from tracegrad.rewrite.pattern import ProducerOf, Rule, filled, made_by, rule, splat


def _is_reduction(op: OpDef) -> bool:
    return isinstance(op.lowering, Reduction) and op.attrs is ReduceAttrs


@rule(when=_is_reduction)
def reduce_nothing(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A reduction over no axes: the operand.

    Exact but for ``sum`` of -0.0, which is 0.0 where the loop starts from 0."""
    return node.operands[0] if not _axes(node) else None


@rule(when=_is_reduction)
def reduce_of_reduction(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``op(op(x, axes1), axes2)``: one reduction over both (order of combination may change)."""
    inner = made_by(node.operands[0], node.op, producer_of)
    if inner is None:
        return None
    x = inner.operands[0]
    left = [k for k in range(x.type.rank) if k not in _axes(inner)]
    axes = tuple(sorted((*_axes(inner), *(left[k] for k in _axes(node)))))
    return node.op(b, x, axes=axes)  # type: ignore[no-any-return]


@rule(when=_is_reduction)
def reduce_unit_axes(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A reduction over axes of size 1 only: a reshape.

    Exact but for ``sum`` of -0.0, which is 0.0 where the loop starts from 0."""
    x = node.operands[0]
    if any(x.shape[k] != 1 for k in _axes(node)):
        return None
    axes = _axes(node)
    return as_view(b, x, Index(tuple(_first_or_all(k in axes, n) for k, n in enumerate(x.shape))))


def _first_or_all(first: bool, n: Dim) -> Item:
    return Pick(0) if first else Span(0, n)


@rule(sum_)
def sum_of_splat(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """The sum of n elements of one value v: ``n * v``, for integers, and for floats where v is a
    whole number and every partial sum is exact."""
    value = splat(node.operands[0], producer_of)
    count = reduced_count(node.operands[0].shape, _axes(node))
    if value is None or not isinstance(count, int) or not _axes(node):
        return None
    total = _exact_multiple(value, count)
    return None if total is None else filled(b, total, node.result.shape)


def _exact_multiple(value: Literal, count: int) -> Literal | None:
    dtype = value.dtype
    if dtype.is_integer:
        wrapped = (int(value.value) * count) & (2**dtype.bits - 1)
        signed = dtype.kind == "i" and wrapped >> (dtype.bits - 1)
        return Literal(wrapped - (2**dtype.bits if signed else 0), dtype)
    if not float(value.value).is_integer() or value == Literal(-0.0, dtype):
        return None
    total = int(value.value) * count
    return Literal(float(total), dtype) if abs(total) < _whole_limit(dtype) else None


def _whole_limit(dtype: DType) -> int:
    return 2**24 if dtype.bits == 32 else 2**53


@rule(sum_)
def sum_of_expand(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``sum(expand(x))`` over n repetitions: ``n * x``.  For floats the product rounds once, so
    it is at least as exact as the sum; it may differ in the last bits."""
    inner = made_by(node.operands[0], as_strided, producer_of)
    if inner is None:
        return None
    steps = inner.attrs.view.steps  # type: ignore[attr-defined]
    if not steps or not isinstance(steps[-1], Expand):
        return None
    base = inner.operands[0]
    shapes = View(steps).shapes(base.shape)
    repeated = set(steps[-1].axes(shapes[-2])) & set(_axes(node))
    count = reduced_count(shapes[-1], tuple(repeated))
    if not repeated or not isinstance(count, int) or not _is_factor(count, node.result.dtype):
        return None
    rest = tuple(k for k in _axes(node) if k not in repeated)
    before = as_view(b, base, *steps[:-1])
    still = tuple(1 if k in repeated else n for k, n in enumerate(shapes[-1]))
    narrow = as_view(b, before, Expand(still))
    items = tuple(_first_or_all(k in repeated, n) for k, n in enumerate(still))
    dropped = as_view(b, narrow, Index(items))
    moved = tuple(k - sum(r < k for r in repeated) for k in rest)
    part = sum_(b, dropped, axes=moved) if rest else dropped
    return mul(b, part, Literal(count, node.result.dtype))  # type: ignore[no-any-return]


def _is_factor(count: int, dtype: DType) -> bool:
    """Whether the dtype has the number.  Not 0: the sum of nothing is 0, whatever x is."""
    limit = 2 ** (dtype.bits - 1) if dtype.is_integer else _whole_limit(dtype)
    return 0 < count < limit


def _axes(node: Node) -> tuple[int, ...]:
    return node.attrs.axes  # type: ignore[attr-defined,no-any-return]


REDUCTIONS: tuple[Rule, ...] = (
    reduce_nothing,
    reduce_unit_axes,
    reduce_of_reduction,
    sum_of_splat,
    sum_of_expand,
)
