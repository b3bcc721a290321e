"""Objects and classes outside a trace: attributes guarded, arrays in them captured."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass

import numpy as np
import pytest

from tests.trace.tracing import Compiled
from tracegrad.errors import CaptureError

ONES = np.ones(3)


class Model:
    bias = 1.0

    def __init__(self):
        self.k = 2.0
        self.w = np.ones(3)

    @property
    def twice(self):
        return self.k * 2

    def scaled(self, x):
        return x * self.w

    def step(self, x):
        return self.scaled(x) * self.k + self.bias


class Child(Model):
    def step(self, x):
        return super().step(x) + self.twice


def test_self_attributes():
    m = Model()
    f = Compiled(Model.step, method=True)
    np.testing.assert_array_equal(f(m, ONES), 3 * ONES)
    m.w = m.w * 2.0
    np.testing.assert_array_equal(f(m, ONES), 5 * ONES)
    assert f.traces == 1
    m.k = 3.0
    np.testing.assert_array_equal(f(m, ONES), 7 * ONES)
    assert f.why == "self.k changed from 2.0 to 3.0"
    Model.bias = 0.0
    try:
        np.testing.assert_array_equal(f(m, ONES), 6 * ONES)
    finally:
        Model.bias = 1.0
    m.w = np.ones((2, 3))
    assert f(m, ONES).shape == (2, 3)
    assert Model().step(ONES)[0] == 3.0, "the class itself is untouched"


def test_two_objects_of_one_class():
    f = Compiled(Model.step, method=True)
    a, b = Model(), Model()
    b.k = 5.0
    assert f(a, ONES)[0] == 3.0
    assert f(b, ONES)[0] == 6.0
    assert f(a, ONES)[0] == 3.0


def test_super_and_property():
    f = Compiled(Child.step, method=True)
    m = Child()
    np.testing.assert_array_equal(f(m, ONES), m.step(ONES))
    m.k = 4.0
    np.testing.assert_array_equal(f(m, ONES), m.step(ONES))


def test_method_of_a_global_object():
    globals()["MODEL"] = model = Model()
    f = Compiled(lambda x: MODEL.step(x))  # noqa: F821
    assert f(ONES)[0] == 3.0
    model.k = 4.0
    assert f(ONES)[0] == 5.0
    assert f.why == "MODEL.k changed from 2.0 to 4.0"


def test_bound_method_and_callable_object():
    class Call:
        def __init__(self):
            self.k = 3.0

        def __call__(self, x):
            return np.zeros(3) + x * self.k

    c = Call()
    f = Compiled(c)
    assert f(ONES)[0] == 3.0
    c.k = 4.0
    assert f(ONES)[0] == 4.0
    m = Model()
    g = Compiled(m.step)
    assert g(ONES)[0] == 3.0
    m.k = 4.0
    assert g(ONES)[0] == 5.0


def test_descriptors_and_slots():
    class Bind:
        """Like a compiled method: binds anew at each access."""

        def __init__(self, f):
            self.f = f

        def __get__(self, owner, kind=None):
            return functools.partial(self.f, owner)

    class Slotted:
        __slots__ = ("k", "w")
        run = Bind(lambda self, x: x * self.k * self.w)

    s = Slotted()
    s.k, s.w = 2.0, np.ones(3)
    f = Compiled(lambda x: s.run(x))
    assert f(ONES)[0] == 2.0 and f(ONES)[0] == 2.0
    assert f.traces == 1
    s.k = 3.0
    assert f(ONES)[0] == 3.0
    s.w = s.w * 2.0
    assert f(ONES)[0] == 6.0
    assert f.traces == 2


def test_redefined_method_and_property():
    m = Child()
    f = Compiled(Child.step, method=True)
    f(m, ONES)
    before = Model.scaled, Model.twice
    try:
        Model.scaled = lambda self, x: x * 10.0
        np.testing.assert_array_equal(f(m, ONES), m.step(ONES))
        assert f.why == "Model.scaled is another object"
        Model.twice = property(lambda self: 100.0)
        np.testing.assert_array_equal(f(m, ONES), m.step(ONES))
    finally:
        Model.scaled, Model.twice = before


def test_storing_a_traced_value_in_an_attribute():
    class Keeper:
        pass

    keeper = Keeper()

    def f(x):
        keeper.last = x
        return x

    with pytest.raises(CaptureError, match="keeper.last"):
        Compiled(f).trace(ONES)
    assert not hasattr(keeper, "last")


def test_class_as_namespace():
    class Config:
        dt = 0.5
        grid = np.ones(3)

    def f(x):
        return x * Config.dt + Config.grid

    g = Compiled(f)
    assert g(ONES)[0] == 1.5
    Config.dt = 1.0
    assert g(ONES)[0] == 2.0
    Config.grid = np.zeros(3)
    assert g(ONES)[0] == 1.0


def test_code_of_exec_in_a_bare_namespace():
    space = {}
    exec(  # as notebooks and documentation tests run code
        """
import numpy as np
k = 2.0
class Thing:
    def run(self, x):
        y = np.zeros(3)
        y[0] = x[0]
        return y * k
thing = Thing()
def f(x):
    return thing.run(x) + Thing().run(x)
""",
        space,
    )
    f = Compiled(space["f"])
    np.testing.assert_array_equal(f(ONES), [4, 0, 0])
    space["k"] = 3.0
    np.testing.assert_array_equal(f(ONES), [6, 0, 0])


def test_simple_namespace():
    p = types.SimpleNamespace(k=2.0, a=np.ones(3))

    def f(x):
        return x * p.k * p.a

    g = Compiled(f)
    assert g(ONES)[0] == 2.0
    p.k = 3.0
    assert g(ONES)[0] == 3.0
    p.a = p.a * 2.0
    assert g(ONES)[0] == 6.0
    assert g.traces == 2


def test_frozen_value_objects():
    @dataclass(frozen=True)
    class Params:
        k: float

    f = Compiled(lambda x, p: x * p.k)
    assert f(ONES, Params(2.0))[0] == 2.0
    assert f(ONES, Params(2.0))[0] == 2.0
    assert f.traces == 1
    assert f(ONES, Params(3.0))[0] == 3.0
