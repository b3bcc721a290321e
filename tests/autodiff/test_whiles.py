"""Gradients of `while_loop` without `max_trips`: what the iterations leave grows as they run."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.pipeline import GRAPH_STAGES

INPUTS = (np.array([0.7, -0.4, 1.1]), np.array([-0.6, 0.8, 0.9]), np.array([1.6, 0.3, -0.5]))


# Each takes the loop to use, so that it can be compared with itself under `max_trips`.


def of_a_number(loop, x):
    return loop(lambda v: v < 100.0, lambda v: v * (1.2 + x[0] ** 2) + x[1] ** 2 + 0.1, x[2] ** 2)


def of_a_vector(loop, x):
    def body(s):
        u, k = s
        return np.roll(u, 1) * 0.7 + 0.1 * np.sin(u * x), k + 1

    u, k = loop(lambda s: (np.sum(s[0] ** 2) > 0.1) & (s[1] < 30), body, (x, 0))
    return np.sum(u**2) + k * x[0]


def of_a_matrix(loop, x):
    def body(a):
        return a @ a * 0.5 + np.outer(x, np.sin(x))

    return np.sum(loop(lambda a: np.sum(np.abs(a)) < 50.0, body, np.outer(x, x) + np.eye(3)))


def of_several_results(loop, x):
    def body(s):
        return {"p": np.sum(s["q"]) * x[0], "q": np.sin(s["p"]) + s["q"], "n": s["n"] + 1}

    out = loop(lambda s: s["n"] < 6, body, {"p": x[1], "q": x, "n": 0})
    return np.sum(out["p"] * out["q"])


def that_writes(loop, x):
    log = np.zeros(50)

    def body(s):
        k, v = s
        log[k] = v * x[0]
        log[k + 1] += log[k] * x[1]
        return k + 1, v * 0.8 + 0.01 * x[1]

    loop(lambda s: np.abs(s[1]) > 0.1, body, (0, x[2] + 2.0))
    return np.sum(log**2)


def that_never_runs(loop, x):
    return loop(lambda v: v > 1e9, lambda v: v * v * x[0], x[1]) * x[2]


def that_needs_no_tape(loop, x):
    return loop(lambda s: s[1] < 5, lambda s: (s[0] * 0.5 + 1.0, s[1] + 1), (x, 0))[0] @ x


def two_in_a_row(loop, x):
    a = loop(lambda v: v < 5.0, lambda v: v * v + 0.5, 0.5 + x[0] ** 2)
    return loop(lambda v: v < 50.0, lambda v: v * a + x[1] ** 2, x[2] ** 2 + 1.0)


def in_a_loop(loop, x):
    s = x[0] * 1.0
    for i in range(10):
        start = 0.5 + x[2] ** 2
        s = s * 0.1 + loop(lambda v: v < 3.0, lambda v: v * 1.5 + x[1] ** 2, start) * (i + 1)
    return s


def with_a_loop(loop, x):
    def body(s):
        v, k = s
        for i in range(9):
            v = v + np.sin(v) * x[i % 3] ** 2
        return v, k + 1

    return loop(lambda s: s[1] < 5, body, (x[2] ** 2, 0))[0]


def in_itself(loop, x):
    def inner(v):
        def body(w):
            return w * 1.1 + (np.sin(w) * x[0]) ** 2 + 0.1

        return loop(lambda w: w < v + 1.0, body, 0.5 * v)

    return loop(lambda v: v < 4.0, lambda v: inner(v) + 0.1 * x[1], x[2] ** 2 * 0.1)


def in_itself_twice(loop, x):
    def third(w):
        return loop(lambda a: a < 2.0, lambda a: a * 1.3 + (a * x[1]) ** 2, np.sin(w) ** 2 + 0.1)

    def second(v):
        return loop(lambda w: w < v + 1.0, lambda w: w + third(w) * 0.3 + 0.1, 0.5 * v)

    return loop(lambda v: v < 4.0, lambda v: second(v) + x[0] ** 2, x[2] ** 2)


def with_traced_bounds(loop, x):
    n = np.floor(np.abs(x[0]) * 4).astype(np.int64)
    most = loop.keywords["max_trips"] if isinstance(loop, functools.partial) else None
    return tg.fori_loop(1, n, lambda i, s: np.sin(s) * x[1] + i * x[2], x[2], max_trips=most)


def in_a_branch(loop, x):
    return tg.cond(x[0] > 0, lambda: of_a_number(loop, x), lambda: x[1] ** 2)


def with_a_branch(loop, x):
    def body(s):
        v, k = s
        v = tg.cond(k % 2 == 0, lambda: v * x[0] + 1.0, lambda: np.sin(v) * x[1])
        return v, k + 1

    return loop(lambda s: s[1] < 7, body, (x[2], 0))[0]


def in_a_checkpoint(loop, x):
    return tg.checkpoint(functools.partial(of_a_number, loop))(np.sin(x)) * x[0]


def pulled_back_in_a_loop(loop, x):
    y, pull = tg.vjp(lambda a: of_a_number(loop, a), x)
    s = 0.0
    for i in range(12):
        s = s + np.sum(pull(y * 1e-4 * i)[0] ** 2)
    return s


PROGRAMS = [
    of_a_number,
    of_a_vector,
    of_a_matrix,
    of_several_results,
    that_writes,
    that_never_runs,
    that_needs_no_tape,
    two_in_a_row,
    in_a_loop,
    with_a_loop,
    in_itself,
    in_itself_twice,
    with_traced_bounds,
    in_a_branch,
    with_a_branch,
    in_a_checkpoint,
    pulled_back_in_a_loop,
]
programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def unbounded(program):
    return functools.partial(program, tg.while_loop)


def bounded(program):
    return functools.partial(program, functools.partial(tg.while_loop, max_trips=60))


@programs
def test_gradients_are_those_of_a_loop_with_a_bound(program):
    grown = tg.value_and_grad(unbounded(program))
    fixed = tg.value_and_grad(bounded(program), backend="numpy")
    for x in INPUTS:
        (value, gradient), (same, wanted) = grown(x.copy()), fixed(x.copy())
        np.testing.assert_allclose(value, same, rtol=1e-12)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "program", [of_a_vector, of_a_matrix, in_itself, in_itself_twice], ids=lambda f: f.__name__
)
def test_derivatives_are_finite_differences(program):
    tg.check_grads(tg.compile(unbounded(program), backend="numpy"), (INPUTS[0],), order=1)


@programs
def test_every_stage_means_the_same_and_prints(program):
    """Graphs evaluate alike, verify, and survive their text form."""

    def slope(x):
        return program(tg.while_loop, x)

    check_stages(tg.grad(slope, backend="numpy"))


@pytest.mark.parametrize("program", [of_a_matrix, in_itself], ids=lambda f: f.__name__)
def test_every_stage_of_a_second_derivative(program):
    def curvature(x):
        return np.sum(tg.grad(unbounded(program))(x) ** 2)

    check_stages(tg.grad(curvature, backend="numpy"))


def check_stages(made):
    x = INPUTS[0]
    gradient = made(x.copy())
    lowered = made.lower(x)
    for stage in GRAPH_STAGES:
        graph = lowered.graph(stage).graph
        verify(graph)
        text = print_graph(graph)
        assert print_graph(parse_graph(text)) == text
        if stage in ("joint", "optimized"):
            np.testing.assert_allclose(evaluate(graph, [x])[0], gradient, rtol=1e-9, atol=1e-12)
    scheduled = lowered.specialisation.lowering.plan.program
    verify_program(scheduled)
    text = print_program(scheduled)
    assert print_program(parse_program(text, REGISTRY.intrinsics())) == text
