"""What reverse loops tape: the fewest bytes from which the rest is computed again."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
import tracegrad.ops  # noqa: F401
from tests.autodiff.test_unwritten import kept, second
from tracegrad.autodiff import kept as kept_module
from tracegrad.autodiff.kept import kept_values
from tracegrad.dtypes import F64
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.op import Trait
from tracegrad.graph.storage import Expand, Reshape
from tracegrad.ops.arithmetic import add, mul
from tracegrad.ops.reduce import sum_
from tracegrad.ops.transcendental import sin, tanh
from tracegrad.ops.views import as_view
from tracegrad.types import TensorType

TRIPS = 10
AT = np.linspace(0.2, 0.9, 5)
WEIGHT = np.linspace(0.4, 1.3, 5)  # as in `second`
WEIGHTS = np.random.default_rng(1).uniform(-0.4, 0.4, (5, 5))
# Name: the body, which gives the next a, and how many numbers are kept of an iteration on a
# vector of 5.
BODIES = {
    "result_and_what_follows": (lambda a: (np.tanh(a) * 2 + 1) * np.tanh(a), 5),
    "three_sines": (lambda a: np.sin(a) * np.sin(2 * a) * np.sin(3 * a), 5),
    "exp": (lambda a: np.exp(-a), 5),
    "square_root": (lambda a: np.sqrt(a * a + 1.0), 5),
    "linear": (lambda a: 0.5 * a + 0.25 * a[::-1], 0),
    "polynomial": (lambda a: 0.1 * a * a * a - a, 5),
    "logistic": (lambda a: 1.0 / (1.0 + np.exp(-3.0 * a)), 5),
    "dense_layer": (lambda a: np.tanh(WEIGHTS @ a), 5),
    "two_layers": (lambda a: WEIGHTS @ np.tanh(WEIGHTS @ np.tanh(a)), 10),
    "mean_taken_off": (lambda a: np.sin(a - np.mean(a)), 5),
    "scaled_by_its_sum": (lambda a: a / np.sum(a * a), 6),
    "one_element_decides": (lambda a: a * np.cos(a[0]), 5),
    "differences": (lambda a: a - 0.1 * (a - np.roll(a, 1)) ** 2, 5),
    "greater_half": (lambda a: np.where(a > 0.5, a * 0.9, np.sin(a)), 5),
}
bodies = pytest.mark.parametrize("name", BODIES)


def repeated(body):
    def f(a):
        for _ in range(TRIPS):
            a = body(a)
        return np.sum(a * np.arange(1.0, 6.0))

    return f


@bodies
def test_what_is_kept(name):
    body, numbers = BODIES[name]
    assert kept(repeated(body), AT) == TRIPS * numbers


@bodies
def test_derivatives(name):
    """The gradient by differences of values, the second order by differences of gradients."""
    f, d = repeated(BODIES[name][0]), np.array([0.3, -0.5, 0.2, 0.7, -0.4])
    first = tg.grad(f, backend="numpy")

    def values(h):
        return f(AT + h * d)

    h = 1e-4
    want = (8 * (values(h) - values(-h)) - (values(2 * h) - values(-2 * h))) / (12 * h)
    np.testing.assert_allclose(np.sum(first(AT) * d), want, rtol=1e-7, atol=1e-9)
    want = np.sum((first(AT + h * d) - first(AT - h * d)) * WEIGHT) / (2 * h)
    np.testing.assert_allclose(np.sum(second(f, AT) * d), want, rtol=1e-5, atol=1e-6)


def test_scalars_of_two_carries():
    """Of a * b both are kept, and of sin(b) nothing more."""

    def f(x):
        a, b = x[0], x[1]
        for _ in range(TRIPS):
            a, b = a * b * np.sin(b), np.sin(b) + 0.5
        return a + b

    assert kept(f, AT) == 2 * TRIPS


# -------------------------------------------------------------------------------- the cut itself


def graph():
    b = GraphBuilder("body")
    return b, b.input(TensorType((4,), F64), "a"), b.input(TensorType((), F64), "s")


def not_expensive(node):
    return not node.op.has(Trait.EXPENSIVE)


def test_smaller_of_what_lies_on_the_way():
    """Of a sum and what is made of it the sum is kept, and not the array that it is taken of."""
    b, a, _ = graph()
    total = sum_(b, sin(b, a), axes=(0,))
    wide = mul(b, as_view(b, total, Reshape((1,)), Expand((4,))), 2.0)
    found = kept_values(b.nodes, {wide: None}, (), (), not_expensive)
    assert list(found) == [total]


def test_of_equal_cuts_the_last():
    b, a, _ = graph()
    x = sin(b, a)
    y = tanh(b, x)
    assert list(kept_values(b.nodes, {y: None}, (), (), not_expensive)) == [y]
    assert list(kept_values(b.nodes, {x: None, y: None}, (), (), not_expensive)) == [x]


def test_constants_and_what_is_read_cost_nothing():
    b, a, s = graph()
    x = add(b, sin(b, a), 1.0)
    assert not kept_values(b.nodes, {x: None}, (a,), (), not_expensive)
    assert not kept_values(b.nodes, {x: None}, (), (a,), not_expensive)
    assert list(kept_values(b.nodes, {x: None}, (s,), (), not_expensive)) == [x]


def test_sums_of_what_is_read_are_kept_and_those_of_constants_are_not():
    """A sum saves more than it costs to keep, but one of constants is computed in front."""
    b, a, _ = graph()
    total = sum_(b, a, axes=(0,))
    assert list(kept_values(b.nodes, {total: None}, (), (a,), not_expensive)) == [total]
    assert not kept_values(b.nodes, {total: None}, (a,), (), not_expensive)


def test_nothing_runs_again_that_must_not():
    b, a, _ = graph()
    x = sin(b, a)
    y = tanh(b, x)
    found = kept_values(b.nodes, {x: None, y: None}, (), (), lambda node: False)
    assert set(found) == {x, y}


def test_large_graphs_are_not_cut(monkeypatch):
    b, a, _ = graph()
    x = sin(b, a)
    y = tanh(b, x)
    monkeypatch.setattr(kept_module, "MOST_VALUES", 2)
    assert list(kept_values(b.nodes, {x: None, y: None}, (), (), not_expensive)) == [x, y]
