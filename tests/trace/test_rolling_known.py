"""Arrays whose contents are known when tracing, inside loops that roll."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.views.geometry import are_disjoint


def recurrence(x):
    p = np.zeros(12)
    p[0] = 1.0
    for j in range(1, 12):
        p[j] = p[j - 1] * 0.5 + x[j]
    return np.sum(p * p)


def read_before_it_is_written(x):
    p = np.zeros(12)
    s = 0.0
    for j in range(12):
        s = s + np.sum(p) * x[j]
        p[j] = x[j]
    return s


def written_with_known_values(x):
    p = np.zeros(3)
    s = 0.0
    for j in range(12):
        p[1] += 1.0
        s = s + x[j] * p[1]
    return s


def under_a_mask(x):
    total = np.zeros_like(x)
    for _ in range(12):
        inside = x < 1.0
        total[inside] += np.exp(-x)[inside]
        x = x * 1.05
    return np.sum(total)


def diagonal(x):
    r = np.zeros((12, 12))
    for k in range(12):
        r[k, k] = np.sqrt(np.dot(x, x)) * (k + 1)
    return np.sum(r)


def table(x):
    t = np.sin(np.arange(12.0))
    s = 0.0
    for j in range(12):
        s = s + t[j] * x[j] + np.sum(t[j : j + 1])
    return s + t[3]


def through_a_view(x):
    p = np.zeros(14)
    v = p[2:]
    for j in range(12):
        v[j] = x[j] * p[j]  # two places back
        p[0] = x[j]
    return np.sum(p * p)


def born_in_the_body(x):
    s = 0.0
    for j in range(12):
        t = np.zeros(12)
        t[j] = 2.0
        t[3] += 1.0
        s = s + np.sum(t * x) * x[j]
    return s


def used_as_an_index_after(x):
    n = np.arange(12)
    s = 0.0
    for j in range(12):
        s = s + x[n[j]] * n[j]
    return s + np.sum(x[n[3:5]])


PROGRAMS = [
    recurrence,
    read_before_it_is_written,
    written_with_known_values,
    under_a_mask,
    diagonal,
    table,
    through_a_view,
    born_in_the_body,
    used_as_an_index_after,
]
ROLLED = [f for f in PROGRAMS if f is not born_in_the_body]


def point():
    return np.linspace(0.1, 1.2, 12)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_rolled_is_numpy_and_its_gradient_that_of_the_unrolled(f):
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(point()), f(point()), rtol=1e-12)
    rolled = tg.grad(f, backend="numpy")(point())
    np.testing.assert_allclose(
        rolled, tg.grad(f, backend="numpy", loops="unroll")(point()), rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("f", ROLLED, ids=lambda f: f.__name__)
def test_it_is_one_node(f):
    assert tg.compile(f).graph(point()).count("= loop(") == 1


def test_a_body_of_many_instructions_rolls():
    line = "        a[1:-1] = 0.5 * (a[2:] + a[:-2]) + 0.1 * a[1:-1]\n"
    names = {"np": np}
    exec("def f(a):\n    for _ in range(20):\n" + line * 12 + "    return np.sum(a * a)\n", names)
    assert tg.compile(names["f"]).graph(np.ones(9)).count("= loop(") == 1
    np.testing.assert_allclose(tg.compile(names["f"])(point()), names["f"](point()))


def test_views_of_several_steps_at_an_index_may_be_disjoint():
    from tracegrad.dims import add, symbol

    i = symbol("i", 1, 8)
    here = View((Index((Pick(i), Span(0, 4))), Index((Pick(2),))))
    before = View((Index((Pick(add(i, -1)), Span(0, 4))), Index((Span(1, 2),))))
    assert are_disjoint(here, before, (10, 4))
    assert not are_disjoint(here, here, (10, 4))
