"""Views as values: lists of per-axis steps, and the flat geometry derived from them.

A `View` says how a tensor reads a base: a tuple of steps, each mapping the multi-index of its
result to a multi-index of its input.  Steps are the canonical form (they stay symbolic and
readable); ``(offset, size, stride)`` over the base's dense row-major elements is derived, and
exists for every view that PyTorch could express.  All numbers are in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

from tracegrad.dims import Dim, add, is_equal, mul, product
from tracegrad.loops.builder import flat_index, unflatten
from tracegrad.types import Shape


@dataclass(frozen=True, slots=True)
class Pick:
    """One element of an axis; the axis disappears.  ``0 <= at < size``."""

    at: Dim


@dataclass(frozen=True, slots=True)
class Span:
    """Elements ``start, start + step, ...`` (`size` of them) of an axis; `step` may be negative."""

    start: Dim
    size: Dim
    step: int = 1


@dataclass(frozen=True, slots=True)
class NewAxis:
    """An axis of size 1 that the input does not have."""


Item = Union[Pick, Span, NewAxis]


@dataclass(frozen=True, slots=True)
class Index:
    """Basic indexing: one item for each input axis, with `NewAxis` items between them."""

    items: tuple[Item, ...]

    def shape(self, base: Shape) -> Shape:
        return tuple(i.size if isinstance(i, Span) else 1
                     for i in self.items if not isinstance(i, Pick))

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        out: list[Dim] = []
        pos = iter(at)
        for item in self.items:
            if isinstance(item, Pick):
                out.append(item.at)
            elif isinstance(item, Span):
                out.append(add(item.start, mul(next(pos), item.step)))
            else:
                next(pos)
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Permute:
    """Axis k of the result is axis ``order[k]`` of the input."""

    order: tuple[int, ...]

    def shape(self, base: Shape) -> Shape:
        return tuple(base[a] for a in self.order)

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        out: list[Dim] = [0] * len(at)
        for a, i in zip(self.order, at, strict=True):
            out[a] = i
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Expand:
    """Axes of size 1 repeated to `to`, which has the input's rank; other axes are unchanged."""

    to: Shape

    def shape(self, base: Shape) -> Shape:
        return self.to

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(0 if b == 1 else i for b, i in zip(base, at, strict=True))

    def axes(self, base: Shape) -> tuple[int, ...]:
        """The axes that are repeated."""
        return tuple(k for k, (b, s) in enumerate(zip(base, self.to, strict=True)) if b != s)


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in row-major order under another shape."""

    to: Shape

    def shape(self, base: Shape) -> Shape:
        return self.to

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        return _regroup(base, self.to, tuple(at))


@dataclass(frozen=True, slots=True)
class Diagonal:
    """Elements (k, k + offset) of two axes; the diagonal becomes the last axis."""

    offset: int
    axis1: int
    axis2: int

    def shape(self, base: Shape) -> Shape:
        n, m = base[self.axis1], base[self.axis2]
        assert isinstance(n, int) and isinstance(m, int)
        size = min(n, m - self.offset) if self.offset >= 0 else min(n + self.offset, m)
        rest = tuple(s for k, s in enumerate(base) if k not in (self.axis1, self.axis2))
        return (*rest, max(0, size))

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        rest, k = iter(at[:-1]), at[-1]
        return tuple(
            add(k, max(0, -self.offset)) if a == self.axis1
            else add(k, max(0, self.offset)) if a == self.axis2
            else next(rest)
            for a in range(len(base)))


@dataclass(frozen=True, slots=True)
class Unfold:
    """Windows of `size` every `step` elements along `axis`; the window becomes the last axis."""

    axis: int
    size: int
    step: int

    def shape(self, base: Shape) -> Shape:
        n = base[self.axis]
        assert isinstance(n, int)
        count = (n - self.size) // self.step + 1
        return (*base[:self.axis], count, *base[self.axis + 1:], self.size)

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        window = add(mul(at[self.axis], self.step), at[-1])
        return (*at[:self.axis], window, *at[self.axis + 1:-1])


@dataclass(frozen=True, slots=True)
class Strided:
    """``as_strided`` over the input's dense row-major elements; `offset` is absolute in them."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def shape(self, base: Shape) -> Shape:
        return self.size

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        flat: Dim = self.offset
        for i, s in zip(at, self.stride, strict=True):
            flat = add(flat, mul(i, s))
        return unflatten(base, flat)


