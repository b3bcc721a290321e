"""User functions and classes as traced code runs them: rebuilt, never changed."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from tests.trace.tracing import Compiled
from tracegrad.errors import (
    ArgumentError,
    CaptureError,
    EscapeError,
    TraceRecursionError,
)
from tracegrad.trace.modes import STATE, no_grad
from tracegrad.trace.signature import register_pytree
from tracegrad.trace.substitute import Namespace
from tracegrad.trace.tracer import Tracer

ONES = np.ones(3)
COUNT = 0


def check(f, *args):
    """The traced function gives what the plain one gives, in value and type."""
    want, got = f(*args), Compiled(f)(*args)
    assert type(got) is type(want)
    np.testing.assert_allclose(got, want, rtol=1e-15)


# -- kinds of functions


def user(x):
    return np.zeros(3) + x


def test_wraps_partial_lambda_and_nested():
    def twice(g):
        @functools.wraps(g)
        def inner(*args):
            return g(g(*args))

        return inner

    doubled = twice(user)
    part = functools.partial(user, 2 * ONES)
    check(lambda x: doubled(x) + part() + (lambda: user(x))(), ONES)


def test_decorators_of_the_standard_library_and_of_tracegrad():
    @contextlib.contextmanager
    def offset(x):
        y = np.zeros(3)
        y[0] = x[0]
        yield y

    @no_grad()
    def constant(x):
        y = np.zeros(3)
        y[1] = x[1]
        return y

    def f(x):
        with offset(x) as y:
            return y + constant(x) + functools.reduce(operator.add, [x, x])

    check(f, 2 * ONES)


def test_lru_cache_and_recursion():
    @functools.lru_cache
    def power(n):
        return 1.0 if n == 0 else 2.0 * power(n - 1)

    check(lambda x: x * power(3), ONES)


def test_generators_comprehensions_and_class_bodies():
    def f(x):
        class Local:
            size = len(ONES)

            def run(self):
                return user(x) * self.size

        def parts():
            yield user(x)
            yield np.ones(3)

        return sum([user(x) for _ in range(2)]) + sum(parts()) + Local().run()

    check(f, ONES)


class Vector:
    def __init__(self, x):
        self.x = np.zeros(3) + x

    def __add__(self, other):
        return Vector(self.x + other.x)

    @staticmethod
    def make(x):
        return Vector(x)

    @classmethod
    def double(cls, x):
        return cls(x * 2.0)

    @property
    def first(self):
        y = np.zeros(1)
        y[0] = self.x[0]
        return y


class Longer(Vector):
    def __init__(self, x):
        super().__init__(x)
        self.x = np.zeros(3) + self.x


def test_instances_made_while_tracing():
    def f(x):
        v = Vector(x) + Vector.make(x) + Vector.double(x) + Longer(x)
        assert isinstance(v, Vector) and isinstance(Longer(x), Vector)
        return v.x * v.first

    check(f, ONES)


def test_an_object_that_is_returned_has_its_own_class():
    class Pair(NamedTuple):
        a: object
        b: object

    out = Compiled(lambda x: Pair(x * 2.0, "name"))(ONES)
    assert type(out) is Pair and out.b == "name" and out.a[0] == 2.0

    class Named:
        def __init__(self, name):
            self.name = name

    named = Compiled(lambda x: Named("a"))(ONES)
    assert type(named) is Named and named.name == "a"


def test_an_object_that_holds_traced_values_is_no_result():
    with pytest.raises(ArgumentError, match="returns a Vector that holds traced values") as e:
        Compiled(lambda x: Vector(2.0))(ONES)
    assert "tg.register_pytree(Vector)" in str(e.value)


def test_a_registered_class_is_a_container_inside_too():
    @register_pytree
    @dataclass
    class State:
        u: object
        n: int

        def moved(self):
            y = np.zeros(3)
            y[0] = self.u[0]
            return State(self.u + y, self.n + 1)

    out = Compiled(lambda s: s.moved())(State(ONES, 3))
    assert type(out) is State and out.n == 4
    np.testing.assert_array_equal(out.u, [2, 1, 1])


def test_match_on_a_class_from_outside():
    v = Vector(2.0)

    def f(x):
        match v:
            case Vector(x=inner):
                return x * inner
        return x

    check(f, ONES)


# -- writes that would be lost


def count(x):
    global COUNT
    COUNT += 1
    return x


def test_global_store_is_refused_at_its_line():
    with pytest.raises(CaptureError) as e:
        Compiled(count).trace(ONES)
    assert e.value.kind == "outside_write"
    assert "COUNT += 1" in str(e.value) and "count" in str(e.value)
    assert COUNT == 0


def test_nonlocal_store():
    total = 0.0

    def outside(x):
        nonlocal total
        total = total + 1.0
        return x

    def own(x):
        steps = 0

        def inner():
            nonlocal steps
            steps += 1

        inner()
        inner()
        return x * steps

    with pytest.raises(CaptureError, match="nonlocal variable total"):
        Compiled(outside).trace(ONES)
    check(own, ONES)


def test_a_helper_that_stores_is_refused_only_when_called():
    def unused(x):
        return count if x is None else x

    check(unused, ONES)
    with pytest.raises(CaptureError, match="COUNT"):
        Compiled(lambda x: count(x)).trace(ONES)


def test_globals_and_module_assignment():
    def f(x):
        globals()["COUNT"] = 1
        return x

    def g(x):
        sys.flag_of_a_test = 1
        return x

    for bad in (f, g):
        with pytest.raises(CaptureError) as e:
            Compiled(bad).trace(ONES)
        assert e.value.kind == "outside_write"
    assert not hasattr(sys, "flag_of_a_test")


# -- the trace itself


def test_endless_recursion():
    def f(x):
        return f(x)

    with pytest.raises(TraceRecursionError, match="without end"):
        Compiled(f).trace(ONES)


def test_write_into_a_hidden_real_array():
    hidden = iter([np.ones(3)])

    def f(x):
        a = next(hidden)
        a[0] = x[0]
        return x

    with pytest.raises(EscapeError) as e:
        Compiled(f).trace(ONES)
    assert "a[0] = x[0]" in str(e.value) and "as an argument" in str(e.value)


def test_installed_function_is_named_as_called():
    linalg = pytest.importorskip("scipy.linalg")

    def f(x):
        return linalg.toeplitz(x) * x

    with pytest.raises(EscapeError) as e:
        Compiled(f).trace(ONES)
    assert "linalg.toeplitz" in str(e.value) and "return linalg.toeplitz(x) * x" in str(e.value)
    constant = Compiled(lambda x: linalg.toeplitz([1.0, 2.0, 3.0]) * x)(ONES)
    np.testing.assert_array_equal(constant, linalg.toeplitz([1.0, 2.0, 3.0]))


def test_state_is_restored_after_an_exception():
    before = (STATE.grad, list(STATE.traces))

    def f(x):
        STATE.grad = False
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Compiled(f).trace(ONES)
    assert (STATE.grad, STATE.traces) == before


def test_traceback_shows_the_users_line():
    def f(x):
        return 1 / 0

    with pytest.raises(ZeroDivisionError) as e:
        Compiled(f).trace(ONES)
    frame = e.traceback[-1]
    assert str(frame.path) == __file__
    assert str(frame.statement).strip() == "return 1 / 0"


def test_rebuilt_functions_run_plainly_after_the_trace():
    made = []

    def f(x):
        made.append(user)
        return user(x)

    Compiled(f).trace(ONES)
    (rebuilt,) = made
    assert type(rebuilt.__globals__) is Namespace
    np.testing.assert_array_equal(rebuilt(ONES), ONES)


def test_results_of_every_kind():
    def f(x, t):
        return {"a": [x, t], "b": ("s", None, 3), "c": np.float64(x[0]), "d": 1.5}

    out = Compiled(f)(ONES, 2.0)
    assert out["b"] == ("s", None, 3) and out["d"] == 1.5
    assert type(out["a"][1]) is float and type(out["c"]) is np.float64
    assert isinstance(out["a"][0], np.ndarray)


def test_nothing_traced_is_kept_by_the_function():
    f = Compiled(user)
    f(ONES)
    assert not any(isinstance(v, Tracer) for v in vars(sys.modules[__name__]).values())
