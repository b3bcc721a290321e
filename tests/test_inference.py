"""Inference mode inside traces, and writes to multi-output views with ``views="exact"``."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.aliasing.functionalize import functionalize
from tracegrad.errors import ViewMutationError
from tracegrad.graph.text import parse_graph, print_graph

X = np.array([0.5, -1.5, 2.0, 3.0])


def grad(f, **options):
    return tg.grad(f, arrays="torch", **options)


def kind_of(f):
    with pytest.raises(ViewMutationError) as e:
        grad(f)(X)
    assert "test_inference.py" in str(e.value)
    return e.value.kind


def test_switches():
    assert not tg.is_inference_mode_enabled()
    with tg.inference_mode():
        assert tg.is_inference_mode_enabled()
        assert not tg.is_grad_enabled()
        with tg.inference_mode(False):
            assert not tg.is_inference_mode_enabled()
            assert tg.is_grad_enabled()
        assert tg.is_inference_mode_enabled()
    assert not tg.is_inference_mode_enabled()
    assert tg.is_grad_enabled()

    @tg.inference_mode()
    def inside():
        return tg.is_inference_mode_enabled()

    assert inside()


def test_enable_grad_inside_tracks_nothing():
    def f(x):
        with tg.inference_mode(), tg.enable_grad():
            c = x * 2.0
        return (c + x).sum()

    np.testing.assert_allclose(grad(f)(X), np.ones(4))


@pytest.mark.parametrize(
    ("use", "saved"),
    [
        (lambda c, x: c * x, True),
        (lambda c, x: x / c, True),
        (lambda c, x: c / x, True),
        (lambda c, x: x.view(2, 2) * c[:2], True),
        (lambda c, x: x.view(2, 2) @ c.view(2, 2), True),
        (lambda c, x: x.mul_(c), True),
        (lambda c, x: c + x, False),
        (lambda c, x: x - c[0], False),
        (lambda c, x: x.add_(c), False),
        (lambda c, x: x.copy_(c), False),
        (lambda c, x: x * c.clone(), False),
        (lambda c, x: c.sin() + x, False),
        (lambda c, x: c * c.exp() + x, False),
    ],
)
def test_what_may_be_kept_for_backward(use, saved):
    def f(x):
        with tg.inference_mode():
            c = x * 2.0
        return use(c, x * 1.0).sum()

    if saved:
        assert kind_of(f) == "inference_tensor_saved"
    else:
        assert np.isfinite(grad(f)(X)).all()
    assert np.isfinite(tg.compile(f, arrays="torch")(X))


def test_known_contents_made_inside_may_not_be_kept():
    def f(x):
        with tg.inference_mode():
            c = tg.zeros((4,), dtype=tg.float64)
        return (c * x).sum()

    assert kind_of(f) == "inference_tensor_saved"


def test_known_contents_made_outside_stay_ordinary():
    def f(x):
        c = tg.full((4,), 3.0, dtype=tg.float64)
        buffer = tg.zeros((4,), dtype=tg.float64)
        with tg.inference_mode():
            d = c + x
            buffer[:2] = x[:2]
        buffer[2:] = x[2:]
        return (c * x + d + buffer).sum()

    np.testing.assert_allclose(grad(f)(X), 3.0 + np.array([0.0, 0.0, 1.0, 1.0]))
    graph = parse_graph(str(tg.compile(f, arrays="torch").graph(X)))
    functionalize(graph)


def test_writes():
    def made_inside(x):
        with tg.inference_mode():
            c = x * 2.0
            c[:2].add_(1.0)
        return (c + x).sum()

    def outside(x):
        with tg.inference_mode():
            c = x * 2.0
        with tg.no_grad():
            c[1:].add_(1.0)
        return (c + x).sum()

    def view(x):
        y = x * 1.0
        with tg.inference_mode():
            v = y[:3]
        v[1:].add_(1.0)
        return y.sum()

    def poisoned(x):
        y = x * 1.0
        with tg.inference_mode():
            v = y[:3]
        y.mul_(2.0)
        return (v * 1.0).sum()

    assert tg.compile(made_inside, arrays="torch")(X) == pytest.approx(3 * X.sum() + 2)
    np.testing.assert_allclose(grad(made_inside)(X), np.ones(4))
    assert kind_of(outside) == "inference_tensor_inplace"
    assert kind_of(view) == "inference_view_inplace"
    assert kind_of(poisoned) == "inference_view_inplace"


def test_nested_gradient_is_not_in_inference_mode():
    def f(x):
        with tg.inference_mode():
            g = tg.grad(lambda y: (y * y * y).sum())(x)
        return (g + x).sum()

    assert tg.compile(f, arrays="torch")(X) == pytest.approx(3 * (X**2).sum() + X.sum())
    np.testing.assert_allclose(grad(f)(X), np.ones(4))


def test_call_in_inference_mode_does_not_spoil_later_calls():
    f = tg.grad(lambda x: (x * x).sum(), arrays="torch")
    with tg.inference_mode():
        np.testing.assert_allclose(f(X), 2 * X)
        with tg.enable_grad():
            np.testing.assert_allclose(f(X), 2 * X)
    np.testing.assert_allclose(f(X), 2 * X)


def test_text_carries_the_mode():
    def f(x):
        with tg.inference_mode():
            c = x * 2.0
            v = x[:2]
        with tg.no_grad():
            n = x * 3.0
        return (c + x + n).sum() + (v * 2.0).sum()

    function = tg.compile(f, arrays="torch")
    text = str(function.graph(X))
    assert " inference\n" in text
    assert " no_grad\n" in text
    graph = parse_graph(text)
    assert print_graph(graph, loc=False) == text
    want = str(function.graph(X, stage="functional"))
    assert print_graph(functionalize(graph), loc=False) == want


def test_parsed_graphs_are_refused_too():
    text = """graph @f(%x: f64[4] in s0 tracked) -> (f64[4]) stage=traced {
      %c = mul(%x, 2.0) : f64[4] in s1 inference
      LINE
      return %r
    }"""
    cases = {
        "%r = mul(%x, %c) : f64[4] in s2": "inference_tensor_saved",
        "mul_(%c, 2.0) writes s1 %r = add(%x, %c) : f64[4] in s2": "inference_tensor_inplace",
    }
    for line, kind in cases.items():
        with pytest.raises(ViewMutationError) as e:
            functionalize(parse_graph(text.replace("LINE", line)))
        assert e.value.kind == kind
    functionalize(parse_graph(text.replace("LINE", "%r = add(%x, %c) : f64[4] in s2")))


# ------------------------------------------------------------------------- views="exact"


def split_written(x):
    y = x * 1.0
    a, b = y.split(2)
    a.mul_(3.0)
    b[1:].mul_(a[:1])
    return (y * y).sum() + a.sum()


def sliced_written(x):
    y = x * 1.0
    y[:2].mul_(3.0)
    y[3:].mul_(y[:1])
    return (y * y).sum() + y[:2].sum()


def test_exact_views_accept_multi_output_writes():
    with pytest.raises(ViewMutationError) as e:
        grad(split_written)(X)
    assert e.value.kind == "multi_output_view_inplace"
    value, got = tg.value_and_grad(split_written, arrays="torch", views="exact")(X)
    want_value, want = tg.value_and_grad(sliced_written, arrays="torch")(X)
    np.testing.assert_allclose(value, want_value)
    np.testing.assert_allclose(got, want)


def test_exact_views_keep_the_other_kinds():
    def f(x):
        y = x * 1.0
        with tg.no_grad():
            a, b = y.chunk(2)
        a.mul_(3.0)
        return y.sum() + b.sum()

    with pytest.raises(ViewMutationError) as e:
        grad(f, views="exact")(X)
    assert e.value.kind == "no_grad_view_inplace"
