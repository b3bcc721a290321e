"""Substituted names: every spelling of an import, every kind of function."""

from __future__ import annotations

import builtins
import math
import math as m
from math import sqrt

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
    UnsupportedError,
)
from tracegrad.options import Options
from tracegrad.trace.array import Array
from tracegrad.trace.enter import trace_call

ONES = np.ones(3)


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


def test_a_line_that_has_run_often():
    """The interpreter specialises it, and its frame then stands elsewhere in the line."""

    def f(x):
        y = np.float64(0.0)
        for _ in [None] * 50:  # not a range, of which a loop would be made
            y = np.float64(x[0]) + y
        return y

    for _ in range(3):
        check(f, ONES)


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


# -- scipy


def test_scipy_special():
    special = pytest.importorskip("scipy.special")

    def f(x):
        return special.expit(x) + special.erf(x)

    check(f, ONES * 0.3)
    with pytest.raises(UnsupportedError, match=r"scipy.special.zeta of a traced value"):
        Compiled(lambda x: special.zeta(x, 2.0)).trace(ONES)
