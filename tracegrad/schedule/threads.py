"""Where the buffers of a loop on threads live: sections of the arena, one for each thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracegrad.dims import largest
from tracegrad.graph.ir import Value
from tracegrad.loops.program import Buffer, HostLoop, Place, Workers
from tracegrad.ops.control import Parallel
from tracegrad.schedule.memory import Lifetime, assign_offsets, padded
from tracegrad.schedule.parallel import chunks_of, dependences, refuse

Span = Sequence[int]  # first and last launch


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """Memory of one loop from launch `first` to `last`: buffers of one thread at these offsets,
    `nbytes` for all threads; or, with `parts`, one buffer."""

    first: int
    last: int
    nbytes: int
    offsets: Mapping[Value, int] = field(default_factory=dict)
    parts: Buffer | None = None


class Threads:
    """Decides for each loop whether it runs on up to `most` threads, and keeps what that needs.

    `notes` say it for `explain()`.  While `inside` is set a loop stands in another one that runs
    on threads, and runs in order.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside = False
        self.sections: list[Section] = []
        self.notes: list[str] = []

    def arranged(
        self,
        loop: HostLoop,
        asked: Parallel,
        span: Span,
        private: Mapping[Value, Span],
        buffers: Mapping[Value, Buffer],
        names: Mapping[str, str],
        reason: str = "",
    ) -> tuple[HostLoop, bool]:
        """`loop`, which runs at launches `span`, with its workers, or as it is; and whether its
        iterations are independent (so that loops inside it run in order at any thread count).

        `private` are the values that an iteration makes for itself, with the launches at which
        they live, `names` those of buffers in the user's code.  With a `reason` it runs in order.
        Raises UnsupportedError for a
        loop that must run on threads and cannot.
        """
        by_name = {b.name: b for b in buffers.values()}
        own = {buffers[v].name for v in private}
        found = dependences(loop.var, loop.trips, loop.body, own)
        if asked is Parallel.REQUIRED and found.conflicts:
            refuse(loop, found.conflicts[0], by_name[found.conflicts[0].one.buffer], names)
        chosen = chunks_of(loop.trips, found, by_name, names)
        if not reason:
            reason = "the loop around it runs on threads" if self.inside else chosen.reason
        kind = "loop" if asked is Parallel.REQUIRED else "derivative loop"
        where = "" if loop.loc is None else f"{loop.loc.file.rsplit('/', 1)[-1]}:{loop.loc.line}: "
        if reason:
            self.notes.append(f"{where}a {kind} that runs in order: {reason}")
            return loop, False
        threads = min(self.most, chosen.number)
        sums = f", sums {', '.join(names.get(s, s) for s in chosen.sums)}" if chosen.sums else ""
        self.notes.append(
            f"{where}a parallel {kind}: {chosen.number} chunks{sums}, up to {threads} threads"
        )
        stride = self._section(span, private, threads)
        parts = tuple((s, self._parts(span, by_name[s], chosen.number)) for s in chosen.sums)
        workers = Workers(chosen.number, threads, stride, tuple(sorted(own)), parts)
        return replace(loop, workers=workers), True

    def _section(self, span: Span, private: Mapping[Value, Span], threads: int) -> int:
        """Room for the private buffers of all threads; returns the bytes of one."""
        lives = [Lifetime(nbytes(v), a, b) for v, (a, b) in private.items()]
        offsets, stride = assign_offsets(lives)
        if private:
            at = dict(zip(private, offsets, strict=True))
            self.sections.append(Section(span[0], span[1], stride * threads, at))
        return stride

    def _parts(self, span: Span, total: Buffer, chunks: int) -> str:
        assert isinstance(total.size, int)
        # Each part begins a cache line, since threads add to neighbouring ones at once.
        size = chunks * (padded(total.size * total.dtype.nbytes) // total.dtype.nbytes)
        name = f"{total.name}_parts{len(self.sections)}"
        made = Buffer(name, total.dtype, size, Place.ARENA, shape=(size,), hint=name)
        self.sections.append(Section(span[0], span[1], size * total.dtype.nbytes, parts=made))
        return name

    def place(
        self, spans: Mapping[Value, Span], start: int
    ) -> tuple[dict[Value, int], list[Buffer], int]:
        """Offsets of the values that live in the arena, buffers of parts, the arena's size."""
        elsewhere = {v for s in self.sections for v in s.offsets}
        shared = [v for v in spans if v not in elsewhere]
        lives = [Lifetime(nbytes(v), *spans[v]) for v in shared]
        lives += [Lifetime(s.nbytes, s.first, s.last) for s in self.sections]
        offsets, size = assign_offsets(lives, start)
        at = dict(zip(shared, offsets, strict=False))
        parts: list[Buffer] = []
        for s, base in zip(self.sections, offsets[len(shared) :], strict=True):
            at.update((v, base + offset) for v, offset in s.offsets.items())
            if s.parts is not None:
                parts.append(replace(s.parts, index=len(spans) + len(parts), offset=base))
        return at, parts, size


def nbytes(x: Value) -> int:
    """The bytes of a value's buffer."""
    return largest(x.type.size) * x.dtype.nbytes
