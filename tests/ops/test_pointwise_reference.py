"""The reference of each elementwise op is the NumPy function that it claims to be."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad.ops.bitwise
import tracegrad.ops.cast
import tracegrad.ops.create
import tracegrad.ops.integer
import tracegrad.ops.special  # noqa: F401
from tests.ops.edge_values import edge_operands, ulp_distance
from tracegrad import dtypes
from tracegrad.dtypes import BOOL, FLOATS, INTEGERS
from tracegrad.errors import DTypeError, ParseError, ShapeError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import REGISTRY, Attrs, NoGradient, OpDef, Partials, Point
from tracegrad.ops.cast import convert
from tracegrad.ops.create import ConstantData
from tracegrad.types import TensorType

UFUNCS = [
    (op, f)
    for op in REGISTRY
    if isinstance(op.derivative, (Partials, NoGradient))
    for f in op.numpy
    if isinstance(f, np.ufunc) and op.name != "ldexp"
]
# Functions whose reference is another correct computation of the same.
CLOSE = {"deg2rad", "rad2deg"}


def arity_of(op: OpDef) -> int:
    return op.intrinsic.arity if op.intrinsic is not None else op.numpy[0].nin  # type: ignore


def accepted(op: OpDef) -> list[dtypes.DType]:
    """The dtypes that the op's shape rule takes for all operands."""
    out = []
    for dtype in dtypes.ALL:
        try:
            op.infer(Attrs(), *[TensorType((2,), dtype)] * arity_of(op))
        except DTypeError:
            continue
        out.append(dtype)
    return out


@pytest.mark.parametrize(("op", "ufunc"), UFUNCS, ids=lambda x: getattr(x, "__name__", None))
def test_reference_is_the_ufunc(op: OpDef, ufunc: np.ufunc) -> None:
    """Same values, same dtype, on every dtype for which the ufunc has a loop of its own."""
    tried = 0
    for dtype in accepted(op):
        loop = ufunc.resolve_dtypes((dtype.np,) * ufunc.nin + (None,))
        if any(d != dtype.np for d in loop[: ufunc.nin]):
            continue
        xs = edge_operands(dtype, ufunc.nin)
        if op.name == "power" and dtype.kind == "i":
            xs = (xs[0], np.where(xs[1] < 0, dtype.np.type(3), xs[1]))
        with np.errstate(all="ignore"):
            expected = ufunc(*xs)
        found = op.reference(Attrs(), *xs)
        assert found.dtype == expected.dtype
        inferred = op.infer(Attrs(), *[TensorType(x.shape, dtype) for x in xs])
        assert inferred == TensorType(expected.shape, dtypes.of(expected.dtype))
        if op.name in CLOSE:
            assert ulp_distance(found, expected).max() <= 2
        elif op.name == "reciprocal" and dtype.is_integer:
            used = xs[0] != 0  # at 0 NumPy depends on the machine
            np.testing.assert_array_equal(found[used], expected[used])
        else:
            np.testing.assert_array_equal(found, expected)
        tried += 1
    assert tried, "no dtype was compared"


# Every elementwise ufunc of NumPy that real dtypes have is some op's, except these.
NOT_OPS = {
    "divmod": "two ops",
    "float_power": "power after a cast",
    "frexp": "two ops",
    "modf": "two ops",
    "spacing": "refused",
    "isnat": "datetimes",
    "matmul": "not elementwise",
    "matvec": "not elementwise",
    "vecmat": "not elementwise",
    "vecdot": "not elementwise",
}


def test_every_ufunc_has_an_op() -> None:
    keys = {f for op in REGISTRY for f in op.numpy}
    every = {f for f in vars(np).values() if isinstance(f, np.ufunc)}
    missing = sorted(f.__name__ for f in every - keys if f.__name__ not in NOT_OPS)
    assert missing == []


def test_no_numpy_function_belongs_to_two_ops() -> None:
    keys = [f for op in REGISTRY for f in op.numpy]
    assert len(keys) == len(set(keys))


def test_no_public_name_belongs_to_two_ops() -> None:
    for names in ([m for op in REGISTRY for m in op.methods], [op.tg for op in REGISTRY if op.tg]):
        assert sorted(names) == sorted(set(names))


def test_intrinsics_have_names_of_their_own() -> None:
    found = REGISTRY.intrinsics()
    assert {"add", "bool_or", "fabs", "pow", "positive", "ldexp"} <= set(found)


def test_results_do_not_share_memory_with_operands() -> None:
    for op in REGISTRY:
        if op.intrinsic is None or op.intrinsic.arity != 1:
            continue
        for dtype in accepted(op):
            x = np.ones(3, dtype.np)
            assert not np.shares_memory(op.reference(Attrs(), x), x), (op, dtype)


@pytest.mark.parametrize(
    "op", [op for op in REGISTRY if isinstance(op.lowering, Point)], ids=lambda op: op.name
)
def test_samples_agree_with_the_shape_rule(op: OpDef) -> None:
    for sample in op.samples(np.random.default_rng(0)):
        types = [TensorType(x.shape, dtypes.of(x.dtype)) for x in sample.operands]
        found = np.asarray(op.reference(sample.attrs, *sample.operands))
        assert op.infer(sample.attrs, *types) == TensorType(found.shape, dtypes.of(found.dtype))


