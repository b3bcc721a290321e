"""Every NumPy function that an op stands for, called on arguments of every layout."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.graph.op import REGISTRY

POSITIVE = {"sqrt", "log", "log2", "log10", "log1p", "power", "float_power"}
UNIT = {"arcsin", "arccos", "arctanh"}
FUNCTIONS = sorted(
    {f for op in REGISTRY for f in op.numpy if isinstance(f, np.ufunc)}, key=lambda f: f.__name__
)


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """`x` (2-d) in other layouts, and smaller arrays."""
    wide = np.zeros((x.shape[0] * 2, x.shape[1] * 3), x.dtype)
    wide[::2, ::3] = x
    return {
        "C": x,
        "F": np.asfortranarray(x),
        "strided": wide[::2, ::3],
        "reversed": x[::-1, ::-1],
        "row": x[1],
        "column": x[:, 1],
        "0-d": np.array(x[0, 0]),
        "empty": x[:0],
        "transposed": x.T,
    }


def operand(f: np.ufunc, dtype: type, k: int) -> np.ndarray:
    rng = np.random.default_rng(k)
    if dtype is np.bool_:
        return rng.integers(0, 2, (3, 4)).astype(bool)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 6, (3, 4)).astype(dtype)
    if f.__name__ == "arccosh":
        return rng.uniform(1.1, 3, (3, 4)).astype(dtype)
    if f.__name__ in UNIT:
        return rng.uniform(-0.9, 0.9, (3, 4)).astype(dtype)
    low = 0.2 if f.__name__ in POSITIVE else -2
    return rng.uniform(low, 2, (3, 4)).astype(dtype)


def accepts(f: np.ufunc, dtypes: tuple[type, ...]) -> bool:
    try:
        f.resolve_dtypes((*(np.dtype(d) for d in dtypes), *[None] * f.nout))
    except TypeError:
        return False
    return True


def assert_same(got, want):
    if isinstance(want, tuple):
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
        return
    assert type(got) is type(want), (type(got), type(want))
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind == "f":
        eps = np.finfo(want.dtype).eps
        np.testing.assert_allclose(got, want, rtol=8 * eps, atol=8 * eps)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore::tracegrad.errors.RecompileWarning")
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_layout(f):
    dtypes = (np.float64,) * f.nin
    if f.__name__ == "ldexp":
        dtypes = (np.float64, np.int64)
    elif not accepts(f, dtypes):
        dtypes = (np.int64,) * f.nin
    xs = [operand(f, d, k) for k, d in enumerate(dtypes)]
    compiled = tg.compile(lambda *a: f(*a), backend="numpy")
    variants = [layouts(x) for x in xs]
    for name in variants[0]:
        given = [v[name] for v in variants]
        with np.errstate(all="ignore"):
            assert_same(compiled(*given), f(*given))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int32, np.float32])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_dtype(f, dtype):
    dtypes = (dtype,) * f.nin
    if not accepts(f, dtypes):
        with pytest.raises(TypeError):
            tg.compile(lambda *a: f(*a), backend="numpy")(*[operand(f, dtype, 0)] * f.nin)
        return
    result = f.resolve_dtypes((*(np.dtype(d) for d in dtypes), *[None] * f.nout))
    xs = [operand(f, dtype, k) for k in range(f.nin)]
    compiled = tg.compile(lambda *a: f(*a), backend="numpy")
    if any(d.char == "e" for d in result[f.nin :]):  # float16 results of small integers
        with pytest.raises(TypeError):
            compiled(*xs)
        return
    with np.errstate(all="ignore"):
        assert_same(compiled(*xs), f(*xs))


@pytest.mark.parametrize(
    "f", [np.add, np.multiply, np.maximum, np.arctan2, np.power], ids=lambda f: f.__name__
)
def test_broadcasting_and_mixed_dtypes(f):
    compiled = tg.compile(lambda a, b: f(a, b), backend="numpy")
    a = np.abs(np.random.default_rng(0).standard_normal((4, 1, 3)))
    for b in (
        np.arange(1, 3).reshape(2, 1),
        np.float32(2),
        3.0,
        np.arange(1, 4, dtype=np.int8),
        np.ones((2, 3), np.float32),
    ):
        assert_same(compiled(a, b), f(a, b))
        assert_same(compiled(a.astype(np.float32), b), f(a.astype(np.float32), b))


IGNORED_ONCE = {
    "mean=": lambda x: np.var(x, mean=5.0),
    "std with mean=": lambda x: np.std(x, mean=5.0),
    "matmul with dtype=": lambda x: np.matmul(x, x, dtype=np.float32),
    "frexp with where=": lambda x: np.frexp(x, where=x > 1),
    "mode='clip'": lambda x: np.put(x, [-1], 0.0, mode="clip"),
    "copy=False": lambda x: np.nan_to_num(x, copy=False),
}


@pytest.mark.parametrize("words", IGNORED_ONCE)
def test_a_keyword_that_changes_the_result_is_never_ignored(words):
    with pytest.raises(tg.errors.UnsupportedError, match=words):
        tg.compile(IGNORED_ONCE[words])(np.arange(4.0))
