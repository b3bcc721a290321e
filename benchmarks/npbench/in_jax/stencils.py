"""Sweeps over grids."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form, repeat


@form
def jacobi_1d(steps, a, b):
    def step(s):
        a, b = s
        b = b.at[1:-1].set((a[:-2] + a[1:-1] + a[2:]) / 3.0)
        return a.at[1:-1].set((b[:-2] + b[1:-1] + b[2:]) / 3.0), b

    a, b = repeat(step, (a, b), steps - 1)
    return jnp.sum(a * a) + jnp.sum(b)


def _five(x):
    return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])


@form
def jacobi_2d(steps, a, b):
    def step(s):
        a, b = s
        b = b.at[1:-1, 1:-1].set(_five(a))
        return a.at[1:-1, 1:-1].set(_five(b)), b

    a, b = repeat(step, (a, b), steps - 1)
    return jnp.sum(a * a) + jnp.sum(b)


def _seven(x):
    c = x[1:-1, 1:-1, 1:-1]
    return (
        0.125 * (x[2:, 1:-1, 1:-1] - 2.0 * c + x[:-2, 1:-1, 1:-1])
        + 0.125 * (x[1:-1, 2:, 1:-1] - 2.0 * c + x[1:-1, :-2, 1:-1])
        + 0.125 * (x[1:-1, 1:-1, 2:] - 2.0 * c + x[1:-1, 1:-1, :-2])
        + c
    )


@form
def heat_3d(steps, a, b):
    inner = (slice(1, -1),) * 3

    def step(s):
        a, b = s
        b = b.at[inner].set(_seven(a))
        return a.at[inner].set(_seven(b)), b

    a, b = repeat(step, (a, b), steps - 1)
    return jnp.sum(a * a)


@form
def fdtd_2d(ex, ey, hz, source):
    def step(s, at):
        ex, ey, hz = s
        ey = ey.at[0, :].set(at)
        ey = ey.at[1:, :].add(-0.5 * (hz[1:, :] - hz[:-1, :]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    (ex, ey, hz), _ = lax.scan(step, (ex, ey, hz), source)
    return jnp.sum(hz * hz) + jnp.sum(ex) + jnp.sum(ey)


@form
def seidel_2d(steps, a):
    def row(above, rows):
        here, below = rows
        # All but the left neighbour is known before the row starts.
        known = (
            above[:-2]
            + above[1:-1]
            + above[2:]
            + here[1:-1]
            + here[2:]
            + below[:-2]
            + below[1:-1]
            + below[2:]
        )

        def point(left, k):
            new = (left + k) / 9.0
            return new, new

        _, new = lax.scan(point, here[0], known)
        done = here.at[1:-1].set(new)
        return done, done

    def sweep(a):
        _, new = lax.scan(row, a[0], (a[1:-1], a[2:]))
        return a.at[1:-1].set(new)

    a = repeat(sweep, a, steps)
    return jnp.sum(a * a)


def _implicit(u, lower, main, upper, side):
    """Solve along the second axis; `side` is the explicit half's coefficient."""
    right = -side * u[:-2] + (1.0 + 2.0 * side) * u[1:-1] - side * u[2:]

    def forward(s, rhs):
        p, q = s
        below = lower * p + main
        new = -upper / below, (rhs - lower * q) / below
        return new, new

    ones = jnp.ones(right.shape[0])
    # Solved for the points of a line, all lines at once: lines are columns of `right`.
    _, (p, q) = lax.scan(forward, (jnp.zeros_like(ones), ones), right.T[1:-1])

    def back(v, pq):
        v = pq[0] * v + pq[1]
        return v, v

    _, v = lax.scan(back, ones, (p, q), reverse=True)
    return v.T  # line, point


@form
def adi(steps, u):
    n = u.shape[0]
    dx, dt = 1.0 / n, 1.0 / steps
    mul1, mul2 = 2.0 * dt / dx**2, dt / dx**2
    a, b, d, e = -mul1 / 2.0, 1.0 + mul1, -mul2 / 2.0, 1.0 + mul2

    def step(s):
        u, v = s
        v = v.at[0, 1:-1].set(1.0).at[-1, 1:-1].set(1.0)
        v = v.at[1:-1, 1:-1].set(_implicit(u.T, a, b, a, d).T)
        u = u.at[1:-1, 0].set(1.0).at[1:-1, -1].set(1.0)
        return u.at[1:-1, 1:-1].set(_implicit(v, d, e, d, a)), v

    u, _ = repeat(step, (u, jnp.zeros_like(u)), steps)
    return jnp.sum(u * u)
