"""What a trace reads outside: each change between two calls must take effect."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.trace.tracing import Compiled, describe
from tracegrad.errors import CaptureError, LeakedTracerError
from tracegrad.trace.array import Array
from tracegrad.trace.enter import trace_call
from tracegrad.trace.modes import current_trace

SCALE = 2.0
WEIGHT = np.array([1.0, 2.0, 3.0])
TABLE = {"w": np.array([1.0, 1.0, 1.0]), "gain": 2.0}
LAYERS = [(np.ones(3), 0.5), (np.full(3, 2.0), 0.25)]
ONES = np.ones(3)


def helper(x):
    return x + 1.0


def with_default(x, scale=ONES):
    return x * scale


@pytest.fixture(autouse=True)
def restore_globals():
    before = dict(globals())
    yield
    globals().update(before)


def test_no_captures_no_guards():
    f = Compiled(lambda x, y: x * y + x)
    f(ONES, ONES)
    (traced,) = f.made.popitem()[1]
    assert traced.outside.is_empty


def test_module_constant():
    global SCALE
    f = Compiled(lambda x: x * SCALE)
    np.testing.assert_array_equal(f(ONES), 2 * ONES)
    SCALE = 2.0 + 0.0
    f(ONES)
    assert f.traces == 1
    SCALE = 5.0
    np.testing.assert_array_equal(f(ONES), 5 * ONES)
    assert f.traces == 2
    assert f.why == "SCALE changed from 2.0 to 5.0"


def test_constant_of_equal_value_and_other_type():
    global SCALE
    f = Compiled(lambda n: n * SCALE)
    SCALE = 1
    f(ONES)
    SCALE = True
    f(ONES)
    SCALE = -0.0
    f(ONES)
    SCALE = 0.0
    f(ONES)
    assert f.traces == 4


def test_array_is_an_implicit_argument():
    global WEIGHT
    f = Compiled(lambda x: x * WEIGHT)
    np.testing.assert_array_equal(f(ONES), [1, 2, 3])
    WEIGHT = np.array([4.0, 5.0, 6.0])
    np.testing.assert_array_equal(f(ONES), [4, 5, 6])
    WEIGHT[0] = 9
    np.testing.assert_array_equal(f(ONES), [9, 5, 6])
    assert f.traces == 1
    WEIGHT = np.float32(2) * np.ones(3, np.float32)
    np.testing.assert_array_equal(f(ONES), [2, 2, 2])
    assert f.why == "WEIGHT has another dtype, shape or layout"


def test_captured_array_is_written():
    out = np.zeros(3)

    def f(x):
        out[1] = x[0]
        return x

    traced = Compiled(f).trace(ONES)
    (node,) = [n for n in traced.graph.nodes if n.target is not None]
    captured = traced.graph.inputs[1]
    assert node.target.storage == captured.storage
    assert [str(a.path) for a in traced.outside.arrays] == ["out"]


def test_closure_mutation():
    out = np.zeros(3)

    def f(x):
        out[:] = x * 2.0
        return x

    with pytest.raises(CaptureError) as e:
        Compiled(f).trace(ONES, tracked=(0,))
    assert e.value.kind == "closure_mutation"
    assert "out[:] = x * 2.0" in str(e.value)
    assert np.all(out == 0)


def test_closure_cell():
    k = 2.0

    def f(x):
        return x * k

    g = Compiled(f)
    np.testing.assert_array_equal(g(ONES), 2 * ONES)
    k = 3.0
    np.testing.assert_array_equal(g(ONES), 3 * ONES)
    assert g.why == "k changed from 2.0 to 3.0"


def test_redefined_helper():
    global helper
    f = Compiled(lambda x: helper(x))
    np.testing.assert_array_equal(f(ONES), 2 * ONES)
    exec("def helper(x):\n    return x * 10.0", globals())
    np.testing.assert_array_equal(f(ONES), 10 * ONES)
    assert f.why == "helper is another object"


def test_name_that_hides_a_builtin():
    f = Compiled(lambda x: x * max(2, 1))
    np.testing.assert_array_equal(f(ONES), 2 * ONES)
    globals()["max"] = lambda a, b: 7
    try:
        np.testing.assert_array_equal(f(ONES), 7 * ONES)
    finally:
        del globals()["max"]


def test_containers():
    f = Compiled(lambda x: x * TABLE["w"] * TABLE["gain"])
    np.testing.assert_array_equal(f(ONES), 2 * ONES)
    TABLE["w"] = TABLE["w"] * 3.0
    np.testing.assert_array_equal(f(ONES), 6 * ONES)
    assert f.traces == 1
    TABLE["gain"] = 1.0
    np.testing.assert_array_equal(f(ONES), 3 * ONES)
    assert f.why == "TABLE['gain'] changed from 2.0 to 1.0"
    TABLE["more"] = 1.0
    f(ONES)
    assert f.why == "TABLE has other elements"


def test_list_of_tuples_of_arrays():
    def f(x):
        for w, b in LAYERS:
            x = x * w + b
        return x

    g = Compiled(f)
    np.testing.assert_array_equal(g(ONES), f(ONES))
    LAYERS[1] = (np.full(3, 4.0), 0.25)
    np.testing.assert_array_equal(g(ONES), f(ONES))
    assert g.traces == 1
    LAYERS.append((np.ones(3), 1.0))
    np.testing.assert_array_equal(g(ONES), f(ONES))
    assert g.traces == 2


def test_list_of_numbers_changed_in_place():
    numbers = [1.0, 2.0]

    def f(x):
        return x * numbers[0]

    g = Compiled(f)
    g(ONES)
    numbers[0] = 5.0
    np.testing.assert_array_equal(g(ONES), 5 * ONES)


def test_defaults_and_partial():
    f = Compiled(with_default)
    np.testing.assert_array_equal(f(2 * ONES), 2 * ONES)
    with_default.__defaults__ = (ONES * 3,)
    try:
        np.testing.assert_array_equal(f(2 * ONES), 6 * ONES)
    finally:
        with_default.__defaults__ = (ONES,)
    g = Compiled(functools.partial(with_default, scale=WEIGHT))
    np.testing.assert_array_equal(g(ONES), WEIGHT)


def test_one_array_under_two_names():
    a = np.ones(3)
    b = a

    def f(x):
        return x * a + b

    g = Compiled(f)
    assert g(ONES)[0] == 2.0
    (traced,) = next(iter(g.made.values()))
    assert len(traced.outside.arrays) == 1
    b = np.zeros(3)
    assert g(ONES)[0] == 1.0
    assert g.why == "b and a are no longer one array"


def test_unused_capture_is_no_input():
    def f(x):
        WEIGHT  # noqa: B018
        return x

    traced = Compiled(f).trace(ONES)
    assert len(traced.graph.inputs) == 1
    assert traced.outside.arrays == ()


def test_nested_trace_shares_the_record():
    inner = []

    def f(x):
        y = x * 2.0

        def g(z):
            return z * y + WEIGHT

        region = trace_call(g, describe(g, x), face=Array, parent=current_trace())
        inner.append(region)
        return y + WEIGHT

    outer = Compiled(f).trace(ONES)
    (region,) = inner
    assert [(i.leaf, i.outer) for i in region.inputs] == [(0, None), (None, 0), (None, 1)]
    assert region.outside.is_empty
    assert [c.outer.base for c in region.captures][1] is outer.graph.inputs[1]
    assert [str(a.path) for a in outer.outside.arrays] == ["WEIGHT"]


def test_function_that_an_earlier_trace_left_behind():
    global SCALE
    kept = {}

    def f(x):
        if "g" not in kept:
            kept["g"] = lambda y: y * SCALE + np.zeros(3)
        return kept["g"](x)

    g = Compiled(f)
    g.trace(ONES)
    np.testing.assert_array_equal(g(ONES), 2 * ONES)
    SCALE = 4.0
    np.testing.assert_array_equal(g(ONES), 4 * ONES)


def test_leaked_tracer():
    kept = []

    def f(x):
        kept.append(x)
        return x

    Compiled(f).trace(ONES)
    with pytest.raises(LeakedTracerError):
        Compiled(lambda y: y + kept[0]).trace(ONES)


def test_unknown_array_is_refused():
    class Hidden:
        __slots__ = ("get",)

    source = iter([np.ones(3)])
    with pytest.raises(CaptureError, match="not known where"):
        Compiled(lambda x: x + next(source)).trace(ONES)


def test_unsupported_captured_array():
    objects = np.array([1, "a"], object)
    with pytest.raises(TypeError, match="objects: dtype object"):
        Compiled(lambda x: x + objects).trace(ONES)
