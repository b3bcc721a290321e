"""`bitcast`: the bytes of elements seen as elements of another dtype (little-endian)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim, add, floordiv, mod, mul
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.op import Attrs, NoGradient, Point, Sample, Trait, declare
from tracegrad.graph.storage import Bitcast
from tracegrad.loops.ir import Apply, Cast, Const, Expr, Index, Intrinsic
from tracegrad.ops.bitwise import bitwise_or, left_shift, right_shift
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.types import TensorType

_UNSIGNED = {8: dtypes.U8, 16: dtypes.U16, 32: dtypes.U32, 64: dtypes.U64}


@dataclass(frozen=True, slots=True)
class BitcastAttrs(Attrs):
    """As the view step `Bitcast`: where the sizes differ the last axis is scaled."""

    before: DType
    to: DType


def _to_bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def _from_bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"f{x.dtype.itemsize}")


BITS = Intrinsic("bits", 1, _to_bits, "tg_bits_{t}({0})", helpers=("bits_{t}",))
FROM_BITS = Intrinsic(
    "from_bits", 1, _from_bits, "tg_from_bits_{t}({0})", helpers=("from_bits_{t}",)
)


def _infer(attrs: BitcastAttrs, x: TensorType) -> TensorType:
    if x.dtype is not attrs.before or attrs.to.is_complex or attrs.to.is_bool:
        raise DTypeError(f"bitcast: {x.dtype} as {attrs.before} to {attrs.to}")
    ratio = attrs.to.nbytes // attrs.before.nbytes
    if attrs.to.nbytes != attrs.before.nbytes:
        last = x.shape[-1] if x.shape else 1
        if not x.shape or (ratio > 1 and isinstance(last, int) and last % ratio):
            raise ShapeError(f"bitcast: the last axis of {x} does not divide into {attrs.to}")
    return TensorType(Bitcast(attrs.before, attrs.to).shape(x.shape), attrs.to)


def _bits(x: Expr) -> Expr:
    """An element's bytes as an unsigned integer."""
    unsigned = _UNSIGNED[x.dtype.bits]
    if x.dtype.is_float:
        return Apply(BITS, (x,), unsigned)
    return x if x.dtype is unsigned else Cast(x, unsigned)


def _at(lb: object, attrs: BitcastAttrs, out: TensorType, index: Sequence[Dim], x: Any) -> Expr:
    a, b = attrs.before.nbytes, attrs.to.nbytes
    unsigned = _UNSIGNED[attrs.to.bits]
    if a >= b:
        wide = _UNSIGNED[attrs.before.bits]
        ratio = a // b
        if ratio == 1:
            value = _bits(x(index))
        else:
            *outer, k = index
            shift = Cast(Index(mul(mod(k, ratio), 8 * b)), wide)
            whole = _bits(x((*outer, floordiv(k, ratio))))
            value = Cast(scalar(right_shift, wide, whole, shift), unsigned)
    else:
        *outer, k = index
        ratio = b // a
        value = Cast(_bits(x((*outer, mul(k, ratio)))), unsigned)
        for j in range(1, ratio):
            piece = Cast(_bits(x((*outer, add(mul(k, ratio), j)))), unsigned)
            moved = scalar(left_shift, unsigned, piece, Const(8 * a * j, unsigned))
            value = scalar(bitwise_or, unsigned, value, moved)
    if attrs.to.is_float:
        return Apply(FROM_BITS, (value,), attrs.to)
    return value if attrs.to is unsigned else Cast(value, attrs.to)


def _samples(rng: np.random.Generator) -> list[Sample]:
    pairs = (
        ("f64", "i64"), ("i64", "f64"), ("f64", "f32"), ("f32", "f64"), ("f32", "u8"),
        ("u8", "f32"), ("i16", "u16"), ("u32", "i8"), ("i8", "u32"), ("bool", "u8"),
        ("f64", "u8"), ("u8", "i64"),
    )  # fmt: skip
    out = []
    for before, to in pairs:
        a, b = dtypes.parse(before), dtypes.parse(to)
        out.append(Sample((random_array(rng, (3, 16), a),), BitcastAttrs(a, b)))
    return out


bitcast = declare(
    name="bitcast",
    attrs=BitcastAttrs,
    infer=_infer,
    reference=lambda a, x: np.array(np.ascontiguousarray(x).reshape(x.shape).view(a.to.np)),
    derivative=NoGradient("bytes are not numbers"),
    lowering=Point(_at, folds=False, same_index=False),
    traits=frozenset({Trait.CHEAP}),
    samples=_samples,
    doc="The bytes of the elements as elements of another dtype.",
)