Step = Union[Index, Permute, Expand, Reshape, Diagonal, Unfold, Strided]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Element ``i`` of a view lies at ``offset + sum(i[k] * stride[k])`` of its storage."""

    offset: Dim
    size: Shape
    stride: tuple[Dim, ...]

    def addresses(self, index: Sequence[Dim]) -> Dim:
        total = self.offset
        for i, s in zip(index, self.stride, strict=True):
            total = add(total, mul(i, s))
        return total


@dataclass(frozen=True, slots=True)
class View:
    """A chain of steps from a base to a tensor that reads it; the empty chain is the base."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def shapes(self, base: Shape) -> tuple[Shape, ...]:
        """The shape before each step, and the final one."""
        out = [base]
        for step in self.steps:
            out.append(step.shape(out[-1]))
        return tuple(out)

    def shape(self, base: Shape) -> Shape:
        return self.shapes(base)[-1]

    def then(self, *steps: Step, base: Shape) -> View:
        """This view with further steps, merged and with identities dropped; `base` is the base's
        shape."""
        out = list(self.steps)
        shape = self.shape(base)
        for step in steps:
            after = step.shape(shape)
            if not _is_identity(step, shape):
                out.append(step)
                _merge_tail(out, base)
            shape = after
        return View(tuple(out))

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        """The base's multi-index that element `at` of the view reads."""
        shapes = self.shapes(base)
        index = tuple(at)
        for step, shape in zip(reversed(self.steps), reversed(shapes[:-1]), strict=True):
            index = step.index(shape, index)
        return index

    def flat(self, base: Shape, at: Sequence[Dim]) -> Dim:
        """Position in the base's row-major elements that element `at` of the view reads."""
        geometry = self.geometry(base)
        if geometry is not None:
            return geometry.addresses(at)
        return flat_index(base, self.index(base, at))

    def geometry(self, base: Shape) -> Geometry | None:
        """The strided form over the dense base, or None when strides cannot express the view."""
        return _geometry(self, base)

    def is_injective(self, base: Shape) -> bool:
        """True when no two elements of the view are one element of the base."""
        geometry = self.geometry(base)
        if geometry is not None:
            return not overlaps_itself(geometry)
        return not any(isinstance(s, (Expand, Unfold, Strided)) for s in self.steps)


def _is_identity(step: Step, shape: Shape) -> bool:
    match step:
        case Index(items=items):
            return all(isinstance(i, Span) and i.start == 0 and i.step == 1 for i in items) \
                and step.shape(shape) == shape
        case Permute(order=order):
            return order == tuple(range(len(order)))
        case Expand(to=to) | Reshape(to=to):
            return to == shape
    return False


def _merge_tail(steps: list[Step], base: Shape) -> None:
    """Merge the last two steps while they are of one kind."""
    while len(steps) >= 2:
        first, second = steps[-2], steps[-1]
        before = View(tuple(steps[:-2])).shape(base)
        merged: Step
        match first, second:
            case Permute(order=p), Permute(order=q):
                merged = Permute(tuple(p[k] for k in q))
            case Reshape(), Reshape(to=to):
                merged = Reshape(to)
            case Expand(), Expand(to=to):
                merged = Expand(to)
            case Index(items=a), Index(items=b) if not _empties_new_axis(a, b):
                merged = Index(_compose(a, b))
            case _, Strided() if View(tuple(steps[:-1])).shape(base) == base and all(
                    isinstance(s, Reshape) for s in steps[:-1]):
                merged = second
            case _:
                return
        del steps[-2:]
        if not _is_identity(merged, before):
            steps.append(merged)


def _empties_new_axis(first: tuple[Item, ...], second: tuple[Item, ...]) -> bool:
    """Whether `second` takes an empty span of an axis that `first` made (not one `Index`)."""
    made = [i for i in first if not isinstance(i, Pick)]
    taken = [i for i in second if not isinstance(i, NewAxis)]
    return any(isinstance(m, NewAxis) and isinstance(t, Span) and t.size != 1
               for m, t in zip(made, taken, strict=True))


def _compose(first: tuple[Item, ...], second: tuple[Item, ...]) -> tuple[Item, ...]:
    """One tuple of items that does `first` and then `second`."""
    out: list[Item] = []
    outer = list(second)
    for item in first:
        if isinstance(item, Pick):
            out.append(item)
            continue
        while isinstance(outer[0], NewAxis):
            out.append(outer.pop(0))
        then = outer.pop(0)
        if isinstance(item, NewAxis):
            if isinstance(then, Span):
                out.append(item)
        elif isinstance(then, Pick):
            out.append(Pick(add(item.start, mul(then.at, item.step))))
        else:
            assert isinstance(then, Span)
            out.append(Span(add(item.start, mul(then.start, item.step)), then.size,
                            item.step * then.step))
    out.extend(outer)
    return tuple(out)


