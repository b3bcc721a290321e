"""Questions about two views of one base: do they read a common element?"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np

from tracegrad.dims import Dim, add, is_at_most, mul
from tracegrad.graph.array_views import flat_positions
from tracegrad.graph.storage import Index, Pick, Retype, Span, View
from tracegrad.graph.symbols import symbols_of
from tracegrad.types import Shape

_ENUMERATE = 1 << 14  # elements of a base up to which regions are compared one by one


@lru_cache(maxsize=65536)
def are_disjoint(a: View, b: View, base: Shape) -> bool:
    """True when it is certain that no element of the base is read by both views."""
    if a.steps and b.steps:
        first, second = a.steps[0], b.steps[0]
        if isinstance(first, Index) and isinstance(second, Index):
            if _index_disjoint(first, second):
                return True
            if len(a.steps) == len(b.steps) == 1:
                return False
    if not all(isinstance(n, int) for n in base) or any(
        isinstance(s, Retype) or symbols_of(s) for s in (*a.steps, *b.steps)
    ):
        return False
    if int(np.prod(base)) > _ENUMERATE:  # type: ignore[arg-type]
        return False
    both = np.intersect1d(flat_positions(a, base), flat_positions(b, base))  # type: ignore[arg-type]
    return both.size == 0


def _index_disjoint(a: Index, b: Index) -> bool:
    """Rectangles are disjoint when on some axis their index sets are."""
    axes_a = [i for i in a.items if isinstance(i, (Pick, Span))]
    axes_b = [i for i in b.items if isinstance(i, (Pick, Span))]
    return any(_items_disjoint(x, y) for x, y in zip(axes_a, axes_b, strict=True))


def _items_disjoint(a: Pick | Span, b: Pick | Span) -> bool:
    x, y = _progression(a), _progression(b)
    if x is None or y is None:
        (lo1, hi1), (lo2, hi2) = _ends(a), _ends(b)
        return is_at_most(add(hi1, 1), lo2) is True or is_at_most(add(hi2, 1), lo1) is True
    (lo1, hi1, s1), (lo2, hi2, s2) = x, y
    if lo1 > hi1 or lo2 > hi2:
        return True  # empty
    step = gcd(s1, s2)
    return hi1 < lo2 or hi2 < lo1 or (step > 0 and (lo1 - lo2) % step != 0)


def _ends(item: Pick | Span) -> tuple[Dim, Dim]:
    """The lowest and the highest index taken."""
    if isinstance(item, Pick):
        return item.at, item.at
    last = add(item.start, mul(add(item.size, -1), item.step))
    return (item.start, last) if item.step > 0 else (last, item.start)


def _progression(item: Pick | Span) -> tuple[int, int, int] | None:
    """(lowest, highest, distance) of the indices taken; None when they are symbolic."""
    if isinstance(item, Pick):
        return (item.at, item.at, 0) if isinstance(item.at, int) else None
    if not (isinstance(item.start, int) and isinstance(item.size, int)):
        return None
    last = item.start + (item.size - 1) * item.step
    if item.size == 0:
        return 1, 0, 1
    return min(item.start, last), max(item.start, last), abs(item.step)
