"""Views as values: lists of per-axis steps, and the flat geometry derived from them.

A `View` says how a tensor reads a base: a tuple of steps, each mapping the multi-index of its
result to a multi-index of its input.  Steps are the canonical form (they stay symbolic and
readable); ``(offset, size, stride)`` over the base's dense row-major elements is derived, and
exists for every view that PyTorch could express.  All numbers are in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tracegrad.dims import Dim, add, mul
from tracegrad.dtypes import DType
from tracegrad.graph.geometry import (
    Geometry,
    advance,
    dense_strides,
    overlaps_itself,
    reshape_strides,
)
from tracegrad.graph.steps import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Diagonal,
    Expand,
    Index,
    Item,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Retype,
    Span,
    Step,
    Strided,
    Unfold,
)
from tracegrad.loops.builder import flat_index
from tracegrad.types import Shape

__all__ = [
    "AsComplex",
    "AsReal",
    "Bitcast",
    "Conj",
    "Diagonal",
    "Expand",
    "Geometry",
    "Index",
    "Item",
    "NewAxis",
    "Permute",
    "Pick",
    "Reshape",
    "Retype",
    "Span",
    "Step",
    "Strided",
    "Unfold",
    "View",
    "advance",
    "dense_strides",
    "overlaps_itself",
    "reshape_strides",
]


@dataclass(frozen=True, slots=True)
class View:
    """A chain of steps from a base to a tensor that reads it; the empty chain is the base."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def shapes(self, base: Shape) -> tuple[Shape, ...]:
        """The shape before each step, and the final one."""
        out = [base]
        for step in self.steps:
            out.append(step.shape(out[-1]))
        return tuple(out)

    def shape(self, base: Shape) -> Shape:
        return self.shapes(base)[-1]

    def dtype(self, base: DType) -> DType:
        """The element type of the view of a base of this one."""
        for step in self.steps:
            if isinstance(step, Retype):
                base = step.dtype(base)
        return base

    def then(self, *steps: Step, base: Shape) -> View:
        """This view with further steps, merged and with identities dropped; `base` is the base's
        shape."""
        out = list(self.steps)
        shape = self.shape(base)
        for step in steps:
            after = step.shape(shape)
            if not _is_identity(step, shape):
                out.append(step)
                _merge_tail(out, base)
            shape = after
        return View(tuple(out))

    def index(self, base: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
        """The base's multi-index that element `at` of the view reads; the view changes no
        element type."""
        shapes = self.shapes(base)
        index = tuple(at)
        for step, shape in zip(reversed(self.steps), reversed(shapes[:-1]), strict=True):
            assert not isinstance(step, Retype), "the view changes the element type"
            index = step.index(shape, index)
        return index

    def flat(self, base: Shape, at: Sequence[Dim]) -> Dim:
        """Position in the base's row-major elements that element `at` of the view reads."""
        geometry = self.geometry(base)
        if geometry is not None:
            return geometry.addresses(at)
        return flat_index(base, self.index(base, at))

    def geometry(self, base: Shape) -> Geometry | None:
        """The strided form over the dense base, or None when strides cannot express the view.

        Where steps change the element type the numbers are in elements of the last type.
        """
        return _geometry(self, base)

    def is_injective(self, base: Shape) -> bool:
        """True when no two elements of the view are one element of the base."""
        geometry = self.geometry(base)
        if geometry is not None:
            return not overlaps_itself(geometry)
        return not any(isinstance(s, (Expand, Unfold, Strided)) for s in self.steps)


def _is_identity(step: Step, shape: Shape) -> bool:
    match step:
        case Index(items=items):
            return (
                all(isinstance(i, Span) and i.start == 0 and i.step == 1 for i in items)
                and step.shape(shape) == shape
            )
        case Permute(order=order):
            return order == tuple(range(len(order)))
        case Expand(to=to) | Reshape(to=to):
            return to == shape
    return False


def _merge_tail(steps: list[Step], base: Shape) -> None:
    """Merge the last two steps while they are of one kind."""
    while len(steps) >= 2:
        first, second = steps[-2], steps[-1]
        before = View(tuple(steps[:-2])).shape(base)
        merged: Step
        match first, second:
            case Permute(order=p), Permute(order=q):
                merged = Permute(tuple(p[k] for k in q))
            case Reshape(), Reshape(to=to):
                merged = Reshape(to)
            case Expand(), Expand(to=to):
                merged = Expand(to)
            case (AsReal(), AsComplex()) | (AsComplex(), AsReal()) | (Conj(), Conj()):
                del steps[-2:]
                continue
            case Index(items=a), Index(items=b) if not _empties_new_axis(a, b):
                merged = Index(_compose(a, b))
            case _, Strided() if View(tuple(steps[:-1])).shape(base) == base and all(
                isinstance(s, Reshape) for s in steps[:-1]
            ):
                merged = second
            case _:
                return
        del steps[-2:]
        if not _is_identity(merged, before):
            steps.append(merged)


def _empties_new_axis(first: tuple[Item, ...], second: tuple[Item, ...]) -> bool:
    """Whether `second` takes an empty span of an axis that `first` made (not one `Index`)."""
    made = [i for i in first if not isinstance(i, Pick)]
    taken = [i for i in second if not isinstance(i, NewAxis)]
    return any(
        isinstance(m, NewAxis) and isinstance(t, Span) and t.size != 1
        for m, t in zip(made, taken, strict=True)
    )


def _compose(first: tuple[Item, ...], second: tuple[Item, ...]) -> tuple[Item, ...]:
    """One tuple of items that does `first` and then `second`."""
    out: list[Item] = []
    outer = list(second)
    for item in first:
        if isinstance(item, Pick):
            out.append(item)
            continue
        while isinstance(outer[0], NewAxis):
            out.append(outer.pop(0))
        then = outer.pop(0)
        if isinstance(item, NewAxis):
            if isinstance(then, Span):
                out.append(item)
        elif isinstance(then, Pick):
            out.append(Pick(add(item.start, mul(then.at, item.step))))
        else:
            assert isinstance(then, Span)
            out.append(
                Span(add(item.start, mul(then.start, item.step)), then.size, item.step * then.step)
            )
    out.extend(outer)
    return tuple(out)


@lru_cache(maxsize=65536)
def _geometry(view: View, base: Shape) -> Geometry | None:
    geometry = Geometry(0, base, dense_strides(base))
    for step in view.steps:
        stepped = advance(
            geometry,
            step,
            dense=geometry.stride == dense_strides(geometry.size)
            and geometry.offset == 0
            and geometry.size == base,
        )
        if stepped is None:
            return None
        geometry = stepped
    return geometry
