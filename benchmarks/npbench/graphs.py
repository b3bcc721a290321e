"""Sparse matrices."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _sparse(rng, m, n, per_row):
    rows = np.repeat(np.arange(m), rng.integers(0, 2 * per_row + 1, m))
    columns = rng.integers(0, n, len(rows))
    return m, rows, columns, rng.uniform(-1.0, 1.0, len(rows)), rng.uniform(-1.0, 1.0, n)


@kernel(
    _sparse,
    small={"m": 10, "n": 8, "per_row": 3},
    large={"m": 4000, "n": 4000, "per_row": 20},
    changed="the row of each element and np.add.at instead of slices between row starts, "
    "since the length of a slice may not depend on data",
)
def spmv(m, rows, columns, values, x):
    """A sparse matrix times a vector."""
    y = np.zeros(m)
    np.add.at(y, rows, values * x[columns])
    return np.sum(y * y)
