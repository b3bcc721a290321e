"""Small programs that once went wrong, kept as they were found (see ``tests/fuzz``)."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.fuzz.judge_numpy import check
from tests.fuzz.program import Arg
from tracegrad.loops.verify import verify_program


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
@pytest.mark.parametrize(
    "arg",
    [
        Arg("x", (4,), order="strided"),
        Arg("x", (4,), order="reversed"),
        Arg("x", (3, 2), order="F"),
        Arg("x", (3, 2)),
    ],
)
def test_ravel_copies_what_is_not_contiguous(arg, order):
    check(
        f"""
    def f(x):
        v = x.ravel({order!r})
        v[0] = 5.0
        return x * 1.0, v * 1.0
    """,
        arg,
    )


def test_an_argument_used_up_on_the_way_to_its_new_contents_counts_as_written():
    def f(z):
        np.add.at(z, np.array([-1]), z[None, 1])
        v = np.outer(z, z)
        z[...] = -v[::2, -2:]
        return v

    program = tg.compile(f).lower(np.ones((2, 2))).specialisation.lowering.plan.program
    verify_program(program)
    assert [b.written for b in program.buffers if b.hint == "z"] == [True]


def test_squeezing_nothing_is_the_array_itself():
    check(
        """
    def f(x, y):
        return np.squeeze(x), y.squeeze(), x
    """,
        Arg("x", (3, 4)),
        Arg("y", (1, 2)),
    )


def test_constants_written_by_out_fill_the_target():
    check(
        """
    def f(x):
        np.subtract(np.abs(-0.7), 2.0, out=x[1:])
        np.multiply(-1.5, -0.7, out=x[:1])
        return x,
    """,
        Arg("x", (3, 2)),
    )


@pytest.mark.parametrize("spec", ["ij->ji", "ii->i", "ij", "...j->j...", "ji"])
def test_einsum_without_a_sum_is_a_view(spec):
    check(
        f"""
    def f(x):
        v = np.einsum({spec!r}, x)
        v[0] += 1.0
        x[1] *= 2.0
        return x, v
    """,
        Arg("x", (3, 3)),
    )


@pytest.mark.parametrize("mask", ["x[0] > 0.0", "x[0] < 0.0"])
def test_a_traced_flag_may_select_all_or_nothing_in_an_assignment(mask):
    check(
        f"""
    def f(x, y):
        x[{mask}] *= 2.0
        x[{mask}] = y[1:]
        y[...][y.sum() > 0] = 0.5
        z = np.sum(x, keepdims=True).reshape(())
        z[z > 0.0] = 3.0
        return x, y, z
    """,
        Arg("x", (3,)),
        Arg("y", (4,)),
    )


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.std(x),
        lambda x: np.linalg.norm(x),
        lambda x: np.linalg.norm(x, 3),
        lambda x: np.std(x, axis=0),
        lambda x: np.std(x, ddof=1),
    ],
)
def test_the_derivative_of_a_spread_of_zero_is_zero(f):
    at = np.zeros(4)
    assert tg.compile(f, backend="numpy")(at) == 0.0
    np.testing.assert_array_equal(tg.grad(f, backend="numpy")(at), at)
    _, dot = tg.jvp(tg.compile(f, backend="numpy"), (at,), (np.ones(4),))
    assert dot == 0.0
    assert np.isnan(tg.compile(f, backend="numpy")(at + np.nan))


# ------------------------------------------------------------------------------ the Tensor face


def gradient(f, x):
    return tg.grad(lambda x: f(x).sum(), arrays="torch", backend="numpy")(x.copy())


X = np.array([0.5, -1.0, 2.0, 3.0])


@pytest.mark.filterwarnings("ignore::tracegrad.errors.GradientWarning")
@pytest.mark.parametrize(
    "step",
    [
        lambda v: v.chunk(2)[0],
        lambda v: v.chunk(2)[0].unbind()[0],
        lambda v: v[:2],
        lambda v: v.as_strided((2,), (1,), 1),
    ],
)
def test_views_of_a_view_made_under_no_grad_carry_no_gradient(step):
    def f(x):
        with tg.no_grad():
            v = x[:]
        return step(v) * 2.0

    np.testing.assert_array_equal(gradient(f, X), np.zeros(4))


@pytest.mark.parametrize("detached", [lambda y: y.detach(), lambda y: y[1:].detach()])
def test_as_strided_of_a_detached_tensor_carries_no_gradient(detached):
    def f(x):
        return detached(x * 1.0).as_strided((2,), (1,), 1) * 3.0

    np.testing.assert_array_equal(gradient(f, X), np.zeros(4))


@pytest.mark.parametrize(
    "part", [lambda b: b.detach(), lambda b: b.detach()[1:], lambda b: b[1:].detach()]
)
def test_a_buffer_detached_before_it_is_written_stays_detached(part):
    def f(x):
        b = tg.zeros(4)
        d = part(b)
        b.add_(x)
        return (d * d).sum() + b.sum()

    np.testing.assert_array_equal(gradient(f, X), np.ones(4))


def test_a_write_through_a_detached_buffer_has_its_own_history():
    def f(x):
        b = tg.zeros(4)
        d = b.detach()
        d.add_(x)
        before = d * 2.0
        b.mul_(x)
        return before.sum() + b.sum()

    np.testing.assert_allclose(gradient(f, X), 2.0 + X)
