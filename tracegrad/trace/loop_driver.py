"""The iterators behind a `for` statement: one that makes nodes, one that counts copies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from tracegrad import dims
from tracegrad.dims import Dim
from tracegrad.trace.loop_code import LoopCode
from tracegrad.trace.loop_plan import Decision
from tracegrad.trace.modes import STATE, current_trace
from tracegrad.trace.symbolic import Unrollable, is_nonnegative

if TYPE_CHECKING:
    from tracegrad.trace.rolling import Rolling

FEWEST = 3  # iterations of a node


@dataclass(frozen=True, slots=True)
class Part:
    """Iterations from `first`: `trips` of the node, or `count` plain ones where `trips` is 0."""

    first: Dim
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
        self._ended = False

    def __iter__(self) -> Driver:
        return self

    def __next__(self) -> Any:
        self.frame = sys._getframe(1)
        try:
            return next(self._steps)
        except StopIteration:
            self._ended = True
            raise
        finally:
            self.frame = None

    def check_ended(self) -> None:
        """Unroll where the body takes elements by hand, as ``next(...)`` does."""
        if not self._ended:
            self.decision.give_up("its body advances the iterator")

    def _parts(self) -> Iterator[Part]:
        p = self.decision.period
        edges = self._edges()
        for first, end in zip(edges, edges[1:], strict=False):
            count = dims.add(end, dims.mul(first, -1))
            if not isinstance(count, int):
                if p > 1:
                    raise Unrollable("an inner loop of several iterations at a time depends on it")
                yield Part(first, count, count)
                continue
            trips = count // p
            if trips < FEWEST:
                yield Part(first, count, 0)
                continue
            yield Part(first, trips * p, trips)
            if trips * p < count:
                yield Part(dims.add(first, trips * p), count - trips * p, 0)

    def _edges(self) -> list[Dim]:
        """The ends of the parts, in order; a loop around this one splits where it decides."""
        now = {s for t in STATE.traces if t.loop is not None for s in dims.symbols(t.loop.index)}
        edges: list[Dim] = [0, self.length]
        splits = [s for s in self.decision.splits if dims.symbols(s) <= now]
        for at in sorted(splits, key=lambda s: (not isinstance(s, int), repr(s))):
            k = 0
            while k < len(edges) and _is_at_most(edges[k], at):
                k += 1
            if 0 < k < len(edges) and edges[k - 1] != at:
                edges.insert(k, at)
        return edges

    def _run(self) -> Iterator[Any]:
        from tracegrad.trace.loop_trial import Trial

        for part in self._parts():
            if part.trips == 0:
                assert isinstance(part.count, int), "only parts of known length are written out"
                for k in range(part.count):
                    yield self.seq.at(dims.add(part.first, k))
                continue
            assert self.frame is not None
            trial = Trial(self, part, self.frame)
            at = trial.index
            for q in range(self.decision.period):
                first = dims.add(part.first, q)
                yield self.seq.at(dims.add(first, dims.mul(at, self.decision.period)))
            trial.close(self.frame)
            self.decision.rolled = dims.add(self.decision.rolled, part.count)


def _is_at_most(a: Dim, b: Dim) -> bool:
    """Whether ``a <= b``, or one may be in front of the other; a loop around it splits where its
    index decides."""
    gap = dims.add(b, dims.mul(a, -1))
    return dims.is_at_most(gap, 0) is not True and is_nonnegative(gap) or gap == 0


def copies(seq: Rolling, decision: Decision) -> Iterator[Any]:
    """The plain elements; counts iterations that put nodes into a trace."""
    for x in seq.plain():
        trace = current_trace()
        before = -1 if trace is None else trace.mark()
        yield x
        now = current_trace()
        if trace is not None and (now is not trace or trace.mark() != before):
            decision.plan.count_copy(decision)
