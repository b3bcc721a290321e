"""Functions of one array that use control flow by data; run as Python they are their meaning."""

from __future__ import annotations

import numpy as np

import tracegrad as tg


def branch_of_values(x):
    return tg.cond(np.sum(x) > 0, lambda: np.sum(np.sin(x)), lambda: np.sum(x**3))


def branch_with_operands(x):
    y, z = tg.cond(x[0] > x[1], lambda a, b: (a * b, 2.0), lambda a, b: (a + b, a[0]), x, x * x)
    return np.sum(y) * z


def branch_by_a_number(x):
    return tg.cond(np.floor(np.abs(x[0])), lambda: x[1] * 2, lambda: x[2] ** 2)


def branch_that_writes(x):
    y = x * 2

    def then():
        y[1:] *= np.sin(x[1:])

    def other():
        y[0] = x[0] ** 2

    tg.cond(x[0] > 0, then, other)
    return np.sum(y * y)


def branch_that_writes_its_operand(x):
    def then(a):
        a[1] = a[0] * a[2]
        return a[1]

    y = x * 1.0
    s = tg.cond(x[0] > 0, then, lambda a: a[0] * 1.0, y)
    return s + np.sum(y**2)


def branch_that_writes_an_argument(x):
    y = np.exp(x)
    part = y[1:]

    def then():
        part[...] = part * x[0]

    tg.cond(x[0] > 0, then, lambda: None)
    return np.sum(y * y)


def branch_that_writes_known_contents(x):
    y = np.zeros(3)

    def then():
        y[1] = 1.0

    tg.cond(x[0] > 0, then, lambda: None)
    return np.sum(y) * x[0] + x[1]


def branch_that_hands_through(x):
    y, z = tg.cond(x[0] > 0, lambda: (x, x * 2), lambda: (x * 3, x))
    return np.sum(y * np.cos(z))


def branch_of_reductions(x):
    a = tg.cond(x[0] > 0, lambda: np.outer(x, x) @ x, lambda: np.cumsum(x))
    return np.sum(a**2)


def branches_in_branches(x):
    def inner(s):
        return tg.cond(x[1] > 0, lambda: np.sin(s), lambda: s * x[2])

    return tg.cond(x[0] > 0, lambda: inner(x[1]), lambda: inner(x[2]) ** 2)


def many_branches(x):
    k = np.floor(x[0]).astype(np.int64)
    return tg.switch(k, [lambda a: a * 2, np.sin, lambda a: a**3], x[1])


def branch_in_a_loop(x):
    s = 0.0
    for i in range(12):
        s = s + tg.cond(
            x[i % 3] > 0.13 * i - 0.55, lambda i=i, s=s: np.sin(s) + x[0], lambda i=i, s=s: s * x[1]
        )
    return s


def writes_in_branches_of_a_loop(x):
    y = np.ones(15) * x[1]

    def step(i, y):
        def then():
            y[i] = np.sin(y[i - 1]) * x[0]

        def other():
            y[i] += x[2]

        tg.cond(y[i - 1] > 0.4, then, other)
        return y

    y = tg.fori_loop(1, 15, step, y)
    return np.sum(y * y)


def loop_in_a_branch(x):
    def then():
        s = x[1] * 1.0
        for _ in range(9):
            s = np.sin(s) + x[0] * s
        return s

    return tg.cond(x[0] > 0, then, lambda: x[2] * x[1])


def counted_loop(x):
    def body(i, c):
        a, s = c
        a[i] = a[i - 1] * x[i]
        return a, s + a[i] * i

    a, s = tg.fori_loop(0, 3, body, (x * 1.0, 0.0))
    return s + np.sum(a)


def counted_loop_of_a_number(x):
    return tg.fori_loop(2, 7, lambda i, s: s * x[0] + i, 0) * x[1]


def loop_with_traced_bounds(x):
    n = np.floor(np.abs(x[0]) * 4).astype(np.int64)
    return tg.fori_loop(1, n, lambda i, s: np.sin(s) * x[1] + i * x[2], x[2], max_trips=12)


def scan_of_numbers(x):
    c, ys = tg.scan(lambda c, v: (np.sin(c) * v, c * v), 1.0, x)
    return c + np.sum(ys * ys)


