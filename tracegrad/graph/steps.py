"""The steps of a view: each maps multi-indices of its result to multi-indices of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracegrad.dims import Dim, add, floordiv, is_equal, mul, product
from tracegrad.dtypes import DType, complex_of
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


Item = Pick | Span | NewAxis


@dataclass(frozen=True, slots=True)
class Index:
    """Basic indexing: one item for each input axis, with `NewAxis` items between them."""

    items: tuple[Item, ...]

    def shape(self, base: Shape) -> Shape:
        return tuple(
            i.size if isinstance(i, Span) else 1 for i in self.items if not isinstance(i, Pick)
        )

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
            add(k, max(0, -self.offset))
            if a == self.axis1
            else add(k, max(0, self.offset))
            if a == self.axis2
            else next(rest)
            for a in range(len(base))
        )


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
        return (*base[: self.axis], count, *base[self.axis + 1 :], self.size)

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        window = add(mul(at[self.axis], self.step), at[-1])
        return (*at[: self.axis], window, *at[self.axis + 1 : -1])


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


# ------------------------------------------------------- steps that change the element type


@dataclass(frozen=True, slots=True)
class AsReal:
    """Complex elements as real ones with a last axis of 2: real part, imaginary part."""

    def shape(self, base: Shape) -> Shape:
        return (*base, 2)

    def dtype(self, base: DType) -> DType:
        return base.parts


@dataclass(frozen=True, slots=True)
class AsComplex:
    """Pairs along the last axis, which has size 2, as complex elements."""

    def shape(self, base: Shape) -> Shape:
        return base[:-1]

    def dtype(self, base: DType) -> DType:
        return complex_of(base)


@dataclass(frozen=True, slots=True)
class Conj:
    """The conjugates of complex elements; a write stores conjugates."""

    def shape(self, base: Shape) -> Shape:
        return base

    def dtype(self, base: DType) -> DType:
        return base


@dataclass(frozen=True, slots=True)
class Bitcast:
    """The bytes of elements of dtype `before` as elements of `to`; where the sizes differ the
    last axis is scaled."""

    before: DType
    to: DType

    def shape(self, base: Shape) -> Shape:
        a, b = self.before.nbytes, self.to.nbytes
        if a == b:
            return base
        last = base[-1]
        return (*base[:-1], mul(last, a // b) if a > b else floordiv(last, b // a))

    def dtype(self, base: DType) -> DType:
        return self.to


Retype = (AsReal, AsComplex, Conj, Bitcast)
Step = (
    Index
    | Permute
    | Expand
    | Reshape
    | Diagonal
    | Unfold
    | Strided
    | AsReal
    | AsComplex
    | Conj
    | Bitcast
)


def _regroup(base: Shape, to: Shape, at: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Index map of a reshape; groups of axes with equal products are handled apart, so that
    indices stay free of division where the shapes allow it."""
    if 1 in base or 1 in to:
        rest = _regroup(
            tuple(n for n in base if n != 1),
            tuple(n for n in to if n != 1),
            tuple(i for i, n in zip(at, to, strict=True) if n != 1),
        )
        found = iter(rest)
        return tuple(0 if n == 1 else next(found) for n in base)
    out: list[Dim] = []
    i = j = 0
    while i < len(base) or j < len(to):
        i2, j2 = min(i + 1, len(base)), min(j + 1, len(to))
        a, b = product(base[i:i2]), product(to[j:j2])
        while is_equal(a, b) is not True:
            if (isinstance(a, int) and isinstance(b, int) and a < b or j2 == len(to)) and i2 < len(
                base
            ):
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
