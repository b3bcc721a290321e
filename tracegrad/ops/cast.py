"""`cast`: conversion between dtypes, as NumPy's astype.

Float to integer truncates, and is defined where NumPy leaves it to the machine: it gives what
NumPy gives on x86-64.  Out-of-range values and NaN become the lowest int32 or int64 for those
two, 0 for narrower integers (in range of int32 they wrap); uint32 goes through int64, with 0 when
that is out of range; uint64 takes negative values modulo 2**64, 2**63 for NaN and below int64,
0 from 2**64 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import DType
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import Attrs, Linear, OpDef, Point, Sample, Trait, declare
from tracegrad.loops.ir import Cast, Expr
from tracegrad.ops.pairs import Pair, is_nonzero
from tracegrad.ops.pointwise import random_array
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class CastAttrs(Attrs):
    dtype: DType


def convert(x: np.ndarray, to: DType) -> np.ndarray:
    """`x` as an array of dtype `to`; every element has the value that compiled code gives."""
    x = np.asarray(x)
    if x.dtype.kind == "c" and not (to.is_complex or to.is_bool):
        x = x.real
    if x.dtype.kind == "f" and to.is_integer:
        return _float_to_integer(x, to)
    with np.errstate(all="ignore"):
        return x.astype(to.np)


def _float_to_integer(x: np.ndarray, to: DType) -> np.ndarray:
    whole = np.trunc(x.astype(np.float64))
    if to.bits < 32 or to is dtypes.I32:
        return _through(whole, 2.0**31, np.int32).astype(to.np)
    signed = _through(whole, 2.0**63, np.int64)
    if to is dtypes.I64:
        return signed
    if to is dtypes.U32:
        return signed.astype(np.uint32)
    high = (whole >= 2.0**63) & (whole < 2.0**64)
    upper = np.where(high, whole - 2.0**63, 0.0).astype(np.uint64) + np.uint64(2**63)
    out = np.where(high, upper, signed.astype(np.uint64))
    return np.where(whole >= 2.0**64, np.uint64(0), out)


def _through(whole: np.ndarray, limit: float, kind: Any) -> np.ndarray:
    """Whole floats within ``-limit..limit-1`` as integers, all others the lowest one."""
    inside = (whole >= -limit) & (whole < limit)
    return np.where(inside, np.where(inside, whole, 0.0).astype(kind), np.iinfo(kind).min)


def _cast_at(
    lb: object, attrs: CastAttrs, out: TensorType, index: Sequence[object], x: Any
) -> Expr:
    value: Expr = x(index)
    return value if value.dtype is attrs.dtype else Cast(value, attrs.dtype)


def _transpose(
    b: GraphBuilder, attrs: CastAttrs, ct: Operand, xs: Sequence[Operand]
) -> tuple[Operand | None, ...]:
    """Between float types the cotangent is cast back; integers and bool have none."""
    if not (attrs.dtype.is_float and xs[0].dtype.is_float):
        return (None,)
    return (cast(b, ct, dtype=xs[0].dtype),)


def _cast_pairs(b: GraphBuilder, op: OpDef, attrs: CastAttrs, x: Pair | Operand) -> Any:
    """To real by dropping the imaginary part; to bool by asking whether it is zero."""
    to = attrs.dtype
    if not isinstance(x, Pair):
        return Pair(to_dtype(b, x, to.parts), Literal(0, to.parts))
    if to.is_bool:
        return is_nonzero(b, x)
    if to.is_complex:
        return Pair(to_dtype(b, x.re, to.parts), to_dtype(b, x.im, to.parts))
    return to_dtype(b, x.re, to)


def to_dtype(b: GraphBuilder, x: Operand, dtype: DType) -> Operand:
    """`x` itself or its cast."""
    return x if x.type.dtype is dtype else cast(b, x, dtype=dtype)  # type: ignore[no-any-return]


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = [
        Sample((random_array(rng, (3, 4), a),), CastAttrs(b))
        for a in dtypes.ALL
        for b in dtypes.ALL
    ]
    return [*out, Sample((np.zeros((0, 2)),), CastAttrs(dtypes.F32))]


cast = declare(
    name="cast",
    attrs=CastAttrs,
    infer=lambda a, x: TensorType(x.shape, a.dtype),
    reference=lambda a, x: convert(x, a.dtype),
    derivative=Linear(_transpose),
    lowering=Point(_cast_at),
    traits=frozenset({Trait.CHEAP, Trait.ZERO_PRESERVING}),
    samples=_samples,
    pairs=_cast_pairs,
    doc="Operand 0 in another dtype; float to integer is defined for every value.",
)
