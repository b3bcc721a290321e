"""Recover the conductivity of a plate from its temperatures: a 2-D heat equation, in place.

The simulation is plain NumPy with slice assignments, run for a few dozen steps.  Its gradient
with respect to the whole conductivity field costs a small multiple of one simulation, however
many cells the field has.

    python examples/heat_inverse.py
"""

import numpy as np
from scipy.optimize import minimize

import tracegrad as tg

N, STEPS, EVERY = 20, 30, 5


def step(u, k):
    """One explicit step, written into `u`; heat flows between neighbours, the rim is kept."""
    right = 0.5 * (k[1:-1, 1:] + k[1:-1, :-1]) * (u[1:-1, 1:] - u[1:-1, :-1])
    down = 0.5 * (k[1:, 1:-1] + k[:-1, 1:-1]) * (u[1:, 1:-1] - u[:-1, 1:-1])
    u[1:-1, 1:-1] += right[:, 1:] - right[:, :-1]
    u[1:-1, 1:-1] += down[1:, :] - down[:-1, :]


def misfit(log_k, initial, records):
    """Squared distance to the recorded plates, and a penalty on roughness."""
    k = np.exp(log_k)
    u = initial.copy()
    total = 0.0
    for n in range(STEPS):
        step(u, k)
        if (n + 1) % EVERY == 0:
            residual = u[::2, ::2] - records[n // EVERY]
            total += np.sum(residual**2)
    rough = np.sum((log_k[1:] - log_k[:-1]) ** 2) + np.sum((log_k[:, 1:] - log_k[:, :-1]) ** 2)
    return total + 1e-3 * rough


def record(log_k, initial):
    """What the sensors see: every other cell, every fifth step."""
    k, u, rows = np.exp(log_k), initial.copy(), []
    for n in range(STEPS):
        step(u, k)
        if (n + 1) % EVERY == 0:
            rows.append(u[::2, ::2].copy())
    return np.array(rows)


def main():
    y, x = np.mgrid[0 : 1 : 1j * N, 0 : 1 : 1j * N]
    true_log_k = np.log(0.1) + 0.7 * np.exp(-((x - 0.35) ** 2 + (y - 0.6) ** 2) / 0.03)
    initial = np.sin(9 * x + 2 * y) * np.cos(7 * y - x) + 0.5 * np.sin(17 * x) * np.sin(15 * y)
    records = record(true_log_k, initial)
    records += 0.001 * np.random.default_rng(0).standard_normal(records.shape)
    kept = initial.copy()

    gradient = tg.value_and_grad(misfit)

    def objective(flat):
        value, slope = gradient(flat.reshape(N, N), initial, records)
        return value, slope.ravel()

    start = np.full((N, N), np.log(0.12))
    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 80})
    k, true_k = np.exp(found.x.reshape(N, N)), np.exp(true_log_k)

    print(f"unknowns            {start.size}")
    print(f"misfit              {objective(start.ravel())[0]:.4f} -> {found.fun:.6f}")
    print(f"conductivity        {true_k.min():.3f} to {true_k.max():.3f}")
    print(
        f"largest error       start {np.abs(np.exp(start) - true_k)[1:-1, 1:-1].max():.3f}, "
        f"found {np.abs(k - true_k)[1:-1, 1:-1].max():.3f}"
    )
    print(f"initial plate kept  {np.array_equal(initial, kept)}")
    return found, k, true_k


if __name__ == "__main__":
    main()
