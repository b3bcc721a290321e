"""An update in place whose new values read the region that it overwrites, in another order."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_one_element_of_the_region_is_read_for_all(backend: str) -> None:
    def f(m: np.ndarray) -> None:
        windows = np.lib.stride_tricks.as_strided(m, (2, 2), (24, 16))
        windows += windows.reshape(-1)[0]

    m, plain = np.arange(1.0, 7.0), np.arange(1.0, 7.0)
    f(plain)
    tg.compile(f, backend=backend)(m)
    np.testing.assert_array_equal(m, plain)
    np.testing.assert_array_equal(m, [2, 2, 4, 5, 5, 7])


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_the_region_is_read_backwards(backend: str) -> None:
    def f(m: np.ndarray) -> None:
        windows = np.lib.stride_tricks.as_strided(m, (2, 2), (24, 16))
        windows += windows[::-1]

    m, plain = np.arange(1.0, 7.0), np.arange(1.0, 7.0)
    f(plain)
    tg.compile(f, backend=backend)(m)
    np.testing.assert_array_equal(m, plain)
