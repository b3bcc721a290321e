"""The programs as one would write them for JAX: whole-array forms, `scan` and `fori_loop`.

Needs JAX, in float64.  `FORMS` maps a name to a function with the arguments of the NumPy one,
`STATIC` to the positions that `jax.jit` must take as static.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.particles import SOFTENING

jax.config.update("jax_enable_x64", True)

FORMS: dict[str, Callable[..., Any]] = {}
STATIC = {
    "jacobi_1d": (0,),
    "jacobi_2d": (0,),
    "heat_3d": (0,),
    "seidel_2d": (0,),
    "adi": (0,),
    "nbody": (3,),
    "mandelbrot": (1,),
    "spmv": (0,),
    "azimint_naive": (2,),
    "stockham_fft": (1,),
}


def form(f: Callable[..., Any]) -> Callable[..., Any]:
    FORMS[f.__name__] = f
    return f


def repeat(step: Callable[[Any], Any], state: Any, times: int) -> Any:
    """The state after `times` steps; a `scan`, which can be differentiated in reverse."""
    return lax.scan(lambda s, _: (step(s), None), state, None, length=times)[0]


# ------------------------------------------------------------------------------------ stencils


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


# ------------------------------------------------------------------------- solvers and filters


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


# ------------------------------------------------------------------------- products and tables


@form
def syrk(alpha, beta, c, a):
    n = c.shape[0]
    lower = jnp.tril(jnp.ones((n, n), bool))
    c = jnp.where(lower, beta * c + alpha * a @ a.T, c)
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
def k2mm(alpha, beta, a, b, c, d):
    d = alpha * a @ b @ c + beta * d
    return jnp.sum(d * d)


@form
def doitgen(a, c4):
    a = a @ c4
    return jnp.sum(a * a)


@form
def covariance(data):
    data = data - jnp.mean(data, axis=0)
    return jnp.sum(jnp.sin(data.T @ data / (data.shape[0] - 1.0)))


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
def arc_distance(theta1, phi1, theta2, phi2):
    between = (
        jnp.sin((theta2 - theta1) / 2) ** 2
        + jnp.cos(theta1) * jnp.cos(theta2) * jnp.sin((phi2 - phi1) / 2) ** 2
    )
    return jnp.sum(2 * jnp.arctan2(jnp.sqrt(between), jnp.sqrt(1 - between)))


@form
def mlp(x, w1, b1, w2, b2, w3, b3):
    x = jax.nn.relu(x @ w1 + b1)
    x = jax.nn.relu(x @ w2 + b2)
    return -jnp.sum(jax.nn.log_softmax(x @ w3 + b3)[:, 0])


@form
def conv2d(x, weights, bias):
    out = (
        lax.conv_general_dilated(
            x, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        + bias
    )
    return jnp.sum(jnp.sin(out))


@form
def nbody(mass, pos, vel, steps):
    dt = 0.01

    def apart(pos):
        d = pos[None] - pos[:, None]
        return d, jnp.sum(d * d, axis=-1) + SOFTENING**2

    def acceleration(pos):
        d, square = apart(pos)
        return jnp.einsum("ijc,ij,j->ic", d, square**-1.5, mass[:, 0])

    def energy(pos, vel):
        _, square = apart(pos)
        return (
            0.5 * jnp.sum(mass * vel**2),
            jnp.sum(jnp.triu(-(mass * mass.T) / jnp.sqrt(square), 1)),
        )

    def step(s, _):
        pos, vel, acc = s
        vel = vel + acc * dt / 2.0
        pos = pos + vel * dt
        acc = acceleration(pos)
        vel = vel + acc * dt / 2.0
        return (pos, vel, acc), energy(pos, vel)

    vel = vel - jnp.mean(mass * vel, axis=0) / jnp.mean(mass)
    k0, p0 = energy(pos, vel)
    (pos, vel, _), (k, p) = lax.scan(step, (pos, vel, acceleration(pos)), None, length=steps)
    return k0**2 + p0**2 + jnp.sum(k**2) + jnp.sum(p**2) + jnp.sum(pos)


# --------------------------------------------------------------- triangular solvers and products


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


@form
def trmm(alpha, beta, a, b):
    b = alpha * (b + jnp.tril(a, -1).T @ b)
    return beta * jnp.sum(b * b)


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
def correlation(data):
    n, m = data.shape
    deviation = jnp.std(data, axis=0)
    deviation = jnp.where(deviation <= 0.1, 1.0, deviation)
    data = (data - jnp.mean(data, axis=0)) / (jnp.sqrt(n) * deviation)
    corr = data.T @ data
    return jnp.sum(jnp.sin(jnp.where(jnp.eye(m, dtype=bool), 1.0, corr)))


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
def k3mm(a, b, c, d):
    e = a @ b @ (c @ d)
    return jnp.sum(e * e)


# ---------------------------------------------------------------------- gathers and transforms


@form
def spmv(m, rows, columns, values, x):
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


@form
def stockham_fft(x, stages):
    z = jnp.fft.fft(x)
    return jnp.sum(jnp.sin(z.real)) + jnp.sum(z.imag**2 * jnp.cos(jnp.arange(x.shape[0])))


@form
def scattering_self_energies(neighbours, coupling, green, phonon):
    ne, nw = green.shape[1], phonon.shape[1]
    scaled = jnp.einsum("abjxy,qwabij->qwabixy", coupling, phonon)
    sigma = jnp.zeros_like(green)
    for w in range(min(nw, ne)):
        near = green[:, : ne - w, neighbours]  # kz, e, atom, neighbour, orbitals
        g = jnp.einsum("keabxy,abiyz->keabixz", near, coupling)
        add = jnp.einsum("keabixy,qabiyz->keaxz", g, scaled[:, w])
        sigma = sigma.at[:, w:].add(add)
    return jnp.sum(jnp.abs(sigma) ** 2)


# ------------------------------------------------------------------------ weather and networks


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


def _convolution(x, weights):
    return lax.conv_general_dilated(
        x, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _max_pool(x):
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2]
    return jnp.max(x.reshape(n, h // 2, 2, w // 2, 2, c), axis=(2, 4))


@form
def lenet(x, conv1, bias1, conv2, bias2, dense1, offset1, dense2, offset2):
    x = _max_pool(jax.nn.relu(_convolution(x, conv1) + bias1))
    x = _max_pool(jax.nn.relu(_convolution(x, conv2) + bias2))
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ dense1 + offset1)
    return -jnp.sum(jax.nn.log_softmax(x @ dense2 + offset2)[:, 0])


@form
def resnet(x, conv1, conv2, conv3):
    def norm(x):
        away = x - jnp.mean(x, axis=0)
        return away / jnp.sqrt(jnp.mean(away * away, axis=0) + 1e-5)

    padded = jnp.pad(_convolution(x, conv1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    x1 = jax.nn.relu(norm(padded))
    x2 = jax.nn.relu(norm(_convolution(x1, conv2)))
    x3 = norm(_convolution(x2, conv3))
    return jnp.sum(jnp.sin(jax.nn.relu(x3 + x)))
