"""``range`` with bounds that are known only when the function runs: a `while` node.

The number of iterations is computed in front of the loop, the index in the body is a traced
integer.  Nothing may depend on how many iterations there are: none runs apart, and what only the
body binds has no value behind it.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, ClassVar, NoReturn

from tracegrad import dims, source
from tracegrad.dims import Dim, symbol
from tracegrad.dtypes import I64
from tracegrad.errors import ArgumentError, ConcretizationError, UnsupportedError
from tracegrad.ops.cast import cast as cast_op
from tracegrad.trace import frames
from tracegrad.trace.loop_code import LoopCode, loop_of
from tracegrad.trace.loop_driver import Driver, Part
from tracegrad.trace.loop_plan import Decision
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.promote import as_arg
from tracegrad.trace.symbolic import SymbolicInt, Unrollable, as_value, dim_of

ONLY_FOR = (
    "Use it in a `for` statement, or pass the number as a Python int, so that it is static: "
    "f(x, int(n)) from outside."
)


def is_traced(x: Any) -> bool:
    """Whether `x` is an array or scalar whose contents are known only when the function runs."""
    return isinstance(x, Tracer) and x.contents is None


@dataclass(slots=True, eq=False)
class CountedDecision(Decision):
    """What is known of a `for` statement whose iterations are counted at run time."""

    counts: ClassVar[bool] = False
    done: bool = False

    def give_up(self, reason: str) -> NoReturn:
        raise UnsupportedError(
            f"this loop, whose number of iterations is known only when it runs, cannot be one "
            f"loop of the graph: {reason}",
            kind="loop",
            loc=self.line,
            remedy="Change the body so that every iteration does the same to the same names, which "
            "keep the type and shape that they have in front of the loop (s = np.float32(0.0)), or "
            "pass the number of iterations as a Python int, so that it is static.",
        )

    def refuse(self) -> NoReturn:
        self.give_up(self.unroll)

    def peel(self, first: Dim, why: str) -> NoReturn:
        self.give_up(why)

    def repeat(self, period: int) -> None:  # type: ignore[override]
        """Names that exchange their arrays carry them by value."""

    def note(self) -> str:
        if not self.done:
            return ""
        return f"one loop, as many iterations as {_header(self.line)} says"


def _header(line: source.SourceLoc) -> str:
    """What the `for` statement iterates over, as it is written."""
    try:
        found = ast.parse(f"{line.text.strip()} pass").body[0]
    except SyntaxError:
        return "its range"
    return ast.unparse(found.iter) if isinstance(found, ast.For) else "its range"


class CountedRange:
    """``range(first, stop, step)``: `count` elements (a traced i64; none where it is negative)
    from `first` on."""

    __slots__ = ("first", "step", "count", "loc")

    def __init__(self, first: Any, step: int, count: Any) -> None:
        self.first, self.step, self.count = first, step, count
        self.loc = source.here()

    @property
    def length(self) -> Dim:
        """The number of elements as an expression, which says nothing of it."""
        return symbol("trips", 0)

    def at(self, k: Dim) -> Any:
        """Element `k`, a traced integer."""
        scaled = dims.mul(k, self.step)
        first = dim_of(self.first)
        if first is not None:
            return as_value(dims.add(first, scaled))
        return self.first + as_value(scaled)

    def __iter__(self) -> Iterator[Any]:
        return iterate(self, sys._getframe(1))

    def __reversed__(self) -> CountedRange:
        last = (self.count - 1) * self.step
        return CountedRange(self.first + last, -self.step, self.count)

    def _unknown(self, what: str) -> NoReturn:
        raise ConcretizationError(
            f"{what} a range whose bounds are known only when the compiled function runs",
            loc=source.here(),
            remedy=ONLY_FOR,
        )

    def __len__(self) -> int:
        self._unknown("len() of")

    def __bool__(self) -> bool:
        self._unknown("the truth value of")

    def __getitem__(self, at: Any) -> Any:
        self._unknown("an element of")

    def __contains__(self, x: object) -> bool:
        self._unknown("`in` asks")

    def __getattr__(self, name: str) -> Any:
        self._unknown(f".{name} of")


def counted_range(*args: Any) -> CountedRange:
    """``range(*args)`` with a traced integer among its bounds.

    Raises:
        ArgumentError: a bound that is no integer.
        UnsupportedError: a traced step.
    """
    ends = [_bound(x) for x in args]
    first, stop = (0, ends[0]) if len(ends) == 1 else ends[:2]
    step = ends[2] if len(ends) == 3 else 1
    if isinstance(step, SymbolicInt):
        raise Unrollable("the step of a range depends on its index")
    if isinstance(step, Tracer):
        raise UnsupportedError(
            "the step of a range is known only when the compiled function runs",
            kind="loop",
            loc=source.here(),
            remedy="Count by 1 and multiply: for k in range(count): i = start + step * k.",
        )
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    low, high = (first, stop) if step > 0 else (stop, first)
    gap = high if dim_of(low) == 0 else high - low
    size = abs(step)
    return CountedRange(first, step, gap if size == 1 else (gap + (size - 1)) // size)


def _bound(x: Any) -> Any:
    """A bound as a Python int, an index expression or a traced i64 that Python counts with."""
    if isinstance(x, SymbolicInt):
        return x
    if not is_traced(x):
        return operator.index(x)
    if x.sizes != () or not x.element_type.is_integer:
        shown = x.element_type.np if x.scalar else f"array of shape {x.sizes}"
        raise ArgumentError(
            f"a traced {shown} cannot be interpreted as an integer",
            loc=source.here(),
            remedy="The bounds of a range are integers, as x.astype(int)[i] and np.sum(mask) are.",
        )
    trace = current_trace()
    assert trace is not None, "a traced value outside of a trace is refused before"
    given = as_arg(trace, x)
    assert isinstance(given, Tracer), "what is traced stays so"
    return trace.apply(
        cast_op,
        (given,),
        cast_op.attrs(dtype=I64),
        scalar=trace.face.numpy_scalars,  # type: ignore[attr-defined]
        weak=True,
    )


def iterate(seq: CountedRange, frame: FrameType) -> Iterator[Any]:
    """The iterator of the `for` statement in `frame` over `seq`."""
    trace = current_trace()
    plan = None if trace is None else trace.rolling
    code = None if plan is None else loop_of(frame)
    if plan is None or code is None:
        raise ConcretizationError(
            "the elements of a range whose bounds are known only when the compiled function runs "
            "are asked for outside of a `for` statement over the range itself (zip, enumerate, a "
            "comprehension)",
            loc=source.here(),
            remedy=ONLY_FOR,
        )
    decision = plan.decision(frame, CountedDecision)
    decision.strict = True
    if plan.loops == "unroll":
        decision.give_up("loops='unroll' asks for a copy of its body for each iteration")
    if code.reason:
        decision.give_up(code.reason)
    for name, value in frame.f_locals.items():
        if name in code.loaded and hasattr(type(value), "__next__"):
            decision.give_up(f"it advances the iterator {name}")
    return CountedDriver(seq, code, decision, frame)


class CountedDriver(Driver):
    """Gives the body one element, which stands for all of them."""

    seq: CountedRange  # type: ignore[assignment]

    def __init__(
        self, seq: CountedRange, code: LoopCode, decision: Decision, frame: FrameType
    ) -> None:
        super().__init__(seq, code, decision)  # type: ignore[arg-type]
        self.every = code.fresh
        lost = decision.at(0).lost
        bound = frames.read(frame, code.fresh)
        self.code = replace(
            code,
            fresh=frozenset(
                n
                for n, v in bound.items()
                if n in lost or v is frames.ABSENT or isinstance(v, frames.Gone)
            ),
        )

    def _run(self) -> Iterator[Any]:
        from tracegrad.trace.counted_trial import CountedTrial

        assert self.frame is not None
        trial = CountedTrial(self, Part(0, self.length, self.length), self.frame)
        yield self.seq.at(trial.index)
        trial.close(self.frame)
        assert isinstance(self.decision, CountedDecision)
        self.decision.done = True
