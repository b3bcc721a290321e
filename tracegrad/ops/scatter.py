"""Writing at integer arrays of indices: the last write stays, or all are added up.

Shapes are as in `ops.index`; bases and sources may be literals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, Nest, NoGradient, Point, Rules, Sample, Trait, declare
from tracegrad.graph.storage import Expand, Index, Item, NewAxis, Permute, Span
from tracegrad.loops.builder import flat_index
from tracegrad.loops.ir import Combine, Const, Expr, LoopTag
from tracegrad.loops.ir import Index as IndexValue
from tracegrad.ops.compare import eq
from tracegrad.ops.index import (
    along_axis,
    index_key,
    index_samples,
    index_shape,
    part_shape,
    positions,
    read,
)
from tracegrad.ops.pairs import each_part
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.ops.select import where
from tracegrad.ops.views import as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class ScatterAttrs(Attrs):
    """`shape` is the base's, needed when the base is a literal."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class ScatterSetAttrs(Attrs):
    """`unique`: no position is written twice (known for constant indices)."""

    shape: Shape
    unique: bool


def _infer_scatter(name: str, accepts: Sequence[dtypes.DType]) -> Any:
    def infer(attrs: Any, base: TensorType, src: TensorType, *index: TensorType) -> TensorType:
        part = part_shape(name, attrs.shape, index)
        if base.shape not in ((), attrs.shape) or src.shape not in ((), part):
            raise ShapeError(
                f"{name}: a part of shape {part} of a base of shape {attrs.shape} "
                f"does not fit operands {base} and {src}"
            )
        if base.dtype is not src.dtype or base.dtype not in accepts:
            raise DTypeError(f"{name}: not defined for {base.dtype} and {src.dtype}")
        return TensorType(attrs.shape, base.dtype)

    return infer


def _infer_last(attrs: ScatterAttrs, *index: TensorType) -> TensorType:
    if part_shape("last_writer", attrs.shape, index) != index_shape("last_writer", index):
        raise ShapeError("last_writer takes an index for each axis")
    return TensorType(attrs.shape, I64)


# ------------------------------------------------------------------------------ references


def _set_reference(
    attrs: ScatterSetAttrs, base: np.ndarray, src: np.ndarray, *index: np.ndarray
) -> np.ndarray:
    out = np.array(np.broadcast_to(base, attrs.shape))  # type: ignore[arg-type]
    out[index_key(index)] = src
    return out


def _add_reference(
    attrs: ScatterAttrs, base: np.ndarray, src: np.ndarray, *index: np.ndarray
) -> np.ndarray:
    out = np.array(np.broadcast_to(base, attrs.shape))  # type: ignore[arg-type]
    np.add.at(out, index_key(index), src)
    return out


def _last_reference(attrs: ScatterAttrs, *index: np.ndarray) -> np.ndarray:
    out = np.full(attrs.shape, -1, np.int64)  # type: ignore[type-var]
    key = index_key(index)
    out[key] = np.arange(key[0].size).reshape(key[0].shape)
    return out


def _wrote_reference(attrs: Attrs, last: np.ndarray, *index: np.ndarray) -> np.ndarray:
    key = index_key(index)
    return np.asarray(last[key] == np.arange(key[0].size).reshape(key[0].shape))


# ------------------------------------------------------------------------------- lowerings


def _wrote_at(
    lb: Any, attrs: Attrs, out: TensorType, at: Sequence[Dim], last: Any, *index: Any
) -> Expr:
    found = positions(lb, last.type.shape, at, index)
    number = IndexValue(flat_index(out.shape, at))
    return scalar(eq, BOOL, last(found), number)


def _emit_set(lb: Any, attrs: ScatterSetAttrs, outs: Any, base: Any, src: Any, *index: Any) -> None:
    shape = index_shape("scatter_set", [i.type for i in index])
    tag = LoopTag.PARALLEL if attrs.unique else LoopTag.SERIAL
    with lb.loops(shape, tag) as at:
        found = positions(lb, attrs.shape, at, index)
        with lb.loops(attrs.shape[len(index) :]) as rest:
            outs[0].store((*found, *rest), src((*at, *rest)))


def _emit_add(lb: Any, attrs: ScatterAttrs, outs: Any, base: Any, src: Any, *index: Any) -> None:
    shape = index_shape("scatter_add", [i.type for i in index])
    with lb.loops(shape, LoopTag.SERIAL) as at:
        found = positions(lb, attrs.shape, at, index)
        with lb.loops(attrs.shape[len(index) :]) as rest:
            outs[0].update((*found, *rest), Combine.ADD, src((*at, *rest)))


def _emit_last(lb: Any, attrs: ScatterAttrs, outs: Any, *index: Any) -> None:
    with lb.loops(attrs.shape) as at:
        outs[0].store(at, Const(-1, I64))
    shape = index_shape("last_writer", [i.type for i in index])
    with lb.loops(shape, LoopTag.SERIAL) as at:
        outs[0].store(positions(lb, attrs.shape, at, index), IndexValue(flat_index(shape, at)))


# ------------------------------------------------------------------------------ derivatives


def _scatter_jvp(b: GraphBuilder, a: Any, ts: Any, outs: Any, xs: Any) -> Any:
    """Both scatters are linear in base and source together."""
    if ts[0] is None and ts[1] is None:
        return (None,)
    base, src = (Literal(0, outs[0].dtype) if t is None else t for t in ts[:2])
    op = scatter_set if isinstance(a, ScatterSetAttrs) else scatter_add
    return (b.emit(op, (base, src, *xs[2:]), a),)


