"""Control flow by data: one of several regions, and a region repeated while a test holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import DTypeError, GradientError, RuntimeValueError, ShapeError
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.op import Attrs, ByRegions, Nest, NoGradient, Sample, Special, Trait, declare
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import Cast, LoopTag
from tracegrad.ops.control import LoopAttrs
from tracegrad.types import TensorType, sizes

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder
    from tracegrad.source import SourceLoc


@dataclass(frozen=True, slots=True)
class CondAttrs(Attrs):
    """One of the regions on the operands behind the first, which chooses it.

    That selector is a bool (two regions, the first for False) or an i64, which counts regions
    and is clamped to them.  All regions take the same operands and give `results`.  The first
    `carries` results take the place of the first operands, which scheduling sees to.
    """

    carries: int
    results: tuple[TensorType, ...]


def _cond_infer(attrs: CondAttrs, *xs: TensorType) -> tuple[TensorType, ...]:
    if not xs or xs[0].shape != () or xs[0].dtype not in (BOOL, I64):
        raise DTypeError("cond chooses by one bool or i64")
    return attrs.results


def _cond_reference(attrs: CondAttrs, selector: Any, *xs: Any, regions: Any = ()) -> Any:
    return tuple(regions[min(max(int(selector), 0), len(regions) - 1)](*xs))


cond = declare(
    name="cond",
    attrs=CondAttrs,
    infer=_cond_infer,
    reference=_cond_reference,
    derivative=ByRegions("that of the region which runs"),
    lowering=Special("a branch around the kernels of its regions"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="Runs the one of its regions that the first operand names.",
)


@dataclass(frozen=True, slots=True)
class WhileAttrs(Attrs):
    """While the first region gives True, the second gives the next carries.

    Operands are `carries` initial values and `consts` values that both regions only read; both
    take all of them and may use `index`, the number of the iteration.  Outputs of the second behind
    the carries are stacked there.  With `most` > 0 it runs at most so many times,
    which is the leading size of the stacks (elements not reached are undefined); with 0 there is
    no limit, and the stacks, of leading size `GROWN`, have an element for each iteration.
    `counter` is the carry that counts the iterations, or -1.
    """

    index: str
    most: int
    carries: int
    consts: int
    results: tuple[TensorType, ...]
    counter: int = -1

    @property
    def recompute(self) -> bool:
        """As `LoopAttrs.recompute`: its carries are not kept for that."""
        return False


def _while_reference(attrs: WhileAttrs, *operands: Any, regions: Any = ()) -> Any:
    test, body = regions
    n, k = attrs.carries, 0
    state = [np.asarray(x) for x in operands[:n]]
    consts = operands[n:]
    rows: list[Sequence[Any]] = []
    while (not attrs.most or k < attrs.most) and test(*state, *consts, **{attrs.index: k})[0]:
        out = body(*state, *consts, **{attrs.index: k})
        state = out[:n]
        rows.append(out[n:])
        k += 1
    stacks: list[Any] = [
        np.zeros((attrs.most or k, *sizes(t.shape[1:])), t.dtype.np) for t in attrs.results[n:]
    ]
    for i, ys in enumerate(rows):
        for stack, y in zip(stacks, ys, strict=True):
            stack[(i, *map(slice, y.shape))] = y
    return (*state, *stacks)


while_ = declare(
    name="while",
    attrs=WhileAttrs,
    infer=lambda a, *xs: a.results,
    reference=_while_reference,
    derivative=ByRegions("carries backwards through as many iterations as there were"),
    lowering=Special("a loop around the kernels of its regions"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="Repeats its second region while the first gives True.",
)


# ------------------------------------------------------------------------------------ checks


@dataclass(frozen=True, slots=True)
class RequireAttrs(Attrs):
    """What the error says when the operand is False."""

    message: str


def _require_infer(attrs: RequireAttrs, x: TensorType) -> TensorType:
    if x.dtype is not BOOL:
        raise DTypeError("require takes a bool")
    if x.shape != ():
        raise ShapeError("require takes one bool")
    return x


def _require_reference(attrs: RequireAttrs, x: Any) -> Any:
    if not x:
        raise RuntimeValueError(attrs.message)
    return np.asarray(x)


def _emit_require(lb: Any, attrs: RequireAttrs, outs: Any, x: Any) -> None:
    with lb.loops((), LoopTag.SERIAL) as at:
        value = lb.let(x(at), "holds")
        lb.check(value, Cast(value, I64), attrs.message)
        outs[0].store(at, value)


require = declare(
    name="require",
    attrs=RequireAttrs,
    infer=_require_infer,
    reference=_require_reference,
    derivative=NoGradient("it is a check"),
    lowering=Nest(_emit_require),
    samples=lambda rng: [Sample((np.asarray(True),), RequireAttrs("it does not hold"))],
    traits=frozenset({Trait.CHECKED}),
    doc="Its operand; False stops the call with an error.",
)


# ------------------------------------------------------------------------------------- reading

CONTROL = (LoopAttrs, CondAttrs, WhileAttrs)
"""Attributes of the ops that scheduling writes as steps around the kernels of their regions."""


def carried(node: Node) -> list[tuple[int, Value]]:
    """The operands of a control node whose place results take, each with that result."""
    attrs = node.attrs
    assert isinstance(attrs, CONTROL)
    first = 1 if isinstance(attrs, CondAttrs) else 0
    return [(first + k, r) for k, r in enumerate(node.results[: attrs.carries])]


def emit_cond(
    b: GraphBuilder,
    selector: Operand,
    regions: Sequence[Graph],
    operands: Sequence[Operand],
    *,
    carries: int = 0,
    hints: Sequence[str] = (),
) -> tuple[Value, ...]:
    """Add a `cond` of `regions`, which agree in inputs and in types of outputs."""
    results = tuple(TensorType(y.shape, y.type.dtype) for y in regions[0].outputs)
    return b.emit(  # type: ignore[no-any-return]
        cond,
        (selector, *operands),
        CondAttrs(carries, results),
        regions=tuple(regions),
        hints=hints or ("cond",) * len(results),
    )


def emit_while(
    b: GraphBuilder,
    test: Graph,
    body: Graph,
    index: str,
    most: int,
    *,
    carries: Sequence[Operand],
    consts: Sequence[Operand] = (),
    counter: int = -1,
    hints: Sequence[str] = (),
) -> tuple[Value, ...]:
    """Add a `while`; returns the final carries, then the stacks."""
    n = len(carries)
    results = [x.type for x in body.inputs[:n]]
    results += [TensorType((most or GROWN, *y.shape), y.type.dtype) for y in body.outputs[n:]]
    attrs = WhileAttrs(index, most, n, len(consts), tuple(results), counter)
    return b.emit(
        while_,
        (*carries, *consts),
        attrs,  # type: ignore[no-any-return]
        regions=(test, body),
        hints=hints or ("while",) * len(results),
    )


def unknown_length(loc: SourceLoc | None = None) -> GradientError:
    """What is raised where an array of `GROWN` elements would be handled as a whole."""
    return GradientError(
        "this derivative needs what each iteration of this loop leaves as one array, whose length "
        "is not known here",
        kind="while_reverse",
        loc=loc,
        remedy="Give tg.while_loop or tg.fori_loop max_trips=n: its arrays then have n elements.",
    )


def last_index(most: int) -> int | None:
    """The highest index of a `while` of at most `most` iterations, or None."""
    return most - 1 if most else None
