"""NumPy's scalars on the Array face: values copied when read, immutable, weak Python floats."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trace.running import Tensor, check, trace_only
from tracegrad import errors
from tracegrad.trace import creation

V = np.array([1.0, 2.0, 3.0])
A = np.arange(6.0).reshape(2, 3)


def swap(x):
    t = x[0]
    x[0] = x[1]
    x[1] = t
    return x


def old_value(x):
    old = x[1]
    x[1] = 9.0
    return old, x[1]


def alias_of_a_sum(x):
    s = np.sum(x)
    best = s
    s += 1
    return best, s


def alias_of_an_element(x):
    t = x[0]
    u = t
    t *= 5
    return t, u, x


def rows_are_views(x):
    r = x[0]
    x[0] = 7
    r += 1
    return r


def arrays_of_no_axes(x):
    a, b = x[0, ...], x[:1].reshape(())
    x[0] = 4.0
    return a, b


def iteration(x):
    total = 0.0
    for v in x:
        total += v * v
    first, second, *rest = x
    x[:] = 0
    return total, first, second, rest


@pytest.mark.parametrize(
    "f",
    [swap, old_value, alias_of_a_sum, alias_of_an_element, arrays_of_no_axes, iteration],
    ids=lambda f: f.__name__,
)
def test_scalars_are_numpys(f):
    check(f, V)


def test_rows_are_views():
    check(rows_are_views, A)


def test_what_is_a_scalar():
    check(
        lambda x: (
            x[0, 1],
            x[0, 1, ...],
            x.sum(),
            x.sum(0),
            np.sum(x, keepdims=True),
            x.mean(),
            np.sin(x[0, 0]),
            x[0, 0] + 1,
            x.argmax(),
            np.dot(x[0], x[1]),
            x.max(),
            np.where(x[0, 0] > 0, 1.0, 2.0),
            x.reshape(-1)[3],
            x[[1], [2]],
            x[0][1],
            np.linalg.norm(x),
            x.any(),
            x[0] @ x[1],
            x[1, 1].copy(),
            x[0, 0].reshape(()),
            np.float64(2) * x[0, 0],
        ),
        A,
    )


def test_scalar_arguments_stay_scalars():
    check(lambda s, x: (s + 1, s * x, np.sqrt(s)), np.float64(2.0), V)
    check(lambda s, x: (s * x, s + np.float64(1)), np.float32(2.0), V.astype(np.float32))


@pytest.mark.parametrize("code", ["f4", "f8", "i4", "u1", "?"])
def test_python_floats_are_weak(code):
    x = np.array([1, 0, 1]).astype(code)
    check(lambda t, x: (t * x, x + t, t / 3, (t + 1) * x, -t * x, abs(t) + x, t > x), 0.5, x)


def test_weak_arithmetic_stays_weak_and_numpy_functions_make_it_strong():
    x = np.ones(3, np.float32)
    traced = trace_only(lambda t, x: ((t + 1) * x, np.sin(t) * x, t**2 * x, (t > 1)), 0.5, x)
    weak, strong, power, flag = traced.result
    assert weak.dtype == np.float32 and power.dtype == np.float32
    assert strong.dtype == np.float64 and not flag.weak


def test_division_by_zero_is_ieee():
    traced = trace_only(lambda t: t / 0, 0.5)
    assert traced.run((0.5,))[0] == np.inf


def test_float_of_a_traced_scalar_is_weak():
    x = np.ones(3, np.float32)
    traced = trace_only(lambda x: creation.python_float(x[0]) * x, x)
    assert traced.result.dtype == np.float32


def test_in_place_methods_on_a_scalar_name_the_remedy():
    with pytest.raises(errors.ViewMutationError, match=r"Write x\[i:i\+1\] or x\[i, \.\.\.\]") as e:
        trace_only(lambda x: x[0].mul_(2.0), V)
    assert e.value.kind == "scalar_inplace"
    with pytest.raises(errors.ViewMutationError):
        trace_only(lambda x: x.sum().fill_(2.0), V)


def test_a_scalar_has_no_elements():
    with pytest.raises(IndexError, match="invalid index to scalar variable"):
        trace_only(lambda x: x[0][0], V)
    with pytest.raises(TypeError):
        trace_only(lambda x: len(x[0]), V)


def test_the_tensor_face_has_no_scalars():
    traced = trace_only(swap, V, face=Tensor)
    np.testing.assert_array_equal(traced.run((V.copy(),))[0], [2.0, 2.0, 3.0])
    traced = trace_only(lambda x: x.sum().add_(1.0), V, face=Tensor)
    assert traced.run((V.copy(),))[0] == 7.0