def test_shapes_and_dtypes_that_do_not_fit_are_refused() -> None:
    f8, i4 = TensorType((3,), dtypes.F64), TensorType((3,), dtypes.I32)
    add = REGISTRY["add"]
    with pytest.raises(ShapeError, match=r"add: operands have shapes"):
        add.infer(Attrs(), f8, TensorType((4,), dtypes.F64))
    with pytest.raises(DTypeError, match="add: not defined for f64, i32"):
        add.infer(Attrs(), f8, i4)
    with pytest.raises(DTypeError, match="sin: not defined for i32"):
        REGISTRY["sin"].infer(Attrs(), i4)
    with pytest.raises(DTypeError, match="the condition must be bool, not f64"):
        REGISTRY["where"].infer(Attrs(), f8, f8, f8)
    with pytest.raises(DTypeError, match="ldexp"):
        REGISTRY["ldexp"].infer(Attrs(), f8, f8)


@pytest.mark.parametrize("to", dtypes.ALL, ids=repr)
@pytest.mark.parametrize("source", dtypes.ALL, ids=repr)
def test_cast_is_astype(source: dtypes.DType, to: dtypes.DType) -> None:
    """Equal to NumPy wherever NumPy's result does not depend on the machine."""
    (x,) = edge_operands(source, 1)
    if source in FLOATS and to in INTEGERS:
        info = np.iinfo(to.np)
        top = np.nextafter(np.float64(info.max) + 1, 0)
        x = x[(x >= float(info.min)) & (x.astype(np.float64) <= top)]
        assert x.size > 10
    with np.errstate(all="ignore"):
        expected = x.astype(to.np)
    found = convert(x, to)
    assert found.dtype == to.np
    np.testing.assert_array_equal(found, expected)


def test_cast_out_of_range_is_defined() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.0**63, 1e30])
    low, high = -(2**31), 2**63
    expected = {
        "i8": [0, 0, 0, 0, 0, 0, 0],
        "i32": [low, low, low, low, low, low, low],
        "u32": [0, 0, 0, 3000000000, 2**32 - 3000000000 % 2**32, 0, 0],
        "i64": [-high, -high, -high, 3000000000, -3000000000, -high, -high],
        "u64": [high, 0, high, 3000000000, 2**64 - 3000000000, high, 0],
    }
    for name, values in expected.items():
        to = dtypes.parse(name)
        np.testing.assert_array_equal(convert(x, to), np.array(values, to.np), err_msg=name)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.linspace(-1, 1, 40).astype(np.float32),
        np.array([1e-300, 0.1, -0.0, np.inf]),
        np.array([np.nan, -np.nan]),
        np.array([True, False]),
        np.array(2**64 - 1, np.uint64),
        np.arange(100, dtype=np.int8)[::-2],
        np.zeros((0, 3)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
)
def test_constant_data_survives_text(array: np.ndarray) -> None:
    data = ConstantData(array)
    again = ConstantData.from_text(data.to_text())
    assert again == data and hash(again) == hash(data)
    assert again.array.tobytes() == np.ascontiguousarray(array).tobytes()
    assert again.array.shape == array.shape and again.array.dtype == array.dtype


def test_constant_data_is_compared_by_bytes_and_cannot_change() -> None:
    original = np.array([0.0, 1.0])
    data = ConstantData(original)
    original[0] = 5
    assert data.array[0] == 0 and data == ConstantData([0.0, 1.0])
    assert data != ConstantData([-0.0, 1.0])
    assert data != ConstantData(np.array([0, 1], np.float32)) and data != ConstantData([[0.0, 1.0]])
    with pytest.raises(ValueError, match="read-only"):
        data.array[0] = 1
    with pytest.raises(AttributeError):
        data.array = original  # type: ignore[misc]
    for text in ("f64[2]: 1.0", "f64[2]: 1.0 x", "q7[1]: 1", "f64[100]: base64 ???", "i8[1]: 300"):
        with pytest.raises(ParseError):
            ConstantData.from_text(text)


def test_round_is_numpy_round() -> None:
    from tracegrad.ops.rounding import RoundAttrs, round_

    x = TensorType((2,), dtypes.I32)
    assert round_.infer(RoundAttrs(2), x) == x
    with pytest.raises(DTypeError, match="decimals=-1"):
        round_.infer(RoundAttrs(-1), x)
    with pytest.raises(DTypeError):
        round_.infer(RoundAttrs(0), TensorType((2,), BOOL))


def test_where_takes_literals() -> None:
    where = REGISTRY["where"]
    cond = TensorType((3,), BOOL)
    zero = Literal(0, dtypes.F32)
    assert where.infer(Attrs(), cond, zero.type, zero.type) == TensorType((3,), dtypes.F32)


def test_integer_power_refuses_negative_exponents() -> None:
    power = REGISTRY["integer_power"]
    x = np.array([2, -3, 0], np.int16)
    np.testing.assert_array_equal(power.reference(Attrs(), x, x * 0 + 3), [8, -27, 0])
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        power.reference(Attrs(), x, np.array([1, -1, 1], np.int16))
    with pytest.raises(DTypeError):
        power.infer(Attrs(), *[TensorType((3,), dtypes.U8)] * 2)


def test_two_results_of_numpy_are_two_ops() -> None:
    for dtype in FLOATS:
        (x,) = edge_operands(dtype, 1)
        with np.errstate(all="ignore"):
            (part, whole), (mantissa, exponent) = np.modf(x), np.frexp(x)
        finite = np.isfinite(x)
        for name, expected in (("fraction", part), ("trunc", whole), ("frexp_mantissa", mantissa)):
            np.testing.assert_array_equal(REGISTRY[name].reference(Attrs(), x), expected)
        found = REGISTRY["frexp_exponent"].reference(Attrs(), x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found[finite], exponent[finite])
        assert (found[~finite] == 0).all()
