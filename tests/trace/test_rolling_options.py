"""Options, refusals, warnings and reports of rolled loops."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, loops_in
from tracegrad.errors import PerformanceWarning, UnsupportedError

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


# ------------------------------------------------------------------------ options and errors


def test_roll_refuses_with_the_name_and_the_reason():
    def f(x):
        out = [x[0]]
        for i in range(N):
            out.append(out[-1] * x[i])
        return out

    with pytest.raises(UnsupportedError, match="reads the list out") as caught:
        tg.compile(f, loops="roll")(vector())
    assert "for i in range(N)" in str(caught.value)
    assert caught.value.kind == "loop"

    def g(x):
        for _ in tg.range(N):
            x = x[:-1]
        return x

    with pytest.raises(UnsupportedError, match="x changes its shape"):
        tg.compile(g)(vector(n=40))


def test_roll_rolls_short_loops():
    def f(x):
        s = 0.0
        for i in range(4):
            s = s + x[i]
        return s

    assert loops_in(f, vector(), loops="roll") == 1
    assert loops_in(f, vector()) == 0


def test_break_is_refused_where_a_loop_is_required():
    def f(x):
        for i in tg.range(N):
            if i == 3:
                break
        return x[i]

    with pytest.raises(UnsupportedError, match="break"):
        tg.compile(f)(vector())
    assert f(vector()) == vector()[3]


def test_max_unrolled():
    def f(x):
        s = 0.0
        for i in range(N):
            if i > 20:
                break
            s = s + x[i]
        return s

    assert tg.compile(f, backend="numpy", max_unrolled=N)(vector()) == pytest.approx(vector().sum())
    with pytest.raises(UnsupportedError, match=f"max_unrolled={N - 1}.*break"):
        tg.compile(f, backend="numpy", max_unrolled=N - 1)(vector())


def test_many_copies_warn_once_at_the_line():
    def f(x):
        s = 0.0
        for i in range(1100):
            if i > 2000:
                break
            s = s + x[i % N]
        for i in range(1100):
            if i > 2000:
                break
            s = s + x[i % N]
        return s

    with pytest.warns(PerformanceWarning, match="1000 copies") as caught:
        tg.compile(f, backend="numpy").graph(vector())
    assert len(caught) == 1
    assert "for i in range(1100)" in str(caught[0].message)

    def plain(x):
        total = 0
        for i in range(5000):
            total = (total * 3 + i) % 7
        return x * total

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agrees(plain, vector())


def test_explain_says_what_became_of_each_loop():
    def f(x):
        s = 0.0
        for i in range(500):
            s = s + x[i % 3]
        out = {}
        for i in range(9):
            out[i] = x[i]
        return s, list(out.values())

    text = tg.compile(f, backend="numpy").explain(vector())
    assert "one loop for 500 iterations" in text
    assert "unrolled into 9 copies, since it uses the index as a key" in text


def test_an_error_in_a_body_is_numpys_at_the_users_line():
    def f(x):
        for i in range(N + 3):
            x[i] = 0.5
        return x

    with pytest.raises(IndexError, match="index 12 is out of bounds") as caught:
        tg.compile(f, backend="numpy")(vector())
    assert "x[i] = 0.5" in str(caught.value)


def test_compile_time_does_not_depend_on_trips():
    def f(x, n):
        s = 0.0
        for i in range(n):
            s = s + x[i % 3]
        return s

    sizes = [
        len(str(tg.compile(f, backend="numpy").graph(vector(), n)).splitlines())
        for n in (30, 3_000_000)
    ]
    assert sizes[0] == sizes[1]


def test_a_while_statement_that_adds_a_thousand_copies_warns():
    def f(u):
        t = 0.0
        while t < 1050.0:
            u = u * 0.5 + 1.0
            t += 1.0
        return u

    with pytest.warns(PerformanceWarning, match="copies of this line's nodes") as caught:
        tg.compile(f, backend="numpy")(np.ones(2))
    assert "u = u * 0.5 + 1.0" in str(caught[0].message)
    assert "tg.while_loop" in str(caught[0].message)
