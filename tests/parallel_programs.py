"""Functions with loops whose iterations are independent, by name; each takes the range to use
first, then arrays, and returns one array."""

from __future__ import annotations

import numpy as np

import tracegrad as tg

N = 24


def rows(over, a, b):
    out = np.zeros((len(a), b.shape[1]))
    for i in over(len(a)):
        out[i] = np.tanh(a[i] @ b)
    return out


def columns(over, a):
    out = np.zeros_like(a)
    for j in over(a.shape[1]):
        c = a[:, j]
        out[:, j] = c / np.sqrt(np.sum(c * c))
    return out


def in_place(over, a):
    a = a * 1.0
    for i in over(len(a)):
        a[i] *= 2.0
        a[i, 1:] += a[i, :-1]
    return a


def red_black(over, x):
    y = x * 1.0
    for i in over(1, len(x) - 1, 2):
        y[i] = 0.5 * (y[i - 1] + y[i + 1])
    for i in over(2, len(x) - 1, 2):
        y[i] = 0.5 * (y[i - 1] + y[i + 1])
    return y


def stencil(over, x):
    y = np.zeros_like(x)
    for i in over(1, len(x) - 1):
        y[i] = np.sin(x[i - 1] * x[i + 1]) * x[i]
    return y


def temporaries(over, a):
    out = np.zeros(len(a))
    for i in over(len(a)):
        t = np.zeros(a.shape[1])
        t[1:] = a[i, 1:] * a[i, :-1]
        t[0] = a[i, 0]
        for j in range(1, a.shape[1]):
            t[j] = t[j] + 0.5 * t[j - 1]
        out[i] = t[-1]
    return out


def blocks(over, x):
    y = np.zeros_like(x)
    for i in over(len(x) // 4):
        y[4 * i : 4 * i + 4] = np.cumsum(x[4 * i : 4 * i + 4])
    return y


def symmetric(over, a):
    s = np.zeros_like(a)
    for i in over(len(a)):
        for j in range(i):
            s[i, j] = a[i, j] * a[j, i]
            s[j, i] = s[i, j]
    return s


def backwards(over, x):
    y = np.zeros_like(x)
    for i in over(len(x) - 1, -1, -1):
        y[i] = x[i] ** 2
    return y


def enumerated(over, x):
    y = np.zeros_like(x)
    for k, i in enumerate(over(2, len(x))):
        y[k] = x[i] * x[k]
    return y


def inside_a_loop(over, a):
    u, v = a * 1.0, a * 1.0
    for _ in range(10):
        for i in over(1, len(a) - 1):
            v[i, 1:-1] = 0.25 * (u[i + 1, 1:-1] + u[i - 1, 1:-1] + u[i, 2:] + u[i, :-2])
        u, v = v, u
    return u


def split(over, x):
    y = np.zeros_like(x)
    for i in over(len(x)):
        if i > 5:
            y[i] = x[i] * x[i]
        else:
            y[i] = -x[i]
    return y


def branches(over, x):
    y = np.zeros_like(x)
    for i in over(len(x)):
        y[i] = tg.cond(x[i] > 0, lambda i=i: np.sin(x[i]), lambda i=i: x[i] * 2)
    return y


def until(over, x):
    y = np.zeros_like(x)
    for i in over(len(x)):
        y[i] = tg.while_loop(lambda v: v > 0.1, lambda v: v * 0.5, np.abs(x[i]), max_trips=10)
    return y


def shared(over, w, x):
    out = np.zeros(len(x))
    for i in over(len(x)):
        h = np.tanh(w * x[i])
        out[i] = np.sum(h * h)
    return out


def last_axis(over, a):
    out = np.zeros((*a.shape, 3))
    for j in over(3):
        out[:, :, j] = a * (j + 1.0)
    return out


def two_levels(over, a):
    out = np.zeros_like(a)
    for i in over(len(a)):
        for j in over(a.shape[1]):
            out[i, j] = np.exp(a[i, j])
    return out


_rng = np.random.default_rng(7)
_x, _a = _rng.standard_normal(N), _rng.standard_normal((N, N))
PROGRAMS = {
    "rows": (rows, (_a, _rng.standard_normal((N, 3)))),
    "columns": (columns, (_a,)),
    "in_place": (in_place, (_a,)),
    "red_black": (red_black, (_x,)),
    "stencil": (stencil, (_x,)),
    "temporaries": (temporaries, (_a,)),
    "blocks": (blocks, (_x,)),
    "symmetric": (symmetric, (_a,)),
    "backwards": (backwards, (_x,)),
    "enumerated": (enumerated, (_x,)),
    "inside_a_loop": (inside_a_loop, (_a,)),
    "split": (split, (_x,)),
    "branches": (branches, (_x,)),
    "until": (until, (_x,)),
    "shared": (shared, (_rng.standard_normal(5), _rng.standard_normal(200))),
    "last_axis": (last_axis, (_a,)),
    "two_levels": (two_levels, (_a,)),
}
