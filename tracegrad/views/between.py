"""The view that leads from one strided array to another over the same memory."""

from __future__ import annotations

import numpy as np

from tracegrad.graph.storage import (
    Index,
    Item,
    NewAxis,
    Permute,
    Pick,
    Span,
    Strided,
    View,
    dense_strides,
)


def view_between(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    size: tuple[int, ...],
    by: tuple[int, ...],
) -> View | None:
    """The view from a base of `shape` and `strides` to elements ``offset + i * by`` of shape
    `size`; None when there is none.  All distances in one unit (bytes, here)."""
    if (
        size == shape
        and offset == 0
        and all(n == 1 or s == t for n, s, t in zip(shape, strides, by, strict=True))
    ):
        return View()
    found = _indexed(shape, strides, offset, size, by)
    return found if found is not None else _strided(shape, strides, offset, size, by)


def _indexed(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    size: tuple[int, ...],
    by: tuple[int, ...],
) -> View | None:
    """Basic indexing and a permutation of axes."""
    axes = sorted((k for k, n in enumerate(shape) if n > 1), key=lambda k: -abs(strides[k]))
    # Axes that run backwards are counted from their other end.
    left = offset - sum((shape[k] - 1) * strides[k] for k in axes if strides[k] < 0)
    start: dict[int, int] = {}
    for k in axes:
        if strides[k] == 0:
            return None
        start[k] = min(left // abs(strides[k]), shape[k] - 1)
        left -= start[k] * abs(strides[k])
    if left or any(at < 0 for at in start.values()):
        return None
    taken: dict[int, tuple[int, int]] = {}
    for m, (n, t) in enumerate(zip(size, by, strict=True)):
        if n == 1:
            continue
        at = next(
            (
                k
                for k in axes
                if k not in taken
                and t
                and t % strides[k] == 0
                and 0 <= start[k] + (n - 1) * (t // abs(strides[k])) < shape[k]
            ),
            None,
        )
        if at is None:
            return None
        taken[at] = m, t // abs(strides[at])
    items: list[Item] = []
    for k, n in enumerate(shape):
        at = start.get(k, 0)
        at = n - 1 - at if strides[k] < 0 and n > 1 else at
        if k not in taken:
            items.append(Pick(at))
        else:
            m, step = taken[k]
            items.append(Span(at, size[m], step if strides[k] > 0 else -step))
    order = [taken[k][0] for k in sorted(taken)]
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    spread: tuple[Item, ...] = tuple(NewAxis() if n == 1 else Span(0, n) for n in size)
    return View().then(Index(tuple(items)), Permute(back), Index(spread), base=shape)


def _strided(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    size: tuple[int, ...],
    by: tuple[int, ...],
) -> View | None:
    """``as_strided`` over a base whose row-major elements are equally distant."""
    unit = min((abs(s) for n, s in zip(shape, strides, strict=True) if n > 1), default=1)
    dense = dense_strides(shape)
    if any(
        n > 1 and s != d * unit  # type: ignore[operator]
        for n, s, d in zip(shape, strides, dense, strict=True)
    ):
        return None
    by = tuple(t if n > 1 else 0 for n, t in zip(size, by, strict=True))
    if offset % unit or any(t % unit for t in by):
        return None
    first = (offset + sum((n - 1) * t for n, t in zip(size, by, strict=True) if t < 0)) // unit
    last = (offset + sum((n - 1) * t for n, t in zip(size, by, strict=True) if t > 0)) // unit
    if first < 0 or last >= int(np.prod(shape)):
        return None
    return View((Strided(size, tuple(t // unit for t in by), offset // unit),))
