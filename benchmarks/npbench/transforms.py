"""The fast Fourier transform by Stockham's autosort scheme."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _signal(rng, k):
    return rng.normal(size=2**k) + 1j * rng.normal(size=2**k), k


@kernel(_signal, small={"k": 4}, large={"k": 12})
def stockham_fft(x, stages):
    """Radix 2: each stage halves the length of the parts and doubles their number."""
    n = x.shape[0]
    for s in range(stages):
        half, block = n >> (s + 1), 1 << s
        w = np.exp(-1j * np.pi * np.arange(block) / block)[:, np.newaxis]
        parts = x.reshape(block, 2, half)
        odd = w * parts[:, 1]
        x = np.concatenate([parts[:, 0] + odd, parts[:, 0] - odd]).reshape(n)
    return np.sum(np.sin(x.real)) + np.sum(x.imag**2 * np.cos(np.arange(n)))
