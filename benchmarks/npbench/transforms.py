"""The fast Fourier transform by Stockham's autosort scheme, on real and imaginary parts."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _signal(rng, k):
    return rng.normal(size=2**k), rng.normal(size=2**k), k


@kernel(
    _signal,
    small={"k": 4},
    large={"k": 12},
    changed="real and imaginary parts instead of complex numbers",
)
def stockham_fft(re, im, stages):
    """Radix 2: each stage halves the length of the parts and doubles their number."""
    n = re.shape[0]
    for s in range(stages):
        half, block = n >> (s + 1), 1 << s
        angle = -np.pi * np.arange(block) / block
        wr, wi = np.cos(angle)[:, np.newaxis], np.sin(angle)[:, np.newaxis]
        a, b = re.reshape(block, 2, half), im.reshape(block, 2, half)
        ar, br, ai, bi = a[:, 0], a[:, 1], b[:, 0], b[:, 1]
        tr, ti = wr * br - wi * bi, wr * bi + wi * br
        re = np.concatenate([ar + tr, ar - tr]).reshape(n)
        im = np.concatenate([ai + ti, ai - ti]).reshape(n)
    return np.sum(np.sin(re)) + np.sum(im * im * np.cos(np.arange(n)))
