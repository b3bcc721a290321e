"""Sequences whose `for` statement may become one `loop` node of the graph.

``range``, ``enumerate``, ``zip``, ``reversed`` and the rows of a traced array give an element for
each iteration number, which may be the symbolic index of a node.  Everywhere else (comprehensions,
``list(...)``, unpacking) they are what they are in Python, with plain integers.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import FrameType
from typing import Any

from tracegrad import dims, source
from tracegrad.dims import Dim
from tracegrad.errors import ArgumentError, UnsupportedError
from tracegrad.graph.storage import Index, Pick, Span
from tracegrad.trace.counted import counted_range, is_traced
from tracegrad.trace.loop_code import loop_of
from tracegrad.trace.loop_driver import Driver, copies
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.promote import trace_of
from tracegrad.trace.symbolic import (
    SymbolicInt,
    Unrollable,
    integer,
    is_nonnegative,
)
from tracegrad.trace.symbolic_index import trips

SHORT = 8  # trips below which copies of the body cost less than a loop, unless it is met often


class Demand(IntEnum):
    """What a sequence asks of its `for` statement; where two meet, the greater one."""

    NOTHING = 0
    LOOP = 1  # it is one loop of the graph
    PARALLEL = 2  # and its iterations run on threads


class Rolling:
    """`length` elements, made by ``at(k)`` for an int or an index expression `k`.

    `length` may depend on the index of a loop around it; then it rolls or that loop unrolls.
    Like the iterators that it stands for it gives each element once.
    """

    __slots__ = ("length", "at", "strict", "_plain", "_started")

    def __init__(
        self,
        length: Dim,
        at: Callable[[Dim], Any],
        *,
        strict: Demand = Demand.NOTHING,
        plain: Callable[[], Iterator[Any]] | None = None,
    ) -> None:
        self.length = length
        self.at = at
        self.strict = strict
        self._plain = plain
        self._started: Iterator[Any] | None = None

    def plain(self) -> Iterator[Any]:
        if not isinstance(self.length, int):
            raise Unrollable("an inner loop that unrolls depends on its index")
        return (self.at(k) for k in range(self.length)) if self._plain is None else self._plain()

    def __iter__(self) -> Iterator[Any]:
        if self._started is None:
            self._started = iterate(self, sys._getframe(1))
        elif isinstance(self._started, Driver):
            self._started.check_ended()
        return self._started

    def __next__(self) -> Any:
        """``next(enumerate(...))``: an iterator that has been started by hand is a plain one."""
        if self._started is None:
            self._started = self.plain()
        elif isinstance(self._started, Driver):
            self._started.check_ended()
        return next(self._started)

    def take(self) -> Rolling | None:
        """The elements as a part of another sequence; None once it has been started."""
        if self._started is not None:
            return None
        self._started = _taken()
        return Rolling(self.length, self.at, strict=self.strict, plain=self._plain)


def _taken() -> Iterator[Any]:
    raise UnsupportedError(
        "an iterator is used after enumerate, zip, map or iter took it",
        kind="loop",
        loc=source.here(),
        remedy="Make a second one: enumerate(...), zip(...).",
    )
    yield


def iterate(seq: Rolling, frame: FrameType) -> Iterator[Any]:
    """The iterator of a `for` statement in `frame` over `seq`, or a plain one elsewhere."""
    trace = current_trace()
    plan = None if trace is None else trace.rolling
    if plan is None:
        return seq.plain()
    code = loop_of(frame)
    if code is None:
        return seq.plain()
    if (
        not isinstance(seq.length, int)
        and plan.decision(frame).runs
        and not is_nonnegative(dims.add(seq.length, -1))
    ):
        return iter(())
    unrolls = plan.loops == "unroll"
    strict = (seq.strict > Demand.NOTHING or plan.loops == "roll") and not unrolls
    if isinstance(seq.length, int) and seq.length < (3 if strict else SHORT):
        short = None if seq.length < 2 else plan.decision(frame)
        if short is None or seq.length < 3 or not short.crowded or short.unroll or unrolls:
            return seq.plain() if short is None else copies(seq, short)
    decision = plan.decision(frame)
    decision.strict |= strict
    decision.parallel |= seq.strict is Demand.PARALLEL
    if not unrolls and not decision.unroll:
        decision.unroll = code.reason or _advanced(frame, code.loaded)
        if strict and decision.unroll:
            decision.refuse()
    if unrolls or decision.unroll:
        return copies(seq, decision)
    return Driver(seq, code, decision)


def _advanced(frame: FrameType, loaded: frozenset[str]) -> str:
    """The reason why a body that reads an iterator from before the loop cannot be a loop."""
    for name, value in frame.f_locals.items():
        if name in loaded and hasattr(type(value), "__next__"):
            return f"it advances the iterator {name}"
    return ""


class RollingRange:
    """What ``range(...)`` is in traced code."""

    __slots__ = ("real", "strict")

    def __init__(self, real: range, strict: Demand = Demand.NOTHING) -> None:
        self.real = real
        self.strict = strict

    def rolling(self) -> Rolling:
        real = self.real

        def at(k: Dim) -> Any:
            return integer(dims.add(real.start, dims.mul(k, real.step)))

        return Rolling(len(real), at, strict=self.strict, plain=lambda: iter(real))

    def __iter__(self) -> Iterator[Any]:
        return iterate(self.rolling(), sys._getframe(1))

    def __reversed__(self) -> Rolling:
        return RollingRange(self.real[::-1], self.strict).rolling()

    def __getitem__(self, at: Any) -> Any:
        found = self.real[at]
        return RollingRange(found, self.strict) if isinstance(found, range) else found

    def __len__(self) -> int:
        return len(self.real)

    def __contains__(self, x: object) -> bool:
        return any(x == k for k in self.real) if isinstance(x, SymbolicInt) else x in self.real

    def __eq__(self, other: object) -> bool:
        return self.real == (other.real if isinstance(other, RollingRange) else other)

    def __hash__(self) -> int:
        return hash(self.real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __repr__(self) -> str:
        return repr(self.real)


class SymbolicRange:
    """``range(...)`` whose bounds depend on the index of a loop around it."""

    __slots__ = ("first", "step", "length", "strict")

    def __init__(self, first: Dim, step: int, length: Dim, strict: Demand) -> None:
        self.first, self.step, self.length, self.strict = first, step, length, strict

    def rolling(self) -> Rolling:
        def at(k: Dim) -> Any:
            return integer(dims.add(self.first, dims.mul(k, self.step)))

        return Rolling(self.length, at, strict=self.strict)

    def __iter__(self) -> Iterator[Any]:
        return iterate(self.rolling(), sys._getframe(1))

    def __reversed__(self) -> Rolling:
        last = dims.add(self.first, dims.mul(dims.add(self.length, -1), self.step))
        return SymbolicRange(last, -self.step, self.length, self.strict).rolling()

    def __getattr__(self, name: str) -> Any:
        raise Unrollable(f"it takes .{name} of a range that depends on its index")

    def __len__(self) -> int:
        raise Unrollable("it takes the length of a range that depends on its index")

    def __getitem__(self, at: Any) -> Any:
        raise Unrollable("it takes an element of a range that depends on its index")

    def __contains__(self, x: object) -> bool:
        raise Unrollable("it looks for a number in a range that depends on its index")


def rolling_range(*args: Any, strict: Demand = Demand.NOTHING) -> Any:
    """``range`` as traced code sees it."""
    if 1 <= len(args) <= 3 and any(map(is_traced, args)):
        if strict is Demand.PARALLEL:
            raise UnsupportedError(
                "a loop on threads needs bounds that are known while tracing",
                kind="loop",
                loc=source.here(),
                remedy="Leave out parallel=True, or pass the number as a Python int.",
            )
        return counted_range(*args)
    if not any(isinstance(x, SymbolicInt) for x in args) or not 1 <= len(args) <= 3:
        return RollingRange(range(*args), strict)
    ends = [x.dim if isinstance(x, SymbolicInt) else operator.index(x) for x in args]
    first, end = (0, ends[0]) if len(ends) == 1 else ends[:2]
    step = ends[2] if len(ends) == 3 else 1
    if not isinstance(step, int):
        raise Unrollable("the step of a range depends on its index")
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    gap = dims.mul(dims.add(end, dims.mul(first, -1)), 1 if step > 0 else -1)
    length = trips(gap)
    if length == 0:
        return RollingRange(range(0), strict)
    count = dims.floordiv(dims.add(length, abs(step) - 1), abs(step))
    return SymbolicRange(first, step, count, strict)


def explicit_range(*args: Any, parallel: bool = False) -> Any:
    """``tg.range(start, stop, step)``: a range whose `for` statement must be one loop of the graph.

    Like ``range`` outside traced functions.  The bounds may be traced integers.  Where a body
    cannot be one loop (the error names the variable and the reason), ``range`` would unroll it.
    With `parallel` the iterations run on threads (`Options.threads`) and give what they give in
    order: it is proved that no iteration reads or writes what another one writes.

    Raises:
        UnsupportedError: in the loop, a body that cannot roll; when it is compiled, iterations of
            a parallel loop that depend on each other.
        ArgumentError: arguments that are no integers, or `parallel` that is no bool.
    """
    if type(parallel) is not bool:
        raise ArgumentError(f"parallel must be True or False, not {parallel!r}", loc=source.here())
    strict = Demand.PARALLEL if parallel else Demand.LOOP
    dynamic = any(isinstance(x, SymbolicInt) or is_traced(x) for x in args)
    if current_trace() is not None and dynamic:
        return rolling_range(*args, strict=strict)
    try:
        real = range(*args)
    except TypeError as e:
        raise ArgumentError(str(e), loc=source.here()) from None
    return real if current_trace() is None else RollingRange(real, strict)


# ------------------------------------------------------------------- what builds on sequences


def sequence(x: Any) -> Rolling | None:
    """`x` as a sequence that may roll: a range, the rows of a traced array, or made of those."""
    if isinstance(x, (RollingRange, SymbolicRange)):
        return x.rolling()
    if isinstance(x, Rolling):
        return x.take()
    if isinstance(x, Tracer) and x.sizes and current_trace() is not None:
        return rows(x)
    return None


def rows(x: Any) -> Rolling:
    """The elements of the first axis of a traced array; of a Tensor they are those that its
    ``unbind`` gives, as in PyTorch."""
    if x.numpy_scalars:
        return Rolling(x.sizes[0], lambda k: x[integer(k)])

    def row(k: Dim) -> Any:
        step = Index((Pick(k), *(Span(0, n) for n in x.sizes[1:])))
        return trace_of(x).view(x, step, origin="unbind", output=k if isinstance(k, int) else 0)

    return Rolling(x.sizes[0], row)


def rolling_reversed(x: Any) -> Any:
    """``reversed`` as traced code sees it."""
    seq = sequence(x) if isinstance(x, (RollingRange, SymbolicRange, Tracer)) else None
    if seq is None:
        return builtins.reversed(x)
    if isinstance(x, (RollingRange, SymbolicRange)):
        return x.__reversed__()
    last = dims.add(seq.length, -1)
    return Rolling(seq.length, lambda k: seq.at(dims.add(last, dims.mul(k, -1))))


def rolling_enumerate(iterable: Any, start: Any = 0) -> Any:
    """``enumerate`` as traced code sees it."""
    seq = sequence(iterable) if type(start) is int else None
    if seq is None:
        return builtins.enumerate(iterable, start)
    return Rolling(
        seq.length,
        lambda k: (integer(dims.add(start, k)), seq.at(k)),
        strict=seq.strict,
        plain=lambda: builtins.enumerate(seq.plain(), start),
    )


def rolling_zip(*iterables: Any, strict: bool = False) -> Any:
    """``zip`` as traced code sees it; rolls when every part of it could."""
    parts = _together(iterables)
    if parts is None or (strict and len({s.length for s in parts}) > 1):
        return builtins.zip(*(parts or iterables), strict=strict)
    return Rolling(
        _shortest([s.length for s in parts]),
        lambda k: tuple(s.at(k) for s in parts),
        strict=max(s.strict for s in parts),
        plain=lambda: builtins.zip(*[s.plain() for s in parts], strict=False),
    )


def rolling_map(function: Callable[..., Any], *iterables: Any) -> Any:
    """``map`` as traced code sees it; rolls when every one of `iterables` could."""
    parts = _together(iterables)
    if parts is None:
        return builtins.map(function, *iterables)
    return Rolling(
        _shortest([s.length for s in parts]),
        lambda k: function(*[s.at(k) for s in parts]),
        strict=max(s.strict for s in parts),
        plain=lambda: builtins.map(function, *[s.plain() for s in parts]),
    )


def rolling_iter(*args: Any) -> Any:
    """``iter`` as traced code sees it."""
    if len(args) != 1 or isinstance(args[0], Rolling):
        return args[0] if len(args) == 1 else builtins.iter(*args)
    found = sequence(args[0])
    return builtins.iter(args[0]) if found is None else found


def _together(iterables: tuple[Any, ...]) -> list[Rolling] | None:
    """Each as a sequence that may roll; None where one of them is none, or there are none."""
    if not iterables or not all(map(_may_roll, iterables)):
        return None
    found = [sequence(x) for x in iterables]
    return [s for s in found if s is not None]


def _may_roll(x: Any) -> bool:
    if isinstance(x, Rolling):
        return x._started is None
    return isinstance(x, (RollingRange, SymbolicRange)) or (
        isinstance(x, Tracer) and bool(x.sizes) and current_trace() is not None
    )


def _shortest(lengths: list[Dim]) -> Dim:
    best = lengths[0]
    for n in lengths[1:]:
        best = best if is_nonnegative(dims.add(n, dims.mul(best, -1))) else n
    return best
