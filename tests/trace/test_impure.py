"""Calls that change from call to call are refused by name, whatever they are bound to."""

from __future__ import annotations

import os
import random
import time
from time import perf_counter

import numpy as np
import pytest
from numpy.random import rand

from tests.trace.tracing import Compiled
from tracegrad.errors import ImpureCallError

ONES = np.ones(3)
RNG = np.random.default_rng(0)
PYTHON_RNG = random.Random(0)

CALLS = {
    "np.random.rand": lambda x: x * np.random.rand(3),
    "np.random.default_rng": lambda x: x * np.random.default_rng(0).normal(),
    "random.gauss": lambda x: x * random.gauss(0, 1),
    "time.time": lambda x: x * time.time(),
    "time.perf_counter": lambda x: x * perf_counter(),
    "os.urandom": lambda x: x * os.urandom(1)[0],
    "open": lambda x: x * len(list(open("numbers.txt"))),  # noqa: SIM115
    "np.loadtxt": lambda x: x * np.loadtxt("numbers.txt"),
    "Generator.normal": lambda x: x * RNG.normal(),
    "Random.random": lambda x: x * PYTHON_RNG.random(),
}


@pytest.mark.parametrize("name", CALLS)
def test_refused_by_name(name):
    with pytest.raises(ImpureCallError) as e:
        Compiled(CALLS[name]).trace(ONES)
    assert e.value.kind == "impure_call"
    text = str(e.value)
    assert name in text and "before the call" in text and "lambda x" in text


def test_bound_by_another_name():
    with pytest.raises(ImpureCallError, match=r"np.random.rand\(\)"):
        Compiled(lambda x: x * rand(3)).trace(ONES)


def test_generator_as_argument():
    f = Compiled(lambda x, rng: x + rng.standard_normal(3))
    with pytest.raises(ImpureCallError, match="Generator.standard_normal"):
        f.trace(ONES, np.random.default_rng(1))


def test_types_of_generators_are_types():
    def f(x, rng):
        assert isinstance(rng, np.random.Generator)
        return x

    assert Compiled(f)(ONES, np.random.default_rng(1))[0] == 1.0
    with pytest.raises(ImpureCallError, match="np.random.Generator"):
        Compiled(lambda x: np.random.Generator(x)).trace(ONES)


def test_outside_a_trace_nothing_changes():
    def f(x):
        return x

    Compiled(f).trace(ONES)
    assert np.random.rand(2).shape == (2,)
    assert RNG.normal(size=2).shape == (2,)


def test_pure_names_of_these_modules():
    f = Compiled(
        lambda x: x * len(time.strftime("%Y", (2000,) + (1,) * 8)) + len(os.path.join("a"))
    )
    assert f(ONES)[0] == 5.0
