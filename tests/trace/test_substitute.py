"""Substituted names: every spelling of an import, every kind of function."""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import math as m
import operator
import sys
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy
import numpy as np
import numpy.linalg as la
import pytest
from numpy import float32 as f4
from numpy import zeros as z

from tests.trace.tracing import Compiled, describe
from tracegrad.errors import (
    CaptureError,
    ConcretizationError,
    EscapeError,
    TraceRecursionError,
    UnsupportedError,
)
from tracegrad.options import Options
from tracegrad.trace.array import Array
from tracegrad.trace.enter import trace_call
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


# -- numpy under every name


def test_creation_is_traced_however_it_is_spelled():
    def f(x):
        import numpy as local
        from numpy import ones as one

        a, b, c, d = z(3), np.zeros(3), numpy.zeros(3), local.zeros(3)
        for y in (a, b, c, d):
            y[0] = x[0]
        e = one(3)
        e[1] = x[1]
        return a + b + c + d + e

    check(f, 2 * ONES)


def test_default_and_closure_and_argument_functions():
    def apply(make, x, other=np.ones):
        y = make(3) + other(3)
        y[0] = x[0]
        return y

    check(lambda x: apply(np.zeros, x), 5 * ONES)
    f = Compiled(apply)
    got = f(np.zeros, 5 * ONES)
    np.testing.assert_array_equal(got, [5, 1, 1])


def test_constants_of_numpy_functions_can_be_written():
    def f(x):
        y = np.outer([1.0, 2.0], [1.0, 1.0])
        y[0, 0] = x[0]
        grid = np.mgrid[0:2]
        grid[0] = 7
        return y * grid[0]

    check(f, 3 * ONES)


def test_lists_of_traced_values():
    check(lambda x: np.add([x[0], 1.0], 2.0), ONES)
    check(lambda x: np.array([x[0], x[1] * 2, 3.0]), ONES)
    check(lambda x: np.r_[x[0:1], 4.0], ONES)


def test_scalar_types():
    check(lambda x: np.float64(x[0]) * 2, ONES)
    check(lambda x: f4(x[0]), ONES)
    check(lambda x: np.zeros(2, dtype=np.float32) + f4(1) * f4(x[0]), ONES)
    check(lambda x: np.zeros(2, dtype=float) + x[0], ONES)


def test_type_names_stay_types_where_they_are_not_called():
    def f(x):
        assert np.float64 is vars(np)["float64"]
        assert float is float and isinstance(1.5, float)
        assert np.dtype(float) == np.float64
        match 1.5:
            case float():
                pass
            case _:
                raise AssertionError
        return x

    check(f, ONES)


def test_nothing_is_patched():
    before = (np.zeros, math.sin, builtins.float, builtins.isinstance, builtins.__import__)
    Compiled(lambda x: x + np.zeros(3) + math.sin(x[0])).trace(ONES)
    assert before == (np.zeros, math.sin, builtins.float, builtins.isinstance, builtins.__import__)


def test_linear_algebra_submodule_is_seen():
    assert Compiled(lambda x: x * la.norm([3.0, 4.0]))(ONES)[0] == 5.0


def test_substitution_can_be_turned_off():
    def f(x):
        return x + np.zeros(3)

    with pytest.raises(CaptureError, match="not known where"):
        trace_call(f, describe(f, ONES), face=Array, options=Options(substitute=False))


# -- math and builtins


@pytest.mark.parametrize(
    "name",
    [
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "atanh",
        "exp",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "cbrt",
        "fabs",
        "degrees",
        "radians",
        "isnan",
        "isfinite",
        "isinf",
    ],
)
def test_math(name):
    real = getattr(math, name)
    got = Compiled(lambda t: getattr(math, name)(t))(0.5)
    assert got == pytest.approx(real(0.5), rel=1e-15)
    if not name.startswith("is"):
        assert type(got) is float


def test_math_of_two():
    check(lambda t, u: math.atan2(t, u) + m.hypot(t, u) + math.pow(t, 2) + math.log(t, 3), 0.5, 0.7)
    check(lambda t: sqrt(t) + math.sqrt(2), 0.5)
    check(lambda x: x * math.sin(x[0]) + math.fmod(5.0, 3.0), ONES)


def test_math_on_plain_numbers_is_math():
    def f(x):
        assert math.sqrt(4) == 2.0 and type(math.floor(2.5)) is int
        assert math.sin(0.3) == numpy.float64(math.sin(0.3))
        return x * math.pi

    check(f, ONES)


def test_math_that_gives_an_int():
    with pytest.raises(ConcretizationError, match="np.floor"):
        Compiled(lambda t: math.floor(t)).trace(0.5)
    with pytest.raises(UnsupportedError, match="math.nextafter"):
        Compiled(lambda t: math.nextafter(t, 1.0)).trace(0.5)


def test_float_max_min():
    check(lambda x: float(x[0]) * 2.0, ONES)
    check(lambda t: max(t, 0.75) + min(t, 0.25), 0.5)
    check(lambda t: max([t, 0.75, -t]), 0.5)
    check(lambda x: max(x[0], 0.75), ONES)
    check(lambda x: x * max(3, 4), ONES)


def test_isinstance_and_type():
    def f(x, t):
        assert isinstance(x, np.ndarray) and not isinstance(x, float)
        assert isinstance(t, float) and not isinstance(t, np.ndarray)
        assert isinstance(x[0], np.floating) and isinstance(x[0], float)
        assert isinstance(x, (list, np.ndarray))
        assert type(x) is np.ndarray and type(t) is float and type(x[0]) is np.float64
        assert np.isscalar(t) and not np.isscalar(x)
        return x * t

    check(f, ONES, 2.0)


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
    v = Compiled(lambda x: Vector(2.0))(ONES)
    assert type(v) is Vector


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


# -- scipy


def test_scipy_special():
    special = pytest.importorskip("scipy.special")

    def f(x):
        return special.expit(x) + special.erf(x)

    check(f, ONES * 0.3)
    with pytest.raises(UnsupportedError, match=r"scipy.special.zeta of a traced value"):
        Compiled(lambda x: special.zeta(x, 2.0)).trace(ONES)
