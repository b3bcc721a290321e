"""Derivatives of derivatives of `while_loop` without `max_trips`."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.autodiff.test_whiles import INPUTS, bounded, in_itself, of_a_number, unbounded

HIGHER = {
    "forward over reverse": lambda f: tg.jacfwd(tg.grad(f)),
    "reverse over reverse": lambda f: tg.jacrev(tg.grad(f)),
    "gradient of rows": lambda f: tg.grad(lambda x: np.sum(tg.jacrev(f)(x) ** 2)),
    "reverse over forward": lambda f: tg.grad(lambda x: np.sum(tg.jacfwd(f)(x) ** 2)),
    "third": lambda f: tg.grad(lambda x: np.sum(tg.jacrev(tg.grad(f))(x) ** 2)),
}


@pytest.mark.parametrize("how", HIGHER)
def test_higher_derivatives(how):
    x = INPUTS[0]
    wanted = HIGHER[how](tg.compile(bounded(of_a_number), backend="numpy"))(x)
    for backend in ("c", "numpy"):
        found = HIGHER[how](tg.compile(unbounded(of_a_number), backend=backend))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("program", [in_itself], ids=lambda f: f.__name__)
def test_reverse_mode_twice_through_an_inner_loop(program):
    found = HIGHER["reverse over reverse"](tg.compile(unbounded(program)))(INPUTS[0])
    wanted = HIGHER["reverse over reverse"](tg.compile(bounded(program), backend="numpy"))(
        INPUTS[0]
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)
