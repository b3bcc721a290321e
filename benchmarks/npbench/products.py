"""Products of matrices and vectors, with the triangular and symmetric ones row by row."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def _uniform(*shapes):
    """Arguments: two floats and an array for each shape, whose letters name sizes."""

    def make(rng, **size):
        arrays = (rng.uniform(-1.0, 1.0, tuple(size[c] for c in shape)) for shape in shapes)
        return (1.5, 1.2, *arrays)

    return make


def _arrays(*shapes):
    """Arguments: an array for each shape, whose letters name sizes."""
    scaled = _uniform(*shapes)
    return lambda rng, **size: scaled(rng, **size)[2:]


@kernel(_uniform("mm", "mn"), small={"m": 9, "n": 8}, large={"m": 160, "n": 180})
def trmm(alpha, beta, a, b):
    """``b = alpha * A^T b`` with unit lower triangular A, in place; and a scale."""
    m = b.shape[0]
    for i in range(m):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= alpha
    return beta * np.sum(b * b)


@kernel(_uniform("nn", "nm"), small={"n": 9, "m": 8}, large={"n": 200, "m": 160})
def syrk(alpha, beta, c, a):
    """The lower triangle of ``beta*C + alpha*A A^T``."""
    n, m = a.shape
    for i in range(n):
        c[i, : i + 1] *= beta
        for k in range(m):
            c[i, : i + 1] += alpha * a[i, k] * a[: i + 1, k]
    return np.sum(c * c)


@kernel(_uniform("nn", "nm", "nm"), small={"n": 9, "m": 8}, large={"n": 160, "m": 120})
def syr2k(alpha, beta, c, a, b):
    """The lower triangle of ``beta*C + alpha*(A B^T + B A^T)``."""
    n, m = a.shape
    for i in range(n):
        c[i, : i + 1] *= beta
        for k in range(m):
            c[i, : i + 1] += a[: i + 1, k] * alpha * b[i, k] + b[: i + 1, k] * alpha * a[i, k]
    return np.sum(c * c)


@kernel(_uniform("mn", "mm", "mn"), small={"m": 9, "n": 8}, large={"m": 160, "n": 120})
def symm(alpha, beta, c, a, b):
    """``beta*C + alpha*A B`` where only the lower triangle of A is read."""
    m, n = c.shape
    temp = np.empty(n)
    c *= beta
    for i in range(m):
        for j in range(n):
            c[:i, j] += alpha * b[i, j] * a[i, :i]
            temp[j] = b[:i, j] @ a[i, :i]
        c[i, :] += alpha * b[i, :] * a[i, i] + alpha * temp
    return np.sum(c * c)


@kernel(_uniform("nn", "n", "n", "n", "n", "n", "n"), small={"n": 8}, large={"n": 400})
def gemver(alpha, beta, a, u1, v1, u2, v2, y, z):
    """Two rank-one updates, then two products with the result."""
    a += np.outer(u1, v1) + np.outer(u2, v2)
    x = beta * y @ a + z
    w = alpha * a @ x
    return np.sum(w * w)


@kernel(_arrays("mn", "n"), small={"m": 6, "n": 5}, large={"m": 400, "n": 400})
def atax(a, x):
    """``A^T (A x)``."""
    y = (a @ x) @ a
    return np.sum(y * y)


@kernel(_arrays("nm", "m", "n"), small={"m": 6, "n": 5}, large={"m": 400, "n": 400})
def bicg(a, p, r):
    """The two products of a step of biconjugate gradients."""
    return np.sum(np.sin(r @ a)) + np.sum(np.sin(a @ p))


@kernel(_arrays("n", "n", "n", "n", "nn"), small={"n": 7}, large={"n": 400})
def mvt(x1, x2, y1, y2, a):
    """Products with a matrix and its transpose, added in place."""
    x1 += a @ y1
    x2 += y2 @ a
    return np.sum(x1 * x1) + np.sum(x2 * x2)


@kernel(_uniform("nn", "nn", "n"), small={"n": 7}, large={"n": 400})
def gesummv(alpha, beta, a, b, x):
    """A sum of two products of a matrix and a vector."""
    y = alpha * a @ x + beta * b @ x
    return np.sum(y * y)


@kernel(
    _uniform("ij", "jk", "kl", "il"),
    small={"i": 4, "j": 5, "k": 6, "l": 3},
    large={"i": 160, "j": 180, "k": 200, "l": 220},
)
def k2mm(alpha, beta, a, b, c, d):
    """``alpha*A B C + beta*D``, in place."""
    d[:] = alpha * a @ b @ c + beta * d
    return np.sum(d * d)


@kernel(
    _arrays("ij", "jk", "kl", "lm"),
    small={"i": 4, "j": 5, "k": 6, "l": 3, "m": 2},
    large={"i": 160, "j": 170, "k": 180, "l": 190, "m": 200},
)
def k3mm(a, b, c, d):
    """A product of two products."""
    e = a @ b @ (c @ d)
    return np.sum(e * e)


@kernel(_arrays("rqp", "pp"), small={"r": 9, "q": 4, "p": 5}, large={"r": 40, "q": 40, "p": 50})
def doitgen(a, c4):
    """A product along the last axis of a three-dimensional array, plane by plane."""
    for r in range(a.shape[0]):
        a[r, :, :] = a[r] @ c4
    return np.sum(a * a)
