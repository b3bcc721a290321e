"""Bodies that Python versions compile differently: each is one loop, with one meaning, on all."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import tracegrad as tg

N = 24
HEAD = """
def f(x):
    s = 0.0
    a, b = 1.0, 2.0
    y = x * 1.0
    for i in range(24):
"""
BODIES = {
    "comprehension": "s = s + sum([x[i] * k for k in range(3)])",
    "comprehension over a name of the body": "v = x[i]; s = s + sum([v for v in (v, 2 * v)])",
    "comprehension over the index": "s = s + sum([i * 0.1 for i in range(3)]) * x[i]",
    "comprehension with a closure": "s = s + sum([(lambda: x[i] * k)() for k in range(3)])",
    "generator": "s = s + sum(x[i] * k for k in range(3))",
    "dictionary": "d = {k: x[i] * k for k in range(3)}; s = s + d[1] + d[2]",
    "assignment expression": "s = s + (t := x[i]) * t",
    "lambda": "f = lambda a: a * x[i]; s = s + f(2.0)",
    "with": "with contextlib.nullcontext(): s = s + x[i]",
    "try": "try: s = s + x[i]\n        finally: t = 1.0\n        s = s * t",
    "exchange": "a, b = b, a; s = s + a * x[i]",
    "starred": "p, *q = (x[i], x[i - 1], a); s = s + p * q[0]",
    "conditional expression": "s = s + (x[i] if i % 2 else 2 * x[i])",
    "chained comparison": "s = s + x[i] * (2 if 3 < i < 8 else 1)",
    "continue": "if i == 3: continue\n        s = s + x[i]",
    "loop": "for j in range(10): s = s + x[i] * x[j]",
    "loop with a comprehension":
        "for j in range(10): s = s + sum([x[i] * x[j] * k for k in range(2)])",
    "while": "k = 0\n        while k < 3: s = s + x[i]; k += 1",
    "function": "\n        def g(u, w=x[i]): return u * w\n        s = s + g(x[i])",
    "update of an element": "y[i] += x[i]; y[i] *= 2.0; s = s + y[i]",
    "match":
        "\n        match b:\n            case 2.0: s = s + x[i]\n            case _: s = s * x[i]",
    "format": "t = f'{a}'; s = s + x[i] * len(t)",
    "call of super": "s = s + DOUBLED.of(x[i])",
    "many instructions": "; ".join(f"s = s + x[i] * {k}.5" for k in range(60)),
    "many names": "; ".join(f"v{k} = x[i] * {k}.5" for k in range(300)) + "; s = s + v7",
}  # fmt: skip


class Single:
    def of(self, v):
        return v * 2.0


class Double(Single):
    def of(self, v):
        return super().of(v) + 1.0


DOUBLED = Double()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_is_one_loop(body, tmp_path):
    path = tmp_path / "body.py"
    text = f"{HEAD}        {body}\n    return s\n"
    path.write_text(text)
    scope = {"np": np, "contextlib": contextlib, "DOUBLED": DOUBLED}
    exec(compile(text, str(path), "exec"), scope)
    f = scope["f"]
    x = np.linspace(0.5, 1.5, N)
    made = tg.compile(f, backend="numpy")
    np.testing.assert_allclose(made(x), f(x), rtol=1e-12)
    rows = [r for r in made.explain(x).splitlines() if "body.py:" in r and "iterations" in r]
    assert rows and all(": one loop for" in r for r in rows), rows


def pairs(A):
    return np.array([A[i, j] for i in range(N) for j in range(4)])


def three_deep(A):
    return np.array([A[i, j] * k for i in range(9) for j in range(4) for k in (1, 2) if i != j])


def over_a_call(A):
    return np.array([A[i, j] for i in range(9) for j in sorted([]) + [1, 2] for k in range(3)])


def displays(A):
    return np.array([[*A[i], i, j][2] * [A[i, j]][0] for i in range(9) for j in range(4)])


def in_each_other(A):
    return np.array(
        [v for row in [[A[i, j] * 2.0 for j in range(4)] for i in range(N)] for v in row]
    )


def dictionaries(A):
    return np.array(list({(i, j): A[i, j] for i in range(N) for j in range(4)}.values()))


def sums(A):
    return np.array([
        sum([A[i, j] * k for k in range(3)]) * sum((A[i, j], A[j, i % 4]))
        for i in range(10) for j in range(9) if j < 4
    ])  # fmt: skip


def within_a_loop(A):
    s = 0.0
    for i in range(N):
        t = [A[i, 0], *[A[i, j] for j in range(1, 4)], A[i, 1]]
        s = s + t[0] * t[4] + sum(t) + sum([A[i, j] * A[i, k] for j in range(4) for k in range(3)])
    return s


@pytest.mark.parametrize(
    "f",
    [pairs, three_deep, over_a_call, displays, in_each_other, dictionaries, sums, within_a_loop],
)
def test_comprehensions_mean_what_they_say(f):
    """Where they are compiled into the function around them, their loops are not its loops."""
    A = np.random.default_rng(0).uniform(0.5, 1.5, (N, 4))
    for loops in ("auto", "unroll"):
        made = tg.compile(f, backend="numpy", loops=loops)
        np.testing.assert_allclose(made(A), f(A), rtol=1e-12)
