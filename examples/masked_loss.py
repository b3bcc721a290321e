"""A robust loss whose masks are written in place: missing samples out, outliers clipped.

A sum of two decaying oscillations is fitted to a signal with gaps and spikes.  `residual[...] =`
with a Boolean mask is NumPy as one writes it; gradients of masked elements are exactly zero, even
though the missing samples are NaN.

    python examples/masked_loss.py
"""

import numpy as np
from scipy.optimize import minimize

import tracegrad as tg

T = np.linspace(0.0, 10.0, 200)


def model(p):
    return p[0] * np.exp(-p[1] * T) * np.cos(p[2] * T) + p[3] * np.exp(-p[4] * T)


def loss(p, signal, missing):
    """Mean of Huber's loss over the samples that are there."""
    residual = model(p) - signal
    residual[missing] = 0.0
    size = np.abs(residual)
    cost = 0.5 * residual**2
    far = size > 0.2
    cost[far] = 0.0
    cost += np.where(far, 0.2 * (size - 0.1), 0.0)
    return np.sum(cost) / np.sum(~missing)


def main():
    rng = np.random.default_rng(1)
    true_p = np.array([1.5, 0.25, 3.0, 0.8, 0.6])
    signal = model(true_p) + 0.03 * rng.standard_normal(T.size)
    spikes = rng.choice(T.size, 12, replace=False)
    signal[spikes] += rng.choice([-4.0, 4.0], 12)
    missing = (T > 4.0) & (T < 5.0)
    signal[missing] = np.nan

    start = np.array([1.0, 0.1, 2.8, 0.5, 0.3])
    found = minimize(
        tg.value_and_grad(loss), start, args=(signal, missing), jac=True, method="BFGS"
    )
    to_signal = tg.grad(loss, argnums=1)(found.x, signal, missing)

    print(f"samples   {T.size}, of them missing {missing.sum()}, spikes {len(spikes)}")
    print(f"true      {true_p}")
    print(f"found     {np.round(found.x, 3)}")
    print(f"gradient of the missing samples: largest {np.abs(to_signal[missing]).max():.1f}")
    print(
        f"gradient of the spikes: largest {np.abs(to_signal[spikes]).max():.1e}, "
        f"bound {0.2 / np.sum(~missing):.1e}"
    )
    return found, true_p, to_signal, missing


if __name__ == "__main__":
    main()
