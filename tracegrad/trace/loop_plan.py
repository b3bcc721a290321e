"""What a trace knows of its loops, kept while it starts again.

A loop on trial writes what it learns into its `Decision`; the whole trace then runs again, so
that nothing a failed trial put into lists and objects survives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar, NoReturn

from tracegrad import dims, source
from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.errors import PerformanceWarning, TracegradError, UnsupportedError
from tracegrad.trace.frames import ABSENT, callers
from tracegrad.trace.loop_places import find
from tracegrad.trace.loop_reach import Path
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import STATE
from tracegrad.trace.symbolic import Retrace, Unrollable

LONGEST = 20_000  # copies of a body in a trace, where a loop is not possible
CROWD = 32  # copies of the body of a short loop, met inside others, from which it is one loop
MANY = 1_000  # copies of a body that are worth a warning
RESTARTS = 400  # after which every loop is unrolled


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a scalar carry."""

    dtype: DType
    weak: bool


@dataclass(slots=True)
class Learned:
    """What trials showed of the iterations from one number on, by slot (a name, or a leaf of the
    container in it).

    `scalars` and `arrays` are carried by value; `lost` are not carried, though they had a value
    before the loop; `counters` are integers that grow by so much in
    each iteration, from what they are on entry (which may differ each time the loop is met);
    `containers` are taken apart; `more` are names that change without being stored by the body's
    own code; `promoted` are known arrays (shape, dtype, place) that the body writes.
    """

    scalars: dict[str, Kind] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    tracked: set[str] = field(default_factory=set)
    counters: dict[str, int] = field(default_factory=dict)
    containers: set[str] = field(default_factory=set)
    more: dict[str, None] = field(default_factory=dict)
    promoted: set[Any] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Decision:
    """What is known of one `for` statement.

    `splits` are iteration numbers at which the domain is cut; `period` copies of the body make
    one iteration of the node.  `strict`: it must roll.  `parallel`: on threads.  `invented`: it
    made traced values of numbers that Python would know after the loop, or left names behind that
    hold nothing.  `places` lead to items and attributes that the body changes.
    `runs`: names that it sets are used behind it, so that a loop around it splits where it would
    not run.  `crowded`: it is short, but there would be many copies of its body.
    """

    counts: ClassVar[bool] = True  # its iterations are counted while tracing

    plan: Plan
    line: source.SourceLoc
    strict: bool = False
    parallel: bool = False
    unroll: str = ""
    splits: set[Dim] = field(default_factory=set)
    period: int = 1
    learned: dict[Dim, Learned] = field(default_factory=dict)
    places: dict[Path, None] = field(default_factory=dict)
    trials: int = 0
    rolled: Dim = 0
    invented: bool = False
    runs: bool = False
    crowded: bool = False
    copies: int = 0

    def at(self, first: Dim) -> Learned:
        return self.learned.setdefault(first, Learned())

    def again(self) -> NoReturn:
        self.trials += 1
        self.plan.pending = True
        raise Retrace

    def give_up(self, reason: str) -> NoReturn:
        """Unroll from the next trial on; refuse where it must roll."""
        self.unroll = reason
        if self.strict:
            self.refuse()
        self.again()

    def refuse(self) -> NoReturn:
        raise UnsupportedError(
            f"this loop cannot be one loop of the graph: {self.unroll}",
            kind="loop",
            loc=self.line,
            remedy="Change the body so that every iteration does the same to the same names, or "
            "let it unroll: range instead of tg.range, loops='auto' instead of 'roll'.",
        )

    def split(self, points: tuple[Dim, ...]) -> NoReturn:
        new = set(points) - self.splits
        numbers = sum(isinstance(p, int) for p in self.splits | new)
        if not new or numbers > 10 or len(self.splits | new) > 40:
            self.give_up("its branches would cut it into too many parts")
        self.splits |= new
        self.again()

    def never_skip(self) -> NoReturn:
        """Names that it sets are used behind it: it must run once at least."""
        if self.runs:
            self.give_up("names that it sets are used behind it, and it may not run")
        self.runs = True
        self.again()

    def peel(self, first: Dim, why: str) -> NoReturn:
        """Run the iterations ``first ..`` of one node once before it; give up after three."""
        p, edges = self.period, self.splits | {0}
        if {dims.add(first, -k * p) for k in range(3)} <= edges:
            self.give_up(why)
        self.split((dims.add(first, p),))

    def repeat(self, period: int) -> NoReturn:
        if self.period % period == 0 or self.period * period > 16:
            self.give_up("a remainder of the index decides")
        self.period *= period
        self.learned.clear()
        self.again()

    def note(self) -> str:
        """What became of the loop, for `explain()`; empty if it was not met in the end."""
        if self.rolled:
            parts = len(self.splits) + 1
            extra = f", split into {parts} parts" if parts > 1 else ""
            extra += f", {self.period} iterations at a time" if self.period > 1 else ""
            extra += ", parallel" if self.parallel else ""
            most = "" if isinstance(self.rolled, int) else "at most "
            return f"one loop for {most}{dims.largest(self.rolled)} iterations{extra}"
        if self.copies:
            why = f", since {self.unroll}" if self.unroll else ""
            return f"unrolled into {self.copies} copies{why}"
        return ""

    def check_rest(self) -> None:
        if self.trials > 60:
            self.give_up("its state does not come to rest")


