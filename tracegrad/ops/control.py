"""Ops that hold regions: transforms of a traced function, and loops (`ops.branch` has more)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.dims import Dim, Expr, add, largest, symbol, symbols
from tracegrad.dtypes import I64
from tracegrad.errors import VerifyError
from tracegrad.graph.ir import Graph, Operand, Value
from tracegrad.graph.op import (
    Attrs,
    ByRegions,
    NoGradient,
    Point,
    Rules,
    Sample,
    Special,
    Trait,
    declare,
)
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import Index as IndexValue
from tracegrad.types import TensorType, sizes

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class TransformAttrs(Attrs):
    """A derivative of the region.

    `kind` is ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, or ``call`` for the region alone; `wrt` the
    inputs of the region it is taken of.  With `seeds`,
    the cotangent of those outputs is 1 and of the others 0 (a gradient); without, the operands
    behind the region's inputs are the cotangents of its inexact outputs (``vjp``), or the
    tangents of the inputs `wrt` (``jvp``).  `results`: the types of the region's outputs, of the
    derivatives, and of the final contents of the inputs that the region writes.
    """

    kind: str
    wrt: tuple[int, ...]
    seeds: tuple[int, ...]
    results: tuple[TensorType, ...]


def _reference(attrs: TransformAttrs, *xs: Any, regions: Any = ()) -> Any:
    raise VerifyError("a transform has no value of its own; run expand_transforms first")


transform = declare(
    name="transform",
    attrs=TransformAttrs,
    infer=lambda a, *xs: a.results,
    reference=_reference,
    derivative=NoGradient("it is expanded before differentiation"),
    lowering=Special("expanded by autodiff.expand"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="A derivative of the function in the region, taken where the node stands.",
)


@dataclass(frozen=True, slots=True)
class GradientsAttrs(Attrs):
    """Operands are `outputs` values, their cotangents, then points (copies, once functional);
    the results, of the types `results`, are the gradients with respect to the points.

    Every point cuts: what flows through one is a matter of another node.  With `behind` the
    outputs are points, and it starts from what they are copies of.
    """

    outputs: int
    behind: bool
    results: tuple[TensorType, ...]


def _gradients_reference(attrs: GradientsAttrs, *xs: Any) -> Any:
    raise VerifyError("gradients have no value of their own; run expand_transforms first")


gradients = declare(
    name="gradients",
    attrs=GradientsAttrs,
    infer=lambda a, *xs: a.results,
    reference=_gradients_reference,
    derivative=NoGradient("it is expanded before differentiation"),
    lowering=Special("expanded by autodiff.expand"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="``backward()`` inside a trace: reverse mode over the nodes before this one.",
)


# ------------------------------------------------------------------------------------- loops


class Parallel(Enum):
    """Whether iterations run on threads."""

    NO = "in order"
    POSSIBLE = "on threads where it is proved that iterations do not depend on each other"
    REQUIRED = "on threads; the program is refused where that is not proved"

    @property
    def derived(self) -> Parallel:
        """For the loops of derivatives, which are checked on their own."""
        return Parallel.NO if self is Parallel.NO else Parallel.POSSIBLE


@dataclass(frozen=True, slots=True)
class LoopAttrs(Attrs):
    """``for index in 0..trips-1`` (from the end when `reverse`).

    Operands are `carries` initial values, `consts` values that the body only reads, then arrays
    with a leading axis of `trips` of which iteration ``index`` reads its element.  The region's
    inputs are the carries, the consts and those elements; its outputs the next carries, then
    values that are stacked at ``index``.  `results`: types of the final carries and the stacks.
    With `counted` a last operand (i64) says how many of the `trips` run, from index 0 on; the
    other elements of the stacks are undefined.  Where `trips` is `GROWN` it is the count.
    `recompute`: a reverse pass keeps the carries of
    each iteration and computes everything else again.
    """

    index: str
    trips: Dim
    reverse: bool
    carries: int
    consts: int
    results: tuple[TensorType, ...]
    counted: bool = False
    recompute: bool = False
    parallel: Parallel = Parallel.NO


def loop_index(attrs: LoopAttrs) -> Expr:
    """The index of a loop as its region uses it, with its range."""
    return symbol(attrs.index, 0, add(attrs.trips, -1))


def stacked(index: str, trips: Dim, element: TensorType) -> TensorType:
    """The type of a stack: an axis that depends on the index has room for its largest size, and
    iterations fill the front of it."""
    sizes = (largest(n) if any(s.name == index for s in symbols(n)) else n for n in element.shape)
    return TensorType((trips, *sizes), element.dtype)


def _loop_reference(attrs: LoopAttrs, *operands: Any, regions: Any = ()) -> Any:
    (body,) = regions
    n, most, count = attrs.carries, attrs.trips, None
    if attrs.counted:
        *operands, count = operands  # type: ignore[assignment]
    if most == GROWN:
        most = int(count)  # type: ignore[arg-type]
    assert isinstance(most, int)
    state = [np.asarray(x) for x in operands[:n]]
    consts = operands[n : n + attrs.consts]
    stacks: list[Any] = [
        np.zeros((most, *sizes(t.shape[1:])), t.dtype.np) for t in attrs.results[n:]
    ]
    order = range(most if count is None else min(most, int(count)))
    for k in reversed(order) if attrs.reverse else order:
        out = body(
            *state, *consts, *[x[k] for x in operands[n + attrs.consts :]], **{attrs.index: k}
        )
        state = out[:n]
        for stack, y in zip(stacks, out[n:], strict=True):
            stack[(k, *map(slice, y.shape))] = y
    return (*state, *stacks)


loop = declare(
    name="loop",
    attrs=LoopAttrs,
    infer=lambda a, *xs: a.results,
    reference=_loop_reference,
    derivative=ByRegions("carries backwards through the iterations"),
    lowering=Special("a loop around the kernels of its region"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="Runs the region once for each index, carrying values from one to the next.",
)


@dataclass(frozen=True, slots=True)
class PositionAttrs(Attrs):
    at: Dim


position = declare(
    name="position",
    attrs=PositionAttrs,
    infer=lambda a: TensorType((), I64),
    reference=lambda a: np.asarray(a.at, np.int64),
    derivative=NoGradient("an index is an integer"),
    lowering=Point(lambda lb, a, out, index: IndexValue(a.at)),
    traits=frozenset({Trait.CHEAP}),
    samples=lambda rng: [Sample((), PositionAttrs(3))],
    doc="The value of an index expression.",
)


def emit_loop(
    b: GraphBuilder,
    region: Graph,
    index: str,
    trips: Dim,
    *,
    carries: Sequence[Operand],
    consts: Sequence[Operand] = (),
    xs: Sequence[Operand] = (),
    reverse: bool = False,
    hints: Sequence[str] = (),
    count: Operand | None = None,
    parallel: Parallel = Parallel.NO,
) -> tuple[Value, ...]:
    """Add a loop over `region`, `count` times if given; returns the final carries, then the
    stacks."""
    n = len(carries)
    results = [x.type for x in region.inputs[:n]]
    results += [stacked(index, trips, y.type) for y in region.outputs[n:]]
    attrs = LoopAttrs(
        index,
        trips,
        reverse,
        n,
        len(consts),
        tuple(results),
        counted=count is not None,
        parallel=parallel,
    )
    last = () if count is None else (count,)
    return b.emit(
        loop,
        (*carries, *consts, *xs, *last),
        attrs,  # type: ignore[no-any-return]
        regions=(region,),
        hints=hints or ("loop",) * len(results),
    )


@dataclass(frozen=True, slots=True)
class CheckpointAttrs(Attrs):
    results: tuple[TensorType, ...]


def _checkpoint_reference(attrs: CheckpointAttrs, *xs: Any, regions: Any = ()) -> Any:
    return tuple(regions[0](*xs))


checkpoint = declare(
    name="checkpoint",
    attrs=CheckpointAttrs,
    infer=lambda a, *xs: a.results,
    reference=_checkpoint_reference,
    derivative=ByRegions("computes the region again"),
    lowering=Special("its region is written out once derivatives have been taken"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="The region's outputs; a reverse pass keeps its operands alone.",
)


after = declare(
    name="after",
    infer=lambda a, x, token: x,
    reference=lambda a, x, token: x,
    derivative=Rules(
        lambda b, a, cts, outs, xs: (cts[0], None), lambda b, a, ts, outs, xs: (ts[0],)
    ),
    lowering=Point(lambda lb, a, out, index, x, token: x(index), folds=False),
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)), rng.standard_normal(4)))],
    doc="Operand 0, once operand 1 is there: what is computed from it is computed no earlier, "
    "and is not merged with what was computed from operand 0 before.",
)
