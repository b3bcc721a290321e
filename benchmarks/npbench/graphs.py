"""Sparse matrices in row form."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _sparse(rng, m, n, per_row):
    start = [0, *np.cumsum(rng.integers(0, 2 * per_row + 1, m)).tolist()]
    columns = rng.integers(0, n, start[-1])
    return tuple(start), columns, rng.uniform(-1.0, 1.0, start[-1]), rng.uniform(-1.0, 1.0, n)


@kernel(
    _sparse,
    small={"m": 10, "n": 8, "per_row": 3},
    large={"m": 400, "n": 400, "per_row": 8},
    changed="row starts as a tuple of ints, since the length of a slice may not depend on data",
)
def spmv(start, columns, values, x):
    """A sparse matrix times a vector, row by row."""
    y = np.empty(len(start) - 1)
    for i in range(len(start) - 1):
        cols = columns[start[i] : start[i + 1]]
        vals = values[start[i] : start[i + 1]]
        y[i] = vals @ x[cols]
    return np.sum(y * y)
