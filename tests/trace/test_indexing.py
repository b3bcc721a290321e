"""Index expressions, read and assigned, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.trace.running import check, trace_only
from tracegrad import errors

SHAPE = (3, 4, 2)
A = np.arange(24.0).reshape(SHAPE)


@st.composite
def keys(draw, arrays: bool):
    """A tuple that NumPy accepts for `SHAPE`."""
    out = []
    lists = 0
    for n in SHAPE[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["int", "slice", "list"] if arrays else ["int", "slice"]))
        if kind == "int":
            out.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            ends = st.one_of(st.none(), st.integers(-n - 2, n + 2))
            step = draw(st.sampled_from([None, 1, 2, -1, -2, 3]))
            out.append(slice(draw(ends), draw(ends), step))
        else:
            lists += 1
            out.append(draw(st.lists(st.integers(-n, n - 1), min_size=2, max_size=2)))
    for _ in range(draw(st.integers(0, 2))):
        out.insert(draw(st.integers(0, len(out))), None)
    if draw(st.booleans()):
        out.insert(draw(st.integers(0, len(out))), Ellipsis)
    try:
        A[tuple(out)]
    except IndexError:
        assume(False)
    return tuple(out)


@settings(max_examples=150, deadline=None)
@given(keys(arrays=False))
def test_basic_reads_and_writes(key):
    def f(x):
        part = x[key]
        x[key] = 7.5
        x[key] += 1
        return part, x[key]

    check(f, A, exact=True)
    check(f, np.asfortranarray(A), exact=True)


@settings(max_examples=150, deadline=None)
@given(keys(arrays=True))
def test_array_indices(key):
    def f(x):
        part = x[key]
        y = x * 1.0
        y[key] = part * 2
        y[key] += 1
        z = x * 1.0
        np.add.at(z, key, part)
        return part, y, z

    check(f, A, exact=True)


@settings(max_examples=60, deadline=None)
@given(keys(arrays=True))
def test_strides_of_the_result_are_numpys(key):
    def f(x):
        y = x[key]
        if isinstance(y, np.generic) or not y.shape:
            return y
        r = y.reshape(-1)
        r *= 2
        return y, r

    check(f, A, exact=True)


READS = [
    lambda x, i, m: x[i],
    lambda x, i, m: x[:, i % 4],
    lambda x, i, m: x[i, i],
    lambda x, i, m: x[i[:, None], i[None, :] % 4],
    lambda x, i, m: x[0, i % 4],
    lambda x, i, m: x[i, :, 0],
    lambda x, i, m: x[i, :, i % 2],
    lambda x, i, m: x[i[0]],
    lambda x, i, m: x[i[0], 1, i[1] % 2],
    lambda x, i, m: np.take(x, i, axis=0),
    lambda x, i, m: x[..., i % 2],
    lambda x, i, m: x[None, i, 1:],
    lambda x, i, m: np.take_along_axis(x, i[None, :, None] % 2 * np.ones((3, 1, 2), int), 1),
]


@pytest.mark.parametrize("k", range(len(READS)))
def test_traced_integer_arrays(k):
    check(READS[k], A, np.array([0, -1, 2]), A > 3)


WRITES = [
    lambda x, i, v: x.__setitem__(i, v),
    lambda x, i, v: x.__setitem__((i, 0), v[:, 0]),
    lambda x, i, v: x.__setitem__((slice(None), i), v[:, :3]),
    lambda x, i, v: x.__setitem__((i, slice(1, 3)), 1.0),
    lambda x, i, v: x[1:].__setitem__((slice(None), i % 2), v[1:, :3]),
    lambda x, i, v: x.__setitem__((i, i, i % 2), [1.0, 2.0, 3.0]),
    lambda x, i, v: np.add.at(x, i, v),
    lambda x, i, v: np.subtract.at(x, (i, 1), 2.0),
    lambda x, i, v: np.add.at(x, (slice(None), i % 2), 1.0),
    lambda x, i, v: np.add.at(x, (0, 0), v[0, 0]),
    lambda x, i, v: x.T.__setitem__(i % 2, 3.0),
]


@pytest.mark.parametrize("k", range(len(WRITES)))
def test_writes_at_traced_integer_arrays(k):
    def f(x, i, v):
        WRITES[k](x, i, v)
        return x

    check(f, A, np.array([0, -1, 0]), A * 10)


def test_the_last_of_repeated_indices_is_stored():
    def f(x, i):
        x[i] = np.array([1.0, 2.0, 3.0])
        x[i] += 10
        return x

    check(f, np.zeros(3), np.array([1, 1, 1]))


def test_constant_masks():
    mask = A[:, :, 0] > 8

    def f(x):
        x[[True, False, True], 1] = 5.0
        part = x[mask.tolist()]
        x[mask.tolist()] = part * 2
        return part, x[True], x[False], x[:, [True, False, False, True]]

    check(f, A)


MASKED = [
    lambda x, y: x.__setitem__(x > 5, 0.0),
    lambda x, y: x.__setitem__(x[:, 0, 0] > 5, -1.0),
    lambda x, y: x.__setitem__(x[..., 0] > 5, np.array([1.0, 2.0])),
    lambda x, y: x.__setitem__((slice(None), x[0, :, 0] > 2), 4.0),
    lambda x, y: x[1:].__setitem__(x[1:] < 12, y[0, 0, 0]),
    lambda x, y: x.__setitem__((x[:, 0, 0] > 5, 1), 3.0),
]


@pytest.mark.parametrize("k", range(len(MASKED)))
def test_writes_at_traced_masks(k):
    def f(x, y):
        MASKED[k](x, y)
        return x

    check(f, A, A[::-1])


def test_masked_reads_are_computed_with_and_written_back():
    def f(x, y):
        x[x < 5] *= 3.0
        m = y > 10
        x[m] = np.sqrt(y[m]) + x[m] / 2
        x[m] -= 1
        return x

    check(f, A, A[::-1].copy())


def test_masked_reads_may_leave_the_domain_outside_the_mask():
    def f(x):
        m = x > 0
        x[m] = np.log(x[m])
        return x

    check(f, A - 3)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[x > 0].argmax(),
        lambda x: np.sort(x[x > 0]),
        lambda x: x[x > 0] + x[x > 1],
        lambda x: len(x[x > 0]),
        lambda x: x[x > 0] + np.ones(3),
        lambda x: x[x > 0][0],
        lambda x: np.concatenate([x[x > 0], x]),
        lambda x: np.nonzero(x),
        lambda x: np.where(x > 0),
        lambda x: x[x > 0] @ x,
        lambda x: x.__setitem__(x > 0, x[x > 1]),
        lambda x: x.__setitem__(x > 0, np.ones((4, 3, 4, 2))),
    ],
)
def test_shapes_that_depend_on_values_are_refused(use):
    with pytest.raises(errors.DataDependentShapeError, match="np.where") as e:
        trace_only(use, A)
    assert "test_indexing.py" in str(e.value)


ERRORS = [
    (lambda x: x[5], "index 5 is out of bounds for axis 0 with size 3"),
    (lambda x: x[0, -5], "index -5 is out of bounds for axis 1 with size 4"),
    (lambda x: x[[0, 7]], "index 7 is out of bounds for axis 0 with size 3"),
    (lambda x: x[0, 0, 0, 0], "too many indices for array: array is 3-dimensional, but 4 were"),
    (lambda x: x[..., ...], "single ellipsis"),
    (lambda x: x["a"], "only integers, slices"),
    (lambda x: x[1.5], "only integers, slices"),
    (lambda x: x[[1.5]], "arrays used as indices must be of integer"),
    (lambda x: x[::0], "slice step cannot be zero"),
    (
        lambda x: x[[True, False]],
        "boolean index did not match indexed array along axis 0; size of "
        "axis is 3 but size of corresponding boolean axis is 2",
    ),
    (lambda x: x[[0, 1], [0, 1, 2]], "indexing arrays could not be broadcast"),
    (lambda x: x.sum(axis=3), "axis 3 is out of bounds for array of dimension 3"),
]


@pytest.mark.parametrize("k", range(len(ERRORS)))
def test_index_errors_have_numpys_words(k):
    f, text = ERRORS[k]
    with pytest.raises((IndexError, ValueError)) as real:
        f(A.copy())
    with pytest.raises(ValueError if real.type is ValueError else IndexError) as e:
        trace_only(f, A)
    assert text in str(e.value) and "test_indexing.py" in str(e.value)


def test_values_of_a_wrong_shape():
    def f(x, i):
        x[i] = np.ones(3)

    with pytest.raises(
        ValueError,
        match=r"shape mismatch: value array of shape \(3,\) could not "
        r"be broadcast to indexing result of shape \(2, 4, 2\)",
    ):
        trace_only(f, A, np.array([0, 1]))


def test_run_time_indices_are_checked_before_anything_is_written():
    def f(x, i):
        x[:] = 0
        x[i] = 1.0
        return x

    traced = trace_only(f, A, np.array([0, 1]))
    mine = A.copy()
    with pytest.raises(errors.RuntimeIndexError, match="index 3 is out of bounds for axis 0"):
        traced.run((mine, np.array([0, 3])))
    np.testing.assert_array_equal(mine, A)
