"""Programs whose loops run as often as an integer of an array says: ``f(x, n)``, with
``x: f64[9]`` and ``n: i64[2]``, whose elements are from -9 to 9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracegrad as tg

PROGRAMS: list[Callable[..., Any]] = []


def program(f: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS.append(f)
    return f


@program
def sum_from_int(x, n):
    s = 0
    for i in range(n[0]):
        s = s + x[i] ** 2
    return s


@program
def explicit_range(x, n):
    s = 0.0
    for i in tg.range(n[0]):
        s += x[i] * i
    return s


@program
def counter(x, n):
    k, s = 3, 0.0
    for i in range(n[0]):
        k += 2
        s += x[i] * k
    return k, s


@program
def counts_down(x, n):
    s = 0.0
    for i in range(n[0] - 1, -1, -1):
        s = 0.5 * s + x[i]
    return s


@program
def every_third(x, n):
    s = 0.0
    for i in range(1, n[0], 3):
        s = 0.5 * s + x[i]
    return s


@program
def from_a_traced_start(x, n):
    s = 0.0
    for i in range(n[1], n[0]):
        s = 0.5 * s + x[i] * i
    return s


@program
def both_ends_downwards(x, n):
    s = 0.0
    for i in range(n[0] - 1, n[1] - 1, -2):
        s = 0.5 * s + x[i] * i
    return s


@program
def up_to_a_known_end(x, n):
    s = 0.0
    for i in range(n[0], 9, 2):
        s = 0.5 * s + x[i]
    return s


@program
def reversed_range(x, n):
    s = 0.0
    for i in reversed(range(n[1], n[0], 2)):
        s = 0.5 * s + x[i] * i
    return s


@program
def writes_the_argument(x, n):
    for i in range(1, n[0]):
        x[i] = x[i - 1] * np.sin(x[i])
    return np.sum(x)


@program
def negative_elements(x, n):
    y = x * 1.0
    for i in range(n[0]):
        y[i] = y[i - 1] * 0.5 + x[-i - 1]
    return y


@program
def names_bound_anew(x, n):
    u = x
    for _ in range(n[0]):
        u = np.sin(u) + 0.1
    return u


@program
def exchanged(x, n):
    a, b = x * 1.0, x * 2.0
    for _ in range(n[0]):
        b[1:-1] = 0.5 * (a[2:] + a[:-2])
        a, b = b, a
    return a, b


@program
def two_scalars(x, n):
    a, b = 0.0, 1.0
    for i in range(n[0]):
        a, b = b, a + b * x[i]
    return a, b


@program
def rows_are_views(x, n):
    A = np.outer(x, x)
    for i in range(1, n[0]):
        row = A[i]
        row += A[i - 1]
        A[i, 1:] *= 0.5
        row[0] = row[1] + 1.0
    return A


@program
def columns_are_views(x, n):
    A = np.outer(x, x) + 1.0
    for i in range(1, n[0]):
        column = A[:, i]
        A[2, i] = 0.25
        column[:] = column * A[:, 0]
        A[i][1:3] -= x[i]
    return A


@program
def inside_a_body_a_loop(x, n):
    s = 0.0
    for _ in range(n[0]):
        for i in range(1, len(x)):
            x[i] = 0.5 * x[i - 1] + x[i]
        s += x[-1]
    return s


@program
def inside_a_loop(x, n):
    s, counts = 0.0, np.minimum(n[0] + np.arange(9), 9)
    for i in range(9):
        for k in range(counts[i]):
            s = 0.9 * s + x[k] * x[i]
    return s


@program
def triangle(x, n):
    s = 0.0
    for i in range(n[0]):
        for j in range(i):
            s += x[i] * x[j] * 0.1
    return s


@program
def as_many_as_a_mask_has(x, n):
    s = 0.0
    for i in range(np.sum(x > 0.3 * n[0])):
        s += x[i]
    return s


@program
def at_most(x, n):
    s = 0.0
    for i in range(min(3 * n[0], len(x))):
        s += x[i]
    return s


@program
def names_with_a_value_before(x, n):
    t = s = 0.0
    i = -1
    for i in range(n[0]):
        t = x[i] * 2.0
        s += t
    return s, t * 1.0, i


@program
def name_used_for_other_things(x, n):
    i, t, s = "text", None, 0.0
    for i in range(n[0]):
        t = x[i] * 2.0
        s += t
    for i in range(n[1]):
        t = x * 0.5
        s += np.sum(t) * i
    return s


@program
def containers(x, n):
    state = {"a": 0.0, "b": (x * 1.0, x[0])}
    for i in range(n[0]):
        b, c = state["b"]
        state = {"a": state["a"] + np.sum(b) * c, "b": (b * 0.5, x[i])}
    return state["a"], state["b"]


@program
def index_in_arithmetic(x, n):
    s = 0.0
    for i in range(n[0]):
        s += np.where(i > 2, x[i], -x[i]) * (i % 3) + i / 4 - (i // 2) ** 2
    return s


@program
def known_table(x, n):
    w, s = np.linspace(0.0, 1.0, 9), 0.0
    for i in range(n[0]):
        s += w[i] * x[i]
    return s


@program
def new_array(x, n):
    out = np.zeros(9)
    for i in range(n[0]):
        out[i] = x[i] ** 2
    return out


@program
def reads_by_a_traced_index(x, n):
    order, s = (2 * np.arange(9) + n[1]) % 9, 0.0
    for i in range(n[0]):
        s = 0.5 * s + x[order[i]]
    return s


@program
def functions(x, n):
    def step(u, i):
        for j in range(n[1]):
            u = u + 0.1 * x[j] * i
        return u

    s = 0.0
    for i in range(n[0]):
        s = step(s, i)
    return s


@program
def fori_loop(x, n):
    def body(i, s):
        for j in range(i, n[0]):
            s = s * 0.9 + x[j]
        return s

    return tg.fori_loop(n[1], n[0], body, 0.0)


@program
def branch_on_the_index(x, n):
    s = 0.0
    for i in range(n[0]):
        s = s + tg.cond(i > 2, lambda v: v * v, lambda v: 3.0 * v, x[i])
    return s


@program
def complex_sum(x, n):
    z, s, t = x * 1j + 1.0, 0j, 0
    for i in range(n[0]):
        s = s + z[i] * z[i - 1]
        t = t + s * z[i]
        z[i] = s
    return np.abs(z) + np.abs(s + t)
