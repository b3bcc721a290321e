"""Reductions of ``x[mask]`` with a mask known at run time only: NumPy's and PyTorch's answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import errors

X = np.array([[1.5, -2.0, 3.0, 0.25], [2.0, 3.0, -0.5, 1.0], [0.5, 3.0, -1.0, 4.0]])
MASKS = {
    "some": (X > 0.4) & (X != 4.0),
    "all": np.ones(X.shape, bool),
    "one": X == -2.0,
    "none": np.zeros(X.shape, bool),
}

FULL = {
    "sum": lambda v: v.sum(),
    "np.sum": lambda v: np.sum(v),
    "mean": lambda v: v.mean(),
    "np.mean": lambda v: np.mean(v),
    "prod": lambda v: v.prod(),
    "np.prod": lambda v: np.prod(v),
    "var": lambda v: v.var(),
    "std": lambda v: np.std(v),
    "ddof": lambda v: np.var(v, ddof=1),
    "any": lambda v: (v > 2.5).any(),
    "all": lambda v: np.all(v > -1.5),
    "not": lambda v: np.any(~(v < 2.5) & (v != 3.0)),
    "size": lambda v: v.size * 2,
    "len": lambda v: len(v) / 2.0,
    "shape": lambda v: v.shape[0] + v.ndim,
    "count_nonzero": lambda v: np.count_nonzero(v > 0.0),
    "equal": lambda v: np.sum(v == 3.0),
    "initial": lambda v: np.max(v, initial=2.5) + v.min(initial=0.0),
    "sum_initial": lambda v: np.sum(v, initial=4.0),
    "keepdims": lambda v: np.sum(v, keepdims=True),
    "axis": lambda v: v.sum(axis=0) + np.mean(v, axis=-1, keepdims=True),
    "dot": lambda v: v @ v + np.dot(v, 2.0 * v),
    "norm": lambda v: np.linalg.norm(v),
    "norm1": lambda v: np.linalg.norm(v, 1),
    "reduce": lambda v: np.add.reduce(v) * np.multiply.reduce(v),
    "elementwise": lambda v: np.sum(np.log(np.abs(v)) ** 2 / (1.0 + v * v)),
    "where": lambda v: np.sum(np.where(v > 1.0, v, -1.0)),
    "clip": lambda v: np.clip(v, -1.0, 2.0).mean(),
    "integers": lambda v: np.sum(2 ** (v.astype(np.int64) + 3)),
    "again": lambda v: v[v > 1.0].sum(),
    "complex": lambda v: np.sum((v * (1.0 + 2.0j)).imag),
}
NOT_EMPTY = {
    "average": lambda v: np.average(v, weights=v * v),
    "max": lambda v: v.max(),
    "np.max": lambda v: np.max(v),
    "min": lambda v: np.min(v),
    "ptp": lambda v: np.ptp(v),
    "reduce": lambda v: np.maximum.reduce(v) - np.minimum.reduce(v),
    "of_values": lambda v: np.max(np.sin(v)) * np.min(v**2),
}
WITHOUT_GRADIENT = {"any", "all", "not", "size", "len", "shape", "count_nonzero", "equal"}
WITHOUT_GRADIENT |= {"integers"}


def quietly(f, *args):
    """What NumPy gives, without its warnings of empty slices."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return f(*args)


def select(reduction):
    def f(x, mask):
        return reduction(x[mask])

    return f


def check_value(reduction, x, mask):
    f = select(reduction)
    got, want = tg.compile(f, backend="numpy")(x, mask), quietly(f, x, mask)
    np.testing.assert_allclose(got, want, rtol=1e-13)
    assert np.shape(got) == np.shape(want)
    if not isinstance(want, (int, float)):
        assert np.asarray(got).dtype == np.asarray(want).dtype


