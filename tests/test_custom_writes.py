"""`tg.Function` whose results are inputs, written inputs, or views of them; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.custom_rules import Doubled, Head, X, both_faces, gradient
from tracegrad.errors import GradientError, UnsupportedError, ViewMutationError


@both_faces
def test_dirty_input_is_a_write_of_its_base(face):
    def f(x):
        y = x * 1.0
        z = y[1:3]
        assert Doubled.apply(z) is z
        return (y * X).sum()

    expected = X.copy()
    expected[1:3] *= 20.0
    np.testing.assert_allclose(gradient(f, X, arrays=face), expected)


def test_dirty_argument_is_written_back():
    x = X.copy()
    tg.compile(lambda x: np.sum(Doubled.apply(x)))(x)
    np.testing.assert_allclose(x, 2 * X)


def test_saved_dirty_input_is_the_result():
    class Exp(tg.Function):
        @staticmethod
        def forward(ctx, x):
            x[...] = np.exp(x)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    def f(x):
        return np.sum(Exp.apply(x * 1.0))

    np.testing.assert_allclose(gradient(f, X), np.exp(X))
    np.testing.assert_allclose(gradient(lambda x: np.sum(tg.grad(f)(x)), X), np.exp(X))


def test_unmarked_write_is_hidden_from_the_gradient():
    class Sneaky(tg.Function):
        @staticmethod
        def forward(ctx, x):
            x *= 2.0
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return g * np.ones(4)

    def f(x):
        y = x * 1.0
        s = Sneaky.apply(y)
        return s + np.sum(y * y)

    value, got = tg.value_and_grad(f)(X)
    np.testing.assert_allclose(value, np.sum(2 * X) + np.sum(4 * X * X))
    np.testing.assert_allclose(got, 1.0 + 2 * (2 * X))


def test_views_carry_the_rule():
    def f(x):
        z = Head.apply(x * 1.0)
        return np.sum(z[1:] * 5.0) + np.sum(z)

    np.testing.assert_allclose(gradient(f, X), [10.0, 60.0, 0.0, 0.0])


def test_view_captured_by_a_nested_gradient_carries_the_rule():
    def f(x):
        z = Head.apply(x * 1.0)
        return tg.grad(lambda k: np.sum(z * k))(1.0) + np.sum(z)

    np.testing.assert_allclose(gradient(f, X), [20.0, 20.0, 0.0, 0.0])


def test_view_result_shares_memory():
    def f(x):
        y = x * 1.0
        z = Head.apply(y)
        with tg.no_grad():
            y *= 3.0
            return z * 1.0, y * 1.0

    head, whole = tg.compile(f)(X)
    np.testing.assert_allclose(head, 3 * X[:2])
    np.testing.assert_allclose(whole, 3 * X)


@pytest.mark.parametrize("views", ["torch", "exact"])
def test_view_results_may_not_be_written(views):
    class Halves(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2], x[2:]

        @staticmethod
        def backward(ctx, g, h):
            return np.concatenate((g, h))

    def one(x):
        z = Head.apply(x * 1.0)
        z *= 2.0
        return z.sum()

    def several(x):
        a, b = Halves.apply(x * 1.0)
        a *= 2.0
        return a.sum() + b.sum()

    for f, kind in ((one, "custom_function"), (several, "multi_output")):
        with pytest.raises(ViewMutationError) as e:
            gradient(f, X, views=views)
        assert e.value.kind == f"{kind}_view_inplace"
        assert e.value.direct
        # Nothing tracked: an ordinary write.
        assert np.isfinite(tg.compile(f, views=views)(X))


@pytest.mark.filterwarnings("ignore::tracegrad.errors.GradientWarning")
def test_refusals_of_dirty_inputs():
    class Lost(tg.Function):
        @staticmethod
        def forward(ctx, x):
            x *= 2.0
            ctx.mark_dirty(x)
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return g

    class Two(tg.Function):
        @staticmethod
        def forward(ctx, x, y):
            x *= 2.0
            ctx.mark_dirty(x)
            return x, y * 1.0

        @staticmethod
        def backward(ctx, g, h):
            return g, h

    def lost(x):
        return np.sum(Lost.apply(x * 1.0))

    def views(x):
        y = x * 1.0
        return np.sum(Two.apply(y[:2], y[2:])[0])

    def shared(x):
        y = x * 1.0
        return np.sum(Two.apply(y, y)[0])

    def hidden(x):
        y = x * 1.0
        with tg.no_grad():
            v = y[:2]
        return np.sum(Doubled.apply(v))

    for f, kind in (
        (lost, "dirty_not_returned"),
        (views, "dirty_view_multi_out"),
        (hidden, "no_grad_view_inplace"),
    ):
        with pytest.raises(ViewMutationError) as e:
            gradient(f, X)
        assert e.value.kind == kind
        assert "test_custom_writes.py" in str(e.value)
    with pytest.raises(UnsupportedError, match="shares memory"):
        gradient(shared, X)


def test_refusals_of_rules():
    def bad(result):
        class Bad(tg.Function):
            @staticmethod
            def forward(ctx, x, k):
                return x * k

            @staticmethod
            def backward(ctx, g):
                return result(g)

        return lambda x: np.sum(Bad.apply(x, 2.0))

    for result, words in (
        (lambda g: g, "returns 1 gradients"),
        (lambda g: (g, g), "input 1, which is not a tensor"),
        (lambda g: (g[:2], None), r"shape \(2,\)"),
    ):
        with pytest.raises(GradientError, match=words):
            gradient(bad(result), X)

    class Ruleless(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

    np.testing.assert_allclose(tg.compile(lambda x: Ruleless.apply(x))(X), 2 * X)
    with pytest.raises(GradientError, match="Ruleless has no derivative rule"):
        gradient(lambda x: np.sum(Ruleless.apply(x)), X)
