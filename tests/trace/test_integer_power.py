"""Integer powers raise where NumPy does, though the exponents are known only at run time."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg

BASE = np.array([2, 3])


def power(base, exponent):
    return base**exponent


def power_in_place(base, exponent):
    base **= exponent
    return base


@pytest.mark.parametrize("function", [power, power_in_place])
def test_negative_exponents_are_refused_and_nothing_is_written(function) -> None:
    compiled = tg.compile(function)
    np.testing.assert_array_equal(compiled(BASE.copy(), np.array([4, 2])), [16, 9])
    base = BASE.copy()
    with pytest.raises(ValueError, match="Integers to negative integer powers") as caught:
        compiled(base, np.array([1, -1]))
    assert caught.value.kind == "runtime_value"
    np.testing.assert_array_equal(base, BASE)


def test_a_number_to_a_traced_power() -> None:
    compiled = tg.compile(lambda n: 2**n)
    np.testing.assert_array_equal(compiled(BASE), [4, 8])
    with pytest.raises(ValueError, match="Integers to negative integer powers"):
        compiled(np.array([1, -3]))


def test_unsigned_and_float_exponents_need_no_check() -> None:
    compiled = tg.compile(power)
    np.testing.assert_array_equal(compiled(BASE.astype(np.uint8), BASE.astype(np.uint8)), [4, 27])
    np.testing.assert_array_equal(compiled(BASE, np.array([-1.0, 2.0])), [0.5, 9.0])
