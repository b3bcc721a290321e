"""Factorisations and triangular solves, element by element or row by row."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _definite(rng, n):
    x = rng.uniform(0.0, 1.0, (n, n))
    return x @ x.T / n + np.eye(n) * 2.0


def _dominant(rng, n):
    return rng.uniform(-1.0, 1.0, (n, n)) + np.eye(n) * n


@kernel(
    lambda rng, n: (rng.uniform(0.1, 0.4, n) / np.arange(1, n + 1),),
    small={"n": 10},
    large={"n": 1000},
)
def durbin(r):
    """The Yule-Walker equations by Durbin's recursion."""
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, len(r)):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return np.sum(y * y)


@kernel(
    lambda rng, m, n: (rng.uniform(0.0, 1.0, (m, n)) + np.eye(m, n),),
    small={"m": 11, "n": 9},
    large={"m": 200, "n": 120},
)
def gramschmidt(a):
    """QR factors by modified Gram-Schmidt."""
    n = a.shape[1]
    q = np.zeros_like(a)
    r = np.zeros((n, n))
    for k in range(n):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, n):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return np.sum(np.sin(q)) + np.sum(r * r)


@kernel(lambda rng, n: (_definite(rng, n),), small={"n": 9}, large={"n": 240})
def cholesky(a):
    """The lower factor, in place."""
    n = a.shape[0]
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, n):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])
    return np.sum(np.sin(np.tril(a)))


@kernel(lambda rng, n: (_dominant(rng, n),), small={"n": 9}, large={"n": 200})
def lu(a):
    """Both factors in place, without pivoting."""
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return np.sum(np.sin(a))


@kernel(
    lambda rng, n: (_dominant(rng, n), rng.uniform(0.0, 1.0, n)), small={"n": 9}, large={"n": 200}
)
def ludcmp(a, b):
    """A linear system by its LU factors and two triangular solves."""
    n = a.shape[0]
    x, y = np.zeros_like(b), np.zeros_like(b)
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    for i in range(n):
        y[i] = b[i] - a[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


@kernel(
    lambda rng, n: (_dominant(rng, n) / n, rng.uniform(0.0, 1.0, n)),
    small={"n": 10},
    large={"n": 1000},
)
def trisolv(low, b):
    """Forward substitution with a lower triangular matrix."""
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - low[i, :i] @ x[:i]) / low[i, i]
    return np.sum(x * x)


def _thomas(rng, n):
    return (
        rng.uniform(-1.0, 1.0, n),
        rng.uniform(3.0, 4.0, n),
        rng.uniform(-1.0, 1.0, n),
        rng.uniform(-1.0, 1.0, n),
    )


@kernel(_thomas, small={"n": 12}, large={"n": 10_000})
def tridiagonal(low, main, up, rhs):
    """Thomas's algorithm, in place."""
    n = len(main)
    for i in range(1, n):
        w = low[i] / main[i - 1]
        main[i] -= w * up[i - 1]
        rhs[i] -= w * rhs[i - 1]
    rhs[-1] /= main[-1]
    for i in range(n - 2, -1, -1):
        rhs[i] = (rhs[i] - up[i] * rhs[i + 1]) / main[i]
    return np.sum(rhs * rhs)
