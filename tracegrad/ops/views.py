"""Views and their adjoints: regions of a base read, replaced, or added to; grafts.

With `P` the linear map "take the view", ``as_strided(x) = P x``,
``copy_slices(base, src) = base - P^T P base + P^T src`` and
``add_slices(base, src) = base + P^T src``; the transposes below follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import complex_of
from tracegrad.errors import ShapeError
from tracegrad.graph.ir import Operand, Value
from tracegrad.graph.op import (
    Attrs,
    Linear,
    Nest,
    Point,
    Rules,
    Sample,
    Special,
    Trait,
    declare,
)
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Bitcast,
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
from tracegrad.ops.pairs import as_whole, each_part
from tracegrad.types import Shape, TensorType

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


def flat_positions(view: View, shape: Sequence[int]) -> np.ndarray:
    """Row-major positions in a base of `shape` that the view's elements read."""
    size = int(np.prod(shape, dtype=np.int64))
    return apply_view(view, np.arange(size, dtype=np.int64).reshape(shape))


def apply_view(view: View, x: np.ndarray) -> np.ndarray:
    """The view of an array: shares its memory wherever NumPy can express that."""
    for step in view.steps:
        x = _apply(step, x)
    return x


def _apply(step: Step, x: np.ndarray) -> np.ndarray:
    """A step on a concrete array (result may be a view of it)."""
    match step:
        case Index(items=items):
            key: list[Any] = []
            for item in items:
                if isinstance(item, Pick):
                    key.append(item.at)
                elif isinstance(item, NewAxis):
                    key.append(None)
                else:
                    stop: Any = item.start + item.size * item.step  # type: ignore[operator]
                    key.append(slice(item.start, None if stop < 0 else stop, item.step)
                               if item.size else slice(0, 0))
            return x[(*key, ...)]  # an array even where every axis is picked
        case Permute(order=order):
            return x.transpose(order)
        case Expand(to=to):
            # As np.broadcast_to, but writable: one row of it may be written.
            strides = tuple(0 if m != n else s
                            for m, n, s in zip(x.shape, to, x.strides, strict=True))
            return np.lib.stride_tricks.as_strided(
                x, to, strides, writeable=x.flags.writeable)  # type: ignore[arg-type]
        case Reshape(to=to):
            return x.reshape(to)
        case Strided(size=size, stride=stride, offset=offset):
            if x.flags.c_contiguous and x.size and 0 not in size:
                return np.lib.stride_tricks.as_strided(
                    x.reshape(-1)[offset:], size, tuple(s * x.itemsize for s in stride))
            at = np.full(size, offset, np.int64)
            for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
                at += (np.arange(n) * s).reshape([-1] + [1] * (len(size) - axis - 1))
            return x.reshape(-1)[at]
        case Diagonal(offset=offset, axis1=a, axis2=b):
            diagonal = np.diagonal(x, offset, a, b)
            diagonal.flags.writeable = x.flags.writeable
            return diagonal
        case Unfold(axis=axis, size=width, step=by):
            windows = np.lib.stride_tricks.sliding_window_view(
                x, width, axis, writeable=x.flags.writeable)
            return windows[(slice(None),) * axis + (slice(None, None, by),)]
        case AsReal():
            return np.lib.stride_tricks.as_strided(
                x.real, (*x.shape, 2), (*x.strides, x.itemsize // 2), writeable=x.flags.writeable)
        case AsComplex():
            last = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
            return last.view(complex_of(dtypes.of(x.dtype)).np)[..., 0]
        case Conj():
            return np.asarray(np.conjugate(x))
        case Bitcast(to=to):
            if x.ndim and x.shape[-1] == 1:  # its stride says nothing, and NumPy looks at it
                x = np.lib.stride_tricks.as_strided(
                    x, x.shape, (*x.strides[:-1], x.itemsize), writeable=x.flags.writeable)
            return x.view(to.np)
    raise AssertionError(step)


def write_view(view: View, x: np.ndarray, value: np.ndarray) -> None:
    """``view(x)[...] = value``, through steps that NumPy has no views for, too."""
    for k, step in enumerate(view.steps):
        if isinstance(step, Conj):
            part = apply_view(View(view.steps[:k]), x)
            new = np.array(np.conjugate(part))
            write_view(View(view.steps[k + 1:]), new, value)
            part[...] = np.conjugate(new)
            return
    apply_view(view, x)[...] = value


# ------------------------------------------------------------------------------- as_strided


def _infer_view(attrs: ViewAttrs, x: TensorType) -> TensorType:
    return TensorType(attrs.view.shape(x.shape), attrs.view.dtype(x.dtype))


def _is_retyped(view: View) -> bool:
    return any(isinstance(s, Retype) for s in view.steps)


def _take(attrs: ViewAttrs, x: np.ndarray) -> np.ndarray:
    if _is_retyped(attrs.view):
        return np.array(apply_view(attrs.view, np.array(x, order="C")))
    return x.reshape(-1)[flat_positions(attrs.view, x.shape)]


def _at_view(lb: object, attrs: ViewAttrs, out: TensorType, index: Sequence[Dim],
             x: Any) -> Expr:
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
                ct = as_view(b, ct, Reshape(before), Index(tuple(
                    Span(n - 1, n, -1) if isinstance(i, Span) and i.step == -1
                    else Span(0, n) for i, n in
                    zip((i for i in items if not isinstance(i, NewAxis)), before, strict=True))))
            case _:
                ct = add_slices(b, _zero(ct), ct, view=View((step,)), shape=before)
    return ct


def _zero(like: Operand) -> Operand:
    from tracegrad.graph.ir import Literal

    return Literal(0, like.dtype)


def _keeps_everything(items: Sequence[object], shape: Shape) -> bool:
    """Whether basic indexing only adds axes, drops axes of size 1 or reverses."""
    axes = [i for i in items if not isinstance(i, NewAxis)]
    return all((isinstance(i, Pick) and n == 1)
               or (isinstance(i, Span) and i.size == n and i.step in (1, -1))
               for i, n in zip(axes, shape, strict=True))


def as_view(b: GraphBuilder, x: Operand, *steps: Step) -> Operand:
    """``as_strided`` of `x` by `steps`; nothing for identities, literals stay literals."""
    if not isinstance(x, Value):
        return x
    view = View().then(*steps, base=x.shape)
    return as_strided(b, x, view=view) if view else x  # type: ignore[no-any-return]


as_strided = declare(
    name="as_strided", attrs=ViewAttrs, infer=_infer_view,
    reference=_take,
    derivative=Linear(lambda b, a, ct, xs: (transpose_view(b, a.view, ct, xs[0].shape),)),
    lowering=Point(_at_view, same_index=False), traits=frozenset({Trait.VIEW, Trait.CHEAP}),
    pairs=each_part,
    samples=lambda rng: [Sample((x,), ViewAttrs(v)) for x, v in _view_samples(rng)],
    doc="Elements of operand 0 that the view reads, as a new value.")


# -------------------------------------------------------------------- copy_slices, add_slices


def _infer_slices(attrs: SlicesAttrs, base: TensorType, src: TensorType) -> TensorType:
    part = attrs.view.shape(attrs.shape)
    if base.shape not in ((), attrs.shape) or src.shape not in ((), part):
        raise ShapeError(f"a part of shape {part} of a base of shape {attrs.shape} does not fit "
                         f"operands {base} and {src}")
    return TensorType(attrs.shape, src.dtype if base.shape == () else base.dtype)


def _copy_reference(attrs: SlicesAttrs, base: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = np.array(np.broadcast_to(base, attrs.shape), order="C")
    if _is_retyped(attrs.view):
        write_view(attrs.view, out, src)
        return out
    out.reshape(-1)[flat_positions(attrs.view, attrs.shape)] = src
    return out


def _add_reference(attrs: SlicesAttrs, base: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = np.array(np.broadcast_to(base, attrs.shape), order="C")
    at = flat_positions(attrs.view, attrs.shape)
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
            outs[0].store_flat(flat, Apply(
                add.intrinsic, (outs[0].load_flat(flat), value), outs[0].type.dtype))
        return
    with lb.loops(part, LoopTag.SERIAL) as index:
        value = src(index)
        outs[0].update_flat(attrs.view.flat(attrs.shape, index), Combine.ADD, value)


copy_slices = declare(
    name="copy_slices", attrs=SlicesAttrs, infer=_infer_slices, reference=_copy_reference,
    derivative=Linear(lambda b, a, ct, xs: (
        copy_slices(b, ct, 0, view=a.view, shape=a.shape), as_view(b, ct, *a.view.steps))),
    lowering=Nest(_emit_copy), traits=frozenset({Trait.UPDATES_FIRST, Trait.READS_ONCE}),
    pairs=each_part,
    samples=lambda rng: _slices_samples(rng, injective=True),
    doc="Operand 0 with the part that the view reads replaced by operand 1.")

add_slices = declare(
    name="add_slices", attrs=SlicesAttrs, infer=_infer_slices, reference=_add_reference,
    derivative=Linear(lambda b, a, ct, xs: (ct, as_view(b, ct, *a.view.steps))),
    lowering=Nest(_emit_add), traits=frozenset({Trait.UPDATES_FIRST, Trait.READS_ONCE}),
    pairs=each_part,
    samples=lambda rng: _slices_samples(rng, injective=False),
    doc="Operand 0 with operand 1 added at the elements that the view reads.")


# ------------------------------------------------------------------ handles (traced stage)

@dataclass(frozen=True, slots=True)
class HandleAttrs(ViewAttrs):
    """`origin` names the call that made the view; `output` is its number among the several
    views of a multi-output call, -1 for the single result of an ordinary one."""

    origin: str = "view"
    output: int = -1


view = declare(
    name="view", attrs=HandleAttrs, infer=_infer_view,
    reference=_take,
    derivative=Linear(lambda b, a, ct, xs: (transpose_view(b, a.view, ct, xs[0].shape),)),
    lowering=Special("an alias; functionalisation makes it as_strided"),
    traits=frozenset({Trait.VIEW, Trait.TRACED_ONLY}), samples=lambda rng: [],
    doc="A handle into the storage of operand 0.")

detach = declare(
    name="detach", infer=lambda a, x: x, reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Special("an alias; functionalisation makes it stop_gradient"),
    traits=frozenset({Trait.TRACED_ONLY}), samples=lambda rng: [],
    doc="A handle into the storage of operand 0 that starts another gradient family.")


@dataclass(frozen=True, slots=True)
class PointAttrs(Attrs):
    """`cut`: no gradient flows on to where the value came from, as of a leaf."""

    cut: bool


point = declare(
    name="point", attrs=PointAttrs, infer=lambda a, x: x, reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Special("an identity that functionalisation puts on the path of a gradient"),
    traits=frozenset({Trait.TRACED_ONLY}), samples=lambda rng: [],
    doc="From here on the gradient of operand 0 passes here, where `gradients` can ask for it.")


# ------------------------------------------------------------------------------------ grafts

copy = declare(
    name="copy", infer=lambda a, x: x, reference=lambda a, x: np.array(x, order="C"),
    derivative=Linear(lambda b, a, ct, xs: (ct,)),
    lowering=Point(lambda lb, a, out, index, x: x(index)), traits=frozenset({Trait.CHEAP}),
    pairs=as_whole, samples=lambda rng: [Sample((rng.standard_normal((2, 3)),))],
    doc="The elements of operand 0 in a storage of their own; with a target, assignment.")

stop_gradient = declare(
    name="stop_gradient", infer=lambda a, x: x, reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Point(lambda lb, a, out, index, x: x(index)),
    traits=frozenset({Trait.CHEAP, Trait.HIDES}), pairs=as_whole,
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)),))],
    doc="Operand 0 with no gradient.")