def _regroup(base: Shape, to: Shape, at: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Index map of a reshape; groups of axes with equal products are handled apart, so that
    indices stay free of division where the shapes allow it."""
    out: list[Dim] = []
    i = j = 0
    while i < len(base) or j < len(to):
        i2, j2 = min(i + 1, len(base)), min(j + 1, len(to))
        a, b = product(base[i:i2]), product(to[j:j2])
        while is_equal(a, b) is not True:
            if (isinstance(a, int) and isinstance(b, int) and a < b or j2 == len(to)) \
                    and i2 < len(base):
                i2 += 1
                a = product(base[i:i2])
            elif j2 < len(to):
                j2 += 1
                b = product(to[j:j2])
            else:
                break
        flat = flat_index(to[j:j2], at[j:j2])
        out.extend(unflatten(base[i:i2], flat))
        i, j = i2, j2
    return tuple(out)


@lru_cache(maxsize=65536)
def _geometry(view: View, base: Shape) -> Geometry | None:
    geometry = Geometry(0, base, dense_strides(base))
    for step in view.steps:
        stepped = advance(geometry, step, dense=geometry.stride == dense_strides(
            geometry.size) and geometry.offset == 0 and geometry.size == base)
        if stepped is None:
            return None
        geometry = stepped
    return geometry


def advance(g: Geometry, step: Step, dense: bool = False) -> Geometry | None:
    """Geometry after one more step; None when strides cannot express it.  `dense`: `g` is the
    whole dense storage (only then does `Strided` count from its start)."""
    match step:
        case Index(items=items):
            offset, axis = g.offset, 0
            size: list[Dim] = []
            stride: list[Dim] = []
            for item in items:
                if isinstance(item, NewAxis):
                    size.append(1)
                    stride.append(0)
                    continue
                s = g.stride[axis]
                axis += 1
                if isinstance(item, Pick):
                    offset = add(offset, mul(item.at, s))
                else:
                    offset = add(offset, mul(item.start, s))
                    size.append(item.size)
                    stride.append(mul(s, item.step))
            return Geometry(offset, tuple(size), tuple(stride))
        case Permute(order=order):
            return Geometry(g.offset, tuple(g.size[a] for a in order),
                            tuple(g.stride[a] for a in order))
        case Expand(to=to):
            return Geometry(g.offset, to, tuple(
                0 if b != s else st for b, s, st in zip(g.size, to, g.stride, strict=True)))
        case Reshape(to=to):
            stride = reshape_strides(g.size, g.stride, to)
            return None if stride is None else Geometry(g.offset, to, stride)
        case Diagonal(offset=o, axis1=a, axis2=b):
            start = add(mul(g.stride[a], max(0, -o)), mul(g.stride[b], max(0, o)))
            rest = [k for k in range(len(g.size)) if k not in (a, b)]
            return Geometry(add(g.offset, start), step.shape(g.size),
                            (*(g.stride[k] for k in rest), add(g.stride[a], g.stride[b])))
        case Unfold(axis=a, step=by):
            return Geometry(g.offset, step.shape(g.size), (
                *g.stride[:a], mul(g.stride[a], by), *g.stride[a + 1:], g.stride[a]))
        case Strided(size=size, stride=stride, offset=offset):
            return Geometry(offset, size, stride) if dense else None
    raise AssertionError(step)


def dense_strides(shape: Shape) -> tuple[Dim, ...]:
    """Row-major strides, in elements."""
    out: list[Dim] = []
    run: Dim = 1
    for size in reversed(shape):
        out.append(run)
        run = mul(run, size)
    return tuple(reversed(out))


def reshape_strides(size: Shape, stride: Sequence[Dim], to: Shape) -> tuple[Dim, ...] | None:
    """Strides with which the same elements have shape `to`, or None when a copy is needed.

    The rule of NumPy and PyTorch: axes of size 1 do not matter; a run of old axes can be cut
    anew only when each is contiguous with the next.
    """
    if 0 in to:
        return dense_strides(to)
    old = [(n, s) for n, s in zip(size, stride, strict=True) if n != 1]
    out: list[Dim] = [0] * len(to)
    axis = len(to) - 1
    k = len(old) - 1
    while k >= 0:
        run, step = old[k]
        while k > 0 and is_equal(old[k - 1][1], mul(old[k][0], old[k][1])) is True:
            k -= 1
            run = mul(run, old[k][0])
        k -= 1
        # `run` elements, `step` apart: hand them to trailing axes of `to`.
        left: Dim = run
        at = step
        while axis >= 0 and left != 1:
            n = to[axis]
            if not (isinstance(left, int) and isinstance(n, int)):
                if is_equal(left, n) is not True:
                    return None
                out[axis], left = at, 1
            elif left % n:
                return None
            else:
                out[axis], left = at, left // n
                at = mul(at, n)
            axis -= 1
        while axis >= 0 and to[axis] == 1:
            out[axis] = at
            axis -= 1
        if left != 1:
            return None
    return tuple(out) if all(n == 1 for n in to[:axis + 1]) else None


def overlaps_itself(g: Geometry) -> bool:
    """Whether two index tuples share an address: exact by sorted strides or by enumeration."""
    if any(n == 0 for n in g.size):
        return False
    axes = [(abs(s), n) for n, s in zip(g.size, g.stride, strict=True)
            if n != 1 and isinstance(s, int) and isinstance(n, int)]
    if len(axes) != sum(n != 1 for n in g.size):
        return False  # symbolic strides come from dense bases, which do not overlap
    axes.sort()
    span = 0
    certain = True
    for s, n in axes:
        if s == 0:
            return True
        if s <= span:
            certain = False
        span += s * (n - 1)
    if certain:
        return False
    total = 1
    for _, n in axes:
        total *= n
    if total > span + 1:
        return True  # more elements than addresses
    import numpy as np

    addresses = np.zeros(1, dtype=np.int64)
    for s, n in axes:
        addresses = (addresses[:, None] + s * np.arange(n)).ravel()
    return len(np.unique(addresses)) < total
