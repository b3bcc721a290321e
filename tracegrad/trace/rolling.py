"""Sequences whose `for` statement may become one `loop` node of the graph.

``range``, ``enumerate``, ``zip``, ``reversed`` and the rows of a traced array give an element for
each iteration number, which may be the symbolic index of a node.  Everywhere else (comprehensions,
``list(...)``, unpacking) they are what they are in Python, with plain integers.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tracegrad import dims, source
from tracegrad.dims import Dim
from tracegrad.errors import ArgumentError, UnsupportedError
from tracegrad.trace.loop_code import loop_of
from tracegrad.trace.loop_driver import Driver, copies
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.symbolic import SymbolicInt, Unrollable, integer

SHORT = 8  # trips below which copies of the body cost less than a loop


class Rolling:
    """`length` elements, made by ``at(k)`` for an int or an index expression `k`."""

    __slots__ = ("length", "at", "strict", "_plain", "_started")

    def __init__(
        self,
        length: int,
        at: Callable[[Dim], Any],
        *,
        strict: bool = False,
        plain: Callable[[], Iterator[Any]] | None = None,
    ) -> None:
        self.length = length
        self.at = at
        self.strict = strict
        self._plain = plain
        self._started: Iterator[Any] | None = None

    def plain(self) -> Iterator[Any]:
        return (self.at(k) for k in range(self.length)) if self._plain is None else self._plain()

    def __iter__(self) -> Iterator[Any]:
        if self._started is not None:
            return self._started
        return iterate(self, sys._getframe(1))

    def __next__(self) -> Any:
        """``next(enumerate(...))``: an iterator that has been started by hand is a plain one."""
        if self._started is None:
            self._started = self.plain()
        return next(self._started)


def iterate(seq: Rolling, frame: FrameType) -> Iterator[Any]:
    """The iterator of a `for` statement in `frame` over `seq`, or a plain one elsewhere."""
    trace = current_trace()
    plan = None if trace is None else trace.rolling
    if plan is None:
        return seq.plain()
    code = loop_of(frame)
    if code is None:
        return seq.plain()
    unrolls = plan.loops == "unroll"
    strict = (seq.strict or plan.loops == "roll") and not unrolls
    if seq.length < (3 if strict else SHORT):
        return seq.plain() if seq.length < 2 else copies(seq, plan.decision(frame))
    decision = plan.decision(frame)
    decision.strict |= strict
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

    def __init__(self, real: range, strict: bool = False) -> None:
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


def rolling_range(*args: Any) -> Any:
    """``range`` as traced code sees it."""
    for x in args:
        _check_bound(x)
    return RollingRange(range(*args))


def explicit_range(*args: Any, parallel: bool = False) -> Any:
    """``tg.range(start, stop, step)``: a range whose `for` statement must be one loop of the graph.

    Like ``range`` outside traced functions.  Where a body cannot be one loop (the error names the
    variable and the reason), ``range`` would unroll it.

    Raises:
        UnsupportedError: ``parallel=True``, which is not available yet, and, in the loop, a body
            that cannot roll.
        ArgumentError: arguments that are no integers.
    """
    if parallel:
        raise UnsupportedError(
            "tg.range(parallel=True) is not available yet",
            loc=source.here(),
            remedy="Leave parallel out: the loop runs its iterations in order.",
        )
    for x in args:
        _check_bound(x)
    try:
        real = range(*args)
    except TypeError as e:
        raise ArgumentError(str(e), loc=source.here()) from None
    return real if current_trace() is None else RollingRange(real, strict=True)


# ------------------------------------------------------------------- what builds on sequences


def sequence(x: Any) -> Rolling | None:
    """`x` as a sequence that may roll: a range, the rows of a traced array, or made of those."""
    if isinstance(x, RollingRange):
        return x.rolling()
    if isinstance(x, Rolling):
        return x if x._started is None else None
    if isinstance(x, Tracer) and x.shape and current_trace() is not None:
        return rows(x)
    return None


def rows(x: Any) -> Rolling:
    """The elements of the first axis of a traced array."""
    return Rolling(x.shape[0], lambda k: x[integer(k)])


def rolling_reversed(x: Any) -> Any:
    """``reversed`` as traced code sees it."""
    seq = sequence(x) if isinstance(x, (RollingRange, Tracer)) else None
    if seq is None:
        return builtins.reversed(x)
    if isinstance(x, RollingRange):
        return x.__reversed__()
    last = seq.length - 1
    return Rolling(seq.length, lambda k: seq.at(dims.add(last, dims.mul(k, -1))))


def rolling_enumerate(iterable: Any, start: Any = 0) -> Any:
    """``enumerate`` as traced code sees it."""
    seq = sequence(iterable)
    if seq is None or type(start) is not int:
        return builtins.enumerate(iterable, start)
    return Rolling(
        seq.length,
        lambda k: (integer(dims.add(start, k)), seq.at(k)),
        strict=seq.strict,
        plain=lambda: builtins.enumerate(seq.plain(), start),
    )


def rolling_zip(*iterables: Any, strict: bool = False) -> Any:
    """``zip`` as traced code sees it; rolls when every part of it could."""
    found = [sequence(x) for x in iterables]
    if (
        not found
        or any(s is None for s in found)
        or (strict and len({s.length for s in found if s is not None}) > 1)
    ):
        return builtins.zip(
            *[x.plain() if isinstance(x, Rolling) else x for x in iterables], strict=strict
        )
    parts: list[Rolling] = [s for s in found if s is not None]
    return Rolling(
        min(s.length for s in parts),
        lambda k: tuple(s.at(k) for s in parts),
        strict=any(s.strict for s in parts),
        plain=lambda: builtins.zip(*[s.plain() for s in parts], strict=False),
    )


def _check_bound(x: Any) -> None:
    """A bound of ``range`` that depends on an index unrolls the loop of that index."""
    if isinstance(x, SymbolicInt):
        raise Unrollable("the number of iterations of an inner loop depends on its index")
