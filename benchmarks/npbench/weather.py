"""Two kernels of a weather model: implicit vertical advection and horizontal diffusion."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel

DTR_STAGE = 3.0 / 20.0
BET_M = 0.5 * (1.0 - 0.25)
BET_P = 0.5 * (1.0 + 0.25)


def _columns(rng, i, j, k):
    def field(*shape):
        return rng.uniform(0.0, 1.0, shape)

    return (field(i, j, k), field(i, j, k), field(i + 1, j, k), field(i, j, k), field(i, j, k))


@kernel(_columns, small={"i": 3, "j": 4, "k": 10}, large={"i": 24, "j": 24, "k": 40})
def vadv(utens_stage, u_stage, wcon, u_pos, utens):
    """Advection along the columns: a tridiagonal system for each, all columns at once."""
    shape = utens_stage.shape
    levels = shape[2]
    ccol, dcol = np.zeros(shape), np.zeros(shape)

    for k in range(1):
        gcv = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
        cs = gcv * BET_M
        ccol[:, :, k] = gcv * BET_P
        bcol = DTR_STAGE - ccol[:, :, k]
        correction = -cs * (u_stage[:, :, k + 1] - u_stage[:, :, k])
        dcol[:, :, k] = (
            DTR_STAGE * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + correction
        )
        divided = 1.0 / bcol
        ccol[:, :, k] = ccol[:, :, k] * divided
        dcol[:, :, k] = dcol[:, :, k] * divided

    for k in range(1, levels - 1):
        gav = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
        gcv = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
        acol = gav * BET_P
        ccol[:, :, k] = gcv * BET_P
        bcol = DTR_STAGE - acol - ccol[:, :, k]
        correction = -gav * BET_M * (u_stage[:, :, k - 1] - u_stage[:, :, k]) - gcv * BET_M * (
            u_stage[:, :, k + 1] - u_stage[:, :, k]
        )
        dcol[:, :, k] = (
            DTR_STAGE * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + correction
        )
        divided = 1.0 / (bcol - ccol[:, :, k - 1] * acol)
        ccol[:, :, k] = ccol[:, :, k] * divided
        dcol[:, :, k] = (dcol[:, :, k] - dcol[:, :, k - 1] * acol) * divided

    for k in range(levels - 1, levels):
        gav = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
        acol = gav * BET_P
        bcol = DTR_STAGE - acol
        correction = -gav * BET_M * (u_stage[:, :, k - 1] - u_stage[:, :, k])
        dcol[:, :, k] = (
            DTR_STAGE * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + correction
        )
        divided = 1.0 / (bcol - ccol[:, :, k - 1] * acol)
        dcol[:, :, k] = (dcol[:, :, k] - dcol[:, :, k - 1] * acol) * divided

    datacol = dcol[:, :, levels - 1]
    utens_stage[:, :, levels - 1] = DTR_STAGE * (datacol - u_pos[:, :, levels - 1])
    for k in range(levels - 2, -1, -1):
        datacol = dcol[:, :, k] - ccol[:, :, k] * datacol
        utens_stage[:, :, k] = DTR_STAGE * (datacol - u_pos[:, :, k])
    return np.sum(np.sin(utens_stage))


def _layers(rng, i, j, k):
    return (rng.uniform(0.0, 1.0, (i + 4, j + 4, k)), rng.uniform(0.0, 1.0, (i, j, k)))


@kernel(_layers, small={"i": 4, "j": 5, "k": 2}, large={"i": 48, "j": 48, "k": 20})
def hdiff(field, coefficient):
    """Diffusion with limited fluxes: flux is zero where it would go up the gradient."""
    i, j, _ = coefficient.shape
    lap = 4.0 * field[1 : i + 3, 1 : j + 3] - (
        field[2 : i + 4, 1 : j + 3]
        + field[: i + 2, 1 : j + 3]
        + field[1 : i + 3, 2 : j + 4]
        + field[1 : i + 3, : j + 2]
    )
    step = lap[1:, 1 : j + 1] - lap[:-1, 1 : j + 1]
    flux_x = np.where(
        step * (field[2 : i + 3, 2 : j + 2] - field[1 : i + 2, 2 : j + 2]) > 0.0, 0.0, step
    )
    step = lap[1 : i + 1, 1:] - lap[1 : i + 1, :-1]
    flux_y = np.where(
        step * (field[2 : i + 2, 2 : j + 3] - field[2 : i + 2, 1 : j + 2]) > 0.0, 0.0, step
    )
    out = field[2 : i + 2, 2 : j + 2] - coefficient * (
        flux_x[1:] - flux_x[:-1] + flux_y[:, 1:] - flux_y[:, :-1]
    )
    return np.sum(out * out)
