"""Random programs of NumPy with loops, as text.

The names of a program: `x`, `y`, `z` vectors of `n` elements, `A`, `B` matrices of ``n`` by `m`,
`S` and `T` square ones of `n`, `k` an integer vector; scalars `s`, `t`, `w`; locals born on the
way.  Values stay bounded, so that thousands of iterations would not grow out of what
differences resolve.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

import tracegrad as tg
from tests.fuzz.control_statements import Controlled
from tests.fuzz.draw import Draw
from tests.fuzz.judge_numpy import Outcome
from tests.fuzz.program import Arg, Program, TooLong, function, run_short
from tests.fuzz.ragged_statements import REDUCTIONS, Ragged

CONDITIONS = (
    "{i} > 0",
    "{i} == 4",
    "{i} % 2 == 0",
    "{i} < n - 1",
    "{i} != 3",
    "{i} >= 2 and {i} < 6",
    "not {i}",
    "{i} % 3",
    "{i} in (2, 5)",
    "3 < {i} <= 7",
    "{i} == n // 2",
    "{i} % 4 == 1 or {i} == 0",
)
STARTS = (
    "0",
    "0.0",
    "x[0]",
    "np.float32(0)",
    "1",
    "np.sum(y) * 0.1",
    "0",
    "0.0",
    "c",
    "c * 0.5",
    "np.zeros(())",
    "int(3)",
    "True",
)


LONGEST = 1500  # lines that a program runs: unrolled, they are all in one trace

# How much of a program is about parts whose length depends on indices, and about functions
# given to `scan` and its kin.
FLAVOURS = ((0, 0), (0, 0), (6, 0), (14, 0), (14, 0), (2, 6), (8, 4), (1, 1))


class Loops(Ragged, Controlled):
    """Writes one program."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(draw)
        self.ragged_weight, self.control_weight = draw.pick(FLAVOURS)

    def number(self) -> str:
        if self.ragged_weight and self.draw.chance(0.03 * self.ragged_weight):
            a, b = self.pieces(2)
            return self.draw.pick(REDUCTIONS).format(a, b)
        return super().number()

    def statement(self, depth: int) -> str:
        d = self.draw
        r, c = self.ragged_weight, self.control_weight
        table = [
            (r, self.ragged),
            (r, self.block_of),
            (r, self.summed),
            (2 * c, self.controlled),
            (4, self.accumulate),
            (4, self.element),
            (3, self.sliced),
            (3, self.rebound),
            (2, self.born),
            (2, self.row),
            (1, self.swap),
            (1, self.odd),
            (1, self.held),
            (1, self.container),
            (1, self.levels),
        ]
        if r > 10:
            table = table[:3] + [(1, f) for _, f in table[3:]]
        if depth < 3:
            table += [
                (2, lambda: self.branch(depth)),
                ((2 + r) if depth < 2 else 1, lambda: self.loop(depth)),
            ]
        return d.weighted(table)

    def branch(self, depth: int) -> str:
        d = self.draw
        cond = d.pick(CONDITIONS).format(i=d.pick(self.indices))
        if len(self.indices) > 1 and d.chance(0.3):
            cond = f"{self.indices[-1]} {d.of('<', '==', '>=')} {self.indices[-2]}"
        text = f"if {cond}:\n{self.block(depth + 1, 1)}"
        if d.chance(0.4):
            text += f"\nelse:\n{self.block(depth + 1, 1)}"
        return text

    def loop(self, depth: int) -> str:
        d = self.draw
        i = "ijlq"[len(self.indices)]
        head = d.of(
            "range(n)",
            "range(n)",
            "range(1, n)",
            "range(1, n - 1)",
            "range(n - 1, -1, -1)",
            "range(0, n, 1)",
            "range(n - 2, 0, -1)",
            f"range({d.between(8, 14)})",
            f"range({d.of(0, 1, 2, 5)})",
            "range(0, 2 * n, 2)",
            "reversed(range(n))",
            "range(len(x))",
            "range(-3, n - 3)",
            "range(k[0] + 1)",
            "range(k[1], k[1] + 3)",
            "range(k[-1], -1, -1)",
        )
        target = i
        kind = d.between(0, 14)
        if self.indices and kind == 0:
            head = d.of(
                f"range({self.indices[-1]})",
                f"range({self.indices[-1]}, n)",
                f"range({self.indices[-1]} + 1, n)",
            )
        elif self.indices and d.chance(0.1 * self.ragged_weight):
            head = self.triangular_head()
        elif kind == 1:
            head, target = d.of(
                ("enumerate(x)", f"{i}, e"),
                ("enumerate(A)", f"{i}, row"),
                ("zip(range(n), x)", f"{i}, e"),
                ("zip(range(n), A, B)", f"{i}, row, e"),
                ("enumerate(range(2, n))", f"{i}, e"),
                ("enumerate(reversed(x))", f"{i}, e"),
            )
        self.indices.append(i)
        body = self.block(depth + 1, d.between(1, 3))
        if kind == 1 and target != i:
            body = (
                textwrap.indent(
                    d.of("s = s + np.sum(e if 'e' in locals() else row) * 0.1\n", ""), "    "
                )
                + body
            )
        self.indices.pop()
        tail = "\nelse:\n    s += 1.0" if d.chance(0.03) else ""
        return f"for {target} in {head}:\n{body}{tail}"

    def block(self, depth: int, count: int) -> str:
        return textwrap.indent("\n".join(self.statement(depth) for _ in range(count)), "    ")

    def make(self) -> Program:
        d = self.draw
        single = d.chance(0.12)
        kind = "float32" if single else "float64"
        args = (
            Arg("x", (self.n,), kind, seed=1),
            Arg("y", (self.n,), seed=2),
            Arg("z", (self.n,), seed=3),
            Arg("A", (self.n, self.m), seed=4),
            Arg("B", (self.n, self.m), d.of(kind, "float64"), d.of("C", "C", "F"), seed=5),
            Arg("S", (self.n, self.n), seed=6),
            Arg("T", (self.n, self.n), seed=7),
            Arg("k", (self.n,), "int64", seed=8),
        )
        setup = [
            f"n, m, c, pos = {self.n}, {self.m}, 0.7, 0",
            f"s, t, w, last = {', '.join(d.pick(STARTS) for _ in range(4))}",
            d.of("u = x", "u = x * 1.0", "u = np.zeros(n)", "u = y[:]"),
            d.of("prev, cur = x, y", "prev, cur = y, np.zeros(n)", "prev = cur = x * 0.5"),
            "out, box, count, p, h, v = [], [0.0, 0], {'n': 0.0}, 0.0, 0.0, 0.0",
            d.of("state = (0.0, x[1])", "state = (x * 1.0, y * 1.0)", "state = (x, 0)"),
            "pair = {'a': s * 1.0, 'b': t * 1.0}",
            "obj = Thing()",
            "r = b = old = e = 0.0",
        ]
        body = [self.loop(0) for _ in range(d.between(1, 2))]
        end = (
            "total = 0.0\nfor a in out + box + [p, last, pos, h, v, r, old]:\n    total = total "
            "+ np.sum(a)"
        )
        results = (
            "s",
            "t",
            "w",
            "u",
            "total",
            "cur",
            "state[0]",
            "state[1]",
            "pair['a']",
            "x",
            "count['n']",
            "obj.value * 1.0",
            *d.of((), ("i",), ("prev", "y")),
        )
        return Program(args, (*setup, *body, end), results)


