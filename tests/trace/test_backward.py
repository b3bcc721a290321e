"""``backward()``, ``.grad`` and hooks inside a compiled function, against the same code at the
prompt."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import AutogradError, UnsupportedError, ViewMutationError


def leaf_of(x):
    return x.detach().requires_grad_()


def simple(x):
    a = leaf_of(x)
    (a * a * x).sum().backward()
    return a.grad


def accumulates(x):
    a = leaf_of(x)
    (a**3).sum().backward()
    (a * x).sum().backward()
    return a.grad


def cleared(x):
    a = leaf_of(x)
    (a**3).sum().backward()
    a.grad = None
    (a * 2.0).sum().backward()
    return a.grad


def weighted(x):
    a = leaf_of(x)
    (a * a).backward(x * 10.0)
    return a.grad


def unused(x):
    a, b = leaf_of(x), leaf_of(x)
    (a * b.detach()).sum().backward()
    assert b.grad is None
    return a.grad


def made_inside(x):
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    (w * w * x).sum().backward()
    return w.grad


def through_writes(x):
    a = leaf_of(x)
    y = a * 2.0
    y[:1] *= a[1:]
    (y * y).sum().backward()
    return a.grad


def hooks(x):
    a = leaf_of(x)
    h = a * 2.0
    h.register_hook(lambda g: g * 10.0)
    a.register_hook(lambda g: g + x)
    gone = a.register_hook(lambda g: g * 0.0)
    gone.remove()
    ((h * h).sum() + (a**3).sum()).backward()
    return a.grad


def chained_hooks(x):
    a = leaf_of(x)
    h = a * 2.0
    h.register_hook(lambda g: g * 3.0)
    k = h * h
    k.register_hook(lambda g: g + 1.0)
    (k.sum() + h.sum()).backward()
    return a.grad


def post_hook(x):
    a = leaf_of(x)
    seen = []
    a.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad * 2.0))
    (a * a).sum().backward()
    return seen[0]


def retained(x):
    a = leaf_of(x)
    y = a * a
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad


def double(x):
    a = leaf_of(x)
    (g,) = tg.autograd.grad((a**3).sum(), a, create_graph=True)
    (g * g).sum().backward()
    return a.grad


def asked_inputs(x):
    a, b = leaf_of(x), leaf_of(x)
    (a * b).sum().backward(inputs=[b])
    assert a.grad is None
    return b.grad


def no_grad_step(x):
    a = x.clone().requires_grad_()
    for _ in range(3):
        a.grad = None
        ((a - 1.0) ** 2).sum().backward()
        with tg.no_grad():
            a -= 0.1 * a.grad
    return a.detach()


CASES = [
    simple,
    accumulates,
    cleared,
    weighted,
    unused,
    made_inside,
    through_writes,
    hooks,
    chained_hooks,
    post_hook,
    retained,
    double,
    asked_inputs,
    no_grad_step,
]


@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_as_at_the_prompt(f) -> None:
    want = f(tg.tensor([3.0, 4.0]))
    got = tg.compile(f)(tg.tensor([3.0, 4.0]))
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
    got = tg.compile(f, arrays="torch")(np.array([3.0, 4.0]))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12)


def test_gradients_reach_the_leaves_that_were_passed() -> None:
    def step(p, x):
        loss = ((p * x - 1.0) ** 2).sum()
        loss.backward()
        return loss

    x = tg.tensor([3.0, 4.0])
    p, q = (tg.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    compiled = tg.compile(step)
    for _ in range(2):
        compiled(p, x)
        step(q, x)
    np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy())


def test_a_gradient_from_before_the_call_is_not_read_silently() -> None:
    p = tg.tensor([1.0, 2.0], requires_grad=True)
    (p * p).sum().backward()
    with pytest.raises(UnsupportedError, match="before the call"):
        tg.compile(lambda p: p.grad * 2.0)(p)

    def reset(p):
        p.grad = None
        (p * 3.0).sum().backward()

    tg.compile(reset)(p)
    assert p.grad.tolist() == [3.0, 3.0]


def test_an_outer_transform_sees_the_gradient_as_a_constant() -> None:
    def f(x):
        return (simple(x) * x).sum()  # 2 a x * x: the first factor has no history

    x = np.array([3.0, 4.0])
    got = tg.grad(f, arrays="torch")(x)
    np.testing.assert_allclose(got, 2.0 * x * x)


def test_the_graph_prints_and_parses() -> None:
    from tracegrad.graph.parse import parse_graph
    from tracegrad.graph.text import print_graph

    f = tg.compile(hooks)
    for stage in ("traced", "functional"):
        text = f.graph(tg.tensor([3.0, 4.0]), stage=stage)
        assert "gradients(" in text
        assert print_graph(parse_graph(text), loc=False) == text
    assert "gradients(" not in f.graph(tg.tensor([3.0, 4.0]), stage="joint")


REFUSED = [
    (lambda x: x.sum().backward(), AutogradError, "no_grad_fn"),
    (lambda x: (leaf_of(x) * 2.0).backward(), AutogradError, "gradient_shape"),
    (lambda x: leaf_of(x).mul_(2.0), ViewMutationError, "leaf_inplace"),
    (lambda x: x.register_hook(abs), AutogradError, "hook_no_grad"),
    (lambda x: x.retain_grad(), AutogradError, "retain_no_grad"),
    (lambda x: x.requires_grad_(), UnsupportedError, "unsupported"),
    (lambda x: x[1:].requires_grad_(), UnsupportedError, "unsupported"),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k) -> None:
    f, error, kind = REFUSED[k]
    with pytest.raises(error) as e:
        tg.compile(f)(tg.tensor([3.0, 4.0]))
    assert e.value.kind == kind


def test_a_hook_on_a_tensor_that_was_used_is_refused() -> None:
    def late(x):
        h = leaf_of(x) * 2.0
        k = h + 1.0
        h.register_hook(lambda g: g)
        return k

    with pytest.raises(UnsupportedError, match="right after"):
        tg.compile(late)(tg.tensor([3.0, 4.0]))


def test_a_hook_has_to_return_a_tensor_of_the_shape() -> None:
    def bad(x):
        a = leaf_of(x)
        a.register_hook(lambda g: g.sum())
        (a * a).sum().backward()

    with pytest.raises(AutogradError) as e:
        tg.compile(bad)(tg.tensor([3.0, 4.0]))
    assert e.value.kind == "hook_bad_return"
