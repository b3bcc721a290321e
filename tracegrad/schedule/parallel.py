"""Which loops may run on threads, and in which form.

The check looks at the finished steps of a loop, so it holds whatever the passes before it did:
two iterations ``i`` and ``i + 1 + d`` may not touch a common element of a buffer that one of them
writes.  Buffers that live within one iteration do not count: each thread gets its own.  A buffer
that iterations only add to (the cotangent of an array that they all read) is a sum, in chunks
whose number follows from sizes alone: the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from tracegrad.dims import Dim, Expr, Monomial, Symbol, add, bounds, mul, of_atom
from tracegrad.errors import Location, UnsupportedError
from tracegrad.loops.program import Buffer, HostLoop, Step
from tracegrad.schedule.accesses import How, Touch, touches

CHUNKS = 64  # of one loop; what is left over at the end is a small part of it
MOST_PARTS = 4 << 20  # bytes that the parts of all sums of a loop may take


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two iterations touch `one` and `other`, perhaps the same element of a buffer."""

    one: Touch
    other: Touch

    @property
    def is_sum(self) -> bool:
        return self.one.how is How.ADD and self.other.how is How.ADD


@dataclass(frozen=True, slots=True)
class Dependences:
    """What stands between the iterations of a loop: `sums` are buffers that they only add to
    (with the number of additions of an iteration, None if not known)."""

    conflicts: tuple[Conflict, ...]
    sums: Mapping[str, int | None]


def dependences(var: Symbol, trips: Dim, body: Sequence[Step], own: Collection[str]) -> Dependences:
    """Between any two iterations; each has its own buffers `own`."""
    last = add(trips, -2)
    now = Symbol("a.iteration", 0, last)
    gap = Symbol("b.gap", 0, add(last, mul(of_atom(now), -1)))
    at = of_atom(now)
    then = add(add(at, 1), of_atom(gap))
    early = _by_buffer(touches(body, {var.name: at}, "a."), own)
    late = _by_buffer(touches(body, {var.name: then}, "b."), own)
    conflicts: list[Conflict] = []
    sums: dict[str, int | None] = {}
    for name, found in early.items():
        pairs = _conflicts(found, late[name])
        if all(t.how is How.ADD for t in found):
            if pairs:
                times = [t.times for t in found]
                sums[name] = None if None in times else sum(filter(None, times))
                conflicts.append(pairs[0])
        elif pairs:
            conflicts.append(pairs[0])
    return Dependences(tuple(conflicts), sums)


def _by_buffer(found: Sequence[Touch], own: Collection[str]) -> dict[str, list[Touch]]:
    out: dict[str, list[Touch]] = {}
    for t in found:
        if t.buffer not in own:
            out.setdefault(t.buffer, []).append(t)
    return out


def _conflicts(early: Sequence[Touch], late: Sequence[Touch]) -> list[Conflict]:
    """Pairs that may meet; those that say most about the user's program first."""
    if all(t.how is How.READ for t in early):
        return []
    proved: dict[tuple[Dim, Dim], bool] = {}
    found = []
    for a in early:
        for b in late:
            if a.how is How.READ and b.how is How.READ:
                continue
            key = a.index, b.index
            if key not in proved:
                proved[key] = never_zero(add(a.index, mul(b.index, -1)))
            if not proved[key]:
                found.append(Conflict(a, b))
    # What is written before it is read is set anew by each iteration, and not carried.
    carried = early[0].how is How.READ
    return sorted(found, key=lambda c: (How.READ in (c.one.how, c.other.how)) is not carried)


