"""The element types, one interned `DType` each, and NumPy's promotion between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracegrad.errors import DTypeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type.

    `name` is the text form (``f64``), `kind` NumPy's letter (``b i u f c``), `bits` its size,
    `c` the C spelling.  Instances are unique: compare with ``is``.
    """

    name: str
    kind: str
    bits: int
    np: np.dtype
    c: str

    @property
    def nbytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_inexact(self) -> bool:
        """Float or complex: the types that have derivatives."""
        return self.kind in "fc"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def parts(self) -> DType:
        """The dtype of a complex type's real and imaginary part; a real type itself."""
        return self if self.kind != "c" else F32 if self.bits == 64 else F64

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def spec(self) -> str:
        """The form used in specs and by NumPy: ``f8``, ``i4``, ``b1``."""
        return f"{self.kind}{self.nbytes}"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return parse, (self.name,)


def _make(name: str, c: str) -> DType:
    kind = {"b": "b", "i": "i", "u": "u", "f": "f", "c": "c"}[name[0]]
    bits = 8 if name == "bool" else int(name[1:])
    dtype = np.dtype(np.bool_) if name == "bool" else np.dtype(f"{kind}{bits // 8}")
    return DType(name, kind, bits, dtype, c)


BOOL = _make("bool", "uint8_t")
I8, I16 = _make("i8", "int8_t"), _make("i16", "int16_t")
I32, I64 = _make("i32", "int32_t"), _make("i64", "int64_t")
U8, U16 = _make("u8", "uint8_t"), _make("u16", "uint16_t")
U32, U64 = _make("u32", "uint32_t"), _make("u64", "uint64_t")
F32, F64 = _make("f32", "float"), _make("f64", "double")
# Of traced graphs only: aliasing resolves complex arrays into real ones with a last axis of 2.
C64, C128 = _make("c64", "float _Complex"), _make("c128", "double _Complex")

ALL = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (F32, F64)
COMPLEX = (C64, C128)

_BY_NP = {d.np: d for d in ALL + COMPLEX}
_BY_NAME = {d.name: d for d in ALL + COMPLEX}
# "i8" is eight bits in IR text (`parse`) and eight bytes in a spec (`parse_spec`).
_BY_SPEC = {d.spec: d for d in ALL + COMPLEX} | {"bool": BOOL}


def parse(name: str) -> DType:
    """The dtype of an IR name such as ``f64`` or ``i8`` (bits)."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(
            f"unknown dtype {name!r}", remedy=f"Known: {', '.join(_BY_NAME)}."
        ) from None


def parse_spec(name: str) -> DType:
    """The dtype of a spec name such as ``f8`` or ``i4`` (bytes), or of NumPy's name."""
    if name in _BY_SPEC:
        return _BY_SPEC[name]
    try:
        return of(np.dtype(name))
    except TypeError:
        raise DTypeError(
            f"unknown dtype {name!r}", remedy=f"Known: {', '.join(_BY_SPEC)}."
        ) from None


_CONVERSIONS = {
    "c": "Pass real and imaginary part as two float arrays: x.real, x.imag.",
    "V": "Pass its fields as arrays of their own: x['name'].",
    "M": "Pass numbers: x.astype(np.int64) counts units since 1970.",
    "m": "Pass numbers: x.astype(np.int64) counts units.",
}


def of(dtype: object) -> DType:
    """The `DType` of a NumPy dtype, scalar type or Python type.

    Raises `DTypeError` for dtypes that tracegrad does not compute with (object, string,
    datetime, structured, longdouble, float16, non-native byte order).
    """
    if isinstance(dtype, DType):
        return dtype
    as_np = np.dtype(dtype)  # type: ignore[call-overload]
    found = _BY_NP.get(as_np)
    if found is None or not as_np.isnative:
        raise DTypeError(
            f"dtype {as_np} is not supported",
            remedy=_CONVERSIONS.get(
                as_np.kind, "Convert the array first, for example with x.astype(np.float64)."
            ),
        )
    return found


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts are of this float type."""
    return C64 if dtype is F32 else C128


def promote(*dtypes: DType) -> DType:
    """NumPy 2's result type of strong operands."""
    return of(np.result_type(*(d.np for d in dtypes)))
