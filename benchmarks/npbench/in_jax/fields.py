"""Filters, maps of the plane, the Fourier transform and a weather model."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form


@form
def deriche(alpha, image):
    k = (1.0 - jnp.exp(-alpha)) ** 2 / (1.0 + 2.0 * alpha * jnp.exp(-alpha) - jnp.exp(2.0 * alpha))
    a1, a2 = k, k * jnp.exp(-alpha) * (alpha - 1.0)
    a3, a4 = k * jnp.exp(-alpha) * (alpha + 1.0), -k * jnp.exp(-2.0 * alpha)
    b1, b2 = 2.0**-alpha, -jnp.exp(-2.0 * alpha)

    def along_rows(x):
        zero = jnp.zeros_like(x[0])
        before = jnp.concatenate([zero[None], x[:-1]])

        def step(s, rhs):
            one, two = s
            new = rhs + b1 * one + b2 * two
            return (new, one), new

        _, y1 = lax.scan(step, (zero, zero), a1 * x + a2 * before)
        after = jnp.concatenate([x[1:], zero[None]])
        after2 = jnp.concatenate([x[2:], zero[None], zero[None]])
        _, y2 = lax.scan(step, (zero, zero), a3 * after + a4 * after2, reverse=True)
        return y1 + y2

    out = along_rows(along_rows(image.T).T)
    return jnp.sum(out * out)


@form
def mandelbrot(c, steps):
    def step(s, n):
        z, last, total = s
        inside = jnp.abs(z) < 2.0
        z = jnp.where(inside, z**2 + c, z)
        total += jnp.where(inside, jnp.exp(-(z.real**2 + z.imag**2)), 0.0)
        return (z, jnp.where(inside, n, last), total), None

    start = jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int64), jnp.zeros(c.shape)
    (_, last, total), _ = lax.scan(step, start, jnp.arange(steps))
    return jnp.sum(total) + jnp.sum(last)


@form
def stockham_fft(x, stages):
    z = jnp.fft.fft(x)
    return jnp.sum(jnp.sin(z.real)) + jnp.sum(z.imag**2 * jnp.cos(jnp.arange(x.shape[0])))


@form
def hdiff(field, coefficient):
    i, j, _ = coefficient.shape
    lap = 4.0 * field[1:-1, 1:-1] - (
        field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2]
    )
    step = lap[1:, 1 : j + 1] - lap[:-1, 1 : j + 1]
    flux_x = jnp.where(
        step * (field[2 : i + 3, 2 : j + 2] - field[1 : i + 2, 2 : j + 2]) > 0, 0.0, step
    )
    step = lap[1 : i + 1, 1:] - lap[1 : i + 1, :-1]
    flux_y = jnp.where(
        step * (field[2 : i + 2, 2 : j + 3] - field[2 : i + 2, 1 : j + 2]) > 0, 0.0, step
    )
    out = field[2 : i + 2, 2 : j + 2] - coefficient * (
        flux_x[1:] - flux_x[:-1] + flux_y[:, 1:] - flux_y[:, :-1]
    )
    return jnp.sum(out * out)


@form
def vadv(utens_stage, u_stage, wcon, u_pos, utens):
    dtr, bet_m, bet_p = 3.0 / 20.0, 0.5 * (1.0 - 0.25), 0.5 * (1.0 + 0.25)
    levels = utens_stage.shape[2]
    w = 0.25 * (wcon[1:] + wcon[:-1])
    zero = jnp.zeros_like(w[:, :, :1])
    g_below = jnp.concatenate([zero, -w[:, :, 1:]], axis=2)
    g_above = jnp.concatenate([w[:, :, 1:], zero], axis=2)
    lower, upper = g_below * bet_p, g_above * bet_p
    main = dtr - lower - upper
    below = jnp.concatenate([zero, u_stage[:, :, :-1] - u_stage[:, :, 1:]], axis=2)
    above = jnp.concatenate([u_stage[:, :, 1:] - u_stage[:, :, :-1], zero], axis=2)
    right = dtr * u_pos + utens + utens_stage - bet_m * (g_below * below + g_above * above)

    def forward(s, row):
        c, d = s
        low, mid, up, rhs = row
        divided = 1.0 / (mid - c * low)
        new = up * divided, (rhs - d * low) * divided
        return new, new

    rows = tuple(jnp.moveaxis(x, 2, 0) for x in (lower, main, upper, right))
    _, (c, d) = lax.scan(forward, (zero[:, :, 0], zero[:, :, 0]), rows)

    def back(data, cd):
        data = cd[1] - cd[0] * data
        return data, data

    _, data = lax.scan(back, zero[:, :, 0], (c, d), reverse=True)
    assert data.shape[0] == levels
    return jnp.sum(jnp.sin(dtr * (jnp.moveaxis(data, 0, 2) - u_pos)))
