"""The hyperparameters of a Gaussian process, by the gradient of its likelihood.

The factorization is written as in a textbook, in place, with slices that grow with the loops; the
gradient by length scale, amplitude and noise goes back through it.

    python examples/gaussian_process.py
"""

import numpy as np
from scipy.optimize import minimize

import tracegrad as tg


def cholesky(a):
    """The lower factor of a symmetric positive definite matrix, in place of its lower half."""
    for i in range(len(a)):
        for j in range(i):
            a[i, j] = (a[i, j] - a[i, :j] @ a[j, :j]) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - a[i, :i] @ a[i, :i])


def solve_lower(a, b):
    """``x`` with ``a @ x == b`` for the lower half of `a`."""
    x = b.copy()
    for i in range(len(b)):
        x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


def negative_log_likelihood(theta, t, y):
    """Of observations `y` at times `t`; `theta` are the logarithms of length scale, amplitude and
    noise of a squared exponential kernel."""
    scale, amplitude, noise = np.exp(theta)
    k = amplitude**2 * np.exp(-0.5 * ((t[:, None] - t[None, :]) / scale) ** 2)
    k += noise**2 * np.eye(len(t))
    cholesky(k)
    z = solve_lower(k, y)
    return 0.5 * z @ z + np.sum(np.log(np.diag(k))) + 0.5 * len(t) * np.log(2.0 * np.pi)


def observations(n=120, seed=1):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 10.0, n))
    return t, 1.5 * np.sin(1.3 * t) + 0.2 * rng.standard_normal(n)


def main():
    t, y = observations()
    objective = tg.value_and_grad(negative_log_likelihood)
    start = np.zeros(3)
    found = minimize(objective, start, args=(t, y), jac=True, method="L-BFGS-B")

    h = 1e-6
    value, gradient = objective(start, t, y)
    for k in range(3):
        step = h * np.eye(3)[k]
        ahead, behind = (negative_log_likelihood(start + s * step, t, y) for s in (1, -1))
        assert np.isclose(gradient[k], (ahead - behind) / (2 * h), rtol=1e-5)

    scale, amplitude, noise = np.exp(found.x)
    print(f"negative log likelihood {value:.2f} -> {found.fun:.2f} in {found.nit} iterations")
    print(f"length scale {scale:.2f}, amplitude {amplitude:.2f}, noise {noise:.2f}")
    assert 0.15 < noise < 0.25 and found.success
    return found


if __name__ == "__main__":
    main()
