"""NumPy's strides decide view or copy, for arguments and for fresh results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trace.running import check, trace_only
from tracegrad.trace import creation, layout
from tracegrad.trace.strided import numpy_as_strided

A = np.arange(24.0).reshape(2, 3, 4)


def arrays():
    """3-d arrays of many layouts."""
    for order in itertools.permutations(range(3)):
        base = np.arange(24.0).reshape([A.shape[k] for k in order])
        yield base.transpose(np.argsort(order))
    yield np.arange(96.0).reshape(4, 6, 4)[::2, ::2]
    yield A[:, ::-1]
    yield np.asfortranarray(A)[::-1]
    yield A[:1]


RESULTS = [
    lambda x: x + 1,
    lambda x: x * x[:1],
    lambda x: np.sin(x),
    lambda x: x + x[0],
    lambda x: -x,
    lambda x: x.copy("K"),
    lambda x: x.copy(),
    lambda x: np.copy(x),
    lambda x: x.astype("f4"),
    lambda x: x.sum(0),
    lambda x: x.sum(1),
    lambda x: x.sum(2),
    lambda x: x > 1,
    lambda x: x + x.transpose(0, 1, 2),
    lambda x: x.max(axis=0),
    lambda x: x.swapaxes(0, 2) * 2,
    lambda x: x.copy("F"),
    lambda x: x.copy("A"),
    lambda x: x.T.reshape(-1, 2),
    lambda x: np.where(x > 1, x, 0),
    lambda x: x[:, [0, 2]],
    lambda x: x[..., None] * np.ones(2),
    lambda x: x.reshape(-1, order="F"),
    lambda x: x.reshape(-1, 4, order="F"),
    lambda x: np.broadcast_to(x, (2, *x.shape)) * 1.0,
    lambda x: x.ravel("K"),
]


@pytest.mark.parametrize("k", range(len(RESULTS)))
def test_strides_of_results_are_numpys(k):
    f = RESULTS[k]
    for x in arrays():
        traced = trace_only(f, x)
        want = f(x.copy("K"))
        got = traced.result.layout
        want_strides = tuple(s // want.itemsize for s in f(x).strides)
        for n, a, b in zip(want.shape, got.stride, want_strides, strict=True):
            assert n <= 1 or a == b, (x.strides, got.stride, want_strides)


@settings(max_examples=200, deadline=None)
@given(
    st.permutations(range(3)),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.sampled_from([1, -1, 2])] * 3),
)
def test_axis_order_is_nditers(order, shape, steps):
    big = np.arange(int(np.prod(shape)) * 8.0).reshape([shape[k] * 2 for k in order])
    x = big.transpose(np.argsort(order))[
        tuple(
            slice(None, n * 2, 2) if s == 2 else slice(0, n)
            for n, s in zip(shape, steps, strict=True)
        )
    ][tuple(slice(None, None, -1) if s == -1 else slice(None) for s in steps)]
    y = np.ones(shape)
    want = tuple(s // 8 for s in (x + y[::1]).strides)
    got = layout.elementwise(
        shape,
        [(x.shape, tuple(s // 8 for s in x.strides)), (y.shape, tuple(s // 8 for s in y.strides))],
    )
    got = layout.dense(shape) if got is None else got
    for n, a, b in zip(shape, got, want, strict=True):
        assert n == 1 or a == b


VIEW_OR_COPY = [
    lambda x: x.reshape(-1),
    lambda x: x.ravel(),
    lambda x: x.ravel("F"),
    lambda x: x.ravel("K"),
    lambda x: x.reshape(6, 4),
    lambda x: x.T.reshape(-1),
    lambda x: (x * 1).T.ravel(),
    lambda x: x.reshape(3, 8, order="F"),
    lambda x: x.reshape(-1, order="A"),
    lambda x: x.flatten(),
    lambda x: x[:, 1:].reshape(-1),
    lambda x: x[1].reshape(2, 6),
    lambda x: np.ravel(x.swapaxes(0, 1)),
    lambda x: x.transpose(2, 0, 1).reshape(4, 6),
    lambda x: np.reshape(x, (4, 6)),
    lambda x: x.reshape(1, 2, 3, 1, 4),
    lambda x: x.squeeze(),
]


@pytest.mark.parametrize("k", range(len(VIEW_OR_COPY)))
def test_writes_reach_the_base_exactly_where_numpys_do(k):
    def f(x):
        r = VIEW_OR_COPY[k](x)
        r[...] = -r
        r.fill(3.0) if r.flags.writeable and r.ndim == 1 else None
        x[0] = 9
        return x, r

    for x in arrays():
        if x.shape == A.shape:
            check(f, x, exact=True)


def test_a_fresh_transposed_result_keeps_its_order():
    def f(x):
        y = x.T + 1.0
        r = y.ravel()
        r[0] = 99.0
        return y

    check(f, np.arange(6.0).reshape(2, 3), exact=True)


def test_reshape_that_must_not_copy():
    with pytest.raises(ValueError, match="Unable to avoid creating a copy"):
        trace_only(lambda x: x.T.reshape(-1, copy=False), A)


def test_created_arrays_have_numpys_layout():
    def f(x):
        made = creation.zeros_like(x.T)
        return (
            made.strides,
            creation.full((2, 3), x[0, 0, 0], order="F").strides,
            creation.ones((2, 3), order="F").strides,
        )

    traced = trace_only(f, A)
    assert traced.result[0] == np.zeros_like(A.T).strides
    assert traced.result[1] == traced.result[2] == np.ones((2, 3), order="F").strides


def test_as_strided_of_a_transposed_argument_is_refused():
    with pytest.raises(TypeError, match="not C-contiguous"):
        trace_only(
            lambda x: numpy_as_strided(x, (2, 2), (8, 8)), np.asfortranarray(np.ones((2, 3)))
        )


def test_as_strided_shares_memory():
    def f(x):
        strided = np.lib.stride_tricks.as_strided if isinstance(x, np.ndarray) else numpy_as_strided
        w = strided(x[1:], (3, 2), (8, 8))
        x[2] = 50.0
        return w * 2

    check(f, np.arange(6.0))
    check(lambda x: np.lib.stride_tricks.sliding_window_view(x, 3).mean(axis=1), np.arange(6.0))
