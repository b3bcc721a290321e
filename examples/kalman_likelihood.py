"""Fit the noise of state-space models by maximum likelihood through a Kalman filter.

The likelihood is the filter as a textbook writes it: a loop over the observations with small
matrices in its body.  SciPy minimises it with exact gradients, and the standard errors come from
the exact Hessian.  Two models go through the same filter: the level of the Nile, whose maximum
likelihood is published (Durbin and Koopman, Time Series Analysis by State Space Methods, 2012),
and a target that moves with a nearly constant velocity.

    python examples/kalman_likelihood.py
"""

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import tracegrad as tg

NILE = Path(__file__).parent / "data" / "nile.csv"


def negative_log_likelihood(y, F, Q, H, r):
    """Of `y`: a state F @ x + noise(Q), seen as H @ x + noise(r); nothing is known of the first."""
    n = F.shape[0]
    x, P = np.zeros(n), 1e7 * np.eye(n)
    total = 0.0
    for t in range(y.size):
        innovation = y[t] - H @ x
        PH = P @ H
        s = H @ PH + r
        if t >= n:  # the first observations only find the state
            total += np.log(2.0 * np.pi * s) + innovation**2 / s
        x = F @ (x + PH * innovation / s)
        P = F @ (P - np.outer(PH, PH) / s) @ F.T + Q
    return 0.5 * total


def level(theta, y):
    """A random walk with steps of variance exp(theta[0]), seen with noise exp(theta[1])."""
    q, r = np.exp(theta)
    return negative_log_likelihood(y, np.eye(1), q * np.eye(1), np.ones(1), r)


def velocity(theta, y):
    """Position and velocity; only the velocity is disturbed, only the position is seen."""
    q, r = np.exp(theta)
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    shape = np.array([[1.0 / 3.0, 1.0 / 2.0], [1.0 / 2.0, 1.0]])
    return negative_log_likelihood(y, F, q * shape, np.array([1.0, 0.0]), r)


def fit(model, start, y):
    """The variances and their standard errors (of their logarithms)."""
    found = minimize(
        tg.value_and_grad(model), np.log(start), args=(y,), jac=True, method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-7},
    )  # fmt: skip
    errors = np.sqrt(np.diag(np.linalg.inv(tg.hessian(model)(found.x, y))))
    return found, errors


def track(q, r, count, rng):
    """Positions of a target, with noise."""
    shape = np.linalg.cholesky(q * np.array([[1.0 / 3.0, 1.0 / 2.0], [1.0 / 2.0, 1.0]]))
    x, seen = np.zeros(2), []
    for _ in range(count):
        x = np.array([x[0] + x[1], x[1]]) + shape @ rng.standard_normal(2)
        seen.append(x[0] + np.sqrt(r) * rng.standard_normal())
    return np.array(seen)


def main():
    flow = np.loadtxt(NILE, delimiter=",", skiprows=1)[:, 1]
    nile, errors = fit(level, [1000.0, 10000.0], flow)
    published = {"level variance": 1469.1, "noise variance": 15099.0}
    for (name, value), x, e in zip(published.items(), nile.x, errors, strict=True):
        low, high = np.exp(x - 2 * e), np.exp(x + 2 * e)
        print(
            f"Nile     {name:<20} {np.exp(x):9.1f}   published {value:8.1f}, "
            f"95% between {low:.0f} and {high:.0f}"
        )
    print(f"         log-likelihood       {-nile.fun:9.2f}   after {nile.nfev} evaluations")

    true = np.array([0.02, 4.0])
    seen = track(*true, 600, np.random.default_rng(3))
    target, errors = fit(velocity, [1.0, 1.0], seen)
    for name, value, wanted, e in zip(
        ("velocity variance", "noise variance"), np.exp(target.x), true, errors, strict=True
    ):
        print(f"target   {name:<20} {value:9.4f}   true {wanted:8.4f}, +- {100 * e:.0f}%")
    return nile, target, errors, true


if __name__ == "__main__":
    main()
