"""CopySlices, AsStrided, leaves and flags."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import ViewMutationError


def leaf(values):
    return tg.tensor(values, dtype=np.float64, requires_grad=True)


X = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]


def test_copy_slices_example_of_the_specification() -> None:
    x, w = leaf(X), leaf([[2, 3], [4, 5]])
    y = x * 1.0
    y[:, 1:].mul_(w)
    assert y.grad_fn.name() == "CopySlices"
    y.backward(tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    np.testing.assert_allclose(x.grad.numpy(), [[1, 4, 9], [4, 20, 30]])
    np.testing.assert_allclose(w.grad.numpy(), [[0.4, 0.9], [2.5, 3.6]])


def test_copy_slices_edges() -> None:
    x, w = leaf(X), leaf([[2, 3], [4, 5]])
    y = x * 1.0
    before = y.grad_fn
    y[:, 1:].mul_(w)
    nodes = [n for n, _ in y.grad_fn.next_functions]
    assert nodes[0] is before and nodes[1].name() == "AccumulateGrad" and len(nodes) == 2
    assert nodes[1].variable is w


def test_regenerated_node_is_made_once_per_staleness() -> None:
    y = leaf(X) * 1.0
    v = y[1:]
    assert v.grad_fn.name() == "SliceBackward0" and v.grad_fn is v.grad_fn
    y.mul_(2.0)
    node = v.grad_fn
    assert node.name() == "AsStridedBackward0" and v.grad_fn is node
    assert node.next_functions[0][0] is y.grad_fn
    with tg.no_grad():
        y.mul_(2.0)
        assert v.grad_fn is not node  # works with gradients off


def test_regeneration_bypasses_views_between() -> None:
    y = leaf(X) * 1.0
    mid = y[1:]
    end = mid[0]
    mid.retain_grad()
    y.mul_(2.0)
    end.sum().backward()
    assert mid.grad is None and end._base is y


def test_two_views_of_an_untracked_buffer_both_written() -> None:
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    buffer = tg.zeros((4,))
    u, v = buffer[:2], buffer[2:]
    u += a
    v += b * b
    buffer.sum().backward()
    assert a.grad.tolist() == [1, 1] and b.grad.tolist() == [6, 8]


def test_as_strided_beyond_its_view_reaches_the_base() -> None:
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1.0
    s = y[:2].as_strided((2,), (1,), 2)
    s.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [0, 0, 1, 1]
    y.add_(0.0)
    s.sum().backward()
    assert x.grad.tolist() == [0, 0, 2, 2]


def test_overlapping_as_strided_accumulates() -> None:
    x = leaf(np.arange(5.0))
    g = np.arange(1.0, 10.0).reshape(3, 3) * 0.1
    x.clone().as_strided((3, 3), (1, 1), 0).backward(g)
    np.testing.assert_allclose(x.grad.numpy(), [0.1, 0.6, 1.5, 1.4, 0.9])


def test_third_derivative_through_a_view_write() -> None:
    x = leaf([1.5, 2.0])
    y = x * 1.0
    y[:1].mul_(y[1:].clone()).exp_()
    (first,) = tg.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = tg.autograd.grad(second.sum(), x)
    a, b = 1.5, 2.0
    e = np.exp(a * b)
    np.testing.assert_allclose(first.detach().numpy(), [b * e, a * e + 1])
    np.testing.assert_allclose(
        second.detach().numpy(), [b * b * e + e + a * b * e, e + a * b * e + a * a * e]
    )
    h = 1e-5

    def hessian_sum(p, q):
        f = np.exp(p * q)
        return q * q * f + 2 * (f + p * q * f) + p * p * f

    da = [
        (hessian_sum(a + h, b) - hessian_sum(a - h, b)) / (2 * h),
        (hessian_sum(a, b + h) - hessian_sum(a, b - h)) / (2 * h),
    ]
    np.testing.assert_allclose(third.numpy(), da, rtol=1e-6)


def test_multi_output_views_share_a_node() -> None:
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1.0
    a, b, c, d = y.unbind(0)
    assert a.grad_fn is d.grad_fn and [a.output_nr, d.output_nr] == [0, 3]
    (a * 2 + d * 5).backward()
    assert x.grad.tolist() == [2, 0, 0, 5]
    assert y.unbind(0)[0].grad_fn is not a.grad_fn
    assert y[1:].output_nr == 0


# --------------------------------------------------------------------------- leaves and flags


def test_requires_grad_on_a_view_of_an_untracked_base() -> None:
    b = tg.zeros((4,))
    v = b[:2]
    v.requires_grad_()
    assert v.is_leaf and v._is_view() and v._base is b and not b.requires_grad
    with pytest.raises(ViewMutationError) as e:
        v.mul_(2.0)
    assert e.value.kind == "view_of_leaf_inplace"
    b.add_(1.0)  # untracked operands: the view keeps its own gradient
    (v * 3.0).sum().backward()
    assert v.grad.tolist() == [3, 3]
    b.mul_(leaf(np.ones(4)))
    assert not v.is_leaf and v.requires_grad


def test_gradient_through_a_view_taken_before_requires_grad_is_not_dropped() -> None:
    b = tg.ones((3,))
    v = b[1:]
    b.requires_grad_()
    (v * 2.0).sum().backward()
    assert b.grad.tolist() == [0, 2, 2]


def test_flags() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    assert x.is_leaf and not y.is_leaf and y.requires_grad_() is y
    x.requires_grad = False
    assert not x.requires_grad and x.is_leaf and y.requires_grad
    for bad, kind in (
        (lambda: y.requires_grad_(False), "requires_grad_nonleaf"),
        (lambda: tg.tensor([1]).requires_grad_(), "requires_grad_dtype"),
    ):
        with pytest.raises(ViewMutationError) as e:
            bad()
        assert e.value.kind == kind


def test_detach_in_place() -> None:
    x = leaf([1.0, 2.0, 3.0])
    y = x * 1.0
    v = y[1:]
    with pytest.raises(ViewMutationError) as e:
        v.detach_()
    assert e.value.kind == "detach_view"
    y.detach_()
    assert y.is_leaf and not y.requires_grad and v.requires_grad
    v.sum().backward()
    assert x.grad.tolist() == [0, 1, 1]
    y.add_(1.0)
    assert not v.requires_grad or v.grad_fn is None


def test_data_escapes_every_check() -> None:
    x = leaf([1.0, 2.0])
    y = x * 1.0
    z = y.sin()
    y.data.mul_(2.0)
    assert y._version == 0 and y.tolist() == [2, 4]
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos([2.0, 4.0]))


def test_set_data() -> None:
    x, t = leaf([1.0, 2.0]), tg.ones((2,))
    v = x[1:]
    x.data = t
    assert x.tolist() == [1, 1] and v.tolist() == [2] and v._base is x and x.requires_grad
    t.add_(1.0)
    assert x.tolist() == [2, 2] and x._version == 0 and t._version == 1
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]


@pytest.mark.parametrize(
    "statement, bumps",
    [
        (lambda x: x.add_(1), 1),
        (lambda x: x.__iadd__(1), 1),
        (lambda x: x.zero_(), 1),
        (lambda x: x.__setitem__(0, 1.0), 1),
        (lambda x: x[1:1].add_(1), 1),
        (lambda x: x.copy_(x), 1),
        (lambda x: x.__setitem__(slice(None), x), 1),
        (lambda x: exec("x[0] += 1", {"x": x}), 2),
        (lambda x: exec("x[:2] += 1", {"x": x}), 2),
        (lambda x: exec("x[i] += 1", {"x": x, "i": np.array([0, 2])}), 1),
    ],
)
def test_version_bumps(statement, bumps: int) -> None:
    x = tg.zeros((4,))
    statement(x)
    assert x._version == bumps


def test_a_failed_write_changes_nothing() -> None:
    y = leaf([1.0, 2.0]) * 1.0
    node = y.grad_fn
    e = y.reshape(2, 1).expand(2, 3)
    for bad in (lambda: e.mul_(2.0), lambda: y.add_(np.ones((3, 2)))):
        with pytest.raises(ViewMutationError):
            bad()
    assert y._version == 0 and y.grad_fn is node and y.tolist() == [1, 2]