@dataclass(slots=True, eq=False)
class Plan:
    """The decisions of one trace, by `for` statement, call path and types on entry.

    `pending`: a trial learned something, whatever user code made of the exception.  `undo`
    takes back what traced code did to objects outside; `watched` are containers there, with their
    contents when they were first read.
    """

    loops: str = "auto"
    max_unrolled: int | None = None
    decisions: dict[Any, Decision] = field(default_factory=dict)
    places: dict[Any, dict[Path, None]] = field(default_factory=dict)
    pending: bool = False
    restarts: int = 0
    undo: list[Callable[[], None]] = field(default_factory=list)
    watched: list[tuple[Any, Any]] = field(default_factory=list)
    _warned: bool = False
    _visits: dict[source.SourceLoc, int] = field(default_factory=dict)

    def decision(self, frame: FrameType, kind: type[Decision] = Decision) -> Decision:
        path = tuple(
            (f.f_code.co_filename, f.f_code.co_qualname, f.f_code.co_firstlineno, f.f_lasti)
            for f in callers(frame)
        )
        kinds = tuple((n, _kind(v)) for n, v in sorted(frame.f_locals.items()))
        key: Any = (kind, path, kinds)
        places = self.places.setdefault(key, {})
        if places:
            key = (*key, tuple(_kind_at(frame, p) for p in places))
        found = self.decisions.get(key)
        if found is None:
            found = self.decisions[key] = kind(self, source.of_frame(frame))
            found.strict = self.loops == "roll"
            found.places = places
        return found

    def start_again(self) -> None:
        """Take back side effects; called between two trials."""
        for action in reversed(self.undo):
            action()
        self.undo.clear()
        for raw, held in self.watched:
            restore(raw, held)
        self.watched.clear()
        self._visits.clear()
        self.pending = False
        self.restarts += 1
        for d in self.decisions.values():
            d.copies = d.rolled = 0
        if self.restarts > RESTARTS:
            self.loops = "unroll"

    def failed(self, error: Exception) -> bool:
        """Whether to start again because of a loop that was on trial, or left less than Python
        would have: the innermost open one, else all those, unroll the next time."""
        for trace in reversed(STATE.traces):
            if trace.loop is not None and getattr(trace.loop.decision, "counts", True):
                decision: Decision = trace.loop.decision
                if decision.strict or dims.largest(trace.loop.length) > LONGEST:
                    return False
                what = error.message if isinstance(error, TracegradError) else str(error)
                what = what.splitlines()[0] if what else type(error).__name__
                decision.unroll = f"tracing its body once failed ({what})"
                return True
        again = [d for d in self.decisions.values() if d.invented and d.rolled and not d.unroll]
        for d in again:
            d.unroll = "what follows needs a value from it while tracing"
        return bool(again) and not any(d.strict for d in again)

    def check_closed(self, own: Any) -> None:
        """Start again when a loop of trace `own` is still open: an exception left it."""
        trace = STATE.traces[-1]
        if trace is not own and trace.loop is not None:
            trace.loop.decision.give_up("an exception leaves it")

    def count_copy(self, decision: Decision) -> None:
        """One more unrolled iteration put nodes into the trace."""
        decision.copies += 1
        if decision.copies > CROWD and not decision.crowded and not decision.unroll:
            decision.crowded = True
            if self.loops != "unroll":
                decision.again()
        if self.max_unrolled is not None and decision.copies > self.max_unrolled:
            self._too_many(
                decision, f"max_unrolled={self.max_unrolled} allows", "raise max_unrolled"
            )
        if decision.copies > LONGEST and self.loops != "unroll":
            self._too_many(decision, f"{LONGEST} allow", "take fewer iterations")
        if decision.copies == MANY + 1 and not self._warned and self.loops != "unroll":
            self._warned = True
            why = f", since {decision.unroll}" if decision.unroll else ""
            source.warn(
                PerformanceWarning(
                    f"more than {MANY} copies of this loop's body are in the trace{why}; write it "
                    "so that every iteration does the same to the same names"
                )
            )

    def count_visit(self, loc: source.SourceLoc) -> None:
        """One more time that an expression put nodes into the trace."""
        n = self._visits[loc] = self._visits.get(loc, 0) + 1
        if n == MANY + 2 and not self._warned and self.loops != "unroll":
            self._warned = True
            source.warn(
                PerformanceWarning(
                    f"more than {MANY} copies of this line's nodes are in the trace; a for "
                    "statement over range(n) can be one loop, and so are tg.fori_loop, tg.scan "
                    "and, where values decide when to stop, tg.while_loop"
                )
            )

    def _too_many(self, decision: Decision, what: str, remedy: str) -> NoReturn:
        why = f": it is unrolled, since {decision.unroll}" if decision.unroll else ""
        raise UnsupportedError(
            f"more copies of this loop's body than {what}{why}",
            kind="loop",
            loc=decision.line,
            remedy=f"Write the body so that it can be one loop, or {remedy}.",
        )

    def notes(self) -> tuple[str, ...]:
        """A line for each loop, for `explain()`."""
        out: dict[str, None] = {}
        for d in self.decisions.values():
            note = d.note()
            if note:
                out[f"{d.line.file.rsplit('/', 1)[-1]}:{d.line.line}: {note}"] = None
        return tuple(out)


