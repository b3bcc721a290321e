"""What may stand in a `for` statement and in its body: forms that roll, unroll or are refused."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


def matrix(seed=0, n=N, m=4):
    return np.random.default_rng(seed).uniform(0.2, 1.2, (n, m))


# --------------------------------------------------------------------------- the iterables

HEADS = {
    "enumerate an array": "for i, e in enumerate(x)",
    "enumerate from 3": "for i, e in enumerate(x, 3)",
    "enumerate a range": "for i, e in enumerate(range(2, 14))",
    "zip of arrays": "for i, e in zip(x, y)",
    "zip with a range": "for i, e in zip(range(1, 30), y)",
    "enumerate a zip": "for i, (e, g) in enumerate(zip(x, y))",
    "reversed range": "for i in reversed(range(12))",
    "enumerate reversed": "for i, e in enumerate(reversed(x))",
    "negative steps": "for i in range(11, -1, -1)",
    "steps of three": "for i in range(0, 36, 3)",
    "slice of a range": "for i in range(100)[2:14]",
    "elements": "for e in x",
    "explicit": "for i in tg.range(12)",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_an_iterable_rolls(head):
    space = {"np": np, "tg": tg}
    exec(
        f"def f(x, y):\n    s, e, i = 0.0, 1.0, 0\n    {head}:\n"
        "        s = 0.5 * s + e * 0.1 + i * 0.01 + y[0]\n    return s, e, i",
        space,
    )
    agrees(space["f"], vector(), vector(1), loops=1)
    gradients_agree(space["f"], vector(), vector(1))


def test_rows_are_views():
    def f(A, B):
        s = 0.0
        for row in A:
            row[1:] += 0.5 * row[:-1]
            s = s + row.sum()
        for a, b in zip(A, B, strict=True):
            b[...] = a * 2 + s
        for i, row in enumerate(B):
            row[0] = i
        for column in A.T:
            column *= 0.5
        return s, row

    agrees(f, matrix(), matrix(1))
    assert loops_in(f, matrix(), matrix(1)) == 3  # four columns are too few
    gradients_agree(f, matrix(), matrix(1))


def test_elements_are_read_when_their_turn_comes():
    def f(x):
        s = 0.0
        for i, e in enumerate(x):
            x[(i + 1) % N] = 0.5 * e + 0.1
            s = s + e
        return s

    agrees(f, vector())
    gradients_agree(f, vector())


UNROLLED = {
    "comprehension": "s = s + sum([x[j] * 0.1 for j in range(9)])",
    "generator": "s = s + sum(x[j] * i for j in range(9))",
    "dictionary": "s = s + {j: x[j] for j in range(9)}[3]",
    "nested comprehension": "s = s + sum([x[j] * x[k] for j in range(8) for k in range(8)])",
    "list": "s = s + x[list(range(9))[i % 9]]",
    "unpacking": "a, b, c = range(3)\n        s = s + x[a] + x[c]",
    "in": "s = s + (i in range(3)) * x[0]",
    "indexing": "s = s + x[range(4, 20)[i % 3]]",
    "sorted": "s = s + x[sorted(range(9))[2]]",
    "next": "it = iter(range(9))\n        next(it)\n        s = s + x[next(it)]",
    "map": "s = s + sum(map(lambda j: x[j], range(9)))",
}


@pytest.mark.parametrize("body", UNROLLED.values(), ids=UNROLLED.keys())
def test_a_range_elsewhere_is_the_real_sequence(body):
    space = {"np": np}
    exec(f"def f(x):\n    s = 0.0\n    for i in range({N}):\n        {body}\n    return s", space)
    agrees(space["f"], vector())


def test_an_iterator_from_before_the_loop_is_advanced():
    def f(x):
        it, s = iter(range(100)), 0.0
        for _ in range(N):
            s = s + x[next(it)]
        return s

    agrees(f, vector(), loops=0)


# ------------------------------------------------------------------------ leaving and ending


def test_break_return_and_else():
    def f(x):
        s = 0.0
        for i in range(N):
            s = s + x[i]
            if i == 7:
                break
        for i in range(N):
            s = s + x[i]
        else:
            s = s * 2
        for i in range(N):
            if i == 9:
                return s, i
            s = s - x[i]
        return s, 0

    agrees(f, vector(), loops=1)


def test_continue_skips_the_rest():
    def f(x):
        s, t = 0.0, 0.0
        for i in range(N):
            if i % 3 == 1:
                continue
            t = x[i]
            s = s + t
        return s, t

    agrees(f, vector(), loops=1)


def test_a_generator_of_the_users_unrolls():
    def halves(x):
        for i in range(N):
            yield x[i] * 0.5

    def f(x):
        s = 0.0
        for e in halves(x):
            s = s + e
        return s

    agrees(f, vector(), loops=0)
