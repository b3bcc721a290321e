"""Views and their adjoints: regions of a base read, replaced, or added to.

With `P` the linear map "take the view", ``as_strided(x) = P x``,
``copy_slices(base, src) = base - P^T P base + P^T src`` and
``add_slices(base, src) = base + P^T src``; the transposes below follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.dims import Dim
from tracegrad.errors import ShapeError
from tracegrad.graph.array_views import apply_view, flat_positions, write_view
from tracegrad.graph.ir import Operand, Value
from tracegrad.graph.op import (
    Attrs,
    Linear,
    Nest,
    OpDef,
    Point,
    Sample,
    Trait,
    declare,
)
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Conj,
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Retype,
    Span,
    Step,
    Strided,
    Unfold,
    View,
)
from tracegrad.loops.ir import Apply, Combine, Expr, LoopTag
from tracegrad.ops.arithmetic import add
from tracegrad.ops.pairs import each_part
from tracegrad.types import Shape, TensorType, sizes

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class ViewAttrs(Attrs):
    view: View


@dataclass(frozen=True, slots=True)
class SlicesAttrs(Attrs):
    """`shape` is the base's, needed when the base is a literal."""

    view: View
    shape: Shape


# ------------------------------------------------------------------------------- as_strided


def infer_view(attrs: ViewAttrs, x: TensorType) -> TensorType:
    return TensorType(attrs.view.shape(x.shape), attrs.view.dtype(x.dtype))


def _is_retyped(view: View) -> bool:
    return any(isinstance(s, Retype) for s in view.steps)


def take(attrs: ViewAttrs, x: np.ndarray) -> np.ndarray:
    if _is_retyped(attrs.view):
        return np.array(apply_view(attrs.view, np.array(x, order="C")))
    return x.reshape(-1)[flat_positions(attrs.view, x.shape)]


def _at_view(lb: object, attrs: ViewAttrs, out: TensorType, index: Sequence[Dim], x: Any) -> Expr:
    return x.through(attrs.view, index)  # type: ignore[no-any-return]


def transpose_view(b: GraphBuilder, view: View, ct: Operand, shape: Shape) -> Operand:
    """``P^T ct``, step by step from the last: inverse views where a step is a bijection, sums
    for expanded axes, `add_slices` for the rest."""
    from tracegrad.ops.reduce import sum_

    shapes = view.shapes(shape)
    for step, before in zip(reversed(view.steps), reversed(shapes[:-1]), strict=True):
        match step:
            case Permute(order=order):
                inverse = tuple(sorted(range(len(order)), key=order.__getitem__))
                ct = as_view(b, ct, Permute(inverse))
            case Reshape():
                ct = as_view(b, ct, Reshape(before))
            case Expand():
                axes = step.axes(before)
                if isinstance(ct, Value):
                    ct = as_view(b, sum_(b, ct, axes=axes), Reshape(before))
                else:
                    ct = add_slices(b, 0, ct, view=View((step,)), shape=before)
            case AsReal():
                ct = as_view(b, ct, AsComplex())
            case AsComplex():
                ct = as_view(b, ct, AsReal())
            case Conj():
                ct = as_view(b, ct, Conj())
            case Index(items=items) if _keeps_everything(items, before):
                ct = as_view(
                    b,
                    ct,
                    Reshape(before),
                    Index(
                        tuple(
                            Span(n - 1, n, -1)
                            if isinstance(i, Span) and i.step == -1
                            else Span(0, n)
                            for i, n in zip(
                                (i for i in items if not isinstance(i, NewAxis)),
                                before,
                                strict=True,
                            )
                        )
                    ),
                )
            case _:
                ct = add_slices(b, _zero(ct), ct, view=View((step,)), shape=before)
    return ct


def _zero(like: Operand) -> Operand:
    from tracegrad.graph.ir import Literal

    return Literal(0, like.dtype)


def _keeps_everything(items: Sequence[object], shape: Shape) -> bool:
    """Whether basic indexing only adds axes, drops axes of size 1 or reverses."""
    axes = [i for i in items if not isinstance(i, NewAxis)]
    return all(
        (isinstance(i, Pick) and n == 1)
        or (isinstance(i, Span) and i.size == n and i.step in (1, -1))
        for i, n in zip(axes, shape, strict=True)
    )


def as_view(b: GraphBuilder, x: Operand, *steps: Step) -> Operand:
    """``as_strided`` of `x` by `steps`; nothing for identities, literals stay literals."""
    if not isinstance(x, Value):
        return x
    view = View().then(*steps, base=x.shape)
    return as_strided(b, x, view=view) if view else x  # type: ignore[no-any-return]


as_strided = declare(
    name="as_strided",
    attrs=ViewAttrs,
    infer=infer_view,
    reference=take,
    derivative=Linear(lambda b, a, ct, xs: (transpose_view(b, a.view, ct, xs[0].shape),)),
    lowering=Point(_at_view, same_index=False),
    traits=frozenset({Trait.VIEW, Trait.CHEAP}),
    pairs=each_part,
    samples=lambda rng: [Sample((x,), ViewAttrs(v)) for x, v in _view_samples(rng)],
    doc="Elements of operand 0 that the view reads, as a new value.",
)


