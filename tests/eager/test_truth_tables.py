"""The truth tables of views (how a view was made, what is written, in which mode)."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import GradientWarning, ViewMutationError

pytestmark = pytest.mark.filterwarnings("ignore::tracegrad.errors.GradientWarning")
MODES = {"grad": nullcontext, "no_grad": tg.no_grad, "inference": tg.inference_mode}


class Passed(tg.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, :2]

    @staticmethod
    def backward(ctx, g):
        return tg.cat((g, tg.zeros((2, 1))), 1)


def made(kind: str, b):
    """A view of `b` (2 x 3) that covers its first columns."""
    if kind == "slice":
        return b[:, :2]
    if kind == "no_grad":
        with tg.no_grad():
            return b[:, :2]
    if kind == "inference":
        with tg.inference_mode():
            return b[:, :2]
    if kind == "multi_output":
        return b.split(2, 1)[0]
    if kind == "custom_function":
        return Passed.apply(b)
    assert kind == "detach"
    return b.detach()[:, :2]


RESTRICTED = ["no_grad", "inference", "multi_output", "custom_function"]


def leaf(shape=(2, 3)):
    return tg.tensor(np.arange(1.0, 7.0)[: int(np.prod(shape))].reshape(shape), requires_grad=True)


def write(what: str, b, v, mode: str, by=2.0) -> None:
    target = {"view": v, "base": b}.get(what)
    with MODES[mode]():
        target = b[:, 1:] if target is None else target
        target.mul_(by)


def refused(action, kind: str, direct: bool) -> None:
    with pytest.raises(ViewMutationError) as e:
        action()
    assert (e.value.kind, e.value.direct) == (f"{kind}_view_inplace", direct)


def usable(v) -> None:
    (v * 1.0).sum()
    assert v.is_leaf in (True, False)


# ------------------------------------------------------------- 6a: the base is computed


@pytest.mark.parametrize("kind", RESTRICTED)
def test_tracked_base_direct_write_is_refused(kind: str) -> None:
    b = leaf() * 1.0
    v = made(kind, b)
    before = v._version
    refused(lambda: v.mul_(2.0), kind, direct=True)
    assert v._version == before and (b.detach().numpy() == leaf().detach().numpy()).all()


@pytest.mark.parametrize("kind", RESTRICTED)
@pytest.mark.parametrize(
    "what, mode",
    [
        ("view", "no_grad"),
        ("view", "inference"),
        ("base", "grad"),
        ("sibling", "grad"),
        ("base", "no_grad"),
        ("sibling", "inference"),
    ],
)
def test_tracked_base_other_writes_poison(kind: str, what: str, mode: str) -> None:
    x = leaf()
    b = x * 1.0
    v = made(kind, b)
    write(what, b, v, mode)
    refused(lambda: v * 1.0, kind, direct=False)
    refused(lambda: v.clone(), kind, direct=False)
    refused(lambda: v[0], kind, direct=False)
    refused(lambda: v.grad_fn, kind, direct=False)
    refused(lambda: v.is_leaf, kind, direct=False)
    # What does not raise on a poisoned view.
    assert v.requires_grad and v.shape == (2, 2) and v._version == 1
    assert (v > 0).tolist() and v.tolist() and v.detach().tolist()
    with tg.no_grad():
        v * 2.0
    b.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    "what, mode, at_view, total",
    [
        ("view", "grad", 2.0, [[2, 2, 1], [2, 2, 1]]),
        ("view", "no_grad", 1.0, [[1, 1, 1], [1, 1, 1]]),
        ("view", "inference", 1.0, [[1, 1, 1], [1, 1, 1]]),
        ("base", "grad", 2.0, [[2, 2, 2], [2, 2, 2]]),
        ("sibling", "grad", 1.0, [[1, 2, 2], [1, 2, 2]]),
        ("base", "no_grad", 1.0, [[1, 1, 1], [1, 1, 1]]),
        ("sibling", "inference", 1.0, [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_tracked_base_slice_follows(what, mode, at_view, total) -> None:
    x = leaf()
    b = x * 1.0
    v = made("slice", b)
    write(what, b, v, mode)
    assert v.grad_fn is not None and v.output_nr == 0
    b.sum().backward(retain_graph=True)
    assert x.grad.tolist() == total
    x.grad = None
    v[:, 0].sum().backward()
    assert x.grad.tolist() == [[at_view, 0, 0], [at_view, 0, 0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["view", "base", "sibling"])
def test_tracked_base_detached_view(what: str, mode: str) -> None:
    x = leaf()
    b = x * 1.0
    v = made("detach", b)
    write(what, b, v, mode)
    assert not v.requires_grad and v._version == b._version == 1
    b.sum().backward()
    hidden = what == "view" or mode != "grad"
    changed = [[2, 2, 2], [2, 2, 2]] if what == "base" else [[1, 2, 2], [1, 2, 2]]
    assert x.grad.tolist() == ([[1, 1, 1], [1, 1, 1]] if hidden else changed)


# ---------------------------------------------------------------- 6b: an untracked base


def test_untracked_base_slice_written_with_a_tracked_operand() -> None:
    b, w = tg.tensor(np.ones((2, 3))), leaf((2, 2))
    v, sibling = made("slice", b), b[:, 1:]
    assert v.is_leaf and not v.requires_grad
    v.mul_(w)
    assert b.requires_grad and v.requires_grad and sibling.requires_grad
    sibling.sum().backward()
    assert w.grad.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("kind", RESTRICTED[:3])
def test_untracked_base_restricted_views(kind: str) -> None:
    b, w = tg.tensor(np.ones((2, 3))), leaf((2, 2))
    v = made(kind, b)
    refused(lambda: v.mul_(w), kind, direct=True)
    v.mul_(2.0)  # untracked: allowed, and no poison
    usable(v)
    with tg.no_grad():
        v.mul_(w)
    usable(v)
    b[:, 1:].mul_(w)
    refused(lambda: v * 1.0, kind, direct=False)
    usable(b)


def test_untracked_base_detached_view_is_a_family_of_its_own() -> None:
    b, w = tg.tensor(np.ones((2, 3))), leaf((2, 2))
    v = made("detach", b)
    v.mul_(w)
    assert v.requires_grad and not b.requires_grad
    assert b.tolist() == [[1, 2, 1], [3, 4, 1]]
    v.sum().backward()
    assert w.grad.tolist() == [[1, 1], [1, 1]]
    c = tg.tensor(np.ones((2, 3)))
    u = made("detach", c)
    c[:, 1:].mul_(w)
    assert c.requires_grad and not u.requires_grad


# ------------------------------------------------------------------ 6c: the base is a leaf


@pytest.mark.parametrize(
    "what, kind",
    [
        ("view", "view_of_leaf_inplace"),
        ("base", "leaf_inplace"),
        ("sibling", "view_of_leaf_inplace"),
    ],
)
@pytest.mark.parametrize("made_by", ["slice", *RESTRICTED, "detach"])
def test_leaf_base_written_with_gradients_on(made_by: str, what: str, kind: str) -> None:
    x = leaf()
    v = made(made_by, x)
    if what == "view" and made_by == "detach":
        v.mul_(2.0)
        return
    if what == "view" and made_by != "slice":
        kind = f"{made_by}_view_inplace"
    with pytest.raises(ViewMutationError) as e:
        write(what, x, v, "grad")
    assert e.value.kind == kind
    assert x._version == 0 and x.is_leaf


@pytest.mark.parametrize("what", ["view", "base", "sibling"])
@pytest.mark.parametrize("made_by", ["slice", *RESTRICTED])
def test_leaf_base_written_with_gradients_off(made_by: str, what: str) -> None:
    x = leaf()
    v = made(made_by, x)
    write(what, x, v, "no_grad")
    assert x.is_leaf and x.requires_grad and x._version == 1
    if made_by == "slice":
        v.sum().backward()
        assert x.grad.tolist() == [[1, 1, 0], [1, 1, 0]]
    else:
        refused(lambda: v * 1.0, made_by, direct=False)


# --------------------------------------------------------------------- kinds of view of view


KIND = {
    "default": "slice",
    "no_grad": "no_grad",
    "inference": "inference",
    "multi_output": "multi_output",
}
TABLE = [
    ("default", ["default", "no_grad", "inference", "multi_output"]),
    ("no_grad", ["no_grad", "no_grad", "inference", "multi_output"]),
    ("inference", ["inference", "inference", "inference", "inference"]),
    ("multi_output", ["multi_output", "no_grad", "inference", "multi_output"]),
]


@pytest.mark.parametrize("parent, row", TABLE)
def test_a_step_on_a_view_combines_kinds(parent: str, row: list[str]) -> None:
    for step, want in zip(KIND, row, strict=True):
        b = leaf((2, 3)) * 1.0
        v = made(KIND[step], made(KIND[parent], b))
        if want == "default":
            v.mul_(2.0)
        else:
            refused(lambda v=v: v.mul_(2.0), want, direct=True)


def test_a_no_grad_view_used_with_gradients_on_warns() -> None:
    y = leaf() * 1.0
    v = made("no_grad", y)
    with pytest.warns(GradientWarning, match="carries no gradient"):
        v * 2.0


def test_messages_say_where_the_view_was_made_and_which_output_it_is() -> None:
    b = leaf() * 1.0
    v = b.split(1, 1)[1]
    with pytest.raises(ViewMutationError, match="output 1 of split is a view") as e:
        v.mul_(2.0)
    text = str(e.value)
    assert "b.split(1, 1)[1]" in text and "v.mul_(2.0)" in text
    assert (e.value.op_name, e.value.output_nr, e.value.direct) == ("split", 1, True)
