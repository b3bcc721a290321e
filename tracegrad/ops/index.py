"""Reading and writing at integer arrays of indices known only at run time.

The indexed axes lead: a base has shape ``(n0, .., nk-1, *rest)``, the k index operands (i64)
have one shape I, and what is read or written has shape ``I + rest``.  `wrap_index` checks
indices and makes them not negative; the other ops take indices that it has made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import DTypeError, RuntimeIndexError, ShapeError
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, Nest, NoGradient, Point, Rules, Sample, Trait, declare
from tracegrad.graph.storage import Permute
from tracegrad.loops.ir import Cast, Const, Expr, LoopTag, Select
from tracegrad.ops.arithmetic import add
from tracegrad.ops.compare import ge, lt
from tracegrad.ops.create import iota
from tracegrad.ops.pairs import each_part
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.ops.views import as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class WrapAttrs(Attrs):
    """The size of the indexed axis, and its number in the user's array for the message."""

    size: int
    axis: int


# ------------------------------------------------------------------------------ wrap_index


def _infer_wrap(attrs: WrapAttrs, index: TensorType) -> TensorType:
    if not index.dtype.is_integer:
        raise DTypeError("arrays used as indices must be of integer (or boolean) type")
    return TensorType(index.shape, I64)


def bounds_message(attrs: WrapAttrs, value: object) -> str:
    """NumPy's wording."""
    return f"index {value} is out of bounds for axis {attrs.axis} with size {attrs.size}"


def _wrap_reference(attrs: WrapAttrs, index: np.ndarray) -> np.ndarray:
    index = np.asarray(index).astype(np.int64)
    wrong = (index < -attrs.size) | (index >= attrs.size)
    if wrong.any():
        raise RuntimeIndexError(bounds_message(attrs, index[wrong][0]))
    return np.where(index < 0, index + attrs.size, index)


def _emit_wrap(lb: Any, attrs: WrapAttrs, outs: Any, index: Any) -> None:
    size = Const(attrs.size, I64)
    with lb.loops(outs[0].type.shape, LoopTag.SERIAL) as at:
        value = index(at)
        value = lb.let(value if value.dtype is I64 else Cast(value, I64), "index")
        high = scalar(ge, BOOL, value, Const(-attrs.size, I64))
        low = scalar(lt, BOOL, value, size)
        lb.check(Select(high, low, Const(False, BOOL)), value, bounds_message(attrs, "{value}"))
        negative = scalar(lt, BOOL, value, Const(0, I64))
        outs[0].store(at, Select(negative, scalar(add, I64, value, size), value))


def _wrap_samples(rng: np.random.Generator) -> list[Sample]:
    given = np.array([[0, -1, 4], [-5, 2, -3]])
    out = [Sample((given.astype(d.np),), WrapAttrs(5, 0)) for d in (dtypes.I8, dtypes.I32, I64)]
    out += [Sample((np.array([0, 4, 2], d.np),), WrapAttrs(5, 1)) for d in (dtypes.U8, dtypes.U64)]
    return [
        *out,
        Sample((np.asarray(-2),), WrapAttrs(3, 0)),
        Sample((np.zeros((0,), np.int64),), WrapAttrs(0, 0)),
    ]


wrap_index = declare(
    name="wrap_index",
    attrs=WrapAttrs,
    infer=_infer_wrap,
    reference=_wrap_reference,
    derivative=NoGradient("indices are integers"),
    lowering=Nest(_emit_wrap),
    traits=frozenset({Trait.CHECKED}),
    samples=_wrap_samples,
    doc="Indices made not negative; one out of range stops the call with IndexError.",
)


# ------------------------------------------------------------------------------ shape rules


def index_shape(name: str, index: Sequence[TensorType]) -> Shape:
    """The one shape I of the index operands."""
    if not index:
        raise ShapeError(f"{name} needs an index")
    if any(t.dtype is not I64 for t in index):
        raise DTypeError(f"{name}: indices must be i64, as wrap_index gives them")
    shapes = {t.shape for t in index if t.shape != ()}
    if len(shapes) > 1:
        raise ShapeError(f"{name}: indices have shapes {' and '.join(map(str, shapes))}")
    return shapes.pop() if shapes else ()


def part_shape(name: str, shape: Shape, index: Sequence[TensorType]) -> Shape:
    """``I + rest`` for a base of `shape`."""
    at = index_shape(name, index)
    if len(index) > len(shape):
        raise ShapeError(
            f"too many indices for array: array is {len(shape)}-dimensional, "
            f"but {len(index)} were indexed"
        )
    return at + shape[len(index) :]


