"""Products of matrices and vectors; triangular parts by masks."""

from __future__ import annotations

import jax.numpy as jnp

from benchmarks.npbench.in_jax.form import form


@form
def trmm(alpha, beta, a, b):
    b = alpha * (b + jnp.tril(a, -1).T @ b)
    return beta * jnp.sum(b * b)


@form
def syrk(alpha, beta, c, a):
    n = c.shape[0]
    lower = jnp.tril(jnp.ones((n, n), bool))
    c = jnp.where(lower, beta * c + alpha * a @ a.T, c)
    return jnp.sum(c * c)


@form
def syr2k(alpha, beta, c, a, b):
    n = c.shape[0]
    lower = jnp.tril(jnp.ones((n, n), bool))
    c = jnp.where(lower, beta * c + alpha * (a @ b.T + b @ a.T), c)
    return jnp.sum(c * c)


@form
def symm(alpha, beta, c, a, b):
    c = beta * c + alpha * (jnp.tril(a) + jnp.tril(a, -1).T) @ b
    return jnp.sum(c * c)


@form
def gemver(alpha, beta, a, u1, v1, u2, v2, y, z):
    a = a + jnp.outer(u1, v1) + jnp.outer(u2, v2)
    w = alpha * a @ (beta * y @ a + z)
    return jnp.sum(w * w)


@form
def atax(a, x):
    y = (a @ x) @ a
    return jnp.sum(y * y)


@form
def bicg(a, p, r):
    return jnp.sum(jnp.sin(r @ a)) + jnp.sum(jnp.sin(a @ p))


@form
def mvt(x1, x2, y1, y2, a):
    x1 = x1 + a @ y1
    x2 = x2 + y2 @ a
    return jnp.sum(x1 * x1) + jnp.sum(x2 * x2)


@form
def gesummv(alpha, beta, a, b, x):
    y = alpha * a @ x + beta * b @ x
    return jnp.sum(y * y)


@form
def k2mm(alpha, beta, a, b, c, d):
    d = alpha * a @ b @ c + beta * d
    return jnp.sum(d * d)


@form
def k3mm(a, b, c, d):
    e = a @ b @ (c @ d)
    return jnp.sum(e * e)


@form
def doitgen(a, c4):
    a = a @ c4
    return jnp.sum(a * a)
