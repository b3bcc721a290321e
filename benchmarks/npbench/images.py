"""Filters of images and of sampled functions of the plane."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


@kernel(
    lambda rng, w, h: (0.25, rng.uniform(0.0, 1.0, (w, h))),
    small={"w": 10, "h": 9},
    large={"w": 120, "h": 100},
)
def deriche(alpha, image):
    """Deriche's recursive smoothing: two passes each way along both axes."""
    w, h = image.shape
    k = (1.0 - np.exp(-alpha)) ** 2 / (1.0 + 2.0 * alpha * np.exp(-alpha) - np.exp(2.0 * alpha))
    a1, a2 = k, k * np.exp(-alpha) * (alpha - 1.0)
    a3, a4 = k * np.exp(-alpha) * (alpha + 1.0), -k * np.exp(-2.0 * alpha)
    b1, b2 = 2.0**-alpha, -np.exp(-2.0 * alpha)
    y1, y2 = np.empty_like(image), np.empty_like(image)
    y1[:, 0] = a1 * image[:, 0]
    y1[:, 1] = a1 * image[:, 1] + a2 * image[:, 0] + b1 * y1[:, 0]
    for j in range(2, h):
        y1[:, j] = a1 * image[:, j] + a2 * image[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2[:, -1] = 0.0
    y2[:, -2] = a3 * image[:, -1]
    for j in range(h - 3, -1, -1):
        y2[:, j] = (
            a3 * image[:, j + 1] + a4 * image[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
        )
    out = y1 + y2
    y1[0, :] = a1 * out[0, :]
    y1[1, :] = a1 * out[1, :] + a2 * out[0, :] + b1 * y1[0, :]
    for i in range(2, w):
        y1[i, :] = a1 * out[i, :] + a2 * out[i - 1, :] + b1 * y1[i - 1, :] + b2 * y1[i - 2, :]
    y2[-1, :] = 0.0
    y2[-2, :] = a3 * out[-1, :]
    for i in range(w - 3, -1, -1):
        y2[i, :] = a3 * out[i + 1, :] + a4 * out[i + 2, :] + b1 * y2[i + 1, :] + b2 * y2[i + 2, :]
    out = y1 + y2
    return np.sum(out * out)


def _detector(rng, n, bins):
    return rng.uniform(0.0, 1.0, n), rng.uniform(0.0, 1.0, n), bins


@kernel(
    _detector,
    small={"n": 80, "bins": 9},
    large={"n": 40_000, "bins": 100},
    steps=(1,),
)
def azimint_naive(data, radius, bins):
    """The mean of a detector's pixels in rings around its centre."""
    top = radius.max()
    rings = np.zeros(bins)
    for i in range(bins):
        inner, outer = top * i / bins, top * (i + 1) / bins
        inside = data[np.logical_and(inner <= radius, radius < outer)]
        rings[i] = inside.mean()
    return np.sum(rings * rings)


def _plane(rng, n, steps):
    return rng.uniform(-1.5, 0.5, (n, n)) + 1j * rng.uniform(-1.0, 1.0, (n, n)), steps


@kernel(_plane, small={"n": 5, "steps": 9}, large={"n": 150, "steps": 50})
def mandelbrot(c, steps):
    """Iterate z^2 + c while it is bounded; the last step at which it was so, and a smooth one."""
    z = np.zeros_like(c)
    last, total = np.zeros(c.shape, dtype=np.int64), np.zeros(c.shape)
    for n in range(steps):
        inside = np.abs(z) < 2.0
        last[inside] = n
        z[inside] = z[inside] ** 2 + c[inside]
        total[inside] += np.exp(-(np.abs(z[inside]) ** 2))
    return np.sum(total) + np.sum(last)
