"""Operators, methods and writes of the Array face against plain NumPy."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

from tests.trace.running import Array, check, same, trace_only
from tracegrad import errors
from tracegrad.graph.op import REGISTRY

A = np.arange(12.0).reshape(3, 4) / 7 - 0.6
ROW = np.array([1.0, -2.0, 3.0, 0.5])
INT = np.arange(12).reshape(3, 4) - 5
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.eq,
    operator.lt,
    operator.ge,
]


def _values(code: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if code == "?":
        return rng.integers(0, 2, 5).astype(bool)
    return rng.integers(1, 5, 5).astype(code)


def _numpy_result(op, *xs):
    try:
        with np.errstate(all="ignore"):
            return op(*xs)
    except TypeError as e:
        return e


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
def test_every_pair_of_dtypes_promotes_as_numpy(op):
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = _values(a, 0), _values(b, 1)
        want = _numpy_result(op, x, y)
        supported = not isinstance(want, Exception) and want.dtype != np.float16
        mixed = {a, b} in ({"i1", "u8"}, {"i2", "u8"}, {"i4", "u8"}, {"i8", "u8"})
        if supported and not (want.dtype == bool and mixed):
            check(op, x, y)
        else:
            with pytest.raises(TypeError):
                trace_only(op, x, y)


@pytest.mark.parametrize("number", [True, 2, -3, 2.5], ids=repr)
@pytest.mark.parametrize("code", DTYPES)
def test_python_numbers_are_weak(code, number):
    for op in BINARY:
        for f in (lambda x: op(x, number), lambda x: op(number, x)):  # noqa: B023
            try:
                with np.errstate(all="ignore"):
                    want = f(_values(code, 0))
            except (TypeError, OverflowError, ValueError) as e:
                with pytest.raises(
                    type(e).__mro__[-4] if isinstance(e, OverflowError) else (TypeError, ValueError)
                ):
                    trace_only(f, _values(code, 0))
                continue
            if want.dtype != np.float16:
                check(f, _values(code, 0))


def test_integer_out_of_range_has_numpys_words():
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        trace_only(lambda x: x + 300, np.zeros(2, np.uint8))
    check(lambda x: (x < 300, x > -1, x == 256, x < 300), np.arange(3, dtype=np.uint8))


def test_bool_arithmetic_is_refused_in_numpys_words():
    with pytest.raises(errors.DTypeError, match="numpy boolean subtract"):
        trace_only(lambda x: x - x, np.array([True]))


def test_negative_integer_power():
    with pytest.raises(ValueError, match="Integers to negative integer powers"):
        trace_only(lambda x: x**-1, INT)


def test_powers_that_numpy_singles_out():
    special = np.array([-0.0, -np.inf, 4.0, np.nan])
    check(lambda x: (x**0.5, x**2, x**-1, x**1, x**2.0, x[2] ** 2), special, exact=True)
    check(
        lambda x: (np.power(x, 0.5), np.power(x, 2), np.power(x, np.float64(-1))),
        special,
        exact=True,
    )
    check(lambda x: (x**2, x**2.0, x**1), INT)


def test_unknown_operand_types_give_pythons_own_error():
    with pytest.raises(TypeError, match="unsupported operand"):
        trace_only(lambda x: x + object(), A)


def test_an_array_of_unknown_origin_is_refused():
    from tracegrad.dtypes import F64
    from tracegrad.trace.tracer import Trace
    from tracegrad.types import TensorType

    x = Trace("f", Array).argument(TensorType((3,), F64), "x", tracked=True)
    with pytest.raises(errors.CaptureError, match="Pass it as an argument") as e:
        x + np.ones(3)
    assert e.value.kind == "unknown_capture"


def test_shape_mismatch_has_numpys_words():
    with pytest.raises(
        errors.ShapeError,
        match=r"could not be broadcast together with shapes "
        r"\(3, ?4\) \(3,\)",
    ) as e:
        trace_only(lambda x, y: x + y, A, np.ones(3))
    assert "test_array.py" in str(e.value) and "^" in str(e.value)


METHODS = [
    lambda x: x.sum(),
    lambda x: x.sum(axis=0),
    lambda x: x.sum((0, 1), keepdims=True),
    lambda x: x.mean(1),
    lambda x: x.prod(axis=-1),
    lambda x: x.max(axis=1),
    lambda x: x.min(),
    lambda x: x.var(axis=0, ddof=1),
    lambda x: x.std(),
    lambda x: x.argmax(1),
    lambda x: x.argmin(),
    lambda x: x.any(axis=0),
    lambda x: x.all(),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(),
    lambda x: x.reshape(4, 3),
    lambda x: x.reshape((2, -1)),
    lambda x: x.ravel(),
    lambda x: x.flatten("F"),
    lambda x: x.T,
    lambda x: x.transpose(1, 0),
    lambda x: x.swapaxes(0, 1),
    lambda x: x[None].squeeze(0),
    lambda x: x.copy(),
    lambda x: x.astype(np.float32),
    lambda x: x.astype("i4"),
    lambda x: x.clip(-0.2, 0.5),
    lambda x: x.clip(None, 0.5),
    lambda x: x.round(1),
    lambda x: x.dot(x.T),
    lambda x: x.take([0, 2], axis=1),
    lambda x: x.diagonal(1),
    lambda x: x.repeat(2, axis=0),
    lambda x: x.mT,
    lambda x: x.real,
    lambda x: abs(x),
    lambda x: -x,
    lambda x: +x,
    lambda x: divmod(x, 0.3),
    lambda x: x @ x.T,
    lambda x: list(x),
    lambda x: x.conj(),
    lambda x: x.view(),
    lambda x: x[0:0].sum(),
    lambda x: x.sum(where=x > 0, initial=2.0),
    lambda x: x.max(initial=9.0, where=x > 0),
    lambda x: x.mean(where=x > 0),
]


@pytest.mark.parametrize("k", range(len(METHODS)))
@pytest.mark.parametrize("order", "CF")
def test_methods(k, order):
    check(METHODS[k], np.array(A, order=order))


def test_attributes_are_ndarrays():
    def f(x):
        return [
            x.ndim,
            x.size,
            x.itemsize,
            x.nbytes,
            len(x),
            x.flags.c_contiguous,
            x.dtype == np.float64,
            x.shape[1],
            x.strides[0],
        ]

    check(f, A)


def test_torch_names_that_ndarray_lacks():
    def f(x):
        x.narrow(1, 1, 2).mul_(2.0)
        x.add_(1.0).exp_()
        x.select(0, 1).zero_()
        return x.unsqueeze(0).expand(2, 3, 4), x.unfold(1, 2, 1), x.permute(1, 0), x.detach()

    traced = trace_only(f, A)
    want = A.copy()
    want[:, 1:3] *= 2
    want = np.exp(want + 1)
    want[1] = 0
    got = traced.run((A.copy(),))
    np.testing.assert_allclose(got[3], want)
    np.testing.assert_allclose(got[0], np.broadcast_to(want, (2, 3, 4)))
    np.testing.assert_allclose(got[1], np.lib.stride_tricks.sliding_window_view(want, 2, 1))


# ------------------------------------------------------------------------------------- writes


def _augmented(x, y):
    x += y
    x[1:] -= 2 * x[:-1]
    x[:, 0] *= x[:, 1]
    x[::2, ::-1] /= 3
    x[0] **= 2
    x[..., 1] //= 0.3
    x[-1] %= 2
    return x


def test_augmented_assignment():
    check(_augmented, A, ROW)
    check(_augmented, np.asfortranarray(A), ROW)


def test_operands_are_read_before_the_write():
    def f(x):
        x[1:] += x[:-1]
        x += x.T.reshape(3, 4)
        x[:] = x[::-1]
        return x

    check(f, A)


def test_views_share_memory():
    def f(x):
        row, column, flat = x[1], x[:, 2], x.reshape(-1)
        row += 1
        column[:] = 7
        flat[0] = -1
        return row, column, flat, x.T

    check(f, A)


def test_in_place_cast_is_refused_in_numpys_words():
    def f(x):
        x += 1.5

    with pytest.raises(
        errors.DTypeError,
        match="Cannot cast ufunc 'add' output from "
        r"dtype\('float64'\) to dtype\('int64'\)",
    ) as e:
        trace_only(f, INT)
    assert e.value.kind == "result_cast"


def test_in_place_result_may_not_be_larger():
    def f(x, y):
        x += y

    with pytest.raises(errors.ShapeError, match="non-broadcastable output operand"):
        trace_only(f, ROW, A)


def test_assignment_converts_as_numpy():
    def f(x):
        x[0] = 2.9
        x[1] = True
        x[2] = np.float32(1.7)
        return x

    check(f, INT)


def test_read_only_views_are_not_written():
    def f(x):
        x.diagonal()[0] = 1.0

    with pytest.raises(ValueError, match="read-only"):
        trace_only(f, A)
    with pytest.raises(ValueError, match="read-only"):
        trace_only(lambda x: np.broadcast_to(x, (2, 3, 4)).fill(0), A)


def test_assignment_of_a_wrong_shape():
    def f(x):
        x[0] = np.ones(3)

    with pytest.raises(
        ValueError,
        match=r"could not broadcast input array from shape \(3,\) "
        r"into shape \(4,\)",
    ):
        trace_only(f, A)


def test_concrete_buffers_enter_the_graph_when_written():
    from tracegrad.trace import creation

    def mine(x):
        out = creation.zeros(x.shape)
        out[0] = 5
        out[1:] = x[1:] * 2
        return out

    traced = trace_only(mine, A)
    want = np.zeros_like(A)
    want[0], want[1:] = 5, A[1:] * 2
    np.testing.assert_array_equal(traced.run((A.copy(),))[0], want)


# ------------------------------------------------------------- asking for values, refusals


ROUTES = [
    (lambda x: bool(x[0, 0] > 0), errors.ConcretizationError, "np.where"),
    (lambda x: float(x[0, 0]), errors.ConcretizationError, r"float\(\) needs the value"),
    (lambda x: int(x[0, 0]), errors.ConcretizationError, r"int\(\) needs"),
    (lambda x: x[0, 0].item(), errors.ConcretizationError, r"\.item\(\) needs"),
    (lambda x: x.tolist(), errors.ConcretizationError, r"\.tolist\(\)"),
    (lambda x: f"{x[0, 0]:.3f}", errors.ConcretizationError, "tg.debug.print"),
    (lambda x: range(x[0, 0].astype(int)), errors.ConcretizationError, "static"),
    (lambda x: np.asarray(x), errors.EscapeError, "`np.asarray` needs a real array"),
    (lambda x: hash(x), TypeError, "unhashable type"),
    (lambda x: x[0, 0] in [1.0], errors.ConcretizationError, "`in` needs the value"),
    (lambda x: np.linalg.eig(x), errors.UnsupportedError, r"np.linalg.eig is not supported yet"),
    (lambda x: np.sort(x), errors.UnsupportedError, r"np.sort is not supported yet"),
    (lambda x: x.sort(), errors.UnsupportedError, r"ndarray.sort is not supported yet"),
    (lambda x: x.flat, errors.UnsupportedError, "reshape"),
    (lambda x: x.trace(), errors.UnsupportedError, r"np.trace\(x\)"),
    (lambda x: np.frexp(x), errors.UnsupportedError, "np.frexp is not supported yet"),
    (lambda x: x.nonsense, AttributeError, "no attribute 'nonsense'"),
]


@pytest.mark.parametrize("k", range(len(ROUTES)))
def test_refusals_name_the_route_and_the_remedy(k):
    f, error, text = ROUTES[k]
    with pytest.raises(error, match=text) as e:
        trace_only(f, A)
    if isinstance(e.value, errors.TracegradError):
        assert "test_array.py" in str(e.value)


def test_writing_a_traced_value_into_a_real_array():
    real = np.zeros((3, 4))

    def f(x):
        real[...] = x

    with pytest.raises(errors.EscapeError, match="np.zeros"):
        trace_only(f, A)


def test_a_call_into_an_installed_package_is_named_as_written():
    import scipy.linalg

    with pytest.raises(errors.EscapeError, match="`scipy.linalg.expm` needs a real array"):
        trace_only(lambda x: scipy.linalg.expm(x[:3, :3]), A)


def test_printing_never_raises(capsys):
    def f(x):
        print(x, x.sum(), f"{x}", repr(x))
        return x

    trace_only(f, A)
    assert "traced Array float64[3, 4]" in capsys.readouterr().out


def test_known_values_answer():
    from tracegrad.trace import creation

    def f(x):
        k = creation.arange(4)
        assert bool(k[1] == 1) and int(k[2]) == 2 and [int(i) for i in k] == [0, 1, 2, 3]
        assert f"{k[3]:03d}" == "003" and float(creation.full((), 2.5)) == 2.5
        assert np.asarray(k).tolist() == [0, 1, 2, 3] and 3 in k
        return x[:, int(k[2])]

    traced = trace_only(f, A)
    np.testing.assert_array_equal(traced.run((A.copy(),))[0], A[:, 2])


def test_a_tracer_used_after_its_trace_is_a_leak():
    kept = []
    trace_only(lambda x: kept.append(x), A)
    with pytest.raises(errors.LeakedTracerError, match="outside the call"):
        kept[0] + 1


@pytest.mark.parametrize(
    "op",
    [op for op in REGISTRY if op.inplace and op.numpy and op.name not in ("ldexp", "round")],
    ids=lambda op: op.name,
)
def test_in_place_twins_are_the_op_written_back(op):
    samples = [
        s
        for s in op.samples(np.random.default_rng(0))
        if all(getattr(x, "shape", ()) == (3, 4) for x in s.operands)
    ]
    for sample in samples:
        xs = [np.asarray(x) for x in sample.operands]
        want = op.reference(sample.attrs, *xs)
        if want.dtype != xs[0].dtype:
            continue
        name = f"{op.methods[0]}_"
        traced = trace_only(lambda x, *more, n=name: getattr(x, n)(*more), *xs)
        same(traced.run(tuple(x.copy() for x in xs))[0], want)
