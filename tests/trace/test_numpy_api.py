"""NumPy's functions and protocols on traced arrays, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trace.running import Tensor, check, trace_only
from tracegrad import errors
from tracegrad.graph.op import REGISTRY
from tracegrad.trace import creation
from tracegrad.trace.numpy_table import FUNCTIONS

A = np.arange(12.0).reshape(3, 4) / 7 - 0.6
B = np.arange(8.0).reshape(4, 2) - 3
V = np.array([1.0, -2.0, 3.0, 0.5])
INT = np.arange(12).reshape(3, 4) - 5

UFUNCS = sorted(
    {f for op in REGISTRY for f in op.numpy if isinstance(f, np.ufunc)}, key=lambda f: f.__name__
)


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda f: f.__name__)
def test_every_ufunc_of_the_registry(ufunc):
    for code in ("f8", "f4", "i8", "i4", "u1", "?"):
        args = [np.array([[1, 0, 1, 1], [1, 1, 0, 1]]).astype(code) for _ in range(ufunc.nin)]
        try:
            with np.errstate(all="ignore"):
                want = ufunc(*args)
        except TypeError:
            with pytest.raises(TypeError):
                trace_only(ufunc, *args)
            continue
        if want.dtype != np.float16:
            check(ufunc, *args)


CALLS = [
    lambda x, v: np.sum(x),
    lambda x, v: np.sum(x, axis=(0, 1)),
    lambda x, v: np.mean(x, axis=-1),
    lambda x, v: np.prod(x, 0),
    lambda x, v: np.var(x, 1, ddof=1),
    lambda x, v: np.std(x),
    lambda x, v: np.max(x, axis=0),
    lambda x, v: np.amin(x, 1, keepdims=True),
    lambda x, v: np.ptp(x, axis=1),
    lambda x, v: np.any(x > 0, axis=0),
    lambda x, v: np.all(x),
    lambda x, v: np.argmax(x, axis=0),
    lambda x, v: np.argmin(x),
    lambda x, v: np.cumsum(x),
    lambda x, v: np.cumprod(x, axis=1),
    lambda x, v: np.diff(x),
    lambda x, v: np.diff(x, 2, 0),
    lambda x, v: np.diff(x, prepend=0.0 * x[:, :1]),
    lambda x, v: np.count_nonzero(x > 0, axis=1),
    lambda x, v: np.trace(x),
    lambda x, v: np.average(x, axis=0),
    lambda x, v: np.average(v),
    lambda x, v: np.average(x, axis=1, weights=np.abs(v)),
    lambda x, v: np.sum(x, where=x > 0),
    lambda x, v: np.max(x, initial=0.25),
    lambda x, v: np.std(x, axis=0, where=x > -1),
    lambda x, v: np.sum(x, dtype=np.float32),
    lambda x, v: np.sum(x[:, :0], axis=1),
    lambda x, v: np.argmax(x, axis=1, keepdims=True),
    lambda x, v: np.sum(x, axis=()),
    # shapes
    lambda x, v: np.reshape(x, (4, 3)),
    lambda x, v: np.ravel(x, "F"),
    lambda x, v: np.transpose(x),
    lambda x, v: np.swapaxes(x, 0, 1),
    lambda x, v: np.moveaxis(x[None], 0, -1),
    lambda x, v: np.expand_dims(x, (0, 3)),
    lambda x, v: np.squeeze(x[None]),
    lambda x, v: np.broadcast_to(v, (2, 4)),
    lambda x, v: np.broadcast_arrays(x, v),
    lambda x, v: np.flip(x),
    lambda x, v: np.flip(x, 1),
    lambda x, v: np.flipud(x),
    lambda x, v: np.fliplr(x),
    lambda x, v: np.diagonal(x, 1),
    lambda x, v: np.diag(v, 1),
    lambda x, v: np.diag(x),
    lambda x, v: np.tril(x),
    lambda x, v: np.triu(x, 1),
    lambda x, v: np.atleast_1d(v[0]),
    lambda x, v: np.atleast_2d(v),
    lambda x, v: np.atleast_3d(x),
    lambda x, v: np.rollaxis(x[None], 2),
    lambda x, v: np.roll(v, 1),
    lambda x, v: np.roll(x, -1, 0),
    lambda x, v: np.roll(x, 5),
    lambda x, v: np.tile(v, (2, 2)),
    lambda x, v: np.tile(x, 2),
    lambda x, v: np.repeat(v, 3),
    lambda x, v: np.repeat(x, 2, axis=1),
    # joins and splits
    lambda x, v: np.concatenate([x, v[None]]),
    lambda x, v: np.concatenate((x, x), axis=1),
    lambda x, v: np.concatenate([x, v[None]], axis=None),
    lambda x, v: np.stack([v, v * 2]),
    lambda x, v: np.stack([v, x[0]], axis=-1),
    lambda x, v: np.hstack([v, v]),
    lambda x, v: np.vstack([x, v]),
    lambda x, v: np.dstack([x, x]),
    lambda x, v: np.append(v, 1.0),
    lambda x, v: np.column_stack([v, v]),
    lambda x, v: np.split(v, 2),
    lambda x, v: np.split(x, [1, 3], axis=1),
    lambda x, v: np.array_split(v, 3),
    lambda x, v: np.hsplit(x, 2),
    lambda x, v: np.vsplit(x, [1]),
    lambda x, v: np.unstack(x),
    lambda x, v: np.concatenate([x.astype("f4"), x]),
    lambda x, v: np.stack([v[0], v[1]]),
    # products
    lambda x, v: np.dot(x, v),
    lambda x, v: np.dot(v, v),
    lambda x, v: x @ v,
    lambda x, v: np.matmul(x, x.T),
    lambda x, v: np.matmul(x[None], v),
    lambda x, v: v @ x.T,
    lambda x, v: np.outer(v, v[:2]),
    lambda x, v: np.inner(x, v),
    lambda x, v: np.vdot(v, v),
    lambda x, v: np.tensordot(x, x, ([0], [0])),
    lambda x, v: np.tensordot(x, x, 2),
    lambda x, v: np.einsum("ij,j->i", x, v),
    lambda x, v: np.einsum("ij->ji", x),
    lambda x, v: np.einsum("ij,kj", x, x),
    lambda x, v: np.dot(2.0, v),
    lambda x, v: np.linalg.norm(v),
    lambda x, v: np.linalg.norm(x, axis=1),
    lambda x, v: np.linalg.norm(x, 1),
    lambda x, v: np.linalg.norm(v, np.inf),
    lambda x, v: np.linalg.norm(v, 3),
    lambda x, v: np.linalg.norm(x, np.inf, keepdims=True),
    lambda x, v: np.linalg.norm(x, "fro"),
    lambda x, v: np.linalg.norm(v, 0),
    # choices
    lambda x, v: np.where(x > 0, x, v),
    lambda x, v: np.where(x > 0, 1, 0.0),
    lambda x, v: np.clip(x, -0.1, 0.4),
    lambda x, v: np.clip(x, None, v),
    lambda x, v: np.clip(x, a_min=0, a_max=None),
    lambda x, v: np.round(x, 2),
    lambda x, v: np.fix(x * 3),
    lambda x, v: np.isclose(x, x + 1e-9),
    lambda x, v: np.allclose(x, x),
    lambda x, v: np.nan_to_num(np.log(x)),
    lambda x, v: np.take(x, [[0, 1], [2, -1]], axis=1),
    lambda x, v: np.take(x, [3, 5]),
    lambda x, v: np.copy(x),
    lambda x, v: np.zeros_like(x),
    lambda x, v: np.full_like(x, v),
    lambda x, v: np.ones_like(x, dtype=int),
    lambda x, v: np.linspace(v[0], v[2], 5),
    lambda x, v: np.meshgrid(v, v[:2]),
    lambda x, v: np.meshgrid(v, v[:3], indexing="ij"),
    lambda x, v: [np.shape(x)[0], np.ndim(x), np.size(x)],
    lambda x, v: np.divmod(x, 0.3),
    lambda x, v: np.float_power(x[1:], 2),
    lambda x, v: np.linspace(v[0], 3.0, 4, endpoint=False),
]


@pytest.mark.parametrize("k", range(len(CALLS)))
def test_functions(k):
    check(CALLS[k], A, V)
    check(CALLS[k], np.asfortranarray(A), V[::-1])


@pytest.mark.parametrize("k", range(30))
def test_reductions_of_integers(k):
    if k not in (23, 25):
        check(CALLS[k], INT, np.array([1, 2, 3, 4]))


METHODS = [
    lambda x: np.add.reduce(x),
    lambda x: np.multiply.reduce(x, axis=1),
    lambda x: np.maximum.reduce(x, axis=None),
    lambda x: np.logical_or.reduce(x > 0),
    lambda x: np.add.accumulate(x, axis=1),
    lambda x: np.multiply.accumulate(x),
    lambda x: np.subtract.outer(x[0], x[1]),
    lambda x: np.multiply.outer(x, x[0]),
    lambda x: np.add.reduce(x, axis=(0, 1), keepdims=True),
    lambda x: np.add.outer(x[0, 0], x),
]


@pytest.mark.parametrize("k", range(len(METHODS)))
def test_ufunc_methods(k):
    check(METHODS[k], A)


WRITES = [
    lambda x, y: np.add(x, y, out=x),
    lambda x, y: np.exp(y, out=x[...]),
    lambda x, y: np.multiply(x, 2, out=x, where=y > 0),
    lambda x, y: np.sum(y, axis=0, out=x[0]),
    lambda x, y: np.clip(x, 0, 0.3, out=x),
    lambda x, y: np.matmul(y, y.T, out=x[:, :3]),
    lambda x, y: np.add(y, 1, x),
    lambda x, y: np.concatenate([y[:1], y[1:]], out=x),
    lambda x, y: np.copyto(x, y[0]),
    lambda x, y: np.copyto(x, 1.0, where=y > 0),
    lambda x, y: np.fill_diagonal(x[:3, :3], 7.0),
    lambda x, y: np.maximum(x, 0, out=x),
    lambda x, y: np.put(x, [1, 5], [9.0, 8.0]),
    lambda x, y: np.mean(y, axis=1, out=x[:, 0]),
    lambda x, y: np.add.at(x, ([0, 0], [1, 1]), 1.0),
    lambda x, y: np.negative(x, out=x[:, ::-1]),
]


@pytest.mark.parametrize("k", range(len(WRITES)))
def test_out_is_a_write(k):
    def f(x, y):
        out = WRITES[k](x, y)
        return x if out is None else (out, x)

    check(f, A, A[::-1].copy())


def test_out_is_returned_itself():
    traced = trace_only(lambda x: (x, np.add(x, 1, out=x)), A)
    assert traced.result[0] is traced.result[1]


def test_out_keeps_its_dtype():
    with pytest.raises(errors.DTypeError, match="Cannot cast ufunc 'sin' output"):
        trace_only(lambda x, n: np.sin(x, out=n), A, INT)
    check(lambda x, n: np.add(x, n, out=n, casting="unsafe"), A, INT)


def test_where_without_out_is_refused():
    with pytest.raises(ValueError, match="np.where"):
        trace_only(lambda x: np.add(x, 1, where=x > 0), A)


@pytest.mark.parametrize(
    "name",
    [
        "linalg.inv",
        "linalg.svd",
        "sort",
        "median",
        "histogram",
        "searchsorted",
        "fft.fft",
        "interp",
        "cross",
        "kron",
    ],
)
def test_other_functions_are_refused_by_name(name):
    function = np
    for part in name.split("."):
        function = getattr(function, part)
    with pytest.raises(errors.UnsupportedError, match=f"np.{name} is not supported yet") as e:
        trace_only(
            lambda x: (
                function(x, x, x)
                if name == "interp"
                else function(x, x)
                if name in ("cross", "kron")
                else function(x, 0.5)
                if name == "searchsorted"
                else function(x)
            ),
            A[0],
        )
    assert e.value.kind == "unsupported" and "test_numpy_api.py" in str(e.value)


def test_wrong_arguments_name_the_function():
    with pytest.raises(TypeError, match="np.sum"):
        trace_only(
            lambda x: FUNCTIONS[np.sum] and x.__array_function__(np.sum, (), (x,), {"nonsense": 1}),
            A,
        )


# ------------------------------------------------------------------------------------ creation


PAIRS = [
    lambda np, x: np.array([x[0, 0], 2, x[0, 1]]),
    lambda np, x: np.array([[x[0, 0], 1], [2, 3]]),
    lambda np, x: np.array([x[0], x[1]]),
    lambda np, x: np.asarray([x[0, 0] > 0, True]),
    lambda np, x: np.full((2, 3), x[0, 1]),
    lambda np, x: np.full((2, 4), x[0]),
    lambda np, x: np.array(x),
    lambda np, x: np.array(x, dtype="f4"),
    lambda np, x: np.eye(3) + x[0, 0],
    lambda np, x: np.zeros((3, 4)) + x,
    lambda np, x: np.arange(4) * x,
    lambda np, x: np.ones(4) @ x.T,
    lambda np, x: np.r_[x[0], 1.0, 0:3],
    lambda np, x: np.c_[x[0], x[1]],
    lambda np, x: np.ascontiguousarray(x.T),
    lambda np, x: np.asfortranarray(x),
    lambda np, x: np.array([x[0], x[1]], ndmin=3),
    lambda np, x: np.identity(4) * x[0],
    lambda np, x: np.linspace(0, 1, 4) * x,
    lambda np, x: np.full_like(x, 2),
    lambda np, x: np.tri(4) @ x.T,
    lambda np, x: np.array([1.5, x[0, 0].astype("f4")]),
    lambda np, x: np.full(3, x[0, 0], dtype="f4"),
]


@pytest.mark.parametrize("k", range(len(PAIRS)))
def test_creation_inside_a_trace(k):
    check(lambda x: PAIRS[k](np if isinstance(x, np.ndarray) else creation, x), A)


def test_conversions_of_scalars_and_arrays():
    traced = trace_only(
        lambda x: (creation.as_dtype(x[0, 0], np.float32), creation.as_dtype(x, np.int64)), A
    )
    scalar, whole = traced.result
    assert scalar.scalar and scalar.dtype == np.float32 and whole.shape == (3, 4)
    got = traced.run((A.copy(),))
    assert got[0] == np.float32(A[0, 0])
    np.testing.assert_array_equal(got[1], A.astype(int))


def test_asarray_shares_and_array_copies():
    def f(x):
        creation.asarray(x)[0] = 1.0
        creation.array(x)[1] = 2.0
        return x

    traced = trace_only(f, A)
    want = A.copy()
    want[0] = 1
    np.testing.assert_array_equal(traced.run((A.copy(),))[0], want)


def test_sizes_may_not_be_traced():
    with pytest.raises(errors.ConcretizationError, match="static"):
        trace_only(lambda n: creation.zeros(n), np.int64(3))
    with pytest.raises(errors.DataDependentShapeError, match="linspace"):
        trace_only(lambda t: creation.arange(0.0, t), 0.5)


def test_ragged_lists_are_refused():
    with pytest.raises(ValueError, match="inhomogeneous"):
        trace_only(lambda x: creation.array([x[0], x[0, :2]]), A)


def test_numpy_functions_on_the_tensor_face_keep_numpys_spelling():
    traced = trace_only(
        lambda x: (np.sum(x, axis=0, keepdims=True), np.transpose(x), np.exp(x)), A, face=Tensor
    )
    got = traced.run((A.copy(),))
    np.testing.assert_allclose(got[0], A.sum(0, keepdims=True))
    np.testing.assert_array_equal(got[1], A.T)
    assert isinstance(traced.result[2], Tensor)