def check_gradient(reduction, x, mask):
    """Against central differences of the selected elements; the others get exactly 0."""

    def f(x, mask):
        return np.sum(reduction(x[mask]))

    got = tg.grad(f, backend="numpy")(x, mask)
    assert np.array_equal(got[~mask], np.zeros(np.sum(~mask)))
    for at in zip(*np.nonzero(mask), strict=True):
        moved = [x.copy() for _ in range(2)]
        moved[0][at] += 1e-6
        moved[1][at] -= 1e-6
        high, low = (f(y, mask) for y in moved)
        np.testing.assert_allclose(got[at], (high - low) / 2e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("mask", MASKS)
def test_value(name, mask):
    check_value(FULL[name], X, MASKS[mask])


@pytest.mark.parametrize("name", NOT_EMPTY)
@pytest.mark.parametrize("mask", ["some", "all", "one"])
def test_extremum(name, mask):
    check_value(NOT_EMPTY[name], X, MASKS[mask])


@pytest.mark.parametrize("name", [k for k in FULL if k not in WITHOUT_GRADIENT])
def test_gradient(name):
    rng = np.random.default_rng(0)
    x = rng.permutation(12).reshape(3, 4) / 3.1 - 1.3
    check_gradient(FULL[name], x, rng.random((3, 4)) < 0.6)


@pytest.mark.parametrize("name", NOT_EMPTY)
def test_gradient_of_extremum(name):
    rng = np.random.default_rng(1)
    x = rng.permutation(12).reshape(3, 4) / 3.1 - 1.3
    check_gradient(NOT_EMPTY[name], x, rng.random((3, 4)) < 0.6)


@pytest.mark.parametrize("name", [*FULL, *NOT_EMPTY])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_left_out_has_no_part(name, bad):
    reduction = (FULL | NOT_EMPTY)[name]
    mask = MASKS["some"]
    x = np.where(mask, X, bad)
    check_value(reduction, x, mask)
    if name not in WITHOUT_GRADIENT:
        f = tg.grad(lambda x, m: np.sum(reduction(x[m])), backend="numpy")
        got = f(x, mask)
        assert np.array_equal(got[~mask], np.zeros(np.sum(~mask)))
        np.testing.assert_array_equal(got, f(np.where(mask, X, 0.75), mask))


@pytest.mark.parametrize("name", [k for k in FULL if k not in WITHOUT_GRADIENT])
def test_gradient_of_an_empty_selection_is_zero(name):
    f = tg.grad(lambda x, m: np.sum(FULL[name](x[m])), backend="numpy")
    assert np.array_equal(f(X, MASKS["none"]), np.zeros(X.shape))


@pytest.mark.parametrize("backend", ["numpy", "c"])
@pytest.mark.parametrize("name", ["max", "min", "ptp"])
def test_extremum_of_nothing(name, backend):
    f = tg.compile(select(NOT_EMPTY[name]), backend=backend)
    with pytest.raises(ValueError) as wanted:
        NOT_EMPTY[name](X[MASKS["none"]])
    with pytest.raises(errors.RuntimeValueError) as caught:
        f(X, MASKS["none"])
    assert caught.value.message == str(wanted.value)
    assert "test_masked_reductions.py" in str(caught.value)
    assert f(X, MASKS["some"]) == NOT_EMPTY[name](X[MASKS["some"]])


def test_nothing_is_written_when_a_check_fails():
    @tg.compile(backend="numpy")
    def f(x, y, mask):
        y[:] = 0.0
        return x[mask].max()

    y = np.ones(3)
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
        f(X, y, MASKS["none"])
    assert np.array_equal(y, np.ones(3))


def test_extremum_of_an_empty_array_is_refused_while_tracing():
    f = tg.compile(lambda x, m: x[m].max(), backend="numpy")
    with pytest.raises(errors.ValueArgumentError, match="zero-size array to reduction operation"):
        f(np.zeros((0, 3)), np.zeros((0, 3), bool))


def test_ties_share_the_gradient_as_in_pytorch():
    torch = pytest.importorskip("torch")
    x = np.array([3.0, 1.0, 3.0, 3.0, -np.inf, np.nan])
    for mask in ([1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 1, 1, 1, 1, 0]):
        m = np.array(mask, bool)
        for name in ("max", "min"):
            t = torch.tensor(x, requires_grad=True)
            getattr(torch, "a" + name)(t[torch.tensor(m)]).backward()
            got = tg.grad(lambda x, m, n=name: getattr(x[m], n)(), backend="numpy")(x, m)
            np.testing.assert_array_equal(got, t.grad.numpy())


@pytest.mark.oracle
def test_pytorch_agrees():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, m = rng.normal(size=(4, 5)), rng.random((4, 5)) < 0.5
    x[~m] = np.nan
    reductions = {
        "sum": lambda v: (v * v).sum(),
        "mean": lambda v: v.mean(),
        "prod": lambda v: v.prod(),
        "var": lambda v: v.var(),
        "std": lambda v: v.std(unbiased=False),
        "correction": lambda v: v.std(correction=1),
        "amax": lambda v: v.amax() - v.min(),
        "sum0": lambda v: v.sum(0),
        "numel": lambda v: v.sum() / v.numel() + v.size(0),
        "any": lambda v: (v > 0.5).any(),
    }
    for name, reduction in reductions.items():
        t = torch.tensor(x, requires_grad=True)
        want = reduction(t[torch.tensor(m)])
        f = tg.compile(select(reduction), backend="numpy", arrays="torch")
        np.testing.assert_allclose(np.asarray(f(x, m)), want.detach().numpy(), rtol=1e-13)
        if want.requires_grad:
            want.backward()
            g = tg.grad(select(reduction), backend="numpy", arrays="torch")(x, m)
            np.testing.assert_allclose(np.asarray(g), t.grad.numpy(), rtol=1e-12, err_msg=name)
            assert np.array_equal(np.asarray(g)[~m], np.zeros(np.sum(~m)))


# --------------------------------------------------------------------- axes, dtypes, statements


@pytest.mark.parametrize(
    "f",
    [
        lambda x, m: x[m].sum(),
        lambda x, m: x[m].mean(axis=0),
        lambda x, m: np.max(x[m], axis=0, keepdims=True),
        lambda x, m: np.var(x[:, m[0]], axis=1),
        lambda x, m: np.sum(x[:, m[0]], axis=(0, 1)) * x[:, m[0]].size,
        lambda x, m: x[1:, m[0]].prod(axis=-2, keepdims=True),
    ],
)
def test_masks_of_some_axes(f):
    x = np.random.default_rng(3).normal(size=(3, 3, 2))
    m = np.array([[True, False, True], [False, True, True], [False, False, True]])
    got, want = tg.compile(f, backend="numpy")(x, m), f(x, m)
    np.testing.assert_allclose(got, want, rtol=1e-13)
    assert np.shape(got) == np.shape(want)


@pytest.mark.parametrize("dtype", ["f4", "i4", "u8", "?", "c16", "c8"])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "max", "any", "half", "less"])
def test_dtypes(dtype, name):
    reductions = {
        "any": lambda v: v.any() | v.all(),
        "half": lambda v: v.sum() / v.size,
        "less": lambda v: v.sum() / (len(v) - 1),
    }
    reduction = reductions.get(name) or (lambda v: getattr(v, name)())
    x = (X * 2).astype(dtype)
    if name == "max" and dtype.startswith("c"):
        with pytest.raises(errors.DTypeError, match="complex"):
            tg.compile(select(reduction), backend="numpy")(x, MASKS["some"])
        return
    got = tg.compile(select(reduction), backend="numpy")(x, MASKS["some"])
    want = reduction(x[MASKS["some"]])
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.asarray(got).dtype == np.asarray(want).dtype