def scan_backwards(x):
    acc = np.zeros(2)

    def body(c, row):
        acc[:] += row * c
        return c * row[0], (row[1] * c, c)

    rows = np.stack([x, x * x], axis=1)
    c, (ys, cs) = tg.scan(body, 1.0, rows, reverse=True)
    return c + np.sum(ys * ys * np.arange(3.0)) + np.sum(acc**2) + cs[0]


def scan_of_a_dict(x):
    def body(c, v):
        c = {"u": c["u"] * v["a"] + c["w"][0], "w": np.roll(c["w"], 1) * v["b"]}
        return c, c["u"]

    c, ys = tg.scan(body, {"u": x[0], "w": x}, {"a": x, "b": x[::-1]})
    return np.sum(ys) + np.sum(c["w"])


def scan_that_writes_rows(x):
    rows = np.outer(x, x)

    def body(c, row):
        row[0] = row[1] * c
        return c + row[2], None

    c, _ = tg.scan(body, x[0], rows)
    return c + np.sum(rows**2)


def scan_by_length(x):
    c, ys = tg.scan(lambda c, _: (c * 0.5 + x, c[0]), x, length=5)
    return np.sum(c) + np.sum(ys**2)


def until(x):
    return tg.while_loop(
        lambda v: v < 100.0,
        lambda v: v * (1.2 + x[0] ** 2) + x[1] ** 2 + 0.1,
        x[2] ** 2,
        max_trips=60,
    )


def until_with_arrays(x):
    def body(s):
        u, k = s
        u = np.roll(u, 1) * 0.7 + 0.1 * np.sin(x)
        return u, k + 1

    u, k = tg.while_loop(
        lambda s: (np.sum(s[0] ** 2) > 0.3) & (s[1] < 30), body, (x, 0), max_trips=40
    )
    return np.sum(u**2) + k * x[0]


def until_with_writes(x):
    log = np.zeros(50)

    def body(s):
        k, v = s
        log[k] = v * x[0]
        return k + 1, v * 0.8 + 0.01 * x[1]

    tg.while_loop(lambda s: np.abs(s[1]) > 0.1, body, (0, x[2] + 2.0), max_trips=50)
    return np.sum(log**2)


def until_never(x):
    return tg.while_loop(lambda v: v > 1e9, lambda v: v * x[0], x[1], max_trips=3) * x[2]


def until_in_until(x):
    def inner(v):
        return tg.while_loop(
            lambda w: w < v + 1.0, lambda w: w * 1.1 + x[0] ** 2 + 0.1, 0.5 * v, max_trips=40
        )

    return tg.while_loop(
        lambda v: v < 4.0, lambda v: inner(v) + 0.1 * x[1], x[2] ** 2 * 0.1, max_trips=20
    )


def until_in_a_branch(x):
    return tg.cond(x[0] > 0, lambda: until(x), lambda: x[1] ** 2)


def branch_in_until(x):
    def body(s):
        v, k = s
        v = tg.cond(k % 2 == 0, lambda: v * x[0] + 1.0, lambda: np.sin(v) * x[1])
        return v, k + 1

    return tg.while_loop(lambda s: s[1] < 7, body, (x[2], 0), max_trips=9)[0]


def until_in_a_loop(x):
    s = x[0] * 1.0
    for i in range(10):
        s = s * 0.1 + tg.while_loop(
            lambda v: v < 3.0, lambda v: v * 1.5 + x[1] ** 2, 0.5 + x[2] ** 2, max_trips=12
        ) * (i + 1)
    return s


def gradient_inside(x):
    def f(a):
        return tg.cond(a > 0, lambda: a**3, lambda: np.sin(a))

    return tg.grad(f)(x[0]) * x[1] + tg.grad(until)(x)[2]


def gradient_in_a_branch(x):
    return tg.cond(
        x[0] > 0, lambda: tg.grad(lambda a: np.sin(a))(x[1]), lambda: tg.grad(lambda a: a**3)(x[2])
    )


def gradient_in_a_scan(x):
    def body(c, v):
        g = tg.grad(lambda a: np.sin(a) * v + a**2 * c)(c)
        return c * 0.5 + g * 0.1, g

    c, gs = tg.scan(body, 1.0, x)
    return c + np.sum(gs)


PROGRAMS = [
    f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__
]
INPUTS = (np.array([0.7, -0.4, 1.1]), np.array([-0.6, 0.8, 0.9]), np.array([1.6, 0.3, -0.5]))
