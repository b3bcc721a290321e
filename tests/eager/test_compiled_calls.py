"""Compiled functions called with tensors of the prompt: one node, views, writes, refusals."""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import ArgumentError, AutogradError, UnsupportedError, ViewMutationError


def leaf(*values: float) -> tg.Tensor:
    return tg.tensor(np.array(values), requires_grad=True)


def product(x, y):
    return (x * y * y).sum()


def both(f, make, inspect):
    """`inspect` of a plain run of `f` and of a compiled one, on inputs from `make`."""
    found = []
    for g in (f, tg.compile(f)):
        args = make()
        found.append([np.asarray(v) for v in inspect(g(*args), *args)])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_the_call_is_one_node_and_backward_agrees_with_the_prompt() -> None:
    def check(out, x, y):
        out.backward()
        return [out.detach(), x.grad, y.grad]

    both(product, lambda: (leaf(1.0, 2.0), leaf(3.0, 4.0)), check)
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    out = tg.compile(product)(x, y)
    assert out.grad_fn.name() == "ProductBackward"
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2


def test_arrays_alone_build_no_graph_and_stay_arrays() -> None:
    out = tg.compile(product)(np.ones(2), np.ones(2))
    assert isinstance(out, np.float64)


def test_no_gradient_is_asked_without_requires_grad_or_in_no_grad() -> None:
    f = tg.compile(product)
    assert f(leaf(1.0).detach(), leaf(2.0).detach()).grad_fn is None
    with tg.no_grad():
        assert f(leaf(1.0), leaf(2.0)).grad_fn is None
    assert f(leaf(1.0), leaf(2.0)).grad_fn is not None


def test_an_array_beside_a_tensor_is_kept_as_it_was() -> None:
    w, data = leaf(1.0, 2.0), np.array([3.0, 4.0])
    out = tg.compile(lambda a, x: (a * a * x).sum())(data, w)
    data[:] = 0.0
    out.backward()
    assert w.grad.tolist() == [9.0, 16.0]


def test_second_derivatives_through_the_node() -> None:
    x = leaf(1.0, 2.0)
    (g,) = tg.autograd.grad(tg.compile(lambda x: (x**3).sum())(x), x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [6.0, 12.0]


def test_backward_twice_and_saved_values_are_watched() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1.0
    out = tg.compile(lambda y: (y * y).sum())(y)
    with tg.no_grad():
        y.mul_(2.0)
    with pytest.raises(AutogradError) as e:
        out.backward()
    assert e.value.kind == "saved_modified"
    out = tg.compile(lambda y: (2.0 * y).sum())(y)
    with tg.no_grad():
        y.mul_(2.0)
    out.backward()  # nothing of y is needed
    with pytest.raises(AutogradError) as e:
        out.backward()
    assert e.value.kind == "backward_twice"


def write_tail(x, y):
    x[1:] *= y[1:]
    return (x * x).sum()


def test_a_written_argument_gets_a_version_and_the_node_as_history() -> None:
    def make():
        p = leaf(1.0, 2.0, 3.0)
        return p, p * 2.0, leaf(4.0, 5.0, 6.0)

    def check(out, p, x, y):
        assert x._version >= 1
        (out + (x * x * x).sum()).backward()
        return [x.detach(), p.grad, y.grad]

    def f(p, x, y):
        return write_tail(x, y)

    both(f, make, check)


def test_a_written_view_rebases_its_base() -> None:
    def f(v, y):
        v *= y
        return v

    def make():
        p = leaf(1.0, 2.0, 3.0)
        q = p * 1.0
        return p, q, q[1:], leaf(4.0, 5.0)

    def check(out, p, q, v, y):
        assert q.grad_fn is not None and q._version == 1
        (q * q).sum().backward()
        return [q.detach(), p.grad, y.grad]

    both(lambda p, q, v, y: f(v, y), make, check)


def test_arguments_that_are_overlapping_views_of_one_tensor() -> None:
    def f(a, b):
        a += b
        return (a * b).sum()

    def make():
        p = leaf(1.0, 2.0, 3.0, 4.0)
        q = p * 1.0
        return p, q, q[:3], q[1:]

    p, q, a, b = make()
    out = tg.compile(f)(a, b)
    assert q.tolist() == [3.0, 5.0, 7.0, 4.0] and type(q.grad_fn).__name__ == "CopySlices"
    (out + (q * q).sum()).backward()
    # q' = (p0+p1, p1+p2, p2+p3, p3); loss = sum(q'[:3] q'[1:]) + sum(q'^2)
    d = np.array([2 * 3 + 5, 2 * 5 + 3 + 7, 2 * 7 + 5 + 4, 2 * 4 + 7.0])
    want = [d[0], d[0] + d[1], d[1] + d[2], d[2] + d[3]]
    assert p.grad.tolist() == want


def test_tensors_over_common_memory_that_are_no_views_of_one_tensor_are_refused() -> None:
    data = np.arange(4.0)
    a, b = tg.asarray(data[:3]), tg.asarray(data[1:]).requires_grad_()

    def f(a, b):
        a.mul_(2.0)
        return b.sum()

    with pytest.raises(ArgumentError) as e:
        tg.compile(f)(a, b)
    assert e.value.kind == "aliasing_args" and data.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_leaves_and_views_of_leaves_may_not_be_written() -> None:
    x = leaf(1.0, 2.0)
    f = tg.compile(lambda x: x.mul_(2.0))
    with pytest.raises(ViewMutationError) as e:
        f(x)
    assert e.value.kind == "leaf_inplace" and "test_compiled_calls.py" in str(e.value)
    with pytest.raises(ViewMutationError) as e:
        f(x[:1])
    assert e.value.kind == "view_of_leaf_inplace" and x.tolist() == [1.0, 2.0]


def test_a_leaf_may_be_written_in_no_grad_and_stays_a_leaf() -> None:
    def step(p, g):
        with tg.no_grad():
            p -= 0.5 * g
        return (p * p).sum()

    p = leaf(1.0, 2.0)
    out = tg.compile(step)(p, tg.tensor([2.0, 2.0]))
    assert p.is_leaf and p._version == 1 and p.tolist() == [0.0, 1.0]
    out.backward()
    assert p.grad.tolist() == [0.0, 2.0]


def test_restricted_views_are_refused_before_anything_is_written() -> None:
    p = leaf(1.0, 2.0) * 1.0
    with tg.no_grad():
        v = p[:1]
    with pytest.raises(ViewMutationError) as e:
        tg.compile(lambda v: v.mul_(2.0))(v)
    assert e.value.kind == "no_grad_view_inplace" and p.tolist() == [1.0, 2.0]


def test_results_are_the_argument_views_of_it_or_detached() -> None:
    def f(x):
        with tg.no_grad():
            hidden = x[:1]
        return x, x[1:], x.detach(), hidden, x * 1.0

    x = leaf(1.0, 2.0) * 1.0
    same, view, detached, hidden, fresh = tg.compile(f)(x)
    assert same is x and view._base is x and view.requires_grad
    assert not detached._is_view() and not detached.requires_grad
    with tg.no_grad():
        detached.add_(1.0)
    assert x.tolist() == [2.0, 3.0] and x._version == 1 and fresh.tolist() == [1.0, 2.0]
    with pytest.raises(ViewMutationError) as e:
        hidden.mul_(2.0)
    assert e.value.kind == "no_grad_view_inplace"


def test_results_that_view_one_intermediate_share_it() -> None:
    def f(x):
        y = x * 2.0
        return y, y[1:]

    x = leaf(1.0, 2.0)
    whole, part = tg.compile(f)(x)
    part.mul_(10.0)
    assert part._base is whole and whole.tolist() == [2.0, 40.0]
    whole.sum().backward()
    assert x.grad.tolist() == [2.0, 20.0]


def test_complex_tensors() -> None:
    z = tg.tensor(np.array([1.0 + 2.0j, 3.0 - 1.0j]), requires_grad=True)
    f = tg.compile(lambda z: ((z * z.conj()).real.sum(), z * z))
    out, square = f(z)
    out.backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy())
    np.testing.assert_allclose(square.detach().numpy(), z.detach().numpy() ** 2)


