"""Incompressible flow by finite differences, with a Poisson equation for the pressure."""

from __future__ import annotations

import numpy as np

import tracegrad as tg
from benchmarks.npbench.kernel import kernel

DT = 0.001
DENSITY = 1.0
VISCOSITY = 0.1


def divergence_source(b, u, v, dx, dy):
    """The right-hand side of the equation for the pressure, inside the cavity; written to b."""
    ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2.0 * dx)
    vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2.0 * dy)
    uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2.0 * dy)
    vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2.0 * dx)
    b[1:-1, 1:-1] = DENSITY * ((ux + vy) / DT - ux**2 - 2.0 * uy * vx - vy**2)


def pressure_sweeps(p, b, dx, dy, sweeps):
    """Jacobi sweeps for the pressure in a closed box; written to p."""
    for _ in range(sweeps):
        pn = p.copy()
        p[1:-1, 1:-1] = (
            (pn[1:-1, 2:] + pn[1:-1, :-2]) * dy**2 + (pn[2:, 1:-1] + pn[:-2, 1:-1]) * dx**2
        ) / (2.0 * (dx**2 + dy**2)) - dx**2 * dy**2 / (2.0 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0.0


def _cavity(rng, n, steps, sweeps):
    u, v, p = (rng.uniform(-0.1, 0.1, (n, n)) for _ in range(3))
    return u, v, p, steps, sweeps


@kernel(
    _cavity, small={"n": 6, "steps": 9, "sweeps": 8}, large={"n": 61, "steps": 10, "sweeps": 40}
)
def cavity_flow(u, v, p, steps, sweeps):
    """A box of fluid whose lid moves."""
    n = u.shape[0]
    dx = dy = 2.0 / (n - 1)
    b = np.zeros_like(p)
    for _ in range(steps):
        un, vn = u.copy(), v.copy()
        divergence_source(b, u, v, dx, dy)
        pressure_sweeps(p, b, dx, dy, sweeps)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * DT / dx * (un[1:-1, 1:-1] - un[1:-1, :-2])
            - vn[1:-1, 1:-1] * DT / dy * (un[1:-1, 1:-1] - un[:-2, 1:-1])
            - DT / (2.0 * DENSITY * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
            + VISCOSITY
            * (
                DT / dx**2 * (un[1:-1, 2:] - 2.0 * un[1:-1, 1:-1] + un[1:-1, :-2])
                + DT / dy**2 * (un[2:, 1:-1] - 2.0 * un[1:-1, 1:-1] + un[:-2, 1:-1])
            )
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * DT / dx * (vn[1:-1, 1:-1] - vn[1:-1, :-2])
            - vn[1:-1, 1:-1] * DT / dy * (vn[1:-1, 1:-1] - vn[:-2, 1:-1])
            - DT / (2.0 * DENSITY * dy) * (p[2:, 1:-1] - p[:-2, 1:-1])
            + VISCOSITY
            * (
                DT / dx**2 * (vn[1:-1, 2:] - 2.0 * vn[1:-1, 1:-1] + vn[1:-1, :-2])
                + DT / dy**2 * (vn[2:, 1:-1] - 2.0 * vn[1:-1, 1:-1] + vn[:-2, 1:-1])
            )
        )
        u[0, :] = 0.0
        u[:, 0] = 0.0
        u[:, -1] = 0.0
        u[-1, :] = 1.0
        v[0, :] = 0.0
        v[-1, :] = 0.0
        v[:, 0] = 0.0
        v[:, -1] = 0.0
    return np.sum(u * u) + np.sum(v * v) + 1e-3 * np.sum(p)


def periodic_sweeps(p, b, dx, dy, sweeps):
    """Jacobi sweeps for the pressure in a channel, periodic along x; written to p."""
    east, west = p.copy(), p.copy()
    for _ in range(sweeps):
        east[:, :-1], east[:, -1] = p[:, 1:], p[:, 0]
        west[:, 1:], west[:, 0] = p[:, :-1], p[:, -1]
        pn = p.copy()
        p[1:-1, :] = ((east[1:-1] + west[1:-1]) * dy**2 + (pn[2:] + pn[:-2]) * dx**2) / (
            2.0 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2.0 * (dx**2 + dy**2)) * b[1:-1]
        p[-1, :] = p[-2, :]
        p[0, :] = p[1, :]


def _channel(rng, n, sweeps):
    u, v, p = (rng.uniform(-0.1, 0.1, (n, n)) for _ in range(3))
    return u, v, p, sweeps, 0.02


@kernel(
    _channel,
    small={"n": 6, "sweeps": 8},
    large={"n": 61, "sweeps": 40},
    steps=(4,),
    changed="tg.while_loop instead of a while statement, since the flow decides when it is steady",
)
def channel_flow(u, v, p, sweeps, steady):
    """Flow between two walls, driven by a force, periodic along the channel, until the sum of
    velocities grows by less than a part `steady` in a step."""
    n = u.shape[0]
    dx = dy = 2.0 / (n - 1)
    force = 1.0
    b = np.zeros_like(p)

    def step(state):
        u, v, p, _ = state
        ue, uw = np.roll(u, -1, axis=1), np.roll(u, 1, axis=1)
        ve, vw = np.roll(v, -1, axis=1), np.roll(v, 1, axis=1)
        ux, vx = (ue - uw)[1:-1] / (2.0 * dx), (ve - vw)[1:-1] / (2.0 * dx)
        uy, vy = (u[2:] - u[:-2]) / (2.0 * dy), (v[2:] - v[:-2]) / (2.0 * dy)
        b[1:-1] = DENSITY * ((ux + vy) / DT - ux**2 - 2.0 * uy * vx - vy**2)
        periodic_sweeps(p, b, dx, dy, sweeps)
        px = (np.roll(p, -1, axis=1) - np.roll(p, 1, axis=1))[1:-1] / (2.0 * DENSITY * dx)
        py = (p[2:] - p[:-2]) / (2.0 * DENSITY * dy)
        un, vn = u.copy(), v.copy()
        u[1:-1] = (
            un[1:-1]
            - DT * (un[1:-1] * (un - uw)[1:-1] / dx + vn[1:-1] * (un[1:-1] - un[:-2]) / dy + px)
            + VISCOSITY
            * DT
            * ((ue - 2.0 * un + uw)[1:-1] / dx**2 + (un[2:] - 2.0 * un[1:-1] + un[:-2]) / dy**2)
            + force * DT
        )
        v[1:-1] = (
            vn[1:-1]
            - DT * (un[1:-1] * (vn - vw)[1:-1] / dx + vn[1:-1] * (vn[1:-1] - vn[:-2]) / dy + py)
            + VISCOSITY
            * DT
            * ((ve - 2.0 * vn + vw)[1:-1] / dx**2 + (vn[2:] - 2.0 * vn[1:-1] + vn[:-2]) / dy**2)
        )
        u[0, :] = u[-1, :] = 0.0
        v[0, :] = v[-1, :] = 0.0
        return u, v, p, np.abs(np.sum(u) - np.sum(un)) / np.abs(np.sum(u))

    def moves(state):
        return state[3] > steady

    u, v, p, _ = tg.while_loop(moves, step, (u, v, p, 1.0))
    return np.sum(u * u) + np.sum(v * v) + 1e-3 * np.sum(p)
