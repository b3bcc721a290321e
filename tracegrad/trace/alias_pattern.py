"""Arguments that share memory: found at every call, traced as views of one array.

A *position* numbers the leaves of a call and then the arrays captured outside.  When one of
several arrays that have an element in common is written, they form a `Group`: one synthetic base
(the array among them that contains the others, else the smallest run of elements that covers
them) and, for each of them, the view that it is.  The groups are the alias pattern of a call: a
specialisation that writes arrays fits only calls of its own pattern.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.errors import ArgumentError
from tracegrad.graph.geometry import overlaps_itself
from tracegrad.graph.storage import (
    Geometry,
    View,
    dense_strides,
)
from tracegrad.types import TensorType
from tracegrad.views.between import view_between

_PAIRWISE = 256  # pairs up to which arrays are compared one by one
_WORK = 100_000  # steps of the exact test before two arrays count as sharing


@dataclass(frozen=True, slots=True)
class Member:
    """One array of a group: `view` leads from the base to it, `offset` is where it starts, in
    bytes from the start of the base."""

    position: int
    view: View
    offset: int


@dataclass(frozen=True, slots=True)
class Group:
    """Arrays that share memory.  `strides` are the base's, in bytes; `root` is the position of
    the array that is the base, None when the base is a run of elements made for the call."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Hashable
    root: int | None
    members: tuple[Member, ...]

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, dtypes.of(self.dtype))  # type: ignore[arg-type]

    @property
    def layout(self) -> tuple[int, ...]:
        """Strides of the base in elements; row-major where bytes do not divide."""
        width = np.dtype(self.dtype).itemsize  # type: ignore[call-overload]
        if any(s % width for s in self.strides):
            return dense_strides(self.shape)  # type: ignore[return-value]
        return tuple(s // width for s in self.strides)

    def base(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The base of this call, an array over the memory of the caller's arrays."""
        mine = [arrays[m.position] for m in self.members]
        writable = any(x.flags.writeable for x in mine)
        if self.root is not None and arrays[self.root].flags.writeable == writable:
            return arrays[self.root]
        start = _address(mine[0]) - self.members[0].offset
        return np.asarray(_Run(start, self.shape, self.strides, mine, writable))

    def store(self, arrays: Sequence[np.ndarray], contents: np.ndarray) -> None:
        """Copy the new contents of the base to the caller's memory, the gaps of a run excepted."""
        from tracegrad.graph.array_views import apply_view

        for m in self.members:
            if arrays[m.position].flags.writeable:
                arrays[m.position][...] = apply_view(m.view, contents)


class _Run:
    """Memory of other arrays, which it keeps alive, as NumPy's array interface."""

    def __init__(
        self,
        start: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        keep: list[np.ndarray],
        writable: bool,
    ) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": keep[0].dtype.str,
            "data": (start, not writable),
        }


# -------------------------------------------------------------------------------- detection


def find_groups(
    arrays: Sequence[Any], written: Collection[int], names: Sequence[str] = ()
) -> tuple[Group, ...]:
    """The groups of a call in which the arrays at the positions `written` are written.

    An array whose own elements share memory is a group of one.  Arrays whose ranges of
    addresses meet but that have no element in common stay apart.

    Raises:
        ArgumentError: kind ``aliasing_args``, arrays of different dtypes, or offset by a part of
            an element, share memory that is written.
    """
    if not written:
        return ()
    spots = [k for k, x in enumerate(arrays) if isinstance(x, np.ndarray) and x.size]
    sets = {k: {k} for k in spots}
    grouped: set[int] = {k for k in spots if k in written and _overlaps_itself(arrays[k])}
    for i, j in _pairs(arrays, spots, written):
        if sets[i] is not sets[j] and _shares(arrays[i], arrays[j]):
            grouped |= {i, j}
            joined = sets[i] | sets[j]
            for k in joined:
                sets[k] = joined
    out: dict[int, Group] = {}
    for k in sorted(grouped):
        if k not in {m.position for g in out.values() for m in g.members}:
            group = _close(arrays, spots, sorted(sets[k]), names)
            # A run's gaps may have brought in what was a group of its own.
            inside = {m.position for m in group.members}
            out = {n: g for n, g in out.items() if not inside & {m.position for m in g.members}}
            out[k] = group
    return tuple(out.values())


def _close(
    arrays: Sequence[Any], spots: Sequence[int], members: list[int], names: Sequence[str]
) -> Group:
    """The group of `members`, and of what lies in the gaps of their base."""
    while True:
        group = _group(arrays, members, names)
        if group.root is not None:
            return group
        base = group.base(arrays)
        more = [k for k in spots if k not in members and _shares(base, arrays[k])]
        if not more:
            return group
        members = sorted([*members, *more])


def _pairs(
    arrays: Sequence[Any], spots: Sequence[int], written: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of positions, one of them written, whose ranges of addresses meet."""
    mine = [k for k in spots if k in written]
    if len(mine) * len(spots) <= _PAIRWISE:
        for i in mine:
            for j in spots:
                if i != j and np.may_share_memory(arrays[i], arrays[j]):
                    yield i, j
        return
    ranges = sorted((*_bounds(arrays[k]), k) for k in spots)
    open_: list[tuple[int, int]] = []
    for low, high, k in ranges:
        open_ = [(end, j) for end, j in open_ if end > low]
        for _, j in open_:
            if k in written or j in written:
                yield k, j
        open_.append((high, k))


def _bounds(x: np.ndarray) -> tuple[int, int]:
    """First address of an array and the address behind its last byte."""
    return np.lib.array_utils.byte_bounds(x)


def _address(x: np.ndarray) -> int:
    """Where the first element lies."""
    return int(x.__array_interface__["data"][0])


def _shares(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have a byte in common; True where finding out takes too long, since
    arrays of one group may be apart."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(x: np.ndarray) -> bool:
    if x.flags.c_contiguous or x.flags.f_contiguous:
        return False
    return overlaps_itself(Geometry(0, x.shape, x.strides))


# ------------------------------------------------------------------------------- the base


def _group(arrays: Sequence[Any], members: Sequence[int], names: Sequence[str]) -> Group:
    first = arrays[members[0]]
    if any(arrays[k].dtype != first.dtype for k in members):
        raise _refused("arrays of different dtypes", members, names)
    for root in sorted(members, key=lambda k: -arrays[k].size):
        base = arrays[root]
        if base.size == max(arrays[k].size for k in members) and not _overlaps_itself(base):
            found = _members(arrays, members, _address(base), base.shape, base.strides)
            if found is not None:
                return Group(base.shape, base.strides, first.dtype, root, found)
    return _run(arrays, members, names)


def _run(arrays: Sequence[Any], members: Sequence[int], names: Sequence[str]) -> Group:
    """A group over the shortest run of equally distant elements that covers its members."""
    bounds = [_bounds(arrays[k]) for k in members]
    start = min(low for low, _ in bounds)
    width = arrays[members[0]].itemsize
    unit = 0
    for k, (low, _) in zip(members, bounds, strict=True):
        unit = gcd(
            unit,
            low - start,
            *(s for s, n in zip(arrays[k].strides, arrays[k].shape, strict=True) if n > 1),
        )
    unit = unit or width
    if unit < width:
        raise _refused("arrays offset by a part of an element", members, names)
    shape = ((max(high for _, high in bounds) - start - width) // unit + 1,)
    found = _members(arrays, members, start, shape, (unit,))
    assert found is not None, "every member lies in the run"
    return Group(shape, (unit,), arrays[members[0]].dtype, None, found)


def _members(
    arrays: Sequence[Any],
    members: Sequence[int],
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> tuple[Member, ...] | None:
    """Each array as a view of a base; None when one of them is none."""
    out = []
    for k in members:
        view = view_between(
            shape, strides, _address(arrays[k]) - start, arrays[k].shape, arrays[k].strides
        )
        if view is None:
            return None
        out.append(Member(k, view, _address(arrays[k]) - start))
    return tuple(out)


def _refused(what: str, members: Sequence[int], names: Sequence[str]) -> ArgumentError:
    listed = ", ".join(names[k] if k < len(names) else f"argument {k}" for k in members)
    return ArgumentError(
        f"{listed}: {what} share memory, and one of them is written",
        kind="aliasing_args",
        remedy="Pass a copy of one of them.",
    )


# ---------------------------------------------------------------------------------- copies


def copy_together(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Writable copies that share memory among each other as the arrays do, layouts kept."""
    made: dict[int, np.ndarray] = {}
    for low, high, inside in _clusters(arrays):
        if len(inside) == 1 and arrays[inside[0]].flags.c_contiguous:
            continue
        shift = low % 64
        room = np.empty(high - low + shift + 64, np.uint8)
        begin = -_address(room) % 64 + shift
        source = np.asarray(_Run(low, (high - low,), (1,), [np.empty(0, np.uint8)], False))
        room[begin : begin + high - low] = source
        for k in inside:
            x = arrays[k]
            made[k] = np.ndarray(x.shape, x.dtype, room, begin + _address(x) - low, x.strides)
    return [made[k] if k in made else x.copy() for k, x in enumerate(arrays)]


def _clusters(arrays: Sequence[np.ndarray]) -> Iterator[tuple[int, int, list[int]]]:
    """Ranges of addresses that arrays cover together, and the arrays in each."""
    low = high = -1
    inside: list[int] = []
    for a, b, k in sorted((*_bounds(x), k) for k, x in enumerate(arrays) if x.size):
        if a >= high and inside:
            yield low, high, inside
            inside = []
        if not inside:
            low, high = a, b
        high = max(high, b)
        inside.append(k)
    if inside:
        yield low, high, inside