def test_transforms_take_tensors_and_give_tensors() -> None:
    x = leaf(1.0, 2.0)
    g = tg.grad(lambda x: (x**3).sum())(x)
    g.sum().backward()
    assert g.tolist() == [3.0, 12.0] and x.grad.tolist() == [6.0, 12.0]
    value, pullback = tg.vjp(lambda x: x * x, x)
    with tg.no_grad():
        x.zero_()
    assert pullback(tg.ones(2))[0].tolist() == [2.0, 4.0]
    assert tg.jacobian(lambda x: x * x)(tg.tensor([1.0, 2.0])).tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_vjp_of_tensors_that_share_memory_is_refused() -> None:
    x = leaf(1.0, 2.0, 3.0)
    with pytest.raises(ArgumentError) as e:
        tg.vjp(lambda a, b: a * b, x[:2], x[1:])
    assert e.value.kind == "aliasing_args"
    _, pullback = tg.vjp(lambda a, b: a * b, x, x)
    assert [g.tolist() for g in pullback(tg.ones(3))] == [[1.0, 2.0, 3.0]] * 2


def test_a_view_from_a_custom_function_is_refused() -> None:
    class Same(tg.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, g):
            return tg.cat([g, g])

    x = leaf(1.0, 2.0) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UnsupportedError, match="custom Function"):
            tg.compile(Same.apply)(x)


def test_nodes_of_calls_are_freed_by_reference_counting() -> None:
    f, x = tg.compile(product), leaf(1.0, 2.0)
    gc.disable()
    try:
        out = f(x, x)
        node = weakref.ref(out.grad_fn)
        out.backward()
        del out
        assert node() is None
    finally:
        gc.enable()


def test_containers_of_tensors_and_the_array_face() -> None:
    p = {"w": leaf(1.0, 2.0), "b": leaf(0.5)}
    tg.compile(lambda p, x: ((p["w"] * x).sum() + p["b"]).sum())(p, np.ones(2)).backward()
    assert p["w"].grad.tolist() == [1.0, 1.0] and p["b"].grad.tolist() == [1.0]
    x = leaf(1.0, 2.0)
    tg.compile(lambda x: (x * x).sum(), arrays="numpy")(x).backward()
    assert x.grad.tolist() == [2.0, 4.0]
