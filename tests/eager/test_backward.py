"""The backward pass: gradients, hooks, kept values, the calls that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import ArgumentError, AutogradError, ShapeError, TracegradError


def leaf(values):
    return tg.tensor(values, dtype=np.float64, requires_grad=True)


def refused(kind: str, action) -> TracegradError:
    with pytest.raises(RuntimeError) as e:
        action()
    assert e.value.kind == kind
    return e.value


# -------------------------------------------------------------------------------- backward


def test_gradients_accumulate_in_place() -> None:
    x = leaf([1.0, 2.0, 3.0])
    (x * x).sum().backward()
    held = x.grad
    (x * 3.0).sum().backward()
    assert x.grad is held and held.tolist() == [5, 7, 9] and held._version == 1
    assert not held.requires_grad


def test_gradient_argument_and_shapes() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    refused("gradient_shape", y.backward)
    with pytest.raises(ShapeError):
        y.backward(tg.ones((3,)))
    y.backward(tg.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 20]


def test_broadcast_operands_get_a_summed_gradient() -> None:
    x, s = leaf(np.ones((2, 3))), leaf([1.0, 2.0, 3.0])
    (x * s + s.sum()).sum().backward()
    assert s.grad.tolist() == [8, 8, 8] and x.grad.tolist() == [[1, 2, 3]] * 2


def test_inputs_limit_what_accumulates() -> None:
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = x * w
    y.sum().backward(inputs=[w])
    assert x.grad is None and w.grad.tolist() == [1, 2]
    with pytest.raises(ArgumentError):
        y.sum().backward(inputs=[])
    refused("no_grad_fn", lambda: y.sum().backward(inputs=[tg.ones((2,))]))


def test_second_backward_needs_the_graph_kept() -> None:
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    error = refused("backward_twice", y.backward)
    assert "retain_graph=True" in str(error) and "x * x" in str(error)
    z = x.sum()  # nothing is kept, so nothing was freed
    z.backward()
    z.backward()


def test_backward_of_an_untracked_tensor() -> None:
    refused("no_grad_fn", lambda: tg.ones((2,)).sum().backward())


def test_create_graph_makes_grad_differentiable() -> None:
    x = leaf(2.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    g = x.grad
    x.grad = None
    g.backward()
    assert float(x.grad) == 12.0


def test_autograd_grad() -> None:
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = x * x
    gy, gx = tg.autograd.grad((y * w).sum(), (y, x), retain_graph=True)
    assert gy.tolist() == [3, 4] and gx.tolist() == [6, 16] and x.grad is None
    a, b = tg.autograd.grad([y, y * 2.0], [x, x], [tg.ones((2,)), tg.ones((2,))])
    assert a.tolist() == b.tolist() == [6, 12]
    unused = leaf([1.0])
    refused("unused_input", lambda: tg.autograd.grad((x * w).sum(), [unused]))
    assert tg.autograd.grad((x * w).sum(), [unused], allow_unused=True) == (None,)
    (zero,) = tg.autograd.grad((x * w).sum(), [unused], materialize_grads=True)
    assert zero.tolist() == [0]


def test_only_nodes_on_the_way_run() -> None:
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y, log = x * 1.0, []
    y.register_hook(lambda g: log.append(1))
    tg.autograd.grad((y * w).sum(), w)
    assert log == []


def test_piecewise_constant_functions_have_a_zero_gradient() -> None:
    x = leaf([1.5, 2.5])
    tg.floor(x).sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_float32_gradients_keep_their_dtype() -> None:
    x = tg.tensor([1.0, 2.0], dtype=np.float32, requires_grad=True)
    w = leaf([3.0, 4.0])
    (x * w).sum().backward()
    assert x.grad.dtype == np.float32 and w.grad.dtype == np.float64


# ----------------------------------------------------------------------------------- hooks


def test_order_new_before_old_and_retained_last() -> None:
    x = leaf([1.0, 2.0])
    y, log = x * 1.0, []
    y.register_hook(lambda g: log.append(("old", g.tolist())))
    y.mul_(2.0)
    y.register_hook(lambda g: log.append(("new", g.tolist())))
    y.retain_grad()
    (y * 5.0).sum().backward()
    assert log == [("new", [5, 5]), ("old", [10, 10])] and y.grad.tolist() == [5, 5]


def test_leaf_hook_then_accumulation_then_post_hook() -> None:
    x, log = leaf([1.0, 2.0]), []
    x.register_hook(lambda g: g * 10.0)
    handle = x.register_post_accumulate_grad_hook(lambda t: log.append(t.grad.tolist()))
    x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    assert log == [[10, 10]] and x.grad.tolist() == [20, 20]


def test_the_engine_sums_a_version_before_its_hooks() -> None:
    x = leaf([1.0])
    y, log = x * 1.0, []
    y.register_hook(lambda g: log.append(g.tolist()))
    (y * 2.0 + y * 3.0 + y.exp() * 0.0).sum().backward()
    assert log == [[5.0]]


def test_retain_grad_is_idempotent_and_nothing_on_leaves() -> None:
    x = leaf([1.0])
    x.retain_grad()
    y = x * 2.0
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    y.sum().backward()
    assert y.grad.tolist() == [1]


def test_refused_hooks() -> None:
    x = leaf([1.0])
    y = x * 1.0
    plain = tg.ones((1,))
    refused("hook_no_grad", lambda: plain.register_hook(print))
    refused("hook_no_grad", lambda: plain.register_post_accumulate_grad_hook(print))
    refused("hook_nonleaf", lambda: y.register_post_accumulate_grad_hook(print))
    refused("retain_no_grad", lambda: plain.retain_grad())
    y.register_hook(lambda g: 3)
    refused("hook_bad_return", lambda: y.sum().backward())


def test_a_gradient_given_to_a_hook_is_not_written() -> None:
    y = leaf([1.0, 2.0]) * 1.0
    y.register_hook(lambda g: g.mul_(2.0))
    with pytest.raises(TracegradError, match="read-only"):
        y.sum().backward()


# ------------------------------------------------------------------------------ kept values


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y[2].mul_(2.0),  # disjoint elements
        lambda y: y[1:1].add_(1.0),  # nothing
        lambda y: y.detach().add_(1.0),
        lambda y: _no_grad(lambda: y.add_(0.0)),
    ],
)
def test_a_version_that_moved_is_noticed(write) -> None:
    y = leaf([1.0, 2.0, 3.0]) * 1.0
    z = y[0] * y[1]
    write(y)
    error = refused("saved_modified", lambda: z.backward())
    assert "MulBackward0" in str(error) and "it was written here" in str(error)
    assert error.loc.text.strip() == "z = y[0] * y[1]"


def _no_grad(action) -> None:
    with tg.no_grad():
        action()


def test_numpy_aliases_and_data_are_not_noticed() -> None:
    x = leaf([1.0, 2.0])
    y = x * 1.0
    z = y.sin()
    y.detach().numpy()[:] = 5.0
    y.data.mul_(2.0)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos([10.0, 10.0]))


@pytest.mark.parametrize(
    "program",
    [
        lambda y: (y + 1.0, y.zero_())[0],
        lambda y: (y * 2.0, y.zero_())[0],
        lambda y: (y - y, y.zero_())[0],
        lambda y: y.sin_().exp_(),
        lambda y: y.mul_(y.clone()),
        lambda y: y.clamp_(0.0, 1.5).tanh_(),
        lambda y: y.pow_(2.0).sqrt_(),
    ],
)
def test_what_keeps_nothing_or_a_copy_may_be_overwritten(program) -> None:
    x = leaf([0.5, 1.2])
    z = program(x * 1.0)
    z.sum().backward()
    h, plain = 1e-6, np.array([0.5, 1.2])
    for k in range(2):
        ends = []
        for s in (h, -h):
            at = plain.copy()
            at[k] += s
            ends.append(float(program(tg.tensor(at) * 1.0).sum()))
        assert abs((ends[0] - ends[1]) / (2 * h) - x.grad.tolist()[k]) < 1e-6


@pytest.mark.parametrize(
    "program", [lambda y: y.mul_(y), lambda y: y.div_(y), lambda y: y.exp_().sin_()]
)
def test_what_pytorch_keeps_by_reference_is_refused(program) -> None:
    z = program(leaf([0.5, 1.2]) * 1.0)
    refused("saved_modified", lambda: z.sum().backward())


def test_element_assignment_of_a_scaled_element_and_of_a_product() -> None:
    y = leaf([1.0, 2.0]) * 1.0
    y[0] = y[0] * 2.0
    y.sum().backward()
    y = leaf([1.0, 2.0]) * 1.0
    y[0] = y[0] * y[0]
    refused("saved_modified", lambda: y.sum().backward())


# --------------------------------------------------------------------------- inference mode


def test_inference_tensors() -> None:
    x = leaf([1.0, 2.0])
    with tg.inference_mode():
        assert tg.is_inference_mode_enabled() and not tg.is_grad_enabled()
        c = x * 2.0
        with tg.enable_grad():
            assert not (x * 2.0).requires_grad
        c.add_(1.0)
        x.add_(0.0)  # ordinary tensors may be written, leaves too
    assert c.is_inference() and not c[:1]._is_view() and c[:1].is_inference() and x._version == 1
    refused("inference_tensor_inplace", lambda: c.add_(1.0))
    refused("inference_tensor_inplace", lambda: _no_grad(lambda: c[:1].add_(1.0)))
    refused("inference_tensor_saved", lambda: c * x)
    refused("inference_requires_grad", lambda: c.requires_grad_())
    refused("inference_tensor_version", lambda: c._version)
    assert (c + x).requires_grad and not c.clone().is_inference()
    tg.zeros((2,)).copy_(c)


def test_a_leaf_scalar_of_inference_mode_is_refused_too() -> None:
    x = leaf([1.0, 2.0])
    with tg.inference_mode():
        c = x.sum()
    refused("inference_tensor_saved", lambda: c * x)


def test_error_is_a_runtime_error_with_the_users_line() -> None:
    with pytest.raises(AutogradError) as e:
        tg.ones((1,)).backward()
    assert e.value.loc.text.strip() == "tg.ones((1,)).backward()"