PRELUDE = """
class Thing:
    def __init__(self):
        self.value = 0.0
    def push(self, s):
        self.value = self.value + s * 0.1

def helper(v, j):
    total = 0
    for q in range(len(v)):
        total = total + v[q] * (q - j) * 0.1
    return total

def scaled(v, by):
    for q in range(9):
        v = v * 0.9 + by * 0.01
    return v

def step(s, v):
    for q in range(8):
        v[q] = v[q] * 0.9
        s = s * 0.5 + v[q]
    return s

def energy(v):
    total = 0.0
    for q in range(len(v)):
        total += v[q] ** 2 * v[q - 1]
    return total

def cube(e):
    return e * e * e
"""


def make(seed: int) -> Program:
    """The program of one seed; most of those that NumPy refuses are drawn again."""
    draw = Draw(seed)
    keeps_errors = draw.chance(0.15)
    for _ in range(30):
        p = Loops(draw).make()
        try:
            found = run_short(lambda p=p: Outcome(run(p), [a.make() for a in p.args]), LONGEST)
        except TooLong:
            continue
        if found.error is not None:
            if keeps_errors:
                break
        elif all(_is_bounded(r) for r in (*found.results, *found.args)):
            break
    return p


def run(p: Program, **names: Any) -> Callable[..., Any]:
    """The function of a program."""
    return function(PRELUDE + p.text, tg=tg, **names)


def _is_bounded(x: Any) -> bool:
    array = np.asarray(x)
    if array.dtype.kind not in "fc":
        return True
    return bool(np.all(np.isfinite(array)) and np.all(np.abs(array) < 1e4))