def test_a_count_is_exact_in_single_precision():
    n = 2**24 + 2
    f = tg.compile(lambda x, m: np.mean(x, where=m), backend="c")
    x, m = np.zeros(n, np.float32), np.ones(n, bool)
    x[-1] = n
    assert f(x, m) == np.float32(1.0)


def test_the_mask_of_the_time_of_reading_counts():
    def f(x, m):
        v = x[m]
        m[:] = False
        x[:] = 7.0
        return v.sum() + len(v)

    want = f(X.copy(), MASKS["some"].copy())
    assert tg.compile(f, backend="numpy")(X.copy(), MASKS["some"].copy()) == want


def test_in_place_operations_rebind_no_other_name():
    def f(x, m):
        v = x[m]
        v *= 2.0
        return v.sum()

    assert tg.compile(f, backend="numpy")(X, MASKS["some"]) == f(X, MASKS["some"])

    def g(x, m):
        v = x[m]
        w = v
        v *= 2.0
        return w.sum()

    with pytest.raises(errors.UnsupportedError, match="changed in place is read by another name"):
        tg.compile(g, backend="numpy")(X, MASKS["some"])


def test_in_place_operations_keep_the_dtype():
    def f(x, m):
        v = x[m]
        v += 0.5
        return v.sum()

    x = np.arange(12).reshape(3, 4)
    with pytest.raises(TypeError) as wanted:
        f(x, MASKS["some"])
    with pytest.raises(errors.DTypeError) as caught:
        tg.compile(f, backend="numpy")(x, MASKS["some"])
    assert caught.value.message == str(wanted.value)