def _infer_gather(attrs: Attrs, x: TensorType, *index: TensorType) -> TensorType:
    return TensorType(part_shape("gather", x.shape, index), x.dtype)


# ------------------------------------------------------------------------------ references


def index_key(index: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.broadcast_arrays(*index)) if len(index) > 1 else (np.asarray(index[0]),)


def _gather_reference(attrs: Attrs, x: np.ndarray, *index: np.ndarray) -> np.ndarray:
    return np.array(x[index_key(index)])


# ------------------------------------------------------------------------------- lowerings


def positions(lb: Any, shape: Shape, at: Sequence[Dim], index: Sequence[Any]) -> tuple[Dim, ...]:
    """The base's leading index that element `at` of the index operands names."""
    return tuple(lb.index_of(i(at), n) for i, n in zip(index, shape, strict=False))


def _gather_at(
    lb: Any, attrs: Attrs, out: TensorType, at: Sequence[Dim], x: Any, *index: Any
) -> Expr:
    rank = len(index_shape("gather", [i.type for i in index]))
    found = positions(lb, x.type.shape, at[:rank], index)
    return x((*found, *at[rank:]))  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------ derivatives


def read(b: GraphBuilder, x: Operand, index: Sequence[Operand]) -> Operand:
    """``gather``; a literal stays one."""
    return gather(b, x, *index) if isinstance(x, Value) else x


def _gather_vjp(b: GraphBuilder, a: Attrs, cts: Any, outs: Any, xs: Any) -> Any:
    from tracegrad.ops.scatter import scatter_add

    x, *index = xs
    zero = Literal(0, x.dtype)
    return (scatter_add(b, zero, cts[0], *index, shape=x.shape), *(None for _ in index))


def _gather_jvp(b: GraphBuilder, a: Attrs, ts: Any, outs: Any, xs: Any) -> Any:
    return (None if ts[0] is None else read(b, ts[0], xs[1:]),)


# ---------------------------------------------------------------------------------- samples


def index_samples(rng: np.random.Generator) -> list[tuple[Shape, tuple[np.ndarray, ...]]]:
    """Base shapes and indices: repeated ones, several axes, 0-d, empty."""
    repeated, grid = np.array([2, 0, 2, 1]), np.array([[0, 1], [1, 1]])
    return [
        ((3,), (repeated,)),
        ((3, 2), (repeated,)),
        ((3, 2, 2), (grid,)),
        ((3, 2), (repeated, np.array([1, 0, 1, 1]))),
        ((2, 2, 3), (grid, grid[::-1])),
        ((3, 2), (np.asarray(2),)),
        ((3, 2), (np.zeros((0,), np.int64),)),
        ((3, 0), (repeated,)),
        ((0, 2), (np.zeros((0,), np.int64),)),
    ]


def _gather_samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample((random_array(rng, shape, dtypes.F64), *index))  # type: ignore[arg-type]
        for shape, index in index_samples(rng)
    ]
    return out + [Sample((random_array(rng, (3, 2), d), np.array([2, 0, 2]))) for d in dtypes.ALL]


gather = declare(
    name="gather",
    infer=_infer_gather,
    reference=_gather_reference,
    derivative=Rules(_gather_vjp, _gather_jvp),
    lowering=Point(_gather_at, same_index=False),
    samples=_gather_samples,
    pairs=each_part,
    doc="``x[index0, index1, ...]`` of wrapped indices on the leading axes.",
)


def along_axis(
    b: GraphBuilder, x: Operand, index: Value, axis: int
) -> tuple[Operand, tuple[Operand, ...]]:
    """`x` with `axis` leading, and an index operand for every axis of it.

    `index` is wrapped, has the rank of `x`, and its other axes have the sizes of `x`.
    """
    order = (axis, *(k for k in range(len(x.shape)) if k != axis))
    grid = tuple(iota(b, shape=index.shape, axis=k, dtype=I64) for k in order[1:])
    return as_view(b, x, Permute(order)), (index, *grid)


def take_along_axis(b: GraphBuilder, x: Operand, index: Value, axis: int) -> Operand:
    """``np.take_along_axis`` under the conditions of `along_axis`."""
    lead, keys = along_axis(b, x, index, axis)
    return gather(b, lead, *keys)  # type: ignore[no-any-return]
