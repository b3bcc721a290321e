"""Where PyTorch (eager, or compiled through AOTAutograd) is wrong or refuses, and we are right.

One test for each of the fifteen rows that the views specification lists.
"""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import errors


def torch_grad(f, argnums=0):
    return tg.grad(f, argnums=argnums, arrays="torch")


def numeric(f, x, h=1e-6):
    out = np.zeros_like(x)
    run = tg.compile(f, arrays="torch", write_back=False)
    for i in np.ndindex(x.shape):
        a, b = x.copy(), x.copy()
        a[i] += h
        b[i] -= h
        out[i] = (float(run(a)) - float(run(b))) / (2 * h)
    return out


def weights(*shape):
    return np.arange(1.0, 1 + int(np.prod(shape))).reshape(shape)


def check(f, x):
    np.testing.assert_allclose(torch_grad(f)(x.copy()), numeric(f, x), rtol=1e-5, atol=1e-8)


def test_1_only_the_stored_one_of_repeated_indices_has_a_gradient():
    i = np.array([0, 2, 0])
    c = weights(4)

    def f(w):
        y = tg.zeros((4,))
        y[i] = w
        return (y * c).sum()

    np.testing.assert_array_equal(torch_grad(f)(np.array([5.0, 6.0, 7.0])), [0, 3, 1])

    def g(x):
        y = x * 1.0
        y[i] += x[:3] * 2
        return (y * c).sum()

    check(g, np.array([0.3, 0.5, 0.7, 0.9]))


def test_2_as_strided_reaches_beyond_its_view():
    c = weights(3)

    def f(x):
        y = x * 1.0
        return (y[1:3].as_strided((3,), (1,), 0) * c).sum()

    np.testing.assert_array_equal(torch_grad(f)(np.ones(5)), [1, 2, 3, 0, 0])


def test_3_a_rule_that_returns_nothing_zeroes_the_written_part_alone():
    class Zeroed(tg.Function):
        @staticmethod
        def forward(ctx, v):
            v.zero_()
            ctx.mark_dirty(v)
            return v

        @staticmethod
        def backward(ctx, g):
            return None

    c = weights(4)

    def f(x):
        y = x * 1.0
        Zeroed.apply(y[1:3])
        return (y * c).sum()

    np.testing.assert_array_equal(torch_grad(f)(np.ones(4)), [1, 0, 0, 4])


def test_4_two_views_of_a_fresh_buffer_are_both_written():
    c = weights(4)

    def f(x):
        buffer = tg.zeros((4,))
        u, v = buffer[:2], buffer[2:]
        u += x * 2
        v += x * 3
        return (buffer * c).sum()

    np.testing.assert_array_equal(torch_grad(f)(np.ones(2)), [2 + 9, 4 + 12])


def test_5_a_view_of_the_own_dtype_is_an_ordinary_view():
    def f(x):
        y = x * 1.0
        v = y.view(np.float64)
        v *= x
        return y.sum()

    check(f, np.array([0.5, 1.5, -2.0]))


def test_6_zero_of_an_expanded_tensor():
    def f(x):
        y = x * 1.0
        y.expand(3, 2).zero_()
        return (y * 2).sum() + x.sum()

    np.testing.assert_array_equal(torch_grad(f)(np.ones((1, 2))), [[1, 1]])


def test_7_one_row_of_a_stride_zero_base():
    c = weights(3, 2)

    def f(w):
        e = tg.zeros((1, 2)).expand(3, 2).detach()
        e[1].copy_(w)
        return (e * c).sum()

    np.testing.assert_array_equal(torch_grad(f)(np.ones(2)), [9, 12])


def test_8_a_write_to_a_stride_zero_tensor_is_refused():
    with pytest.raises(errors.ViewMutationError) as e:
        torch_grad(lambda x: (x * 1.0).expand(2, 3).add_(x).sum())(np.ones((1, 3)))
    assert e.value.kind == "overlap"


def test_9_gaps_between_windows_keep_their_values():
    c = weights(7)

    def f(x):
        y = x * 1.0
        y.unfold(0, 2, 3).mul_(x[:2])
        return (y * c).sum()

    x = np.linspace(0.5, 1.5, 7)
    run = tg.compile(lambda x: f(x), arrays="torch")
    y = x.copy()
    y[[0, 3]] *= x[0]
    y[[1, 4]] *= x[1]
    assert float(run(x.copy())) == pytest.approx(np.sum(y * c))
    check(f, x)


def test_10_a_new_alias_pattern_of_arguments_is_noticed():
    @tg.compile
    def f(x, y):
        x *= 2
        return np.sum(y)

    a, b = np.arange(4.0), np.arange(4.0)
    assert f(a, b) == 6
    a = np.arange(4.0)
    assert f(a, a[:2]) == 2  # [0, 2] after the write
    a, b = np.arange(4.0), np.arange(2.0)
    assert f(a, b) == 1


def test_11_an_overlapping_window_of_an_intermediate_written_later():
    c = weights(4, 2)

    def f(x):
        y = x * 1.0
        w = y.unfold(0, 2, 1)
        y[1:3] *= x[1:3]
        return (w * c).sum()

    check(f, np.linspace(0.5, 1.5, 5))


def test_12_an_argument_changed_and_returned():
    def f(x):
        x.sin_()
        return x

    x = np.array([0.3, 0.7])
    out = tg.compile(f, arrays="torch")(x)
    np.testing.assert_allclose(np.asarray(out), np.sin([0.3, 0.7]))
    np.testing.assert_allclose(
        torch_grad(lambda x: f(x).sum())(np.array([0.3, 0.7])), np.cos([0.3, 0.7])
    )


def test_13_a_write_to_overlapping_windows_is_refused():
    with pytest.raises(errors.ViewMutationError) as e:
        torch_grad(lambda x: (x * 1.0).as_strided((3, 3), (1, 1), 0).mul_(2).sum())(np.ones(5))
    assert e.value.kind == "overlap"


def test_14_a_view_from_no_grad_carries_no_gradient_and_says_so():
    def f(x):
        y = x * 1.0
        with tg.no_grad():
            v = y[:2]
        return (v * x[:2]).sum()

    with pytest.warns(errors.GradientWarning, match="no_grad"):
        g = torch_grad(f)(np.array([3.0, 4.0, 5.0]))
    np.testing.assert_array_equal(g, [3, 4, 0])


def test_15_a_base_that_becomes_a_leaf_after_its_view_never_loses_a_gradient_silently():
    base = tg.tensor([1.0, 2.0, 3.0])
    view = base[:2]
    base.requires_grad_()
    try:
        with pytest.warns(errors.GradientWarning):
            (view * 2).sum()
    except errors.TracegradError as e:
        assert "requires_grad" in str(e) or "gradient" in str(e)
