"""Sparse matrices in row form."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _sparse(rng, m, n, per_row):
    count = rng.integers(0, 2 * per_row + 1, m)
    start = np.concatenate([[0], np.cumsum(count)])
    columns = rng.integers(0, n, start[-1])
    return start, columns, rng.uniform(-1.0, 1.0, start[-1]), rng.uniform(-1.0, 1.0, n)


@kernel(_sparse, small={"m": 10, "n": 8, "per_row": 3},
        large={"m": 2000, "n": 2000, "per_row": 8})
def spmv(start, columns, values, x):
    """A sparse matrix times a vector, row by row."""
    y = np.empty(start.size - 1)
    for i in range(start.size - 1):
        cols = columns[start[i]:start[i + 1]]
        vals = values[start[i]:start[i + 1]]
        y[i] = vals @ x[cols]
    return np.sum(y * y)
