"""Forward mode on every traced case of the corpus: the dot product with reverse mode, and
differences where nothing is hidden from the gradient on purpose."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tests.test_conformance import ALL, adapter

# Gradients that are not those of the values, by what the case is about.
HIDES = ("no_grad", "inference", "detach", "hooks.", "custom_function", "without_gradients",
         "bits_cleared")  # fmt: skip
CASES = [
    c for c, want in ALL
    if c.mode == "trace" and c.diff_positions() and ("error" not in want or "or_value" in want)
]  # fmt: skip


def objective_of(case: Any) -> tuple[Any, list[Any], tuple[int, ...]]:
    """The case's scalar objective, its arguments, and which of them are differentiated."""
    import adapter as corpus

    positions = case.roots()
    roots = [adapter.make_value(case.inputs[p], p) for p in positions]

    def objective(*values: Any) -> Any:
        args = case.args_from_roots(dict(zip(positions, values, strict=True)))
        return corpus.weighted_sum(corpus.as_list(case.fn(tg, *args)))

    return objective, roots, tuple(positions.index(p) for p in case.diff_positions())


def copies(xs: list[Any]) -> list[Any]:
    return [x.copy() for x in xs]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_forward_agrees_with_reverse(case: Any) -> None:
    objective, roots, wrt = objective_of(case)
    rng = np.random.default_rng(3)
    tangents = [rng.standard_normal(x.shape) if k in wrt else None for k, x in enumerate(roots)]
    f = tg.compile(objective, arrays="torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value, moved = tg.jvp(f, copies(roots), tangents)
        except (tg.errors.ConcretizationError, tg.errors.DataDependentShapeError):
            pytest.skip("a shape that exists only at the prompt")
        grads = tg.grad(f, argnums=wrt)(*copies(roots))
    dot = sum(float(np.sum(g * tangents[k])) for k, g in zip(wrt, grads, strict=True))
    assert float(moved) == pytest.approx(dot, rel=1e-9, abs=1e-9)
    if any(word in case.name for word in HIDES):
        return
    h, ends = 1e-6, []
    for sign in (1, -1):
        args = copies(roots)
        for k in wrt:
            args[k] += sign * h * tangents[k]
        ends.append(float(f(*args)))
    difference = (ends[0] - ends[1]) / (2 * h)
    assert difference == pytest.approx(float(moved), rel=1e-5, abs=1e-6)
