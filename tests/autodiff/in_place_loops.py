"""Loops that write arrays in place, for what their reverse reads of what they leave behind.

Each program takes one array.  `kept` is the number of elements that the loops of its gradient
tape: what the reverse needs and a later write has changed.  Where a write is `hidden` from
gradients, finite differences say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tracegrad as tg

N = 14
LINE = np.linspace(0.3, 1.4, N)
SQUARE = np.random.default_rng(4).uniform(0.5, 1.5, (10, 10))
SYSTEM = SQUARE / 10 + np.eye(10) * 2.0


@dataclass(frozen=True)
class InPlace:
    function: Callable[[np.ndarray], np.ndarray]
    at: np.ndarray
    kept: int
    hidden: bool = False


PROGRAMS: dict[str, InPlace] = {}


def program(kept: int, at: np.ndarray = LINE, hidden: bool = False):
    def add(function):
        PROGRAMS[function.__name__] = InPlace(function, at, kept, hidden)
        return function

    return add


# ------------------------------------------------------------------- nothing is written twice


@program(kept=N - 1)
def recurrence(x):
    """Each old y[i] is lost, no y[i - 1] is."""
    y = x * 1.0
    for i in range(1, N):
        y[i] = np.sin(y[i - 1]) * y[i]
    return np.sum(y)


@program(kept=N - 1)
def recurrence_from_the_end(x):
    y = x * 1.0
    for i in range(N - 2, -1, -1):
        y[i] = np.sin(y[i + 1]) * y[i]
    return np.sum(y)


@program(kept=0)
def filled_from_a_constant(x):
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, N):
        y[i] = y[i - 1] * x[i] + x[i] * x[i]
    return np.sum(np.sin(y))


@program(kept=0)
def result_of_the_write(x):
    """The derivative of exp reads its result, which is what was written."""
    y = x * 1.0
    for i in range(1, N):
        y[i] = np.exp(0.3 * y[i - 1])
    return np.sum(y * y)


@program(kept=0)
def whole_prefix(x):
    y = x * 1.0
    for i in range(1, N):
        y[i] = np.sum(y[:i] * y[:i]) * 0.1
    return np.sum(np.sin(y))


@program(kept=0)
def time_levels(x):
    u = np.zeros((12, N))
    u[0] = x
    for t in range(11):
        u[t + 1, 1:-1] = np.sin(u[t, 1:-1]) * u[t, 2:] + 0.3 * u[t, :-2]
    return np.sum(u[-1] * u[-1])


@program(kept=0)
def odd_from_even(x):
    y = np.concatenate([x, x])
    for i in range(N):
        y[2 * i] = np.sin(y[2 * i + 1]) * y[2 * i + 1]
    return np.sum(y * y)


@program(kept=0)
def ahead_of_the_writes(x):
    y = x * 1.0
    for i in range(2, N - 2):
        y[i + 1 : i + 3] = np.sin(y[i - 2 : i]) * y[i - 1]
    return np.sum(y * y)


@program(kept=0, at=SQUARE)
def wavefront(a):
    b = a * 1.0
    for i in range(1, 10):
        for j in range(1, 10):
            b[i, j] = np.sin(b[i - 1, j]) * b[i, j - 1]
    return np.sum(b * b)


@program(kept=0, at=SQUARE)
def wavefront_by_columns(a):
    b = a * 1.0
    for j in range(8, -1, -1):
        for i in range(1, 10):
            b[i, j] = np.sin(b[i - 1, j]) * b[i, j + 1]
    return np.sum(b * b)


@program(kept=0, at=SQUARE)
def inner_loop_reads_what_the_outer_writes(a):
    """The inner loop has y as a constant."""
    y = a[0] * 1.0
    for i in range(8, 10):
        y[i] = y[i] * 1.0
    for i in range(1, 10):
        s = 0.0
        for j in range(i):
            s = s + a[i, j] * y[j]
        y[i] = s * 0.3
    return np.sum(y * y)


@program(kept=0, at=SYSTEM)
def forward_substitution(a):
    y = a[:, 0] * 1.0
    for i in range(1, 10):
        y[i] = (a[0, i] - a[i, :i] @ y[:i]) / a[i, i]
    return np.sum(y * y)


@program(kept=0)
def branch_writes(x):
    y = x * 1.0

    def body(i, s):
        def then():
            y[i] = np.sin(y[i - 1])

        tg.cond(x[i] > 0.5, then, lambda: None)
        return s

    tg.fori_loop(1, N, body, 0.0)
    return np.sum(y)


@program(kept=0, at=SYSTEM)
def lower_upper(a):
    """The factors are final where they are read, and the quotient is what is written."""
    b = a * 1.0
    for i in range(10):
        for j in range(i):
            b[i, j] -= b[i, :j] @ b[:j, j]
            b[i, j] /= b[j, j]
        for j in range(i, 10):
            b[i, j] -= b[i, :i] @ b[:i, j]
    return np.sum(np.sin(b))


@program(kept=0, at=SYSTEM + SYSTEM.T)
def cholesky(a):
    b = a * 1.0
    b[0, 0] = np.sqrt(b[0, 0])
    for i in range(1, 10):
        for j in range(i):
            b[i, j] -= b[i, :j] @ b[j, :j]
            b[i, j] /= b[j, j]
        b[i, i] -= b[i, :i] @ b[i, :i]
        b[i, i] = np.sqrt(b[i, i])
    return np.sum(np.sin(np.tril(b)))


# ----------------------------------------------------------------- what is read changes later


@program(kept=2 * (N - 1))
def previous_written_again(x):
    y = x * 1.0
    for i in range(1, N):
        y[i] = np.sin(y[i - 1]) * y[i]
        y[i - 1] = y[i - 1] * 0.5
    return np.sum(y * y)


@program(kept=N - 1)
def first_written_each_time(x):
    y = x * 1.0
    for i in range(1, N):
        y[0] = y[0] * y[i]
    return np.sum(y)


@program(kept=2 * (N - 1))
def both_by_the_same(x):
    y = x * 1.0
    for i in range(1, N):
        y[0] = y[0] * y[i]
        y[i] = y[i] * y[0]
    return np.sum(y)


@program(kept=2 * (N - 4))
def overlap_by_one(x):
    y = x * 1.0
    for i in range(2, N - 2):
        y[i : i + 2] = np.sin(y[i - 1 : i + 1])
    return np.sum(y * y)


@program(kept=2 * (N - 2))
def periodic(x):
    y = x * 1.0
    for i in range(2, N):
        y[i % 3] = np.sin(y[i % 3]) * y[(i + 1) % 3]
    return np.sum(y * y)


@program(kept=10 * N)
def exchanged(x):
    a, b = x * 1.0, x * 0.5
    for _ in range(10):
        b[1:-1] = np.sin(a[2:]) * a[:-2]
        a, b = b, a
    return np.sum(a * a) + np.sum(b)


@program(kept=8 * (N - 2))
def sweeps(x):
    u = x * 1.0
    for _ in range(8):
        u[1:-1] = np.sin(u[1:-1]) + u[2:]
    return np.sum(u * u)


@program(kept=3 * (N - 2))
def back_over_what_was_written(x):
    y = x * 1.0
    for i in range(N - 2, 0, -1):
        y[i] = y[i] * y[i + 1] * y[i - 1]
        y[i + 1] = y[i + 1] + y[i] * y[i]
    return np.sum(y)


@program(kept=8 * 100 + 8 * 64, at=SQUARE)
def wavefronts(a):
    """What a sweep leaves is there until the next: the whole array is kept once for each."""
    b = a * 1.0
    for _ in range(8):
        for i in range(1, 9):
            for j in range(1, 9):
                b[i, j] = 0.4 * np.sin(b[i - 1, j]) * b[i, j - 1] * b[i, j]
    return np.sum(b * b)


@program(kept=N - 1, hidden=True)
def hidden_write(x):
    """A write that gradients do not see comes later: the value it hides is not what is read."""
    y = x * 1.0
    for i in range(1, N):
        y[i] = np.sin(y[i - 1]) * x[i]
        with tg.no_grad():
            y[i - 1] = y[i - 1] * 0.5
    return np.sum(y * y)


# ------------------------------------------------- what the loop starts from is not yet written


@program(kept=0, at=SQUARE)
def rows_ahead(x):
    """A product by a triangle: the rows below are read before they are written."""
    b = x * 1.0
    for i in range(len(b)):
        for j in range(len(b)):
            b[i, j] += np.dot(b[i + 1 :, j], x[i + 1 :, i])
    return np.sum(b * b)


@program(kept=0, at=SQUARE)
def rows_ahead_from_the_end(x):
    b = x * 1.0
    for i in range(len(b) - 1, -1, -1):
        for j in range(len(b)):
            b[i, j] += np.dot(b[:i, j], x[:i, i]) * 0.1
    return np.sum(b * b)


@program(kept=8 * 10 * 9, at=SQUARE)
def rows_ahead_written_early(x):
    """Iteration i changes row i + 1, which iteration i + 1 reads in the place of row i + 2."""
    b = x * 1.0
    for i in range(len(b) - 2):
        for j in range(len(b)):
            b[i + 1, j] += np.dot(b[i + 1 :, j], x[i + 1 :, i]) * 0.1
    return np.sum(b * b)


@program(kept=9 * 100, at=SQUARE)
def rows_ahead_many_times(x):
    """What enters the sweeps is another array each time."""
    b = x * 1.0
    for _ in range(9):
        for i in range(len(b) - 1):
            b[i] += np.sin(b[i + 1 :]).sum(axis=0) * 0.1
    return np.sum(b)


@program(kept=0, at=SQUARE)
def column_ahead(x):
    b = np.sin(x)
    for j in range(len(b) - 1):
        b[:, j] = b[:, j] * 0.5 + np.sum(np.exp(b[:, j + 1 :]), axis=1) * 0.1
    return np.sum(b * b)
