"""The ways that a call takes, with arguments that share memory."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import (
    ArgumentError,
)


def numbers(*shape):
    return np.sin(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def double_then_read(a, b):
    a *= 2.0
    return np.sin(b).sum()


def test_arguments_of_different_dtypes_that_share_written_memory_are_refused():
    @tg.compile
    def f(x, y):
        x[0] = 1.0
        return x.sum() + y.sum()

    x = numbers(4)
    shifted = np.ndarray((3,), np.float64, x.data, 4)
    for other in (x.view(np.int64), x.view(np.float32), shifted):
        with pytest.raises(ArgumentError, match="x, y") as caught:
            f(x, other)
        assert caught.value.kind == "aliasing_args"
        np.testing.assert_array_equal(x, numbers(4))
    assert np.isfinite(f(x, numbers(2)))
    reads = tg.compile(lambda x, y: x.sum() + y.sum())
    assert reads(x, x.view(np.int64)) == x.sum() + x.view(np.int64).sum()


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_arguments_written_late_share_memory_too(backend):
    @tg.compile(backend=backend)
    def f(x, y, i):
        x *= 2.0
        x[i] = y[0]
        return y.sum()

    for i in (1, 1, 7):
        x, plain = numbers(4), numbers(4)
        if i == 7:
            with pytest.raises(IndexError):
                f(x, x[1:], np.int64(i))
            np.testing.assert_array_equal(x, plain)
            continue
        plain *= 2.0
        plain[i] = plain[1:][0]
        assert f(x, x[1:], np.int64(i)) == pytest.approx(plain[1:].sum())
        np.testing.assert_array_equal(x, plain)
        apart = numbers(3)
        assert f(x, apart, np.int64(i)) == pytest.approx(apart.sum())


def test_a_fast_call_never_takes_arrays_that_share_memory():
    @tg.compile
    def f(x, y):
        x += y
        return x.sum()

    for shared in (False, False, True, True, False, True):
        x = numbers(5)
        y = x[1:] if shared else numbers(4)
        plain = x.copy()
        other = plain[1:] if shared else y
        plain[:4] += other
        assert f(x[:4], y) == pytest.approx(plain[:4].sum())
        np.testing.assert_array_equal(x, plain)


def test_without_write_back_the_function_still_sees_that_arguments_alias():
    f = tg.compile(double_then_read, write_back=False)
    for shared in (False, True, False, True):
        x = numbers(4)
        y = x[1:3] if shared else numbers(2)
        want = np.sin((2 if shared else 1) * y).sum()
        assert f(x, y) == pytest.approx(want)
        np.testing.assert_array_equal(x, numbers(4))


def test_a_read_only_view_sees_what_is_written_through_another():
    x = numbers(4)
    view = x[1:]
    view.flags.writeable = False
    f = tg.compile(lambda a, b: (a.__imul__(2.0), b.sum(), b)[1:])
    total, back = f(x, view)
    assert total == pytest.approx(2 * numbers(4)[1:].sum()) and back is view
    with pytest.raises(ValueError, match="read-only"):
        f(view, x)
    whole = np.broadcast_to(x, (4,))
    assert f(x[:2], whole)[0] == pytest.approx((numbers(4) * [4, 4, 2, 2]).sum())


def test_the_graph_shows_one_input_for_shared_memory():
    x = numbers(4)
    text = str(tg.compile(double_then_read).graph(x, x[1:3]))
    assert text.count("f64[4] in s0)") == 1 and 'origin = "argument"' in text
    apart = str(tg.compile(double_then_read).graph(x, numbers(2)))
    assert 'origin = "argument"' not in apart


def test_explain_says_which_arguments_share_memory():
    x = numbers(4)
    f = tg.compile(double_then_read)
    f(x, numbers(2))
    f(x, x[1:3])
    text = f.explain(x, x[1:3])
    assert "f64[4], f64[2]; a and b share memory" in text


def test_tensors_that_share_memory():
    f = tg.compile(double_then_read)
    for shared in (False, True, False):
        x = tg.tensor(numbers(4))
        y = x[1:3] if shared else tg.tensor(numbers(2))
        plain = numbers(4)
        other = plain[1:3] if shared else numbers(2)
        assert f(x, y) == pytest.approx(double_then_read(plain, other))
        np.testing.assert_array_equal(x.numpy(), plain)