def test_a_traced_scalar_has_no_part_in_what_is_left_out():
    def f(x, m, s):
        return np.sum(1.0 / (x[m] - s))

    m = MASKS["some"]
    ds = tg.grad(f, argnums=2, backend="numpy")(X, m, 1.0 + 1e-300)
    assert not np.isfinite(ds)  # 1.0 is selected
    m = m & (X != 1.0)
    got = tg.grad(f, argnums=2, backend="numpy")(X, m, 1.0)
    np.testing.assert_allclose(got, np.sum(1.0 / (X[m] - 1.0) ** 2))


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_in_a_loop(backend):
    def rings(x, r, n):
        out = np.zeros(n)
        for i in range(n):
            out[i] = x[np.logical_and(i <= r, r < i + 1)].mean()
        return out

    rng = np.random.default_rng(4)
    x, r = rng.normal(size=80), rng.uniform(0.0, 9.0, 80)
    f = tg.compile(rings, backend=backend)
    np.testing.assert_allclose(f(x, r, 9), rings(x, r, 9), rtol=1e-13)
    assert f.graph(x, r, 9).count("= loop(") == 1
    got = tg.grad(lambda x: np.sum(rings(x, r, 9) ** 2), backend=backend)(x)
    k = np.floor(r).astype(int)
    counts = np.bincount(k, minlength=9)
    np.testing.assert_allclose(got, (2.0 * rings(x, r, 9) / counts)[k], rtol=1e-12)


@pytest.mark.parametrize("name", ["mean", "var", "std", "sum", "prod"])
def test_where_as_the_argument_of_a_reduction(name):
    function = getattr(np, name)
    m = MASKS["some"]
    x = np.where(m, X, np.nan)
    f = tg.value_and_grad(lambda x, m: function(x, where=m), backend="numpy")
    value, gradient = f(x, m)
    _, want = f(np.where(m, X, 0.5), m)
    np.testing.assert_allclose(value, function(x, where=m), rtol=1e-13)
    np.testing.assert_array_equal(gradient, want)
    assert np.array_equal(gradient[~m], np.zeros(np.sum(~m)))


# ------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "f",
    [
        lambda x, m: np.sort(x[m]),
        lambda x, m: np.median(x[m]),
        lambda x, m: x[m].argmax(),
        lambda x, m: x[m],
        lambda x, m: x[m] + x[~m],
        lambda x, m: x[m] == x[~m],
        lambda x, m: x[m] @ x[~m],
        lambda x, m: sum(x[m]),
        lambda x, m: x[:, m[0]].sum(axis=0),
        lambda x, m: np.add(x[m], 1.0, out=x),
        lambda x, m: np.where(x[m] > 0.0),
        lambda x, m: x[m][0],
        lambda x, m: np.average(x[m], weights=x),
        lambda x, m: 1.0 in x[m],
    ],
)
def test_refused(f):
    with pytest.raises(errors.DataDependentShapeError, match="depends on traced values"):
        tg.compile(f, backend="numpy")(X.copy(), MASKS["some"])


@pytest.mark.parametrize("word", ["out", "where"])
def test_keywords_that_make_no_sense_are_refused(word):
    with pytest.raises(errors.UnsupportedError, match=f"of x.mask. with {word}="):
        tg.compile(lambda x, m: np.sum(x[m], **{word: m}), backend="numpy")(X, MASKS["some"])


def test_a_count_has_the_type_that_numpy_gives_it():
    def f(x):
        small = np.float32(0.5)
        return (
            small + np.count_nonzero(x > 0.2) * 0.1,
            small + len(x[x > 0.2]) * 0.1,
            small + np.count_nonzero(x[x > 0.2]) * 0.1,
        )

    x = np.linspace(0.0, 1.0, 7)
    for got, want in zip(tg.compile(f, backend="numpy")(x), f(x), strict=True):
        assert got == want and got.dtype == want.dtype
