"""Short loops: copies of the body, unless loops around them would make very many."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tracegrad as tg

X = np.random.default_rng(0).normal(size=(5, 4, 3, 6))


def check(f, *args):
    got = tg.compile(f, backend="numpy")(*args)
    np.testing.assert_allclose(got, f(*args), rtol=1e-12)
    return tg.compile(f).graph(*args), tg.compile(f).explain(*args)


def nested(x):
    out = np.zeros((4, 3))
    for a in range(5):
        for b in range(4):
            for c in range(3):
                for d in range(6):
                    if a >= c:
                        out[b, c] += np.sin(x[a - c, b, c, d]) * x[a, b, c, d]
    return np.sum(out * out)


def test_many_copies_become_loops():
    text, _ = check(nested, X)
    assert 1 <= text.count("= loop(") <= 60
    assert text.count("= sin(") <= 60
    got = tg.grad(nested, backend="numpy")(X)
    want = tg.grad(nested, backend="numpy", loops="unroll")(X)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_few_copies_stay_copies():
    def f(x):
        s = 0.0
        for a in range(5):
            for b in range(4):
                s = s + x[a, b, 0, 0] * x[a, b, 1, 1]
        return s

    text, _ = check(f, X)
    assert "= loop(" not in text


def test_a_short_loop_that_cannot_roll_stays_copies():
    def f(x):
        found = []
        for a in range(5):
            for b in range(4):
                for c in range(3):
                    for d in range(6):
                        found.append(x[a, b, c, d] * 2.0 + sum(found[:0]))
        return np.sum(np.stack(found) ** 2)

    text, report = check(f, X)
    assert "= loop(" not in text
    assert re.search(r"unrolled into 35\d copies, since it reads the list found", report)


@pytest.mark.parametrize("n", [20, 70])
def test_a_loop_that_is_met_many_times_rolls_each_time(n):
    def f(x):
        found = []
        for _ in [None] * n:  # which is no loop of the graph
            s = 0.0
            for b in range(len(x)):
                s = s + x[b] * x[b]
            found.append(s)
        return np.sum(np.stack(found))

    text, _ = check(f, np.linspace(0.0, 1.0, 9))
    assert text.count("= loop(") == n
