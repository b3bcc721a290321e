"""Arrays made from nothing: one value everywhere, positions along an axis, given data."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ParseError, ShapeError
from tracegrad.graph.attr_text import literal_parts
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import Attrs, NoGradient, OpDef, Point, Sample, Special, Trait, declare
from tracegrad.loops.ir import Cast, Const, Expr, Index
from tracegrad.ops.pairs import joined
from tracegrad.types import Shape, TensorType

NO_OPERANDS = "it has no operands"


@dataclass(frozen=True, slots=True)
class FullAttrs(Attrs):
    shape: Shape
    value: Literal


full = declare(
    name="full",
    attrs=FullAttrs,
    infer=lambda a: TensorType(a.shape, a.value.dtype),
    reference=lambda a: np.full(a.shape, a.value.value, a.value.dtype.np),
    derivative=NoGradient(NO_OPERANDS),
    lowering=Point(lambda lb, a, out, index: Const(a.value.value, a.value.dtype)),
    traits=frozenset({Trait.CHEAP}),
    samples=lambda rng: [
        Sample((), FullAttrs(shape, Literal(value, dtype)))
        for shape in ((3, 4), (), (0, 2))
        for value, dtype in ((1.5, dtypes.F64), (-2, dtypes.I8), (True, dtypes.BOOL))
    ],
    pairs=lambda b, op, a: joined(b, *literal_parts(a.value), a.shape),
    doc="One value in every element.",
)


@dataclass(frozen=True, slots=True)
class UndefinedAttrs(Attrs):
    type: TensorType


undefined = declare(
    name="undefined",
    attrs=UndefinedAttrs,
    infer=lambda a: a.type,
    reference=lambda a: np.zeros(a.type.shape, a.type.dtype.np),
    derivative=NoGradient(NO_OPERANDS),
    lowering=Point(lambda lb, a, out, index: Const(0, a.type.dtype)),
    traits=frozenset({Trait.CHEAP}),
    samples=lambda rng: [],
    doc="A buffer that is written before it is read.",
)


@dataclass(frozen=True, slots=True)
class IotaAttrs(Attrs):
    shape: Shape
    axis: int
    dtype: DType


def _infer_iota(attrs: IotaAttrs) -> TensorType:
    if not 0 <= attrs.axis < len(attrs.shape):
        raise ShapeError(f"iota: axis {attrs.axis} of a shape of {len(attrs.shape)} axes")
    if attrs.dtype.is_bool:
        raise DTypeError("iota: not defined for bool")
    return TensorType(attrs.shape, attrs.dtype)


def _iota(attrs: IotaAttrs) -> np.ndarray:
    shape: tuple[Any, ...] = attrs.shape
    column = np.arange(shape[attrs.axis]).astype(attrs.dtype.np)
    after = (1,) * (len(shape) - attrs.axis - 1)
    return np.array(np.broadcast_to(column.reshape((-1, *after)), shape))


def _iota_at(lb: object, attrs: IotaAttrs, out: TensorType, index: Sequence[Dim]) -> Expr:
    position = Index(index[attrs.axis])
    return position if attrs.dtype is dtypes.I64 else Cast(position, attrs.dtype)


iota = declare(
    name="iota",
    attrs=IotaAttrs,
    infer=_infer_iota,
    reference=_iota,
    derivative=NoGradient(NO_OPERANDS),
    lowering=Point(_iota_at),
    traits=frozenset({Trait.CHEAP}),
    samples=lambda rng: [
        Sample((), IotaAttrs(shape, axis, dtype))
        for shape, axis in (((5,), 0), ((3, 4), 0), ((3, 4), 1), ((0, 2), 0), ((2, 0), 0))
        for dtype in (dtypes.I64, dtypes.U8, dtypes.F32, dtypes.F64)
    ],
    doc="Position along `axis`, from 0.",
)


class ConstantData:
    """An array that never changes, compared and hashed by dtype, shape and bytes.

    `array` is a read-only, C-contiguous copy in native byte order.
    """

    __slots__ = ("_key", "array")

    array: np.ndarray
    _key: tuple[str, tuple[int, ...], bytes]

    def __init__(self, array: object) -> None:
        # `np.array`, since `ascontiguousarray` makes 0-d arrays 1-d.
        copy = np.array(array, order="C")
        dtype = dtypes.of(copy.dtype)
        copy.flags.writeable = False
        object.__setattr__(self, "array", copy)
        object.__setattr__(self, "_key", (dtype.name, copy.shape, copy.tobytes()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    @property
    def dtype(self) -> DType:
        return dtypes.of(self.array.dtype)

    @property
    def type(self) -> TensorType:
        return TensorType(self.array.shape, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantData) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"ConstantData({self.type})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ConstantData, (self.array,)

    def to_text(self) -> str:
        """``f64[3]: 1.0 2.0 3.0``, or ``f64[100]: base64 AAAA...`` beyond 16 elements.

        Arrays with a NaN use base64 too, so that its bits survive.
        """
        flat = self.array.ravel()
        odd = self.dtype.is_float and np.isnan(flat).any()
        odd = odd or (self.dtype.is_complex and not np.isfinite(flat).all())
        plain = flat.size <= 16 and not odd
        if plain:
            body = " ".join(str(x) for x in flat.tolist())
        else:
            body = "base64 " + base64.b64encode(self._little()).decode("ascii")
        return f"{self.type}: {body}".rstrip()

    def _little(self) -> bytes:
        return self.array.astype(self.array.dtype.newbyteorder("<")).tobytes()

    @classmethod
    def from_text(cls, text: str) -> ConstantData:
        """Inverse of `to_text`.  Raises ParseError."""
        head, _, body = text.partition(":")
        name, _, sizes = head.strip().removesuffix("]").partition("[")
        try:
            dtype = dtypes.parse(name)
            shape = tuple(int(n) for n in sizes.split(",") if n.strip())
            flat = _parse_elements(body.strip(), dtype)
            return cls(flat.reshape(shape))
        except (ValueError, TypeError, OverflowError) as e:
            raise ParseError(f"not a constant array: {text[:60]!r} ({e})") from None


def _parse_elements(body: str, dtype: DType) -> np.ndarray:
    if body.startswith("base64 "):
        little = dtype.np.newbyteorder("<")
        raw = base64.b64decode(body.removeprefix("base64 "), validate=True)
        return np.frombuffer(raw, little).astype(dtype.np)
    words = body.split()
    if dtype.is_bool:
        if not set(words) <= {"True", "False"}:
            raise ValueError("bool elements are True or False")
        return np.array([w == "True" for w in words], np.bool_)
    number = int if dtype.is_integer else complex if dtype.is_complex else float
    return np.array([number(w) for w in words], dtype.np)


@dataclass(frozen=True, slots=True)
class ConstantAttrs(Attrs):
    data: ConstantData


def _constant_samples(rng: np.random.Generator) -> list[Sample]:
    arrays = (
        rng.standard_normal((2, 3)),
        rng.standard_normal(40).astype(np.float32),
        rng.integers(0, 9, (3,), np.int16),
        np.array([True, False]),
        np.array(2.5),
        np.zeros((0, 2)),
    )
    return [Sample((), ConstantAttrs(ConstantData(a))) for a in arrays]


def interleaved(x: np.ndarray) -> np.ndarray:
    """A complex array as a real one with a last axis of 2; shares its memory."""
    strides = (*x.strides, x.itemsize // 2)
    return np.lib.stride_tricks.as_strided(
        x.real, (*x.shape, 2), strides, writeable=x.flags.writeable
    )


constant: OpDef = declare(
    name="constant",
    attrs=ConstantAttrs,
    infer=lambda a: a.data.type,
    reference=lambda a: a.data.array,
    derivative=NoGradient(NO_OPERANDS),
    lowering=Special("a buffer with data of its own (`Place.CONSTANT`)"),
    samples=_constant_samples,
    pairs=lambda b, op, a: constant(b, data=ConstantData(interleaved(a.data.array))),
    doc="Given data; becomes a constant buffer of the program.",
)
