"""Python `for` statements over `range` that become one `loop` node.

The body runs once, with a symbolic index, in a nested trace that is open between two calls of the
iterator.  Names that the body binds receive carries in the caller's frame before it runs and the
results afterwards.  What the first trial shows to be wrong (a type that grows, an array that is
rebound, an index that wraps only at first) is written into the loop's `Decision`, and the whole
trace starts again; a loop that cannot be one node is unrolled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from tracegrad import dims, source
from tracegrad.dims import Dim
from tracegrad.errors import TracegradError, UnsupportedError
from tracegrad.trace.loop_code import LoopCode, loop_of
from tracegrad.trace.modes import STATE, current_trace
from tracegrad.trace.symbolic import Retrace, Unrollable, integer

SHORT = 8  # trips below which copies of the body cost less than a loop
LONGEST = 20_000  # trips that are unrolled where a loop is not possible


@dataclass(slots=True)
class Kind:
    """The type of a scalar carry."""

    dtype: Any
    weak: bool
    tracked: bool


@dataclass(slots=True)
class Decision:
    """What is known of one `for` statement, kept from trial to trial of a trace.

    `splits` are iteration numbers at which the domain is cut; `period` copies of the body make
    one iteration of the node; `scalars` and `arrays` are names carried by value.
    """

    unroll: str = ""
    splits: set[int] = field(default_factory=set)
    period: int = 1
    scalars: dict[str, Kind] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    tracked: set[str] = field(default_factory=set)
    trials: int = 0
    line: source.SourceLoc | None = None
    rolled: bool = False

    def give_up(self, reason: str) -> Any:
        self.unroll = reason
        raise Retrace

    def split(self, points: tuple[int, ...]) -> Any:
        new = set(points) - self.splits
        if not new or len(self.splits | new) > 8:
            self.give_up("its branches would cut it into too many parts")
        self.splits |= new
        raise Retrace

    def repeat(self, period: int) -> Any:
        if self.period % period == 0 or self.period * period > 16:
            self.give_up("a remainder of the index decides")
        self.period *= period
        raise Retrace


@dataclass(slots=True, eq=False)
class Plan:
    """The decisions of one trace, by code and place of the `for`; kept while it starts again."""

    loops: str = "auto"
    decisions: dict[tuple[CodeType, int], Decision] = field(default_factory=dict)
    restarts: int = 0

    def decision(self, frame: FrameType) -> Decision:
        key = (frame.f_code, frame.f_lasti)
        found = self.decisions.get(key)
        if found is None:
            found = self.decisions[key] = Decision(line=source.of_frame(frame))
        return found

    def notes(self) -> tuple[str, ...]:
        """A line for each loop, for `explain()`."""
        out = []
        for d in self.decisions.values():
            where = f"{d.line.file}:{d.line.line}" if d.line is not None else "a loop"
            if d.unroll:
                out.append(f"{where}: unrolled, since {d.unroll}")
            elif d.rolled:
                parts = len(d.splits) + 1
                extra = f", split into {parts} parts" if parts > 1 else ""
                extra += f", {d.period} iterations at a time" if d.period > 1 else ""
                out.append(f"{where}: one loop{extra}")
        return tuple(out)


class RollingRange:
    """What ``range(...)`` is in traced code: a range whose `for` statement may become a node."""

    __slots__ = ("real",)

    def __init__(self, real: range) -> None:
        self.real = real

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        trace = current_trace()
        plan = None if trace is None else trace.rolling
        if plan is None or plan.loops == "unroll" or len(self.real) < SHORT:
            return iter(self.real)
        code = loop_of(frame)
        if code is None:
            return iter(self.real)
        decision = plan.decision(frame)
        if code.reason and not decision.unroll:
            decision.unroll = code.reason
        if decision.unroll:
            _check_length(decision, len(self.real))
            return iter(self.real)
        return _Driver(self.real, code, decision)

    def __reversed__(self) -> RollingRange:
        return RollingRange(self.real[::-1])

    def __getitem__(self, at: Any) -> Any:
        found = self.real[at]
        return RollingRange(found) if isinstance(found, range) else found

    def __len__(self) -> int:
        return len(self.real)

    def __contains__(self, x: object) -> bool:
        return x in self.real

    def __eq__(self, other: object) -> bool:
        return self.real == (other.real if isinstance(other, RollingRange) else other)

    def __hash__(self) -> int:
        return hash(self.real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __repr__(self) -> str:
        return repr(self.real)


def rolling_range(*args: Any) -> Any:
    """``range`` as traced code sees it."""
    return RollingRange(range(*args))


def rolling_reversed(x: Any) -> Any:
    """``reversed`` as traced code sees it."""
    return x.__reversed__() if isinstance(x, RollingRange) else reversed(x)


def _check_length(decision: Decision, trips: int) -> None:
    if trips > LONGEST:
        raise UnsupportedError(
            f"a loop of {trips} iterations cannot be one loop of the graph, since "
            f"{decision.unroll}", kind="loop", loc=decision.line,
            remedy="Write the body so that it can, or take fewer iterations.")


@dataclass(frozen=True, slots=True)
class _Part:
    """Iterations ``first .. first + trips*period - 1`` as one node, or plainly (`trips` 0)."""

    first: int
    count: int
    trips: int


class _Driver:
    """The iterator behind one `for` statement."""

    def __init__(self, real: range, code: LoopCode, decision: Decision) -> None:
        self.real = real
        self.code = code
        self.decision = decision
        self._steps = self._run()
        self.frame: FrameType | None = None

    def __iter__(self) -> _Driver:
        return self

    def __next__(self) -> Any:
        self.frame = sys._getframe(1)
        try:
            return next(self._steps)
        finally:
            self.frame = None

    def _parts(self) -> Iterator[_Part]:
        n, p = len(self.real), self.decision.period
        edges = [0, *sorted(s for s in self.decision.splits if 0 < s < n), n]
        for first, end in zip(edges, edges[1:], strict=False):
            trips = (end - first) // p
            if trips < 3:
                yield _Part(first, end - first, 0)
                continue
            yield _Part(first, trips * p, trips)
            if first + trips * p < end:
                yield _Part(first + trips * p, end - first - trips * p, 0)

    def _run(self) -> Iterator[Any]:
        from tracegrad.trace.loop_trial import Trial

        for part in self._parts():
            if not part.trips:
                yield from self.real[part.first:part.first + part.count]
                continue
            assert self.frame is not None
            self.decision.rolled = True
            trial = Trial(self, part, self.frame)
            for q in range(self.decision.period):
                yield trial.index(q)
            trial.close(self.frame)

    def number(self, part: _Part, at: Dim, q: int) -> Any:
        """The element of the range at iteration ``part.first + at*period + q``."""
        k = dims.add(part.first + q, dims.mul(at, self.decision.period))
        return integer(dims.add(self.real.start, dims.mul(k, self.real.step)))


def open_loop(name: str) -> _Open:
    """The open loop whose index has this name."""
    for trace in reversed(STATE.traces):
        if trace.loop is not None and trace.loop.name == name:
            return _Open(trace.loop)
    raise Unrollable("the index of a loop that is over decides")


@dataclass(frozen=True, slots=True)
class _Open:
    trial: Any

    def split(self, points: tuple[int, ...]) -> Any:
        """Cut the domain at these values of the node's index."""
        part, decision = self.trial.part, self.trial.decision
        decision.split(tuple(part.first + x * decision.period for x in points))

    def repeat(self, period: int) -> Any:
        self.trial.decision.repeat(period)


def failed(error: BaseException) -> bool:
    """Called when a trace fails: whether to start again because a loop was on trial.

    The innermost open loop is unrolled the next time, unless it is too long for that.
    """
    for trace in reversed(STATE.traces):
        if trace.loop is None:
            continue
        decision: Decision = trace.loop.decision
        if isinstance(error, Unrollable):
            decision.unroll = str(error)
            return True
        if trace.loop.length > LONGEST:
            return False
        what = error.message if isinstance(error, TracegradError) else str(error)
        decision.unroll = f"tracing its body once failed ({what.splitlines()[0] if what else ''})"
        return True
    return False
