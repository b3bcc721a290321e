"""Flat geometry of views: offset, sizes and strides in elements, and what strides can express."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracegrad.dims import Dim, add, floordiv, is_at_most, is_divisible, is_equal, mul
from tracegrad.graph.steps import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Step,
    Strided,
    Unfold,
)
from tracegrad.types import Shape


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
            return Geometry(
                g.offset, tuple(g.size[a] for a in order), tuple(g.stride[a] for a in order)
            )
        case Expand(to=to):
            return Geometry(
                g.offset,
                to,
                tuple(0 if b != s else st for b, s, st in zip(g.size, to, g.stride, strict=True)),
            )
        case Reshape(to=to):
            cut = reshape_strides(g.size, g.stride, to)
            return None if cut is None else Geometry(g.offset, to, cut)
        case Diagonal(offset=o, axis1=a, axis2=b):
            start = add(mul(g.stride[a], max(0, -o)), mul(g.stride[b], max(0, o)))
            rest = [k for k in range(len(g.size)) if k not in (a, b)]
            return Geometry(
                add(g.offset, start),
                step.shape(g.size),
                (*(g.stride[k] for k in rest), add(g.stride[a], g.stride[b])),
            )
        case Unfold(axis=a, step=by):
            return Geometry(
                g.offset,
                step.shape(g.size),
                (*g.stride[:a], mul(g.stride[a], by), *g.stride[a + 1 :], g.stride[a]),
            )
        case Strided():
            return Geometry(step.offset, step.size, step.stride) if dense else None
        case Conj():
            return g
        case AsReal():
            return _finer(g, 2, (*g.size, 2), (1,))
        case AsComplex():
            return _coarser(g, 2, g.size[:-1], g.stride[:-1], g.stride[-1])
        case Bitcast(before=before, to=to):
            return _recast(g, step, before.nbytes, to.nbytes)
    raise AssertionError(step)


def _recast(g: Geometry, step: Bitcast, before: int, to: int) -> Geometry | None:
    if before == to:
        return g
    if g.size[-1] != 1 and g.stride[-1] != 1:
        return None
    size = step.shape(g.size)
    if before > to:
        finer = _finer(g, before // to, size, ())
        return Geometry(finer.offset, size, (*finer.stride[:-1], 1))
    coarser = _coarser(g, to // before, size[:-1], g.stride[:-1], 1)
    return coarser and Geometry(coarser.offset, size, (*coarser.stride, 1))


def _finer(g: Geometry, ratio: int, size: Shape, last: tuple[Dim, ...]) -> Geometry:
    """`g` counted in elements of which `ratio` make one of the old ones."""
    return Geometry(mul(g.offset, ratio), size, (*(mul(s, ratio) for s in g.stride), *last))


def _coarser(
    g: Geometry, ratio: int, size: Shape, stride: tuple[Dim, ...], last: Dim
) -> Geometry | None:
    """`g` counted in elements that `ratio` of the old ones make; None where they do not."""
    numbers = (g.offset, *(s for n, s in zip(size, stride, strict=True) if n != 1))
    if last != 1 or any(is_divisible(x, ratio) is not True for x in numbers):
        return None
    return Geometry(
        floordiv(g.offset, ratio),
        size,
        tuple(floordiv(s, ratio) if n != 1 else 1 for n, s in zip(size, stride, strict=True)),
    )


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
            if n == 1:
                out[axis] = at
            elif not (isinstance(left, int) and isinstance(n, int)):
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
    return tuple(out) if all(n == 1 for n in to[: axis + 1]) else None


@lru_cache(maxsize=65536)
def overlaps_itself(g: Geometry) -> bool:
    """Whether two index tuples share an address: exact by sorted strides or by enumeration; with
    sizes or strides that are expressions also where the opposite is not proved."""
    if any(n == 0 for n in g.size):
        return False
    given = [(s, n) for n, s in zip(g.size, g.stride, strict=True) if n != 1]
    axes = [(abs(s), n) for s, n in given if isinstance(s, int) and isinstance(n, int)]
    if len(axes) != len(given):
        return not _is_nested(given)
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
    addresses = np.zeros(1, dtype=np.int64)
    for s, n in axes:
        addresses = (addresses[:, None] + s * np.arange(n)).ravel()
    return len(np.unique(addresses)) < total


def _is_nested(axes: list[tuple[Dim, Dim]], reach: Dim = 0) -> bool:
    """Whether the axes, each a stride and a size, have an order in which every stride is certain
    to lead past all that the axes before it reach, which is `reach` at first."""
    if not axes:
        return True
    for k, (s, n) in enumerate(axes):
        step = s if is_at_most(0, s) else mul(s, -1)
        if is_at_most(add(reach, 1), step) and _is_nested(
            axes[:k] + axes[k + 1 :], add(reach, mul(add(n, -1), step))
        ):
            return True
    return False
