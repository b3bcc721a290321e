"""The demo's descent: L-BFGS by SciPy, or a plain loop; and what a gradient costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad.cli import plot
from tracegrad.cli.demo_problem import Problem, misfit
from tracegrad.cli.screen import Screen

_ITERATIONS = 40
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass
class Progress:
    """Prints the misfit of an iteration as it comes, every few iterations."""

    screen: Screen
    first: float
    shown: int = 0
    history: list[float] = field(default_factory=list)

    def __call__(self, value: float) -> None:
        k = len(self.history)
        self.history.append(value)
        if k % 4 == 0:
            self.line(k)

    def line(self, k: int) -> None:
        value = self.history[k]
        self.shown = k
        drawn = plot.bar(value, self.first * 1e-3, self.first, 40)
        self.screen.text(f"{k:>9}  {value:<11.6f}  {drawn}")

    def finish(self) -> None:
        if self.shown != len(self.history) - 1:
            self.line(len(self.history) - 1)


def show(screen: Screen, gradient: Callable[..., Any], problem: Problem) -> None:
    """The descent, and the recovered field against the true one."""
    kept = problem.initial.copy()

    def objective(q: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = gradient(q, problem.initial, problem.records, problem.steps)
        return float(value), slope

    method, descend = _method()
    screen.section(
        "The descent",
        f"{problem.true_k.size} unknowns, {problem.records.shape[0] * problem.steps} time steps, "
        f"{problem.records.size} noisy records; {method}.",
    )
    first = objective(problem.start)[0]
    screen.text("iteration  misfit       (bar: logarithmic)")
    progress = Progress(screen, first)
    progress(first)
    q = descend(objective, problem.start, progress)
    progress.finish()
    _show_field(screen, problem, np.exp(q), kept)


def _show_field(screen: Screen, problem: Problem, k: np.ndarray, kept: np.ndarray) -> None:
    screen.section("The recovered diffusivity", "o recovered, . true, along the rod")
    for row in plot.curves([(".", problem.true_k), ("o", k)], width=61):
        screen.text(row)
    inner = slice(2, -2)
    before = np.abs(np.exp(problem.start) - problem.true_k)[inner].max()
    after = np.abs(k - problem.true_k)[inner].max()
    screen.text(f"\nlargest error: {before:.3f} at the start, {after:.3f} now")
    intact = np.array_equal(problem.initial, kept)
    screen.text(f"the initial temperatures are {'as they were' if intact else 'CHANGED'}")


def _method() -> tuple[str, Callable[..., np.ndarray]]:
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        return "gradient descent with step sizes after Barzilai and Borwein", _plain
    return "L-BFGS of SciPy", _lbfgs


def _lbfgs(objective: Objective, start: np.ndarray, progress: Progress) -> np.ndarray:
    from scipy.optimize import minimize

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
        callback=lambda intermediate_result: progress(float(intermediate_result.fun)),
    )
    return np.asarray(found.x)


def _plain(objective: Objective, start: np.ndarray, progress: Progress) -> np.ndarray:
    """Steps of length (s.s)/(s.y), halved until the misfit does not rise above the last ten."""
    q, rate = start.copy(), 0.1
    value, slope = objective(q)
    recent = [value]
    for _ in range(_ITERATIONS + 20):
        while True:
            trial = q - rate * slope
            new_value, new_slope = objective(trial)
            if new_value <= max(recent) or rate < 1e-12:
                break
            rate *= 0.5
        s, y = trial - q, new_slope - slope
        q, value, slope = trial, new_value, new_slope
        recent = [*recent[-9:], value]
        rate = float(s @ s / max(s @ y, 1e-12 * (s @ s)))
        progress(value)
    return q


def show_cost(screen: Screen, gradient: Callable[..., Any], problem: Problem) -> None:
    """Time per gradient against NumPy's forward pass and finite differences."""
    q, rest = problem.start, (problem.initial, problem.records, problem.steps)
    compiled = _seconds(lambda: gradient(q, *rest), 50)
    forward = _seconds(lambda: misfit(q, *rest), 10)
    differences = (q.size + 1) * forward
    screen.section("The cost of a gradient", "Best of several runs in this process.")
    rows = [
        ("NumPy, value only", forward, forward / compiled),
        (f"finite differences, {q.size + 1} values", differences, differences / compiled),
        ("tracegrad, value and gradient", compiled, 1.0),
    ]
    screen.table(
        ("what", "time", "ratio"),
        [(what, f"{1e6 * t:,.0f} us", f"{ratio:,.1f}") for what, t, ratio in rows],
        right="time ratio",
    )


def _seconds(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
