"""Random loop bodies over names, attributes, items and lists that share arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, copied
from tracegrad.trace.leaves import flatten

N = 9
ARRAYS = ("u", "w", "p.a", "q.a", 'd["a"]', "s[0]", "s[1]")
NUMBERS = ("c", "p.b", "q.b", 'd["b"]', "z[0]", "z[1]")
LISTS = ("out", 'd["l"]', "other")


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def _statement(r, depth=1):
    a, b, s, lst = r.choice(ARRAYS), r.choice(ARRAYS), r.choice(NUMBERS), r.choice(LISTS)
    pad = "\n" + "    " * (depth + 1)
    kinds = (
        f"{a} = {b} * 0.5 + {s}",
        f"{a} = {b}",
        f"{a}, {b} = {b}, {a}",
        f"{a}[{r.choice(('0', 'i', 'i - 1', '1:', '-1'))}] = {s} * 0.3",
        f"{a} *= 0.7",
        f"{s} = {r.choice(NUMBERS)} * 0.5 + {a}[{r.choice(('0', 'i', '-1'))}]",
        f"{s} += 0.25",
        f"{lst}.append({a})",
        f"{lst}.append({a}.copy())",
        f"numbers.append({s})",
        f"t = {a} + {s}{pad}{lst}.append(t)",
        f"t = {a} + 1.0{pad}{b} = t{pad}{lst}.append(t){pad}t[1] = {s}",
        "n = n + 1; numbers.append(len(out) * 1.0)",
    )
    if depth < 3 and r.random() < 0.1:
        when = r.choice(("% 2 == 0", "== 0", "> 3", "< 2"))
        return f"if i {when}:{pad}    {_statement(r, depth + 1)}"
    return r.choice(kinds)


def _behind(r):
    return r.choice(
        (
            f"if len(out) > 2:\n        out[{r.choice(('0', '1', '-1', '-2'))}][0] = 3.0",
            f"{r.choice(ARRAYS)}[1] = 9.0",
            "if len(other) > 2:\n        other[1][2] = 8.0",
            "x[2] = 4.0",
            "y[0] = 2.0",
        )
    )


def program(seed):
    """A function of two arrays whose loop changes objects, and that returns all of them."""
    r = random.Random(seed)
    body = "\n        ".join(_statement(r) for _ in range(r.randint(1, 5)))
    tail = "\n    ".join(_behind(r) for _ in range(r.randint(1, 3)))
    source = f"""def f(x, y):
    u, w, c, n, t = x, {r.choice(("y", "x", "x[:]", "y * 1.0"))}, 0.5, 0, x
    p = Pair({r.choice(("x", "u", "y + 1.0", "x * 1.0"))}, 0.0)
    q = {r.choice(("p", "Pair(x * 2.0, 0.5)", "Pair(p.a, 1.0)"))}
    out, numbers = [], []
    other = {r.choice(("[]", "out", "[x]"))}
    d = {{"a": {r.choice(("y", "x * 3.0", "w"))}, "b": 1.0, "l": {r.choice(("[]", "out", "[y]"))}}}
    s, z = [x * 1.5, {r.choice(("y", "w", "x"))}], [0.0, x[0]]
    for i in range({N}):
        {body}
    {tail}
    first = np.array(out) if out else 0.0
    second = np.stack(other) if other else 0.0
    return u, w, c, n, p.a, p.b, q.a, q.b, out, numbers, other, first, second, d, s, z
"""
    space = {"np": np, "Pair": Pair}
    exec(source, space)
    return space["f"]


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed):
    f = program(seed)
    rng = np.random.default_rng(seed)
    args = rng.uniform(0.2, 1.2, N), rng.uniform(0.2, 1.2, N)
    agrees(f, *args)

    def total(x, y):
        s = 0.0
        for k, v in enumerate(flatten(f(x, y))[0]):
            s = s + np.sum(v) * (1.0 + 0.1 * k)
        return s * 1.0

    ways = [
        tg.grad(total, argnums=(0, 1), backend="numpy", loops=way)(*copied(args))
        for way in ("auto", "unroll")
    ]
    for rolled, unrolled in zip(*ways, strict=True):
        np.testing.assert_allclose(rolled, unrolled, rtol=1e-9, atol=1e-10)
