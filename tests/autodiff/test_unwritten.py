"""What reverse loops read of what loops leave behind: sizes of tapes, and derivatives that agree
with those where everything is taped, with finite differences, and to second order."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.autodiff.in_place_loops import PROGRAMS
from tracegrad.autodiff import unwritten
from tracegrad.autodiff.unwritten import Onwards, Unwritten
from tracegrad.graph.walk import all_nodes

programs = pytest.mark.parametrize("p", PROGRAMS.values(), ids=list(PROGRAMS))


def stacks(graph):
    """The types of what loops of a graph stack, those inside other loops left out."""
    return [
        t
        for node in graph.nodes
        if node.op.name in ("loop", "while")
        for t in node.attrs.results[node.attrs.carries :]
    ]


def gradient_graph(f, *args):
    return tg.grad(f).lower(*args).specialisation.lowering.graph("optimized")


def kept(f, x):
    return sum(int(np.prod(t.shape)) for t in stacks(gradient_graph(f, x.copy())))


def first(p):
    """The gradient, compiled anew."""
    return tg.grad(lambda x: p.function(x), backend="numpy")(p.at.copy())


def second(f, x):
    """The gradient of a weighted sum of the gradient."""
    w = np.linspace(0.4, 1.3, x.size).reshape(x.shape)
    return tg.grad(lambda x: np.sum(tg.grad(f)(x) * w), backend="numpy")(x.copy())


@pytest.fixture
def taped(monkeypatch):
    """Call it, and from then on nothing is read from final carries."""
    return lambda: monkeypatch.setattr(Unwritten, "read", lambda *args: None)


@programs
def test_what_is_kept(p):
    assert kept(p.function, p.at) == p.kept


@programs
def test_gradient(p, taped):
    got = first(p)
    direction = np.random.default_rng(2).standard_normal(p.at.shape)

    def along(h):
        return p.function(p.at + h * direction)

    h = 1e-3
    want = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    if not p.hidden:
        np.testing.assert_allclose(np.sum(got * direction), want, rtol=1e-6)
    taped()
    np.testing.assert_allclose(got, first(p), rtol=1e-12, atol=1e-14)


@programs
def test_second_order(p, taped):
    got = second(p.function, p.at)
    taped()
    want = second(p.function, p.at)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12 * np.max(np.abs(want)))


def test_unknown_is_taped():
    """An index that is read from an array may be any."""

    def f(x, where):
        y = x * 1.0
        for i in range(1, 14):
            y[where[i]] = np.sin(y[i - 1]) * 0.5
        return np.sum(y)

    x, where = np.linspace(0.1, 1, 14), np.arange(14)[::-1].copy()
    assert len(stacks(gradient_graph(f, x, where))) == 1
    got = tg.grad(f)(x, where)
    for k in range(14):
        d = np.zeros(14)
        d[k] = 1e-6
        want = (f(x + d, where) - f(x - d, where)) / 2e-6
        np.testing.assert_allclose(got[k], want, rtol=1e-6, atol=1e-9)


def test_array_that_is_overwritten_behind_the_loop():
    """What is read where it is overwritten at the end would be kept whole: a tape is smaller."""

    def f(x):
        y = x * 1.0
        for i in range(1, 11):
            y[i] = np.sin(y[i - 1])
        y[5:] = y[5:] * y[5:]
        return np.sum(y)

    few = [t.shape for t in stacks(gradient_graph(f, np.linspace(0, 1, 5000)))]
    assert few == [(10,)]
    assert kept(f, np.linspace(0, 1, 12)) == 0


def test_latest_of_several_loops():
    """Of loops that fill an array one after the other all are read at the end."""

    def f(x):
        y = np.zeros(40)
        y[0] = x[0]
        for i in range(1, 20):
            y[i] = np.sin(y[i - 1])
        for i in range(20, 40):
            y[i] = np.sin(y[i - 1]) * y[i - 20]
        return np.sum(y)

    graph = gradient_graph(f, np.ones(3))
    assert not stacks(graph)
    first, last, *reverse = [n for n in graph.nodes if n.op.name == "loop"]
    assert len(reverse) == 2
    for node in reverse:
        assert last.results[0] in node.operands
        assert first.results[0] not in node.operands


def test_inner_constant_is_read_at_the_end():
    """An array that the inner loop only reads is carried by the outer one; keeping it for each
    outer iteration would take 100 times the array."""

    def f(x):
        y = x * 1.0
        for i in range(10, 100):
            s = 0.0
            for j in range(10):
                s = s + y[j] * y[j]
            y[i] = np.sin(s) * y[i]
        return np.sum(y)

    x = np.linspace(0.1, 0.5, 100)
    assert kept(f, x) == 2 * 90


def test_parts_of_a_large_array_that_changes():
    """The inner loop's elements are kept, and not the array for each outer iteration."""

    def f(x):
        u, s = x * 1.0, 0.0
        for _ in range(9):
            for j in range(10):
                s = s + u[j] * u[j + 1]
            u[:] = u * 0.5
        return s

    x = np.linspace(0.1, 0.5, 4000)
    assert kept(f, x) == 2 * 9 * 10


def test_a_carry_that_nothing_needs_is_not_active():
    """p does not depend on what the gradient is taken of: nothing goes back through it."""

    def f(x):
        p, y = np.zeros(12), x * 1.0
        for i in range(1, 12):
            p[i] = 0.5 * p[i - 1] + 1.0
            y[i] = y[i - 1] * p[i]
        return np.sum(y)

    graph = gradient_graph(f, np.ones(12))
    backwards = [n for n in all_nodes(graph) if n.op.name == "loop"][-1]
    assert backwards.attrs.reverse and backwards.attrs.carries == 1
    assert not stacks(graph)


@pytest.mark.parametrize("most", [20, None])
def test_while_loops_leave_behind_what_they_do_not_write(most):
    def f(x):
        y = x * 1.0

        def step(v):
            y[0] = np.sin(y[1]) * y[0]
            return v * 0.5

        tg.while_loop(lambda v: v > 0.1, step, 1.0, **({} if most is None else {"max_trips": most}))
        return y[0] * y[0]

    x = np.array([0.3, 0.8, 0.5])
    (tape,) = stacks(gradient_graph(f, x))
    assert tape.rank == 1
    s, c = np.sin(x[1]), np.cos(x[1])
    want = [2 * x[0] * s**8, 8 * x[0] ** 2 * s**7 * c, 0.0]
    np.testing.assert_allclose(tg.grad(f)(x), want, rtol=1e-12)


def test_what_is_asked_of_long_bodies_is_bounded(monkeypatch):
    """Sets are compared up to a limit; what is asked beyond it is taped."""

    def f(x):
        y = x * 1.0
        for i in range(2, 12):
            for k in range(7):
                y[i + 20 * k] = np.sin(y[i - 1 + 20 * k])
        return np.sum(y)

    x = np.linspace(0.1, 0.5, 200)
    assert kept(f, x) == 0
    monkeypatch.setattr(unwritten, "MOST_COMPARED", 60)
    assert 0 < kept(f, x) < 7 * 10


def test_onwards_stops_where_an_element_is_written():
    graph = tg.compile(_written_twice).lower(np.ones(9)).specialisation.lowering.functional
    onwards = Onwards(graph)
    made = [n.result for n in graph.nodes if n.op.name == "copy_slices"]
    assert onwards.latest(made[0], (1, 1), 1) in made[1:]
    assert onwards.latest(made[0], (4, 4), 100) is made[0]


def _written_twice(x):
    y = x * 1.0
    y[1] = 2.0
    y[4] = 3.0
    y[5] = 3.0
    return y
