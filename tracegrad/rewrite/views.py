"""Views of views, and regions read, replaced and added to.

A write can run in place when its base dies with it, so no rule makes a base live on past a write
that stays: rules that skip a write ask that nothing else reads it (`is_read_once`).

S and T are views over one base; "same" means that they read the same elements in the same order
(`regions.reads_same`), "injective" that no element is read twice.  Rules that say "up to the sign
of zero" replace ``0 + x`` by x: -0.0 stays -0.0 where the sum would give 0.0.
"""

from __future__ import annotations

from tracegrad.dims import is_equal, product
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand, Value
from tracegrad.graph.op import OpDef
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.ops.arithmetic import add, neg, sub
from tracegrad.ops.create import full
from tracegrad.ops.pairs import PairAttrs, pair
from tracegrad.ops.views import add_slices, as_strided, as_view, copy_slices, transpose_view
from tracegrad.rewrite.pattern import (
    ProducerOf,
    Rule,
    filled,
    fits,
    is_zero,
    made_by,
    rule,
    same,
    splat,
)
from tracegrad.rewrite.regions import (
    are_disjoint,
    is_bijective,
    is_whole,
    narrowed,
    reads_same,
)
from tracegrad.types import Shape


def _view(node: Node) -> View:
    return node.attrs.view  # type: ignore[attr-defined,no-any-return]


def _part(node: Node) -> Shape:
    """The shape of the region that a slices node writes."""
    return _view(node).shape(node.result.shape)


def _source(b: GraphBuilder, node: Node) -> Operand:
    """Operand 1 of a slices node, with the shape of the region."""
    x = node.operands[1]
    return filled(b, x, _part(node)) if isinstance(x, Literal) else x


def _base(b: GraphBuilder, node: Node) -> Operand:
    """Operand 0 of a slices node, with the shape of the base."""
    x = node.operands[0]
    return filled(b, x, node.result.shape) if isinstance(x, Literal) else x


def _slices(op: OpDef, b: GraphBuilder, base: Operand, src: Operand, node: Node) -> Operand:
    """A slices op over the region of `node`."""
    return b.emit(op, (base, src), node.attrs)  # type: ignore[no-any-return]


def _read(b: GraphBuilder, x: Operand, view: View, node: Node) -> Operand:
    """`x` through `view`, of the type of the result of `node`."""
    if isinstance(x, Literal):
        return filled(b, x, node.result.shape)
    return as_view(b, x, *view.steps)


def _written(x: Operand, producer_of: ProducerOf) -> Node | None:
    return made_by(x, copy_slices, producer_of) or made_by(x, add_slices, producer_of)


# --------------------------------------------------------------------------------- reading


