"""NumPy's memory layout of fresh results, and what reshape can do without a copy.

A layout decides only whether `reshape`, `ravel` and their kin give a view or a copy; generated
code is free to store values otherwise.  Strides are in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.dims import Dim, largest
from tracegrad.graph.storage import (
    Geometry,
    Permute,
    Reshape,
    Step,
    advance,
    dense_strides,
)
from tracegrad.trace.ragged import is_empty, is_one, is_ragged
from tracegrad.trace.symbolic import Unrollable

Sizes = tuple[Dim, ...]
Strides = tuple[Any, ...]
Laid = tuple[Sizes, Strides]  # shape and strides of an operand


def is_c_ordered(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the elements lie in row-major order without gaps."""
    if _in_order(shape, strides):
        return True
    return is_ragged(shape) and (is_empty(shape) or _in_order(shape, strides, is_one))


def _in_order(
    shape: Sequence[Any],
    strides: Sequence[Any],
    is_single: Callable[[Any], bool] = lambda n: n == 1,
) -> bool:
    """Whether axes that `is_single` does not drop follow each other."""
    run = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if s != run and not is_single(n):
            return False
        run *= n
    return True


def is_f_ordered(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the elements lie in column-major order without gaps."""
    return is_c_ordered(tuple(reversed(shape)), tuple(reversed(strides)))


def axis_order(rank: int, operands: Sequence[Strides]) -> list[int]:
    """Axes from innermost to outermost as NumPy's iterator sorts them for ``order="K"``.

    `operands` are strides broadcast to one rank, 0 where an operand is repeated.  Stable: where
    operands do not say, row-major order stays; where they contradict, it wins.
    """
    order = list(range(rank - 1, -1, -1))
    for i0 in range(1, rank):
        at, axis = i0, order[i0]
        for i1 in range(i0 - 1, -1, -1):
            swap, ambiguous = False, True
            for strides in operands:
                s0, s1 = _far(strides[axis]), _far(strides[order[i1]])
                if s0 and s1:
                    if s1 <= s0:
                        swap = False
                    elif ambiguous:
                        swap = True
                    ambiguous = False
            if not ambiguous:
                if not swap:
                    break
                at = i1
        order.insert(at, order.pop(i0))
    return order


def _far(stride: Dim) -> int:
    """How far apart two neighbours are, or at most are."""
    return abs(stride) if isinstance(stride, int) else largest(stride)


def packed(shape: Sequence[Any], order: Sequence[int]) -> Strides:
    """Strides without gaps with axes from innermost to outermost given by `order`."""
    strides = [0] * len(shape)
    run = 1
    for axis in order:
        strides[axis] = run
        run *= max(shape[axis], 1) if isinstance(shape[axis], int) else shape[axis]
    return tuple(strides)


def elementwise(shape: Sizes, operands: Sequence[Laid]) -> Strides | None:
    """Strides of a ufunc's fresh result; None for row-major."""
    if len(shape) < 2 or all(s == shape and _in_order(s, t) or not s for s, t in operands):
        return None
    spread = [_broadcast(shape, s, t) for s, t in operands]
    order = axis_order(len(shape), spread)
    if order == list(range(len(shape) - 1, -1, -1)):
        return None
    return packed(shape, order)


def _broadcast(shape: Sizes, own: Sizes, strides: Strides) -> Strides:
    missing = len(shape) - len(own)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(own, strides, strict=True))


def reduced(shape: Sizes, strides: Strides, axes: Sequence[int]) -> Strides | None:
    """Strides of the result of a reduction over `axes` (dropped); None for row-major."""
    kept = [k for k in range(len(shape)) if k not in axes]
    return elementwise(
        tuple(shape[k] for k in kept),
        [(tuple(shape[k] for k in kept), tuple(strides[k] for k in kept))],
    )


def copied(g: Geometry, order: str) -> Strides | None:
    """Strides of a copy with ``order`` C, F, A or K; None for row-major."""
    shape, strides = g.size, g.stride
    if order == "A":
        order = "F" if is_f_ordered(shape, strides) and not is_c_ordered(shape, strides) else "C"
    if order == "F":
        return packed(shape, range(len(shape)))
    if order == "K":
        return elementwise(shape, [(shape, strides)])
    return None


def reshape_steps(g: Geometry, to: tuple[int, ...], order: str) -> tuple[Step, ...]:
    """View steps of a reshape in C or F order (A: F if `g` is column-major only)."""
    if order == "A":
        order = (
            "F" if is_f_ordered(g.size, g.stride) and not is_c_ordered(g.size, g.stride) else "C"
        )
    if order == "C":
        return (Reshape(to),)
    back = tuple(range(len(to) - 1, -1, -1))
    return (
        Permute(tuple(range(len(g.size) - 1, -1, -1))),
        Reshape(tuple(reversed(to))),
        Permute(back),
    )


def can_view(g: Geometry, steps: Sequence[Step]) -> bool:
    """Whether the steps need no copy for a tensor laid out as `g`."""
    for step in steps:
        stepped = advance(g, step)
        if stepped is None and is_ragged(g.size):
            raise Unrollable("a reshape may copy in some iterations only")
        if stepped is None:
            return False
        g = stepped
    return True


def dense(shape: Sizes) -> Strides:
    """Row-major strides."""
    return dense_strides(shape)
