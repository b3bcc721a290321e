"""Factorisations and triangular solves; a step of a scan works on whole rows behind masks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form


@form
def tridiagonal(low, main, up, rhs):
    def forward(s, row):
        m, r = s
        low, main, up, rhs = row
        w = low / m
        new = main - w * up, rhs - w * r
        return new, new

    first = main[0], rhs[0]
    _, (m, r) = lax.scan(forward, first, (low[1:], main[1:], up[:-1], rhs[1:]))
    m, r = jnp.concatenate([main[:1], m]), jnp.concatenate([rhs[:1], r])

    def back(x, row):
        m, r, up = row
        x = (r - up * x) / m
        return x, x

    last = r[-1] / m[-1]
    _, x = lax.scan(back, last, (m[:-1], r[:-1], up[:-1]), reverse=True)
    return jnp.sum(x * x) + last * last


@form
def trisolv(low, b):
    x = jax.scipy.linalg.solve_triangular(low, b, lower=True)
    return jnp.sum(x * x)


@form
def ludcmp(a, b):
    x = jnp.linalg.solve(a, b)
    return jnp.sum(x * x)


@form
def cholesky(a):
    # The factor is written to the lower triangle; what is above it takes no part.
    return jnp.sum(jnp.sin(jnp.linalg.cholesky(a)))


@form
def lu(a):
    n = a.shape[0]
    at = jnp.arange(n)

    def step(a, k):
        column = jnp.where(at > k, a[:, k] / a[k, k], 0.0)
        row = jnp.where(at > k, a[k], 0.0)
        a = a.at[:, k].set(jnp.where(at > k, column, a[:, k]))
        return a - jnp.outer(column, row), None

    return jnp.sum(jnp.sin(lax.scan(step, a, at)[0]))


@form
def durbin(r):
    n = r.shape[0]
    at = jnp.arange(n)

    def step(s, k):
        y, alpha, beta = s
        beta = beta * (1.0 - alpha * alpha)
        # What is reversed is the first k elements; the rest of y is still 0.
        back = jnp.where(at < k, k - 1 - at, 0)
        alpha = -(r[k] + jnp.sum(jnp.where(at < k, r[back] * y, 0.0))) / beta
        y = y + jnp.where(at < k, alpha * y[back], 0.0)
        return (y.at[k].set(alpha), alpha, beta), None

    start = jnp.zeros_like(r).at[0].set(-r[0]), -r[0], jnp.ones(())
    (y, _, _), _ = lax.scan(step, start, jnp.arange(1, n))
    return jnp.sum(y * y)


@form
def gramschmidt(a):
    n = a.shape[1]
    at = jnp.arange(n)

    def step(a, k):
        norm = jnp.sqrt(jnp.dot(a[:, k], a[:, k]))
        q = a[:, k] / norm
        row = jnp.where(at > k, q @ a, 0.0)
        return a - jnp.outer(q, row), (q, row.at[k].set(norm))

    _, (q, r) = lax.scan(step, a, at)
    return jnp.sum(jnp.sin(q)) + jnp.sum(r * r)
