"""The inverse problem of the demo, in plain NumPy: what is the diffusivity along a rod?

A rod is warm in places and cools; a few sensors record its temperature.  `misfit` simulates that
with a trial diffusivity and says how far the result is from the records; its minimum over the
diffusivity is the answer.  Units: cells for lengths, time steps for times.

The demo runs this text as code of the user's (`tracegrad.cli.demo_code`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def misfit(q, initial, records, steps):
    """Distance between simulated and recorded temperatures, for diffusivity exp(q).

    `records` has a row for each time of measurement, every `steps` time steps, and a column for
    each sensor, one at every third cell.
    """
    k = np.exp(q)
    face = 0.5 * (k[1:] + k[:-1])
    u = initial.copy()
    total = 0.0
    for row in range(records.shape[0]):
        for _ in range(steps):
            flux = face * (u[1:] - u[:-1])
            u[1:-1] += flux[1:] - flux[:-1]
        residual = u[::3] - records[row]
        total += np.sum(residual**2)
    bend = q[2:] - 2.0 * q[1:-1] + q[:-2]
    return total + 1e-3 * np.sum(bend**2)


@dataclass(frozen=True)
class Problem:
    """Arguments of `misfit`, and the diffusivity `true_k` that made the records."""

    initial: np.ndarray
    records: np.ndarray
    steps: int
    true_k: np.ndarray

    @property
    def start(self) -> np.ndarray:
        """The logarithm of a uniform diffusivity."""
        return np.full(self.true_k.size, np.log(0.2))


def make_problem(cells: int = 61, times: int = 6, steps: int = 8, noise: float = 0.002) -> Problem:
    """A rod of `cells` cells with one good and one bad conducting stretch; the records carry
    normal noise of standard deviation `noise` (temperatures are about 1)."""
    x = np.linspace(0.0, 1.0, cells)
    true_k = (
        0.2 + 0.15 * np.exp(-(((x - 0.3) / 0.08) ** 2)) - 0.12 * np.exp(-(((x - 0.7) / 0.1) ** 2))
    )
    initial = 1.0 + 0.5 * np.sin(11.0 * np.pi * x) + 0.3 * np.cos(4.0 * np.pi * x)
    records = simulate(true_k, initial, times, steps)
    records += noise * np.random.default_rng(7).standard_normal(records.shape)
    return Problem(initial, records, steps, true_k)


def simulate(k: np.ndarray, initial: np.ndarray, times: int, steps: int) -> np.ndarray:
    """The temperatures at the sensors, a row for each time."""
    face = 0.5 * (k[1:] + k[:-1])
    u = initial.copy()
    rows = []
    for _ in range(times):
        for _ in range(steps):
            flux = face * (u[1:] - u[:-1])
            u[1:-1] += flux[1:] - flux[:-1]
        rows.append(u[::3].copy())
    return np.array(rows)
