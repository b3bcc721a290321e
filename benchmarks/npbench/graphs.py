"""Sparse matrices in row form."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _sparse(rng, m, n, per_row):
    start = np.concatenate([[0], np.cumsum(rng.integers(0, 2 * per_row + 1, m))])
    columns = rng.integers(0, n, start[-1])
    return start, columns, rng.uniform(-1.0, 1.0, start[-1]), rng.uniform(-1.0, 1.0, n)


def by_slices(start, columns, values, x):
    """A sparse matrix times a vector, row by row."""
    y = np.empty(len(start) - 1)
    for i in range(len(start) - 1):
        cols = columns[start[i] : start[i + 1]]
        vals = values[start[i] : start[i + 1]]
        y[i] = vals @ x[cols]
    return np.sum(y * y)


@kernel(
    _sparse,
    small={"m": 10, "n": 8, "per_row": 3},
    large={"m": 4000, "n": 4000, "per_row": 20},
    changed="a loop over the elements of a row instead of slices between row starts, since the "
    "length of a slice may not depend on data",
    natural=by_slices,
)
def spmv(start, columns, values, x):
    """A sparse matrix times a vector, element by element."""
    y = np.zeros(len(start) - 1)
    for i in range(len(start) - 1):
        for k in range(start[i], start[i + 1]):
            y[i] += values[k] * x[columns[k]]
    return np.sum(y * y)