def never_zero(d: Dim) -> bool:
    """Whether `d` is certainly not 0 anywhere in its symbols' ranges.

    Where ``d == s*q + r`` with ``abs(r) < s``, d is 0 only if q and r are: an index into an array
    of rows of s elements is taken apart into row and column.
    """
    if isinstance(d, int):
        return d != 0
    lo, hi = bounds(d)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return True
    terms = {m: c for m, c in d.terms if m}
    constant = dict(d.terms).get((), 0)
    step = gcd(*terms.values())
    if step > 1 and constant % step:
        return True
    for s in sorted({abs(c) for c in terms.values()} - {1}, reverse=True):
        rows = {m: (c + s // 2) // s for m, c in terms.items()}
        columns = {m: c - s * rows[m] for m, c in terms.items()}
        lo, hi = bounds(add(_sum(columns), constant))
        if lo is None or hi is None:
            continue
        for k in range(-((s - 1 - hi) // s), (s - 1 + lo) // s + 1):
            if never_zero(add(_sum(rows), k)) or never_zero(add(_sum(columns), constant - s * k)):
                return True
    return False


def _sum(terms: Mapping[Monomial, int]) -> Dim:
    live = tuple((m, c) for m, c in terms.items() if c)
    return add(Expr(live), 0) if live else 0


# ------------------------------------------------------------------------------------- chunks


@dataclass(frozen=True, slots=True)
class Chunks:
    """How many chunks a loop has and which buffers are sums; none where `reason` says why."""

    number: int = 0
    sums: tuple[str, ...] = ()
    reason: str = ""


def chunks_of(
    trips: Dim, found: Dependences, buffers: Mapping[str, Buffer], names: Mapping[str, str]
) -> Chunks:
    """The chunks of a loop with these dependences; `names` are those of the user."""
    for c in found.conflicts:
        if not c.is_sum or c.one.buffer not in found.sums:
            return Chunks(reason=describe(c, names))
    number = min(CHUNKS, trips) if isinstance(trips, int) else CHUNKS
    most = bounds(trips)[1]
    total = 0
    for name, times in found.sums.items():
        b = buffers[name]
        if not b.dtype.is_float:
            return Chunks(reason=f"{names.get(name, name)} is a sum of integers")
        if not isinstance(b.size, int) or most is None or times is None:
            return Chunks(reason=f"the size of the sum {names.get(name, name)} is not known")
        # Parts cost an addition for each element: at most half of what the iterations add.
        number = min(number, most * times // (2 * max(1, b.size)))
        total += b.size * b.dtype.nbytes
    number = min(number, MOST_PARTS // total) if total else number
    if number < 2 and not found.sums:
        return Chunks(reason="it has one iteration")
    if number < 2:
        shown = ", ".join(names.get(name, name) for name in found.sums)
        return Chunks(reason=f"parts of the sum {shown} would cost more than they gain")
    # A power of two, so that the parts are added in pairs of equal weight.
    number = 1 << (number.bit_length() - 1) if found.sums else number
    return Chunks(number, tuple(found.sums))


def describe(c: Conflict, names: Mapping[str, str]) -> str:
    """The conflict in words."""
    name = names.get(c.one.buffer, c.one.buffer)
    if c.is_sum:
        return f"{name} is a sum over the iterations"
    if How.READ in (c.one.how, c.other.how):
        return f"an iteration may read what another one writes in {name}"
    if c.one.index == 0 and c.other.index == 0:
        return f"every iteration sets {name}, which is used behind the loop"
    return f"two iterations may write the same element of {name}"


def refuse(loop: HostLoop, c: Conflict, buffer: Buffer, names: Mapping[str, str]) -> None:
    """Raise what the user is told of a loop that has to run on threads and cannot."""
    name = names.get(c.one.buffer, c.one.buffer)
    if c.is_sum:
        remedy = (
            f"Store the terms, terms[i] = ..., and add them up behind the loop: "
            f"{name} = {name} + np.sum(terms, axis=0)"
        )
    elif not buffer.shape and How.READ not in (c.one.how, c.other.how):
        remedy = f"Use {name} inside the loop only, and store what is needed behind it in an array"
    elif not buffer.shape:
        remedy = f"Make {name} anew in each iteration, from arrays and the index"
    else:
        remedy = (
            f"Let iteration i write elements of its own, such as {name}[i], and read other "
            "elements from an array that the loop does not write"
        )
    first = c.one if c.one.how is not How.READ else c.other
    notes: list[tuple[str, Location | None]] = []
    other = c.other if first is c.one else c.one
    if other.loc is not None and other.loc != first.loc:
        notes.append((f"and {other.how.value} here:", other.loc))
    notes.append(("the loop:", loop.loc))
    raise UnsupportedError(
        f"the iterations of this parallel loop depend on each other: {describe(c, names)}",
        kind="parallel",
        loc=first.loc or loop.loc,
        notes=tuple(notes),
        remedy=f"{remedy}; or leave parallel=True out: the iterations then run in order.",
    )
