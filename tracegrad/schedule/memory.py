"""Arena offsets for buffers that are not all alive at once.  Sizes and offsets are bytes."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64  # bytes; a cache line, and the widest vector


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` used by launches ``first..last`` (both inclusive)."""

    nbytes: int
    first: int
    last: int


def assign_offsets(lifetimes: Sequence[Lifetime], start: int = 0) -> tuple[list[int], int]:
    """An offset for each lifetime such that buffers alive together do not overlap.

    Best fit into the gaps that dead buffers left, in order of first use; returns the offsets and
    the arena's size.
    """
    offsets = [0] * len(lifetimes)
    order = sorted(range(len(lifetimes)), key=lambda k: (lifetimes[k].first, k))
    ends = sorted(order, key=lambda k: lifetimes[k].last)
    gaps = _Gaps(start)
    expired = 0
    for k in order:
        while expired < len(ends) and lifetimes[ends[expired]].last < lifetimes[k].first:
            dead = ends[expired]
            gaps.release(offsets[dead], padded(lifetimes[dead].nbytes))
            expired += 1
        offsets[k] = gaps.take(padded(lifetimes[k].nbytes))
    return offsets, gaps.top


def padded(nbytes: int) -> int:
    """The next multiple of `ALIGN`."""
    return max(ALIGN, -(-nbytes // ALIGN) * ALIGN)


class _Gaps:
    """Free ranges below `top`, merged, by offset."""

    def __init__(self, start: int) -> None:
        self.top = start
        self._free: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> int:
        best = None
        for k, (_, room) in enumerate(self._free):
            if room >= size and (best is None or room < self._free[best][1]):
                best = k
                if room == size:
                    break
        if best is None:
            offset = self.top
            if self._free and sum(self._free[-1]) == self.top:
                offset, _ = self._free.pop()
            self.top = offset + size
            return offset
        offset, room = self._free.pop(best)
        if room > size:
            bisect.insort(self._free, (offset + size, room - size))
        return offset

    def release(self, offset: int, size: int) -> None:
        k = bisect.bisect(self._free, (offset, size))
        if k < len(self._free) and self._free[k][0] == offset + size:
            size += self._free.pop(k)[1]
        if k and sum(self._free[k - 1]) == offset:
            offset, size = self._free[k - 1][0], self._free[k - 1][1] + size
            k -= 1
            self._free.pop(k)
        self._free.insert(k, (offset, size))
