"""Statistics of columns, the softmax, and shortest paths over dense matrices."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _table(rng, n, m):
    return (rng.uniform(0.0, 1.0, (n, m)),)


@kernel(_table, small={"n": 12, "m": 9}, large={"n": 400, "m": 240})
def covariance(data):
    """The covariance matrix of the columns, one row of its upper triangle at a time."""
    n, m = data.shape
    data -= np.mean(data, axis=0)
    cov = np.zeros((m, m))
    for i in range(m):
        cov[i, i:] = data[:, i] @ data[:, i:] / (n - 1.0)
        cov[i:, i] = cov[i, i:]
    return np.sum(np.sin(cov))


@kernel(_table, small={"n": 12, "m": 9}, large={"n": 400, "m": 240})
def correlation(data):
    """The correlation matrix of the columns; a nearly constant column counts as deviation 1."""
    n, m = data.shape
    mean = np.mean(data, axis=0)
    deviation = np.std(data, axis=0)
    deviation[deviation <= 0.1] = 1.0
    data -= mean
    data /= np.sqrt(n) * deviation
    corr = np.eye(m)
    for i in range(m - 1):
        corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
    return np.sum(np.sin(corr))


@kernel(
    lambda rng, n, h, s: (rng.uniform(-1.0, 1.0, (n, h, s, s)),),
    small={"n": 2, "h": 3, "s": 4},
    large={"n": 8, "h": 8, "s": 64},
)
def softmax(x):
    """Softmax of the last axis, and its entropy."""
    shifted = np.exp(x - np.max(x, axis=-1, keepdims=True))
    out = shifted / np.sum(shifted, axis=-1, keepdims=True)
    return -np.sum(out * np.log(out))


def _roads(rng, n):
    path = rng.uniform(1.0, 10.0, (n, n))
    np.fill_diagonal(path, 0.0)
    return (path,)


@kernel(_roads, small={"n": 9}, large={"n": 90}, slack=1e-4)
def floyd_warshall(path):
    """Lengths of shortest paths between all pairs, in place."""
    for k in range(path.shape[0]):
        path[:] = np.minimum(path, np.add.outer(path[:, k], path[k, :]))
    return np.sum(path * path)
