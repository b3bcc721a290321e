"""Statistics of columns, shortest paths, and sums over gathered elements."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form


@form
def covariance(data):
    data = data - jnp.mean(data, axis=0)
    return jnp.sum(jnp.sin(data.T @ data / (data.shape[0] - 1.0)))


@form
def correlation(data):
    n, m = data.shape
    deviation = jnp.std(data, axis=0)
    deviation = jnp.where(deviation <= 0.1, 1.0, deviation)
    data = (data - jnp.mean(data, axis=0)) / (jnp.sqrt(n) * deviation)
    corr = data.T @ data
    return jnp.sum(jnp.sin(jnp.where(jnp.eye(m, dtype=bool), 1.0, corr)))


@form
def softmax(x):
    out = jax.nn.softmax(x, axis=-1)
    return -jnp.sum(out * jnp.log(out))


@form
def floyd_warshall(path):
    def step(path, k):
        return jnp.minimum(path, path[:, k][:, None] + path[k, :][None, :]), None

    path, _ = lax.scan(step, path, jnp.arange(path.shape[0]))
    return jnp.sum(path * path)


@form
def spmv(start, columns, values, x):
    m = start.shape[0] - 1
    rows = jnp.repeat(jnp.arange(m), jnp.diff(start), total_repeat_length=values.shape[0])
    y = jnp.zeros(m).at[rows].add(values * x[columns], indices_are_sorted=True)
    return jnp.sum(y * y)


@form
def azimint_naive(data, radius, bins):
    top = jnp.max(radius)

    def ring(i):
        inside = (top * i / bins <= radius) & (radius < top * (i + 1) / bins)
        return jnp.sum(jnp.where(inside, data, 0.0)) / jnp.sum(inside)

    rings = lax.map(ring, jnp.arange(bins))
    return jnp.sum(rings * rings)
