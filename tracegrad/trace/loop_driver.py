"""The iterators behind a `for` statement: one that makes nodes, one that counts copies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from tracegrad import dims
from tracegrad.dims import Dim, symbol
from tracegrad.trace.loop_code import LoopCode
from tracegrad.trace.loop_plan import Decision
from tracegrad.trace.modes import current_trace
from tracegrad.trace.symbolic import Unrollable, is_nonnegative

if TYPE_CHECKING:
    from tracegrad.trace.rolling import Rolling

FEWEST = 3  # iterations of a node


@dataclass(frozen=True, slots=True)
class Part:
    """Iterations from `first`: `trips` of the node, or `count` plain ones where `trips` is 0."""

    first: int
    count: Dim
    trips: Dim


class Driver:
    """Gives the body one symbolic element for each part of the domain that is a node."""

    def __init__(self, seq: Rolling, code: LoopCode, decision: Decision) -> None:
        self.seq = seq
        self.code = code
        self.decision = decision
        self.length = seq.length
        self.frame: FrameType | None = None
        self._steps = self._run()

    def __iter__(self) -> Driver:
        return self

    def __next__(self) -> Any:
        self.frame = sys._getframe(1)
        try:
            return next(self._steps)
        finally:
            self.frame = None

    def _parts(self) -> Iterator[Part]:
        n, p = self.length, self.decision.period
        edges = [0, *sorted(s for s in self.decision.splits if s > 0 and _is_below(s, n))]
        for first, end in zip(edges, [*edges[1:], n], strict=True):
            if not isinstance(end, int):
                if p > 1:
                    raise Unrollable("an inner loop of several iterations at a time depends on it")
                count = dims.add(end, -first)
                yield Part(first, count, count)
                continue
            trips = (end - first) // p
            if trips < FEWEST:
                yield Part(first, end - first, 0)
                continue
            yield Part(first, trips * p, trips)
            if first + trips * p < end:
                yield Part(first + trips * p, end - first - trips * p, 0)

    def _run(self) -> Iterator[Any]:
        from tracegrad.trace.loop_trial import Trial

        for part in self._parts():
            if part.trips == 0:
                assert isinstance(part.count, int), "only parts of known length are written out"
                for k in range(part.first, part.first + part.count):
                    yield self.seq.at(k)
                continue
            assert self.frame is not None
            trial = Trial(self, part, self.frame)
            at = symbol(trial.name, 0, dims.add(part.trips, -1))
            for q in range(self.decision.period):
                yield self.seq.at(dims.add(part.first + q, dims.mul(at, self.decision.period)))
            trial.close(self.frame)
            self.decision.rolled += dims.largest(part.count)


def _is_below(k: int, n: Dim) -> bool:
    """Whether iteration `k` is one of the `n`; splits a loop around it where its index decides."""
    return is_nonnegative(dims.add(n, -1 - k))


def copies(seq: Rolling, decision: Decision) -> Iterator[Any]:
    """The plain elements; counts iterations that put nodes into a trace."""
    for x in seq.plain():
        trace = current_trace()
        before = -1 if trace is None else trace.mark()
        yield x
        now = current_trace()
        if trace is not None and (now is not trace or trace.mark() != before):
            decision.plan.count_copy(decision)