graft = declare(
    name="graft", infer=lambda a, value, path: value, reference=lambda a, value, path: value,
    derivative=Rules(lambda b, a, cts, outs, xs: (None, cts[0]),
                     lambda b, a, ts, outs, xs: (ts[1],)),
    lowering=Point(lambda lb, a, out, index, value, path: value(index)),
    traits=frozenset({Trait.CHEAP, Trait.HIDES}), pairs=as_whole,
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)), rng.standard_normal((2, 3))))],
    doc="The value of operand 0; the gradient goes to operand 1 only.")


# ----------------------------------------------------------------------------------- samples


def _view_samples(rng: np.random.Generator) -> list[tuple[np.ndarray, View]]:
    x, flat = rng.standard_normal((3, 4)), rng.standard_normal(6)
    views: list[tuple[np.ndarray, Step]] = [
        (x, Index((Pick(1), Span(0, 4)))),
        (x, Index((Span(2, 3, -1), Span(1, 2, 2)))),
        (x, Index((NewAxis(), Span(0, 3), Pick(2)))),
        (x, Permute((1, 0))), (x, Reshape((2, 6))), (x, Reshape((12,))),
        (rng.standard_normal((3, 1)), Expand((3, 5))),
        (flat, Strided((3, 3), (1, 1), 1)), (flat, Strided((2, 2), (2, 0), 0)),
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
        part = v.shape(x.shape)
        src = rng.standard_normal(part) if x.dtype.kind == "f" else rng.integers(0, 9, part)
        out.append(Sample((x, src.astype(x.dtype)), SlicesAttrs(v, x.shape)))
    return out