# -------------------------------------------------------------------- copy_slices, add_slices


def _infer_slices(attrs: SlicesAttrs, base: TensorType, src: TensorType) -> TensorType:
    part = attrs.view.shape(attrs.shape)
    if base.shape not in ((), attrs.shape) or src.shape not in ((), part):
        raise ShapeError(
            f"a part of shape {part} of a base of shape {attrs.shape} does not fit "
            f"operands {base} and {src}"
        )
    return TensorType(attrs.shape, src.dtype if base.shape == () else base.dtype)


def _copy_reference(attrs: SlicesAttrs, base: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = np.array(np.broadcast_to(base, sizes(attrs.shape)), order="C")
    if _is_retyped(attrs.view):
        write_view(attrs.view, out, src)
        return out
    out.reshape(-1)[flat_positions(attrs.view, sizes(attrs.shape))] = src
    return out


def _add_reference(attrs: SlicesAttrs, base: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = np.array(np.broadcast_to(base, sizes(attrs.shape)), order="C")
    at = flat_positions(attrs.view, sizes(attrs.shape))
    np.add.at(out.reshape(-1), at, np.broadcast_to(src, at.shape))
    return out


def _emit_copy(lb: Any, attrs: SlicesAttrs, outs: Any, base: Any, src: Any) -> None:
    with lb.loops(attrs.view.shape(attrs.shape)) as index:
        value = src(index)
        outs[0].store_flat(attrs.view.flat(attrs.shape, index), value)


def _emit_add(lb: Any, attrs: SlicesAttrs, outs: Any, base: Any, src: Any) -> None:
    part = attrs.view.shape(attrs.shape)
    if attrs.view.is_injective(attrs.shape):
        with lb.loops(part) as index:
            value, flat = src(index), attrs.view.flat(attrs.shape, index)
            assert add.intrinsic is not None
            outs[0].store_flat(
                flat, Apply(add.intrinsic, (outs[0].load_flat(flat), value), outs[0].type.dtype)
            )
        return
    with lb.loops(part, LoopTag.SERIAL) as index:
        value = src(index)
        outs[0].update_flat(attrs.view.flat(attrs.shape, index), Combine.ADD, value)


copy_slices: OpDef = declare(
    name="copy_slices",
    attrs=SlicesAttrs,
    infer=_infer_slices,
    reference=_copy_reference,
    derivative=Linear(
        lambda b, a, ct, xs: (
            copy_slices(b, ct, 0, view=a.view, shape=a.shape),
            as_view(b, ct, *a.view.steps),
        )
    ),
    lowering=Nest(_emit_copy),
    traits=frozenset({Trait.UPDATES_FIRST, Trait.READS_ONCE}),
    pairs=each_part,
    samples=lambda rng: _slices_samples(rng, injective=True),
    doc="Operand 0 with the part that the view reads replaced by operand 1.",
)

add_slices = declare(
    name="add_slices",
    attrs=SlicesAttrs,
    infer=_infer_slices,
    reference=_add_reference,
    derivative=Linear(lambda b, a, ct, xs: (ct, as_view(b, ct, *a.view.steps))),
    lowering=Nest(_emit_add),
    traits=frozenset({Trait.UPDATES_FIRST, Trait.READS_ONCE}),
    pairs=each_part,
    samples=lambda rng: _slices_samples(rng, injective=False),
    doc="Operand 0 with operand 1 added at the elements that the view reads.",
)


# ----------------------------------------------------------------------------------- samples


def _view_samples(rng: np.random.Generator) -> list[tuple[np.ndarray, View]]:
    x, flat = rng.standard_normal((3, 4)), rng.standard_normal(6)
    views: list[tuple[np.ndarray, Step]] = [
        (x, Index((Pick(1), Span(0, 4)))),
        (x, Index((Span(2, 3, -1), Span(1, 2, 2)))),
        (x, Index((NewAxis(), Span(0, 3), Pick(2)))),
        (x, Permute((1, 0))),
        (x, Reshape((2, 6))),
        (x, Reshape((12,))),
        (rng.standard_normal((3, 1)), Expand((3, 5))),
        (flat, Strided((3, 3), (1, 1), 1)),
        (flat, Strided((2, 2), (2, 0), 0)),
        (np.zeros((0, 3)), Reshape((3, 0))),
    ]
    out = [(base, View((step,))) for base, step in views]
    out.append((x, View((Diagonal(1, 0, 1),))))
    out.append((x, View((Diagonal(-1, 1, 0),))))
    out.append((flat, View((Unfold(0, 3, 2),))))
    out.append((x, View((Permute((1, 0)), Reshape((12,)), Index((Span(1, 5, 2),))))))
    out.append((np.arange(6), View((Index((Span(1, 3, 2),)),))))
    return out


def _slices_samples(rng: np.random.Generator, injective: bool) -> list[Sample]:
    out = []
    for x, v in _view_samples(rng):
        if injective and not v.is_injective(x.shape):
            continue
        part = sizes(v.shape(x.shape))
        src = rng.standard_normal(part) if x.dtype.kind == "f" else rng.integers(0, 9, part)
        out.append(Sample((x, src.astype(x.dtype)), SlicesAttrs(v, x.shape)))
    return out
