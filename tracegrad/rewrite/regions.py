"""What two views of one base have to do with each other: same elements, disjoint elements."""

from __future__ import annotations

from math import gcd

from tracegrad.dims import Dim, add, is_at_most, is_equal, mul, product
from tracegrad.graph.storage import (
    Geometry,
    Index,
    Item,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
    Step,
    View,
    dense_strides,
)
from tracegrad.types import Shape


def reads_same(v: View, w: View, base: Shape) -> bool:
    """Whether element i of both views is the same element of the base, for every i."""
    if v == w:
        return True
    if v.shape(base) != w.shape(base):
        return False
    g, h = v.geometry(base), w.geometry(base)
    return g is not None and h is not None and _same_geometry(g, h)


def is_whole(v: View, base: Shape) -> bool:
    """Whether the view is its base as it is."""
    geometry = v.geometry(base)
    return (
        geometry is not None
        and v.shape(base) == base
        and _same_geometry(geometry, Geometry(0, base, dense_strides(base)))
    )


def _same_geometry(g: Geometry, h: Geometry) -> bool:
    """Equal addresses for equal sizes; strides of axes of size 1 do not matter."""
    if 0 in g.size:
        return True
    return is_equal(g.offset, h.offset) is True and all(
        n == 1 or is_equal(s, t) is True for n, s, t in zip(g.size, g.stride, h.stride, strict=True)
    )


def is_bijective(v: View, base: Shape) -> bool:
    """Whether every step reorders all elements: permutes, reshapes, reverses."""
    shapes = v.shapes(base)
    return all(_keeps_all(step, before) for step, before in zip(v.steps, shapes, strict=False))


def _keeps_all(step: Step, before: Shape) -> bool:
    if isinstance(step, (Permute, Reshape)):
        return True
    if not isinstance(step, Index):
        return False
    items = [i for i in step.items if isinstance(i, (Pick, Span))]
    return all(
        (isinstance(i, Pick) and n == 1)
        or (isinstance(i, Span) and i.step in (1, -1) and is_equal(i.size, n) is True)
        for i, n in zip(items, before, strict=True)
    )


def are_disjoint(v: View, w: View, base: Shape) -> bool:
    """Whether no element of the base is read by both; False when it cannot be proved."""
    if _is_empty(v.shape(base)) or _is_empty(w.shape(base)):
        return True
    if _disjoint_boxes(v, w):
        return True
    g, h = v.geometry(base), w.geometry(base)
    return g is not None and h is not None and _disjoint_addresses(g, h)


def _is_empty(shape: Shape) -> bool:
    return is_equal(product(shape), 0) is True


def _disjoint_boxes(v: View, w: View) -> bool:
    """By the leading indexing of each view: later steps only narrow it."""
    if not (v.steps and w.steps):
        return False
    a, b = v.steps[0], w.steps[0]
    if not (isinstance(a, Index) and isinstance(b, Index)):
        return False
    left = [i for i in a.items if isinstance(i, (Pick, Span))]
    right = [i for i in b.items if isinstance(i, (Pick, Span))]
    return any(_apart(i, j) for i, j in zip(left, right, strict=True))


def _apart(a: Pick | Span, b: Pick | Span) -> bool:
    (lo, hi, step), (lo2, hi2, step2) = _extent(a), _extent(b)
    return _separated((lo, hi), (lo2, hi2)) or _never_meets(lo, lo2, gcd(step, step2))


def _extent(item: Pick | Span) -> tuple[Dim, Dim, int]:
    """First and last position, and the distance between positions (0 for one position)."""
    if isinstance(item, Pick):
        return item.at, item.at, 0
    last = add(item.start, mul(add(item.size, -1), item.step))
    return (item.start, last, item.step) if item.step > 0 else (last, item.start, -item.step)


def _separated(a: tuple[Dim, Dim], b: tuple[Dim, Dim]) -> bool:
    return (is_at_most(add(a[1], 1), b[0]) is True) or (is_at_most(add(b[1], 1), a[0]) is True)


def _never_meets(start: Dim, other: Dim, step: int) -> bool:
    """Whether ``start + i * step == other + j * step`` has no solution in integers."""
    distance = add(start, mul(other, -1))
    if not isinstance(distance, int):
        return step == 0 and is_equal(start, other) is False
    return distance % step != 0 if step else distance != 0


def _disjoint_addresses(g: Geometry, h: Geometry) -> bool:
    """By the range of addresses, or because they never agree modulo the strides."""
    left, right = _address_range(g), _address_range(h)
    if left is not None and right is not None and _separated(left, right):
        return True
    strides = [s for x in (g, h) for n, s in zip(x.size, x.stride, strict=True) if n != 1]
    if not all(isinstance(s, int) for s in strides):
        return False
    return _never_meets(g.offset, h.offset, gcd(*strides))  # type: ignore[arg-type]


def _address_range(g: Geometry) -> tuple[Dim, Dim] | None:
    """Lowest and highest address; None when the sign of a stride is unknown."""
    lo = hi = g.offset
    for n, s in zip(g.size, g.stride, strict=True):
        reach = mul(add(n, -1), s)
        if is_at_most(0, reach) is True:
            hi = add(hi, reach)
        elif is_at_most(reach, 0) is True:
            lo = add(lo, reach)
        else:
            return None
    return lo, hi


def narrowed(outer: View, inner: View, base: Shape) -> View | None:
    """The view R with ``inner == R of outer``, when `inner` starts with the steps of `outer`, or
    when both are basic indexing along the same axes; None when no such view is found."""
    n = len(outer.steps)
    if inner.steps[:n] == outer.steps:
        return View(inner.steps[n:])
    if n != 1 or not inner.steps:
        return None
    a, b = outer.steps[0], inner.steps[0]
    if not (isinstance(a, Index) and isinstance(b, Index)):
        return None
    first = _narrow_index(a, b)
    if first is None:
        return None
    return View().then(first, *inner.steps[1:], base=outer.shape(base))


def _narrow_index(outer: Index, inner: Index) -> Index | None:
    """Basic indexing that leads from what `outer` reads to what `inner` reads."""
    items: list[Item] = []
    wanted = list(inner.items)
    for item in outer.items:
        if isinstance(item, NewAxis):
            items.append(Pick(0))
            continue
        while isinstance(wanted[0], NewAxis):
            items.append(wanted.pop(0))
        narrow = _narrow_axis(item, wanted.pop(0))
        if narrow is None:
            return None
        items.extend(narrow)
    return Index((*items, *wanted))


def _narrow_axis(outer: Pick | Span, inner: Item) -> tuple[Item, ...] | None:
    if isinstance(outer, Pick):
        return () if inner == outer else None
    start, step, n = outer.start, outer.step, outer.size
    if isinstance(inner, Span) and inner == outer:
        return (Span(0, n),)
    at = inner.at if isinstance(inner, Pick) else inner.start if isinstance(inner, Span) else None
    if not (isinstance(at, int) and isinstance(start, int) and isinstance(n, int)):
        return None
    first, rest = divmod(at - start, step)
    if isinstance(inner, Pick):
        return (Pick(first),) if rest == 0 and 0 <= first < n else None
    assert isinstance(inner, Span)
    if rest or inner.step % step or not isinstance(inner.size, int) or inner.size == 0:
        return None
    by = inner.step // step
    last = first + (inner.size - 1) * by
    inside = 0 <= first < n and 0 <= last < n
    return (Span(first, inner.size, by),) if inside else None
