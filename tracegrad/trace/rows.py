"""Rows of a stack: views that enter the graph when they are used, and many of them as one block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracegrad.dtypes import DType
from tracegrad.graph.ir import Literal
from tracegrad.graph.storage import (
    Conj,
    Index,
    Permute,
    Reshape,
    Span,
    Step,
    advance,
    dense_strides,
)
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import STATE, is_tracking
from tracegrad.trace.promote import Arg, cast
from tracegrad.views import family

FEWEST = 4  # rows that are joined


def row(
    trace: Any,
    x: Tracer,
    steps: tuple[Step, ...],
    *,
    scalar: bool = False,
    weak: bool = False,
    readonly: bool = False,
) -> Tracer:
    """The view of `x` that `steps` select, as `Trace.view` gives it; a `scalar` stands for its
    element, and nobody may write `x`."""
    alias = family.view_of(
        x.alias,
        steps,
        grad=is_tracking(),
        inference=STATE.inference,
        multi_output=False,
        op_name="view",
        output_nr=0,
        loc=trace.builder.loc,
    )
    layout = x.layout
    for step in steps:
        stepped = advance(layout, step)
        assert stepped is not None, "rows and what the body took are views"
        layout = stepped
    x.alias.family.viewed = True
    return trace.face(  # type: ignore[no-any-return]
        trace, alias, layout, None, None, scalar=scalar, weak=weak, readonly=readonly or x.readonly
    )


def blocks(trace: Any, xs: Sequence[Any]) -> list[Any]:
    """`xs` with every run of elements that lie one behind the other in one storage replaced by
    a copy of the run: an array with a leading axis, and how many elements it has."""
    out: list[Any] = []
    k = 0
    while k < len(xs):
        end = k + 1
        while end < len(xs) and _follows(xs[end - 1], xs[end]):
            end += 1
        if end - k >= FEWEST:
            out.append(_block(trace, xs[k], end - k))
        else:
            out.extend(xs[k:end])
        k = end
    return out


def along(trace: Any, x: Arg | Block, axis: int, dtype: DType) -> Tracer | Literal:
    """A part of a stack: `x` in `dtype` with its leading axis, or a new one, at `axis`."""
    given = cast(trace, x.array if isinstance(x, Block) else x, dtype)
    if not isinstance(given, Tracer):
        return given
    if isinstance(x, Block):
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(given.sizes)))
        return trace.read(given, Permute(order)) if axis else given  # type: ignore[no-any-return]
    to = (*given.sizes[:axis], 1, *given.sizes[axis:])
    return trace.read(given, Reshape(to))  # type: ignore[no-any-return]


def joined(trace: Any, x: Arg | Block) -> Arg:
    """The arrays of a block joined along their first axes."""
    if not isinstance(x, Block):
        return x
    n, first, *rest = x.array.sizes
    return trace.read(x.array, Reshape((n * first, *rest)))  # type: ignore[no-any-return]


class Block:
    """`count` arrays as one `array` with a leading axis."""

    __slots__ = ("array", "count")

    def __init__(self, array: Tracer, count: int) -> None:
        self.array, self.count = array, count

    @property
    def sizes(self) -> Any:
        """The shape of one of them."""
        return self.array.sizes[1:]

    @property
    def element_type(self) -> DType:
        return self.array.element_type

    def cast(self, trace: Any, dtype: DType) -> Block:
        found = cast(trace, self.array, dtype)
        assert isinstance(found, Tracer), "a block is an array"
        return Block(found, self.count)


def _follows(a: Any, b: Any) -> bool:
    """Whether `b` begins where `a` ends."""
    if not isinstance(a, Tracer) or not isinstance(b, Tracer):
        return False
    m = a.memory
    if b.memory is not m or m.array is not None or m.window is not None or a.trace is not b.trace:
        return False
    if not all(isinstance(n, int) for n in (*m.shape, a.layout.offset)):
        return False  # the index of an open loop is in them
    size = math.prod(a.sizes)
    return (
        size > 0
        and a.sizes == b.sizes
        and a.element_type is b.element_type is m.dtype
        and a.alias.family is b.alias.family is m.family
        and (a.weak, a.scalar) == (b.weak, b.scalar)
        and _is_plain(a)
        and _is_plain(b)
        and m.layout == dense_strides(m.shape)
        and b.layout.offset == a.layout.offset + size
    )


def _is_plain(x: Tracer) -> bool:
    return x.layout.stride == dense_strides(x.sizes) and not (
        x.alias.cut or any(isinstance(s, Conj) for s in x.alias.view.steps)
    )


def _block(trace: Any, first: Tracer, count: int) -> Block:
    size = math.prod(first.sizes)
    base = first.trace.base_of(first.memory)  # type: ignore[attr-defined]
    whole = math.prod(first.memory.shape)
    at, shape, held = first.layout.offset, (count, *first.sizes), first.memory.shape
    assert isinstance(at, int), "sizes and offsets of a run are known"
    steps: tuple[Step, ...] = ()
    if held[1:] == first.sizes and at % size == 0:
        if held[0] != count:
            rest = (Span(0, n) for n in first.sizes)
            steps = (Index((Span(at // size, count), *rest)),)
    elif whole == size * count:
        steps = (Reshape(shape),)
    else:
        steps = (Reshape((whole,)), Index((Span(at, size * count),)), Reshape(shape))
    return Block(trace.read(base, *steps), count)
