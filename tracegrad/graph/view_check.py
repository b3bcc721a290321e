"""Whether the steps of a view fit the base they are applied to; for graphs read from text."""

from __future__ import annotations

from tracegrad.dims import Dim, is_at_most, is_divisible, is_equal, product
from tracegrad.graph.storage import (
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
    Span,
    Step,
    Strided,
    Unfold,
    View,
)
from tracegrad.types import Shape


def misfit(view: View, base: Shape) -> str | None:
    """Why `view` cannot be taken of a base of this shape; None when it can, or when that is not
    decided because sizes are symbols."""
    shape = base
    for step in view.steps:
        if not _fits(step, shape):
            return f"{type(step).__name__.lower()} does not fit the shape {shape}"
        shape = step.shape(shape)
    return None


def _fits(step: Step, shape: Shape) -> bool:
    rank = len(shape)
    match step:
        case Index(items=items):
            axes = [i for i in items if not isinstance(i, NewAxis)]
            return len(axes) == rank and all(
                _within(i, n) for i, n in zip(axes, shape, strict=True)
            )
        case Permute(order=order):
            return sorted(order) == list(range(rank))
        case Expand(to=to):
            return len(to) == rank and all(
                n == 1 or is_equal(n, m) is not False for n, m in zip(shape, to, strict=True)
            )
        case Reshape(to=to):
            return is_equal(product(shape), product(to)) is not False
        case Diagonal(axis1=a, axis2=b):
            return a != b and 0 <= a < rank and 0 <= b < rank
        case Unfold(axis=axis, size=size, step=by):
            return 0 <= axis < rank and by > 0 and is_at_most(size, shape[axis]) is not False
        case Strided(size=size, stride=stride, offset=offset):
            ends = zip(size, stride, strict=False)
            last = offset + sum((n - 1) * s for n, s in ends)
            total = product(shape)
            is_inside = not isinstance(total, int) or 0 in size or last < total
            return len(size) == len(stride) and offset >= 0 and is_inside
        case AsReal() | Conj():
            return True
        case AsComplex():
            return rank > 0 and shape[-1] == 2
        case Bitcast(before=before, to=to):
            if before.nbytes == to.nbytes:
                return True
            ratio = max(1, to.nbytes // before.nbytes)
            return rank > 0 and is_divisible(shape[-1], ratio) is not False
    raise AssertionError(step)


def _within(item: Pick | Span, n: Dim) -> bool:
    if isinstance(item, Pick):
        return _inside(item.at, n)
    if item.size == 0:
        return True
    if not isinstance(item.size, int) or not isinstance(item.start, int):
        return True
    return _inside(item.start, n) and _inside(item.start + (item.size - 1) * item.step, n)


def _inside(at: Dim, n: Dim) -> bool:
    if isinstance(at, int) and isinstance(n, int):
        return 0 <= at < n
    return True
