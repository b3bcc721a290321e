"""Tensors at the prompt: making them, reading them, functions on them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import LeakedTracerError, TracegradError, UnsupportedError


def leaf(values):
    return tg.tensor(values, dtype=np.float64, requires_grad=True)


def test_tensor_copies_and_asarray_shares() -> None:
    a = np.arange(3.0)
    t, s = tg.tensor(a), tg.asarray(a)
    a[0] = 7.0
    assert t.tolist() == [0, 1, 2] and s.tolist() == [7, 1, 2]
    s[1] = 5.0
    assert a.tolist() == [7, 5, 2] and np.shares_memory(s.numpy(), a)
    assert tg.asarray(s) is s and isinstance(t, tg.Tensor)
    assert tg.tensor([[1, 2], [3, 4]]).dtype == np.int64
    assert tg.tensor([tg.tensor(1.0), 2.0]).tolist() == [1, 2]
    a.flags.writeable = False
    with pytest.raises(TracegradError, match="read-only"):
        tg.asarray(a).add_(1.0)


def test_strided_memory_is_shared_as_it_is() -> None:
    a = np.arange(12.0).reshape(3, 4)
    t = tg.asarray(a.T[::2])
    t.mul_(10.0)
    assert a[:, 0].tolist() == [0, 40, 80] and a[:, 1].tolist() == [1, 5, 9]
    assert not t.is_contiguous() and t.reshape(-1)._base is None


def test_reading() -> None:
    x = leaf([1.5])
    assert x.item() == 1.5 and float(x.sum()) == 1.5 and bool(x > 1) and len(x) == 1
    assert [float(e) for e in leaf([1.0, 2.0])] == [1, 2] and leaf([1.0, 2.0]).tolist() == [1, 2]
    for read in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(RuntimeError) as e:
            read()
        assert e.value.kind == "numpy_requires_grad" and "detach().numpy()" in str(e.value)
    d = x.detach()
    assert np.shares_memory(np.asarray(d), d.numpy())
    assert np.from_dlpack(d).tolist() == [1.5]
    assert int(tg.tensor(3)) == 3 and [10, 20, 30, 40][tg.tensor(2)] == 30


def test_repr() -> None:
    x = leaf([1.0, 2.5])
    assert repr(x) == "tensor([1. , 2.5], requires_grad=True)"
    assert repr(x * 2.0) == "tensor([2., 5.], grad_fn=<MulBackward0>)"
    assert repr(tg.tensor([1, 2], dtype=np.int32)) == "tensor([1, 2], dtype=int32)"
    assert f"{tg.tensor(2.5):.2f}" == "2.50"


def test_creation_functions_make_tensors() -> None:
    assert tg.zeros(2, 3).shape == tg.zeros((2, 3)).shape == (2, 3)
    assert tg.ones((2,), requires_grad=True).is_leaf
    assert tg.arange(3).tolist() == [0, 1, 2] and tg.full((2,), 7.0).tolist() == [7, 7]
    assert tg.zeros_like(tg.ones((2,))).tolist() == [0, 0]
    assert tg.eye(2).tolist() == [[1, 0], [0, 1]]
    assert tg.linspace(0.0, 1.0, 3).tolist() == [0, 0.5, 1]


def test_functions_take_tensors_in_every_spelling() -> None:
    x = leaf([0.5, 1.0])
    total = tg.exp(x).sum() + np.sin(x).sum() + np.sum(x * np.array([2.0, 3.0])) + x.tanh().sum()
    total = total + tg.stack([x, x]).sum() + tg.cat([x, x]).sum() + tg.where(x > 0.7, x, 0.0).sum()
    total.backward()
    v = np.array([0.5, 1.0])
    want = np.exp(v) + np.cos(v) + [2, 3] + 1 - np.tanh(v) ** 2 + 2 + 2 + (v > 0.7)
    np.testing.assert_allclose(x.grad.numpy(), want)
    with pytest.raises(UnsupportedError):
        tg.exp(np.ones(2))


def test_linear_algebra_reductions_and_gathers() -> None:
    rng = np.random.default_rng(0)
    a, b = leaf(rng.standard_normal((3, 4))), leaf(rng.standard_normal((4, 2)))
    y = (a @ b).max(1).values.sum() + a[np.array([0, 2, 0])].prod() * 1e-2 + b.std()
    y.backward()
    for leaf_, other in ((a, b), (b, a)):
        value = leaf_.detach().numpy().copy()
        for at in np.ndindex(value.shape):
            ends = []
            for h in (1e-6, -1e-6):
                value[at] += h
                p, q = (value, other.detach().numpy())[:: 1 if leaf_ is a else -1]
                ends.append(np.max(p @ q, 1).sum() + np.prod(p[[0, 2, 0]]) * 1e-2 + q.std(ddof=1))
                value[at] -= h
            assert abs((ends[0] - ends[1]) / 2e-6 - leaf_.grad.numpy()[at]) < 1e-6


def test_boolean_masks_select() -> None:
    x = leaf([1.0, -2.0, 3.0])
    x[x > 0].sum().backward()
    assert x.grad.tolist() == [1, 0, 1]
    y = x * 1.0
    y[y < 0] = 0.0
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [1, 0, 1]


def test_repeated_indices_give_a_gradient_to_the_stored_value_only() -> None:
    w = leaf([10.0, 20.0, 30.0])
    y = tg.zeros((3,))
    y[np.array([0, 1, 0])] = w
    y.sum().backward()
    assert y.tolist() == [30, 20, 0] and w.grad.tolist() == [0, 1, 1]


def test_copies_and_pickles() -> None:
    x = leaf([1.0, 2.0])
    y = pickle.loads(pickle.dumps(x))
    assert y.requires_grad and y.is_leaf and y.tolist() == [1, 2]
    z = copy.deepcopy(x)
    assert z.requires_grad and z.is_leaf and z is not x
    with pytest.raises(RuntimeError):
        copy.deepcopy(x * 2.0)


def test_custom_function_at_the_prompt() -> None:
    class Cube(tg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3.0 * x * x * g

    x = leaf([2.0])
    y = Cube.apply(x)
    assert y.grad_fn.name() == "CubeBackward" and y.tolist() == [8]
    (g,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert g.tolist() == [12] and h.tolist() == [12]
    assert Cube.apply(tg.tensor([2.0])).grad_fn is None


def test_a_tensor_of_the_prompt_inside_a_trace_is_refused() -> None:
    t = tg.ones((2,))

    @tg.compile
    def f(x):
        return np.sum(x * t)

    with pytest.raises(TracegradError):
        f(np.ones(2))


def test_a_traced_value_kept_outside_is_refused_at_the_prompt() -> None:
    kept = []

    @tg.compile
    def f(x):
        kept.append(x * 2.0)
        return np.sum(x)

    f.graph(np.ones(2))
    with pytest.raises(LeakedTracerError):
        tg.ones((2,)) + kept[0]