def restore(raw: Any, held: Any) -> None:
    """Give a list, dictionary or set the contents of `held`."""
    raw.clear()
    raw.extend(held) if isinstance(raw, list) else raw.update(held)


def _kind(x: Any) -> Any:
    """The part of a local name's type that decides how a loop carries it."""
    if isinstance(x, Tracer):
        return x.scalar, x.weak, x.sizes, x.element_type, x.concrete is None
    return type(x).__qualname__  # classes of traced code are made anew for each trace


def _kind_at(frame: FrameType, path: Path) -> Any:
    place, _ = find(frame, path)
    return _kind(ABSENT if place is None else place.read())


def open_loop(name: str) -> Open:
    """The open loop whose index has this name."""
    for trace in reversed(STATE.traces):
        if trace.loop is not None and trace.loop.name == name:
            return Open(trace.loop)
    raise Unrollable("the index of a loop that is over decides")


@dataclass(frozen=True, slots=True)
class Open:
    trial: Any

    def split(self, points: tuple[Dim, ...]) -> NoReturn:
        """Cut the domain at these values of the node's index."""
        decision: Decision = self.trial.decision
        first, period = self.trial.part.first, decision.period
        decision.split(tuple(dims.add(first, dims.mul(x, period)) for x in points))

    def repeat(self, period: int) -> NoReturn:
        decision: Decision = self.trial.decision
        decision.repeat(period)
