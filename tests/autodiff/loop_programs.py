"""Small graphs with loops, each with the same program in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tracegrad.ops  # noqa: F401
from tracegrad import dims
from tracegrad.dtypes import F64
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.ops.arithmetic import add, mul, sub
from tracegrad.ops.cast import cast
from tracegrad.ops.control import emit_loop, position
from tracegrad.ops.reduce import sum_
from tracegrad.ops.transcendental import cos, sin
from tracegrad.ops.views import as_strided, copy_slices
from tracegrad.types import TensorType


@dataclass(frozen=True)
class LoopProgram:
    name: str
    graph: Graph
    reference: Callable[..., tuple[np.ndarray, ...]]
    inputs: tuple[np.ndarray, ...]


def at(*items) -> View:
    return View((Index(tuple(items)),))


def vector(n: int) -> TensorType:
    return TensorType((n,), F64)


SCALAR = TensorType((), F64)
N = 6


def recurrence(reverse: bool = False) -> LoopProgram:
    """y[i + 1] = sin(y[i]) * y[i + 1] * c, in place."""
    i = dims.symbol("i", 0, N - 2)
    r = GraphBuilder("body")
    y, c = r.input(vector(N), "y"), r.input(SCALAR, "c")
    before = as_strided(r, y, view=at(Pick(i)))
    new = mul(r, mul(r, sin(r, before), as_strided(r, y, view=at(Pick(i + 1)))), c)
    region = r.finish([copy_slices(r, y, new, view=at(Pick(i + 1)), shape=(N,))])
    b = GraphBuilder("recurrence")
    x, k = b.input(vector(N), "x"), b.input(SCALAR, "c")
    (out,) = emit_loop(b, region, "i", N - 1, carries=[x], consts=[k], reverse=reverse)
    graph = b.finish([sum_(b, mul(b, out, out), axes=(0,)), out])

    def reference(x, c):
        y = x.copy()
        for i in range(N - 1)[:: -1 if reverse else 1]:
            y[i + 1] = np.sin(y[i]) * y[i + 1] * c
        return np.sum(y * y), y

    return LoopProgram(
        f"recurrence{'_back' if reverse else ''}",
        graph,
        reference,
        (np.linspace(0.5, 1.5, N), np.array(1.1)),
    )


def accumulate() -> LoopProgram:
    """s += x[i] * i, and a stack of the partial sums."""
    i = dims.symbol("i", 0, N - 1)
    r = GraphBuilder("body")
    s, x = r.input(SCALAR, "s"), r.input(vector(N), "x")
    weight = cast(r, position(r, at=i), dtype=F64)
    s1 = add(r, s, mul(r, as_strided(r, x, view=at(Pick(i))), weight))
    region = r.finish([s1, mul(r, s1, s1)])
    b = GraphBuilder("accumulate")
    x0 = b.input(vector(N), "x")
    start = b.input(SCALAR, "start")
    total, squares = emit_loop(b, region, "i", N, carries=[start], consts=[x0])
    graph = b.finish([add(b, total, sum_(b, squares, axes=(0,))), squares])

    def reference(x, start):
        s, squares = start, []
        for i in range(N):
            s = s + x[i] * i
            squares.append(s * s)
        return s + np.sum(squares), np.array(squares)

    return LoopProgram("accumulate", graph, reference, (np.linspace(-1, 2, N), np.array(0.3)))


def moving() -> LoopProgram:
    """A carry driven by rows of a moving input."""
    r = GraphBuilder("body")
    h, w, row = r.input(vector(3), "h"), r.input(vector(3), "w"), r.input(vector(3), "row")
    h1 = sin(r, add(r, mul(r, h, w), row))
    region = r.finish([h1, sum_(r, h1, axes=(0,))])
    b = GraphBuilder("moving")
    rows = b.input(TensorType((N, 3), F64), "rows")
    h0, w0 = b.input(vector(3), "h0"), b.input(vector(3), "w")
    last, sums = emit_loop(b, region, "i", N, carries=[h0], consts=[w0], xs=[rows])
    graph = b.finish(
        [add(b, sum_(b, last, axes=(0,)), sum_(b, mul(b, sums, sums), axes=(0,))), last, sums]
    )

    def reference(rows, h, w):
        sums = []
        for row in rows:
            h = np.sin(h * w + row)
            sums.append(np.sum(h))
        return np.sum(h) + np.sum(np.array(sums) ** 2), h, np.array(sums)

    rng = np.random.default_rng(3)
    return LoopProgram(
        "moving",
        graph,
        reference,
        (rng.standard_normal((N, 3)), rng.standard_normal(3), rng.standard_normal(3)),
    )


def swap() -> LoopProgram:
    """a, b = cos(b) - a, a: carries that change places."""
    r = GraphBuilder("body")
    a, c = r.input(vector(3), "a"), r.input(vector(3), "b")
    region = r.finish([sub(r, cos(r, c), a), a])
    b = GraphBuilder("swap")
    x, y = b.input(vector(3), "x"), b.input(vector(3), "y")
    p, q = emit_loop(b, region, "i", 5, carries=[x, y])
    graph = b.finish([sum_(b, mul(b, p, q), axes=(0,)), p, q])

    def reference(a, b):
        for _ in range(5):
            a, b = np.cos(b) - a, a
        return np.sum(a * b), a, b

    return LoopProgram(
        "swap", graph, reference, (np.array([0.1, 0.5, 0.9]), np.array([0.3, -0.2, 0.4]))
    )


def nested() -> LoopProgram:
    """Seidel's sweep: A[i + 1, j + 1] = 0.3 * (its neighbours above and left) * itself."""
    n = 4
    i, j = dims.symbol("i", 0, n - 2), dims.symbol("j", 0, n - 2)
    shape = (n, n)
    r = GraphBuilder("inner")
    a = r.input(TensorType(shape, F64), "a")

    def get(di, dj):
        return as_strided(r, a, view=at(Pick(i + di), Pick(j + dj)))

    new = mul(r, mul(r, add(r, get(0, 1), get(1, 0)), get(1, 1)), 0.3)
    inner = r.finish([copy_slices(r, a, new, view=at(Pick(i + 1), Pick(j + 1)), shape=shape)])
    m = GraphBuilder("outer")
    a1 = m.input(TensorType(shape, F64), "a")
    (swept,) = emit_loop(m, inner, "j", n - 1, carries=[a1])
    row = as_strided(m, swept, view=at(Pick(i), Span(0, n)))
    outer = m.finish([swept, sum_(m, row, axes=(0,))])
    b = GraphBuilder("seidel")
    x = b.input(TensorType(shape, F64), "x")
    out, sums = emit_loop(b, outer, "i", n - 1, carries=[x])
    graph = b.finish(
        [add(b, sum_(b, mul(b, out, out), axes=(0, 1)), sum_(b, sums, axes=(0,))), out, sums]
    )

    def reference(x):
        a, sums = x.copy(), []
        for i in range(n - 1):
            for j in range(n - 1):
                a[i + 1, j + 1] = (a[i, j + 1] + a[i + 1, j]) * a[i + 1, j + 1] * 0.3
            sums.append(np.sum(a[i]))
        return np.sum(a * a) + np.sum(sums), a, np.array(sums)

    return LoopProgram(
        "seidel", graph, reference, (np.random.default_rng(5).uniform(0.5, 1.5, shape),)
    )


def no_trips() -> LoopProgram:
    r = GraphBuilder("body")
    s = r.input(vector(3), "s")
    region = r.finish([sin(r, s), s])
    b = GraphBuilder("no_trips")
    x = b.input(vector(3), "x")
    out, stack = emit_loop(b, region, "i", 0, carries=[x])
    graph = b.finish([sum_(b, out, axes=(0,)), stack])
    return LoopProgram(
        "no_trips", graph, lambda x: (np.sum(x), np.zeros((0, 3))), (np.array([1.0, 2.0, 3.0]),)
    )


PROGRAMS = (
    recurrence(),
    recurrence(reverse=True),
    accumulate(),
    moving(),
    swap(),
    nested(),
    no_trips(),
)