@rule(as_strided)
def whole_view(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A view that is its base: the base."""
    x = node.operands[0]
    return x if isinstance(x, Value) and is_whole(_view(node), x.shape) else None


@rule(as_strided)
def view_of_splat(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A view of a tensor full of one value: full of it too."""
    value = splat(node.operands[0], producer_of)
    return None if value is None else filled(b, value, node.result.shape)


@rule(as_strided)
def view_of_view(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A view of a view: one view, where strides can express it."""
    inner = made_by(node.operands[0], as_strided, producer_of)
    if inner is None:
        return None
    base = inner.operands[0]
    merged = _view(inner).then(*_view(node).steps, base=base.shape)
    if merged.geometry(base.shape) is None:
        return None
    return as_view(b, base, *merged.steps)


@rule(as_strided)
def read_of_write(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``as_strided(copy_slices(b, s, S), T)``: s where T is S, a view of s where T lies in S;
    for add_slices of a zero base likewise, up to the sign of zero.  S injective."""
    inner = _written(node.operands[0], producer_of)
    if inner is None:
        return None
    base, region = inner.result.shape, _view(inner)
    if inner.op is add_slices and not is_zero(splat(inner.operands[0], producer_of)):
        return None
    if not region.is_injective(base):
        return None
    if reads_same(region, _view(node), base):
        return _source(b, inner)
    rest = narrowed(region, _view(node), base)
    return None if rest is None else _read(b, _source(b, inner), rest, node)


@rule(as_strided)
def read_past_write(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``as_strided(copy_slices(b, s, S), T)``, S and T disjoint, of a write that nothing else
    reads or of a base full of one value: ``as_strided(b, T)``; for add_slices likewise."""
    inner = _written(node.operands[0], producer_of)
    if inner is None or not (
        producer_of.is_read_once(node.operands[0]) or splat(inner.operands[0], producer_of)
    ):
        return None
    if not are_disjoint(_view(inner), _view(node), inner.result.shape):
        return None
    return _read(b, _base(b, inner), _view(node), node)


@rule(as_strided)
def part_of_pair(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """The real (or imaginary) part of a pair: a view of what the pair was made of."""
    inner = made_by(node.operands[0], pair, producer_of)
    first, *rest = _view(node).steps
    if inner is None or not isinstance(first, Index) or not isinstance(first.items[-1], Pick):
        return None
    shape = inner.result.shape[:-1]
    view = View().then(Index(first.items[:-1]), *rest, base=shape)
    return _read(b, inner.operands[first.items[-1].at], view, node)  # type: ignore[index]


@rule(pair)
def pair_of_parts(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """Both parts of one tensor side by side: the tensor."""
    found = [made_by(x, as_strided, producer_of) for x in node.operands]
    re, im = found
    if re is None or im is None or not same(re.operands[0], im.operands[0]):
        return None
    whole = re.operands[0]
    if not isinstance(whole, Value) or whole.type != node.result.type:
        return None
    return whole if (_part_of(re), _part_of(im)) == (0, 1) else None


def _part_of(node: Node) -> int | None:
    """Which half of a last axis of 2 a node reads or writes as a whole; None if it does not."""
    steps = _view(node).steps
    if len(steps) != 1 or not isinstance(steps[0], Index):
        return None
    base = node.result.shape if node.op is not as_strided else node.operands[0].shape
    *spans, last = steps[0].items
    whole = all(isinstance(i, Span) and i == Span(0, n) for i, n in zip(spans, base, strict=False))
    fits_all = whole and len(spans) + 1 == len(base) and base[-1] == 2
    return last.at if fits_all and isinstance(last, Pick) else None  # type: ignore[return-value]


@rule(add_slices)
def add_other_part(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``add_slices(add_slices(0, s, part 1), t, part 0)``: ``pair(t, s)``, up to the sign of
    zero."""
    inner, k = made_by(node.operands[0], add_slices, producer_of), _part_of(node)
    if inner is None or k is None or _part_of(inner) != 1 - k:
        return None
    if not is_zero(splat(inner.operands[0], producer_of)):
        return None
    parts = (node.operands[1], inner.operands[1])
    return b.emit(
        pair,
        parts if k == 0 else parts[::-1],  # type: ignore[no-any-return]
        PairAttrs(node.result.shape[:-1]),
    )


@rule(add_slices)
def add_to_part(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """Adding to one part of a pair that nothing else reads: a pair with the sum."""
    inner, k = made_by(node.operands[0], pair, producer_of), _part_of(node)
    if inner is None or k is None or not producer_of.is_read_once(node.operands[0]):
        return None
    parts = list(inner.operands)
    src = node.operands[1]
    if isinstance(parts[k], Literal) and isinstance(src, Literal):
        return None
    parts[k] = add(b, parts[k], src)
    return b.emit(pair, parts, inner.attrs)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------- replacing


@rule(copy_slices, add_slices)
def splat_slices(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """A base or source that is full of one value: the literal."""
    if not any(isinstance(x, Value) and made_by(x, full, producer_of) for x in node.operands):
        return None
    base, src = (splat(x, producer_of) or x for x in node.operands)
    return _slices(node.op, b, base, src, node)


@rule(copy_slices, add_slices)
def write_of_nothing(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """Writing an empty region, or what is there already: the base.  Adding zero likewise, up to
    the sign of zero."""
    base, src = node.operands
    if is_equal(product(_part(node)), 0) is True:
        return _base(b, node)
    if node.op is add_slices:
        return _base(b, node) if is_zero(splat(src, producer_of)) else None
    if isinstance(base, Literal) and src == base:
        return _base(b, node)
    read = made_by(src, as_strided, producer_of)
    unchanged = (
        read
        and same(read.operands[0], base)
        and reads_same(_view(read), _view(node), node.result.shape)
    )
    return base if unchanged else None


@rule(copy_slices)
def write_after_write(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``copy_slices(copy_slices(b, s, S), t, S)``: ``copy_slices(b, t, S)``, where nothing else
    reads the inner write; that may be an add_slices."""
    inner = _written(node.operands[0], producer_of)
    if inner is None or not producer_of.is_read_once(node.operands[0]):
        return None
    if not reads_same(_view(inner), _view(node), node.result.shape):
        return None
    return _slices(copy_slices, b, inner.operands[0], node.operands[1], node)


@rule(copy_slices, add_slices)
def write_of_all(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """Writing all of the base: the source, rearranged; adding to all of it: a sum, or the source
    itself on a zero base, up to the sign of zero."""
    base, shape = node.operands[0], node.result.shape
    if not is_bijective(_view(node), shape):
        return None
    source = transpose_view(b, _view(node), _source(b, node), shape)
    if node.op is copy_slices or is_zero(splat(base, producer_of)):
        return source if fits(source, node) else None
    return add(b, _base(b, node), source)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------- adding


@rule(add_slices)
def add_to_cleared(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``add_slices(copy_slices(b, 0, S), s, S)``: ``copy_slices(b, s, S)`` for injective S, where
    nothing else reads the inner write; up to the sign of zero.  What a write is to gradients."""
    inner = made_by(node.operands[0], copy_slices, producer_of)
    if inner is None or not is_zero(splat(inner.operands[1], producer_of)):
        return None
    if not producer_of.is_read_once(node.operands[0]):
        return None
    shape = node.result.shape
    if not (reads_same(_view(inner), _view(node), shape) and _view(node).is_injective(shape)):
        return None
    return _slices(copy_slices, b, inner.operands[0], node.operands[1], node)


@rule(add)
def add_to_region(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``g + add_slices(0, s, S)``: ``add_slices(g, s, S)`` for injective S (for integers any S),
    up to the sign of zero outside S."""
    x, y = node.operands
    for padded, rest in ((y, x), (x, y)):
        inner = made_by(padded, add_slices, producer_of)
        if inner is None or not is_zero(splat(inner.operands[0], producer_of)):
            continue
        if not (fits(rest, node) or isinstance(rest, Literal)):
            continue
        if node.result.dtype.is_integer or _view(inner).is_injective(node.result.shape):
            return _slices(add_slices, b, rest, inner.operands[1], inner)
    return None


@rule(sub)
def subtract_region(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``g - add_slices(0, s, S)``: ``add_slices(g, -s, S)`` for injective S, up to the sign of
    zero outside S."""
    x, y = node.operands
    inner = made_by(y, add_slices, producer_of)
    if inner is None or not is_zero(splat(inner.operands[0], producer_of)):
        return None
    if not _view(inner).is_injective(node.result.shape):
        return None
    source = neg(b, inner.operands[1])
    return _slices(add_slices, b, x, source, inner)


@rule(add_slices)
def add_twice(b: GraphBuilder, node: Node, producer_of: ProducerOf) -> Operand | None:
    """``add_slices(add_slices(0, s, S), t, S)``: ``add_slices(0, s + t, S)`` for injective S,
    where nothing else reads the inner sum."""
    inner = made_by(node.operands[0], add_slices, producer_of)
    if inner is None or not is_zero(splat(inner.operands[0], producer_of)):
        return None
    if not producer_of.is_read_once(node.operands[0]):
        return None
    shape = node.result.shape
    if not (reads_same(_view(inner), _view(node), shape) and _view(node).is_injective(shape)):
        return None
    total = add(b, _source(b, inner), _source(b, node))
    return _slices(add_slices, b, inner.operands[0], total, node)


VIEWS: tuple[Rule, ...] = (
    whole_view,
    view_of_splat,
    view_of_view,
    read_of_write,
    read_past_write,
    part_of_pair,
    pair_of_parts,
    add_other_part,
    add_to_part,
    splat_slices,
    write_of_nothing,
    write_of_all,
    write_after_write,
    add_to_cleared,
    add_to_region,
    subtract_region,
    add_twice,
)
