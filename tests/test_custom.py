"""`tg.Function`: the rule, forward mode, graphs, and what would go unseen."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tracegrad as tg
from tests.custom_rules import Cube, Doubled, Head, Scaled, Tenfold, X, both_faces, gradient
from tracegrad.aliasing.functionalize import functionalize
from tracegrad.errors import GradientError, GradientWarning
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify

# ------------------------------------------------------------------------------- the rule


@both_faces
def test_rule_replaces_the_derivative(face):
    got = gradient(lambda x: (Tenfold.apply(x) * x).sum(), X, arrays=face)
    np.testing.assert_allclose(got, 10 * X + 2 * X)


def test_second_and_third_derivatives():
    def f(x):
        return np.sum(Cube.apply(x) * x)

    def g(x):
        return np.sum(tg.grad(f)(x) * x)

    np.testing.assert_allclose(tg.grad(f)(X), 4 * X**3)
    np.testing.assert_allclose(tg.grad(g)(X), 16 * X**3)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(tg.grad(g)(x)))(X), 48 * X**2)


def test_value_outside_and_inside_a_trace():
    np.testing.assert_allclose(Cube.apply(X), X**3)
    np.testing.assert_allclose(tg.compile(lambda x: Cube.apply(x))(X), X**3)


def test_results_route_second_derivatives():
    class Exp(tg.Function):
        @staticmethod
        def forward(ctx, x):
            y = np.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    f = tg.grad(lambda x: np.sum(tg.grad(lambda x: np.sum(Exp.apply(x)))(x)))
    np.testing.assert_allclose(f(X), np.exp(X))


def test_computed_values_are_constants_and_say_so():
    class Sine(tg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.cosine = np.cos(x)
            return np.sin(x)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.cosine

    def f(x):
        return np.sum(Sine.apply(x))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(tg.grad(f)(X), np.cos(X))
    with pytest.warns(GradientWarning, match="second derivative of Sine"):
        got = tg.grad(lambda x: np.sum(tg.grad(f)(x)))(X)
    np.testing.assert_array_equal(got, np.zeros_like(X))
    with pytest.warns(GradientWarning, match="second derivative of Sine"):
        tg.jvp(tg.grad(f), (X,), (X,))


def test_inputs_that_are_no_tensors():
    np.testing.assert_allclose(gradient(lambda x: np.sum(Scaled.apply(x, 3.0, "s")), X), 3 + 0 * X)


def test_traced_number_as_input():
    class Times(tg.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x, k)
            return x * k

        @staticmethod
        def backward(ctx, g):
            x, k = ctx.saved_tensors
            return g * k, np.sum(g * x)

    dx, dk = tg.grad(lambda x, k: np.sum(Times.apply(x, k)), argnums=(0, 1))(X, 2.0)
    np.testing.assert_allclose(dx, 2 + 0 * X)
    assert isinstance(dk, float)
    assert dk == pytest.approx(X.sum())


def test_several_results_and_absent_cotangents():
    class Split(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0, x * 2.0, x > 0, "tag"

        @staticmethod
        def backward(ctx, g, h, mask, tag):
            assert tag is None
            return g * 7.0 + h * 100.0

    def f(x):
        a, _, mask, tag = Split.apply(x)
        assert tag == "tag"
        return np.sum(a * np.where(mask, 1.0, 0.0))

    np.testing.assert_allclose(gradient(f, X), 7.0 * (X > 0))


def test_gradient_is_summed_to_the_shape_of_its_input():
    class Spread(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x + np.zeros((3, 4))

        @staticmethod
        def backward(ctx, g):
            return g

    np.testing.assert_allclose(gradient(lambda x: np.sum(Spread.apply(x)), X), 3 + 0 * X)
    column = X[:3].reshape(3, 1)
    np.testing.assert_allclose(
        gradient(lambda x: np.sum(Spread.apply(x)), column), np.full((3, 1), 4.0)
    )


def test_setup_context_form():
    class Square(tg.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 5.0 * x * g

    np.testing.assert_allclose(gradient(lambda x: np.sum(Square.apply(x)), X), 5 * X)
    np.testing.assert_allclose(Square.apply(X), X * X)


def test_non_differentiable_result():
    class Pair(tg.Function):
        @staticmethod
        def forward(ctx, x):
            a, b = x * 2.0, x * 3.0
            ctx.mark_non_differentiable(b)
            return a, b

        @staticmethod
        def backward(ctx, g, h):
            return g * 2.0 + h

    def f(x):
        a, b = Pair.apply(x)
        return np.sum(a * b)

    np.testing.assert_allclose(gradient(f, X), 2.0 * 3.0 * X)


def test_materialize_and_needs():
    seen = []

    class Two(tg.Function):
        @staticmethod
        def forward(ctx, x, n, i):
            ctx.set_materialize_grads(False)
            seen.append(ctx.needs_input_grad)
            b = x * 1.0
            ctx.mark_non_differentiable(b)
            return x * 2.0, b

        @staticmethod
        def backward(ctx, g, h):
            assert h is None
            return g * 2.0, None, None

    index = np.arange(3)
    gradient(lambda x: np.sum(Two.apply(x, 3, index)[0]), X)
    assert seen == [(True, False, False)]


def test_containers_of_tensors_on_the_context():
    class Kept(tg.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.both = {"x": x, "more": [y, 2.0, None]}
            return x * y

        @staticmethod
        def backward(ctx, g):
            y, two, nothing = ctx.both["more"]
            assert two == 2.0 and nothing is None
            return g * y, g * ctx.both["x"]

    dx, dy = tg.grad(lambda x, y: np.sum(Kept.apply(x, y)), argnums=(0, 1))(X, X + 1)
    np.testing.assert_allclose(dx, X + 1)
    np.testing.assert_allclose(dy, X)


def test_rule_reads_an_enclosing_value():
    def f(x, k):
        class Times(tg.Function):
            @staticmethod
            def forward(ctx, x):
                return x * k

            @staticmethod
            def backward(ctx, g):
                return g * k

        return np.sum(Times.apply(x) * k)

    np.testing.assert_allclose(gradient(f, X, X + 1), (X + 1) ** 2)


def test_compiled_function_and_custom_inside_custom():
    inner = tg.compile(lambda x: Tenfold.apply(x) * x)

    class Outer(tg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return inner(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return Tenfold.apply(g * x)

    def f(x):
        return np.sum(Outer.apply(x))

    np.testing.assert_allclose(tg.compile(f)(X), np.sum(2 * X * X))
    np.testing.assert_allclose(gradient(f, X), 2 * X)
    # The derivative of the rule takes the inner rule: 10.
    np.testing.assert_allclose(gradient(lambda x: np.sum(tg.grad(f)(x)), X), 10 + 0 * X)


def test_gradient_inside_forward():
    class Slope(tg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return tg.grad(lambda y: np.sum(y**3))(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * tg.grad(lambda y: np.sum(3 * y**2))(x)

    np.testing.assert_allclose(tg.compile(Slope.apply)(X), 3 * X**2)
    np.testing.assert_allclose(gradient(lambda x: np.sum(Slope.apply(x)), X), 6 * X)


# --------------------------------------------------------------------------- forward mode


def test_forward_mode_is_the_transpose_of_backward():
    t = np.arange(4.0)
    value, moved = tg.jvp(lambda x: Tenfold.apply(x) * x, (X,), (t,))
    np.testing.assert_allclose(value, 2 * X * X)
    np.testing.assert_allclose(moved, 10 * t * X + 2 * X * t)
    _, second = tg.jvp(tg.grad(lambda x: np.sum(Cube.apply(x))), (X,), (t,))
    np.testing.assert_allclose(second, 6 * X * t)


def test_own_jvp_and_what_a_nonlinear_backward_lacks():
    class Clipped(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return np.clip(g, -1.0, 1.0)

    class Both(Clipped):
        @staticmethod
        def jvp(ctx, t):
            return t * 5.0

    np.testing.assert_allclose(gradient(lambda x: np.sum(3 * Clipped.apply(x)), X), 1 + 0 * X)
    with pytest.raises(GradientError, match="Clipped is not linear") as e:
        tg.jvp(lambda x: Clipped.apply(x), (X,), (X,))
    assert "Define jvp" in str(e.value)
    np.testing.assert_allclose(tg.jvp(lambda x: Both.apply(x), (X,), (X,))[1], 5 * X)


def test_jvp_alone_serves_reverse_mode():
    class Only(tg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return 3.0 * x * t

    np.testing.assert_allclose(gradient(lambda x: np.sum(Only.apply(x)), X), 3 * X)


# ----------------------------------------------------------------------------- the graphs


def test_graph_text_round_trip():
    def f(x):
        y = x * 1.0
        Doubled.apply(y[1:])
        return np.sum(Head.apply(y)) + np.sum(Cube.apply(x))

    function = tg.compile(f)
    for stage in ("traced", "functional"):
        text = str(function.graph(X, stage=stage))
        graph = parse_graph(text)
        verify(graph)
        assert print_graph(graph, loc=False) == text
    traced = parse_graph(str(function.graph(X)))
    want = str(function.graph(X, stage="functional"))
    assert print_graph(functionalize(traced), loc=False) == want
    assert "custom(" not in str(function.graph(X, stage="joint"))


# --------------------------------------------------------------- what would go unseen is said


def test_tensors_from_outside_get_no_gradient_and_say_so():
    def f(x, k):
        class Times(tg.Function):
            @staticmethod
            def forward(ctx, x):
                return x * k

            @staticmethod
            def backward(ctx, g):
                return g * k

        return np.sum(Times.apply(x))

    def detached(x, k):
        return f(x, k.detach())

    with pytest.warns(GradientWarning, match="Times reads a tensor"):
        got = tg.grad(f, argnums=1)(X, X + 1)
    np.testing.assert_array_equal(got, 0 * X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.grad(f)(X, X + 1)
        tg.grad(detached, argnums=1)(X, X + 1)
        tg.compile(f)(X, X + 1)


def test_rules_that_call_their_function_serve_four_orders():
    @tg.custom_jvp
    def expo(x):
        return np.exp(x)

    @expo.defjvp
    def rule(primals, tangents):
        y = expo(primals[0])
        return y, y * tangents[0]

    f = expo
    for _ in range(4):
        f = (lambda g: lambda x: tg.grad(lambda x: np.sum(g(x)))(x))(f)
    np.testing.assert_allclose(tg.compile(f)(X), np.exp(X))
    with pytest.raises(GradientError, match="4 times within its own rules"):
        tg.grad(lambda x: np.sum(f(x)))(X)


def test_boolean_mask_read_is_refused_as_an_input():
    with pytest.raises(IndexError, match="shape that depends on traced values"):
        tg.compile(lambda x: np.sum(Tenfold.apply(x[x > 0])))(X)
