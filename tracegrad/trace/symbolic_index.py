"""Indexing by the index of a loop: NumPy's wrapping and clipping, proved for all iterations.

Where the answer is not the same for all of them the questions of `symbolic` split the loop.
"""

from __future__ import annotations

import operator
from typing import Any

from tracegrad import dims
from tracegrad.dims import Dim, add, mul
from tracegrad.graph.storage import Span
from tracegrad.trace.symbolic import SymbolicInt, Unrollable, dim_of, is_nonnegative


def wrapped(at: Dim, size: Dim) -> Dim:
    """`at` as a position from the front of an axis."""
    if not is_nonnegative(at):
        at = add(at, size)
        if not is_nonnegative(at):
            raise Unrollable("an index may be out of range")
    if not is_nonnegative(add(add(size, -1), mul(at, -1))):
        raise Unrollable("an index may be out of range")
    return at


def symbolic_span(s: slice, size: Dim) -> Span:
    """The span of a slice whose bounds, or whose axis, depend on an index."""
    step = 1 if s.step is None else s.step
    if isinstance(step, SymbolicInt):
        raise Unrollable("the step of a slice depends on the index")
    step = operator.index(step)
    if step > 0:
        start = _bound(s.start, 0, size, 0, size)
        stop = _bound(s.stop, size, size, 0, size)
        length = add(stop, mul(start, -1))
    else:
        last = add(size, -1)
        start = _bound(s.start, last, size, -1, last)
        stop = _bound(s.stop, -1, size, -1, last)
        length = add(start, mul(stop, -1))
    length = trips(length)
    if length == 0:
        return Span(0, 0)
    return Span(start, dims.floordiv(add(length, abs(step) - 1), abs(step)), step)


def trips(length: Dim) -> Dim:
    """``max(length, 0)``; splits or unrolls a loop in which it would be both."""
    return length if dims.is_at_most(0, length) or is_nonnegative(length) else 0


def _bound(x: Any, default: Dim, size: Dim, low: int, high: Dim) -> Dim:
    """One bound of a slice, clipped as NumPy does."""
    if x is None:
        return default
    found = dim_of(x)
    at: Dim = operator.index(x) if found is None else found
    if not is_nonnegative(at):
        at = add(at, size)
        if not is_nonnegative(add(at, -low)):
            return low
    if not is_nonnegative(add(high, mul(at, -1))):
        return high
    return at