def _add_vjp(b: GraphBuilder, a: ScatterAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    index = xs[2:]
    return (cts[0], read(b, cts[0], index), *(None for _ in index))


def _set_vjp(b: GraphBuilder, a: ScatterSetAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    ct, index = cts[0], xs[2:]
    zero = Literal(0, ct.dtype)
    part = read(b, ct, index)  # in front of the write, which can then be in place
    kept = scatter_set(b, ct, zero, *index, shape=a.shape, unique=a.unique)
    if not a.unique:
        last = last_writer(b, *index, shape=a.shape[: len(index)])
        mask = _repeat(b, wrote(b, last, *index), a.shape[len(index) :])
        part = where(b, mask, part, zero)
    return (kept, part, *(None for _ in index))


def _repeat(b: GraphBuilder, x: Value, rest: Shape) -> Operand:
    """`x` repeated along new trailing axes of sizes `rest`."""
    items: tuple[Item, ...] = (*(Span(0, n) for n in x.shape), *(NewAxis() for _ in rest))
    return as_view(b, x, Index(items), Expand((*x.shape, *rest)))


# ---------------------------------------------------------------------------------- the ops


def _scatter_samples(
    rng: np.random.Generator, make: Any, accepts: Sequence[dtypes.DType]
) -> list[Sample]:
    out = []
    cases = [(shape, index, dtypes.F64) for shape, index in index_samples(rng)]
    cases += [((3, 2), (np.array([2, 0, 2]),), d) for d in accepts]
    for shape, index, dtype in cases:
        part = index[0].shape + shape[len(index) :]
        base, src = random_array(rng, shape, dtype), random_array(rng, part, dtype)  # type: ignore[arg-type]
        out.append(Sample((base, src, *index), make(shape)))
    base = random_array(rng, (3, 2), dtypes.F64)
    zero = Literal(0.0, dtypes.F64)
    return [
        *out,
        Sample((base, zero, np.array([1, 1])), make((3, 2))),
        Sample((zero, base, np.array([1, 3, 1])), make((4, 2))),
    ]


def _set_samples(rng: np.random.Generator) -> list[Sample]:
    out = _scatter_samples(rng, lambda s: ScatterSetAttrs(s, False), dtypes.ALL)
    base, src = random_array(rng, (4, 2), dtypes.F64), random_array(rng, (3, 2), dtypes.F64)
    return [*out, Sample((base, src, np.array([3, 0, 1])), ScatterSetAttrs((4, 2), True))]


def _last_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample(index, ScatterAttrs(shape[: len(index)])) for shape, index in index_samples(rng)]


def _wrote_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((_last_reference(ScatterAttrs(shape[: len(index)]), *index), *index))
        for shape, index in index_samples(rng)
    ]


scatter_add = declare(
    name="scatter_add",
    attrs=ScatterAttrs,
    infer=_infer_scatter("scatter_add", dtypes.INTEGERS + dtypes.FLOATS + dtypes.COMPLEX),
    reference=_add_reference,
    derivative=Rules(_add_vjp, _scatter_jvp),
    lowering=Nest(_emit_add),
    traits=frozenset({Trait.UPDATES_FIRST}),
    samples=lambda rng: _scatter_samples(rng, ScatterAttrs, dtypes.INTEGERS + dtypes.FLOATS),
    pairs=each_part,
    doc="Operand 0 with operand 1 added at the indices, in order, repeated ones repeatedly.",
)

scatter_set = declare(
    name="scatter_set",
    attrs=ScatterSetAttrs,
    infer=_infer_scatter("scatter_set", dtypes.ALL + dtypes.COMPLEX),
    reference=_set_reference,
    derivative=Rules(_set_vjp, _scatter_jvp),
    lowering=Nest(_emit_set),
    traits=frozenset({Trait.UPDATES_FIRST}),
    samples=_set_samples,
    pairs=each_part,
    doc="Operand 0 with operand 1 stored at the indices, in order: the last write stays.",
)

last_writer = declare(
    name="last_writer",
    attrs=ScatterAttrs,
    infer=_infer_last,
    reference=_last_reference,
    derivative=NoGradient("positions are integers"),
    lowering=Nest(_emit_last),
    samples=_last_samples,
    doc="For each element of a base the number of the index that stores there last, or -1.",
)

wrote = declare(
    name="wrote",
    infer=lambda a, last, *index: TensorType(index_shape("wrote", index), BOOL),
    reference=_wrote_reference,
    derivative=NoGradient("the result is bool"),
    lowering=Point(_wrote_at, same_index=False),
    samples=_wrote_samples,
    doc="Whether each index is the last to store at its element; operand 0 from last_writer.",
)


def put_along_axis(b: GraphBuilder, x: Operand, index: Value, src: Operand, axis: int) -> Operand:
    """`x` after ``np.put_along_axis``, under the conditions of `ops.index.along_axis`; `src` has
    the shape of `index`."""
    lead, keys = along_axis(b, x, index, axis)
    out = scatter_set(b, lead, src, *keys, shape=lead.shape, unique=False)
    order = (axis, *(k for k in range(len(x.shape)) if k != axis))
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return as_view(b, out, Permute(back))
