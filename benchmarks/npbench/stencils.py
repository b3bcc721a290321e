"""Sweeps over grids: each point from its neighbours, many times."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _line(rng, steps, n):
    return steps, rng.uniform(0.0, 1.0, n), rng.uniform(0.0, 1.0, n)


@kernel(_line, small={"steps": 10, "n": 12}, large={"steps": 200, "n": 4000})
def jacobi_1d(steps, a, b):
    """Averages of three neighbours, back and forth between two arrays."""
    for _ in range(1, steps):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3.0
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3.0
    return np.sum(a * a) + np.sum(b)


def _plane(rng, steps, n):
    return steps, rng.uniform(0.0, 1.0, (n, n)), rng.uniform(0.0, 1.0, (n, n))


@kernel(_plane, small={"steps": 10, "n": 6}, large={"steps": 50, "n": 150})
def jacobi_2d(steps, a, b):
    """Averages of five neighbours, back and forth between two arrays."""
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (
            a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
        )
        a[1:-1, 1:-1] = 0.2 * (
            b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1]
        )
    return np.sum(a * a) + np.sum(b)


def _cube(rng, steps, n):
    return steps, rng.uniform(0.0, 1.0, (n, n, n)), rng.uniform(0.0, 1.0, (n, n, n))


@kernel(_cube, small={"steps": 10, "n": 5}, large={"steps": 25, "n": 40})
def heat_3d(steps, a, b):
    """Explicit heat equation in three dimensions."""
    for _ in range(1, steps):
        b[1:-1, 1:-1, 1:-1] = (
            0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[:-2, 1:-1, 1:-1])
            + 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1])
            + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, 1:-1, :-2])
            + a[1:-1, 1:-1, 1:-1]
        )
        a[1:-1, 1:-1, 1:-1] = (
            0.125 * (b[2:, 1:-1, 1:-1] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[:-2, 1:-1, 1:-1])
            + 0.125 * (b[1:-1, 2:, 1:-1] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[1:-1, :-2, 1:-1])
            + 0.125 * (b[1:-1, 1:-1, 2:] - 2.0 * b[1:-1, 1:-1, 1:-1] + b[1:-1, 1:-1, :-2])
            + b[1:-1, 1:-1, 1:-1]
        )
    return np.sum(a * a)


def _yee(rng, steps, nx, ny):
    ex, ey, hz = (rng.uniform(0.0, 1.0, (nx, ny)) for _ in range(3))
    return ex, ey, hz, np.arange(steps, dtype=float)


@kernel(_yee, small={"steps": 12, "nx": 5, "ny": 6}, large={"steps": 60, "nx": 100, "ny": 120})
def fdtd_2d(ex, ey, hz, source):
    """Maxwell's equations on a staggered grid, with a source on one edge."""
    for t in range(len(source)):
        ey[0, :] = source[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return np.sum(hz * hz) + np.sum(ex) + np.sum(ey)


def _square(rng, steps, n):
    return steps, rng.uniform(0.0, 1.0, (n, n))


@kernel(_square, small={"steps": 9, "n": 11}, large={"steps": 10, "n": 80})
def seidel_2d(steps, a):
    """Gauss-Seidel sweeps: each point from neighbours some of which are already new."""
    n = a.shape[0]
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                a[i, j] = (
                    a[i - 1, j - 1]
                    + a[i - 1, j]
                    + a[i - 1, j + 1]
                    + a[i, j - 1]
                    + a[i, j]
                    + a[i, j + 1]
                    + a[i + 1, j - 1]
                    + a[i + 1, j]
                    + a[i + 1, j + 1]
                ) / 9.0
    return np.sum(a * a)


@kernel(_square, small={"steps": 8, "n": 11}, large={"steps": 20, "n": 100})
def adi(steps, u):
    """Heat equation by alternating directions: a tridiagonal solve per row, then per column."""
    n = u.shape[0]
    v, p, q = np.zeros_like(u), np.zeros_like(u), np.zeros_like(u)
    dx, dt = 1.0 / n, 1.0 / steps
    mul1, mul2 = 2.0 * dt / dx**2, dt / dx**2
    a, b, c = -mul1 / 2.0, 1.0 + mul1, -mul1 / 2.0
    d, e, f = -mul2 / 2.0, 1.0 + mul2, -mul2 / 2.0
    for _ in range(steps):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, n - 1):
            below = a * p[1:-1, j - 1] + b
            p[1:-1, j] = -c / below
            q[1:-1, j] = (
                -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - f * u[j, 2:] - a * q[1:-1, j - 1]
            ) / below
        v[-1, 1:-1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[1:-1, 0] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = u[1:-1, 0]
        for j in range(1, n - 1):
            below = d * p[1:-1, j - 1] + e
            p[1:-1, j] = -f / below
            q[1:-1, j] = (
                -a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - c * v[2:, j] - d * q[1:-1, j - 1]
            ) / below
        u[1:-1, -1] = 1.0
        for j in range(n - 2, 0, -1):
            u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]
    return np.sum(u * u)
