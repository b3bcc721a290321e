"""Kernels with their meaning in NumPy, for the interpreter's and the printer's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracegrad.dtypes import BOOL, F32, F64, I16, I32, I64, U8, DType
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.ir import (
    Access,
    Apply,
    Cast,
    Combine,
    Const,
    Expr,
    Index,
    Intrinsic,
    Kernel,
    Load,
    LoopTag,
    Operand,
    Param,
    Select,
)

ADD = Intrinsic("add", 2, np.add, "{0} + {1}", precedence=12)
SUB = Intrinsic("sub", 2, np.subtract, "{0} - {1}", precedence=12)
MUL = Intrinsic("mul", 2, np.multiply, "{0} * {1}", precedence=13)
NEG = Intrinsic("neg", 1, np.negative, "-{0}", precedence=14)
LT = Intrinsic("lt", 2, np.less, "{0} < {1}", precedence=10)
EQ = Intrinsic("eq", 2, np.equal, "{0} == {1}", precedence=9)
MAX = Intrinsic("max", 2, np.maximum, "tg_max_{t}({0}, {1})", helpers=("max_{t}",))
INTRINSICS = {f.name: f for f in (ADD, SUB, MUL, NEG, LT, EQ, MAX)}


def call(fn: Intrinsic, *args: Expr) -> Apply:
    return Apply(fn, args, BOOL if fn in (LT, EQ) else args[0].dtype)


@dataclass(frozen=True)
class Case:
    """`arrays(rng)` are the buffers on entry, `expected(arrays)` those written, on exit."""

    kernel: Kernel
    arrays: Callable[[np.random.Generator], dict[str, np.ndarray]]
    expected: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    status: int = 0
    tolerance: float = 0.0


CASES: dict[str, Case] = {}


def case(status: int = 0, tolerance: float = 0.0) -> Callable[[Callable], Callable]:
    """Registers ``make() -> (kernel, arrays, expected)`` under the function's name."""

    def register(make: Callable) -> Callable:
        kernel, arrays, expected = make()
        CASES[make.__name__] = Case(kernel, arrays, expected, status, tolerance)
        return make

    return register


def params(**given: tuple[str, DType, int]) -> tuple[Param, ...]:
    """``x=("in", F64, 12)`` and so on."""
    return tuple(Param(n, d, size, Access(a)) for n, (a, d, size) in given.items())


@case()
def stencil():
    """Interior of a 2-D grid: indices that do not collapse."""
    b = LoopBuilder()
    with b.loops((3, 4)) as (i, j):
        at = 6 * (i + 1) + j + 1
        c = b.let(Load("u", at, F64), "c")
        around = call(ADD, Load("u", at - 6, F64), Load("u", at + 6, F64))
        b.store("v", at, call(SUB, around, call(MUL, Const(2.0, F64), c)))
    kernel = Kernel("stencil", params(u=("in", F64, 30), v=("inout", F64, 30)), b.finish())

    def expected(a):
        u, v = a["u"].reshape(5, 6), a["v"].reshape(5, 6).copy()
        v[1:-1, 1:-1] = u[:-2, 1:-1] + u[2:, 1:-1] - 2.0 * u[1:-1, 1:-1]
        return {"v": v.ravel()}

    return kernel, lambda rng: {"u": rng.normal(size=30), "v": rng.normal(size=30)}, expected


def _reduction(name: str, combine: Combine, dtype: DType, shape: tuple[int, ...], init):
    b = LoopBuilder()
    with b.loops(shape[:1]) as (i,):
        with b.reduce(shape[1:]) as r:
            flat = i
            for size, k in zip(shape[1:], r.index, strict=True):
                flat = flat * size + k
            s = r.accumulate(combine, Const(init, dtype), Load("x", flat, dtype))
        b.store("o", i, s)
    body = b.finish()
    return Kernel(
        name, params(x=("in", dtype, int(np.prod(shape))), o=("out", dtype, shape[0])), body
    )


def _floats(rng, n, dtype=np.float64):
    return rng.uniform(0.9, 1.1, n).astype(dtype)


@case(tolerance=1e-15)
def sum_long():
    """Several blocks of lanes, and a rest."""
    kernel = _reduction("sum_long", Combine.ADD, F64, (2, 9001), 0.0)
    return (
        kernel,
        lambda rng: {"x": rng.normal(size=18002), "o": np.zeros(2)},
        lambda a: {"o": a["x"].reshape(2, -1).sum(1)},
    )


@case(tolerance=2e-7)
def sum_f32_short_rows():
    """A short innermost axis under a longer one."""
    kernel = _reduction("sum_f32_short_rows", Combine.ADD, F32, (2, 50, 3), 0.0)
    return (
        kernel,
        lambda rng: {"x": _floats(rng, 300, np.float32), "o": np.zeros(2, "f4")},
        lambda a: {"o": a["x"].reshape(2, -1).astype(float).sum(1).astype("f4")},
    )


@case()
def sum_of_negative_zeros():
    kernel = _reduction("sum_of_negative_zeros", Combine.ADD, F64, (3, 70), 0.0)
    return (
        kernel,
        lambda rng: {"x": np.full(210, -0.0), "o": np.ones(3)},
        lambda a: {"o": a["x"].reshape(3, -1).sum(1)},
    )


@case()
def sum_of_nothing():
    kernel = _reduction("sum_of_nothing", Combine.ADD, F64, (3, 0), 0.0)
    return (kernel, lambda rng: {"x": np.zeros(0), "o": np.ones(3)}, lambda a: {"o": np.zeros(3)})


@case(tolerance=1e-14)
def product_with_start():
    kernel = _reduction("product_with_start", Combine.MUL, F64, (2, 100), 3.0)
    return (
        kernel,
        lambda rng: {"x": _floats(rng, 200), "o": np.zeros(2)},
        lambda a: {"o": 3.0 * a["x"].reshape(2, -1).prod(1)},
    )


@case()
def max_nan_wins():
    kernel = _reduction("max_nan_wins", Combine.MAX, F64, (3, 130), float("-inf"))

    def arrays(rng):
        x = rng.normal(size=390)
        x[200] = np.nan
        return {"x": x, "o": np.zeros(3)}

    return kernel, arrays, lambda a: {"o": a["x"].reshape(3, -1).max(1)}


@case()
def integer_sum_wraps():
    kernel = _reduction("integer_sum_wraps", Combine.ADD, I32, (2, 5000), 0)
    return (
        kernel,
        lambda rng: {
            "x": rng.integers(-(2**31), 2**31, 10000).astype("i4"),
            "o": np.zeros(2, "i4"),
        },
        lambda a: {"o": a["x"].reshape(2, -1).sum(1, dtype="i4")},
    )


@case()
def all_and_any():
    b = LoopBuilder()
    with b.reduce((4, 30)) as r:
        x = Load("x", 30 * r.index[0] + r.index[1], BOOL)
        every = r.accumulate(Combine.AND, Const(True, BOOL), x)
        some = r.accumulate(Combine.OR, Const(False, BOOL), x)
    b.store("o", 0, every)
    b.store("o", 1, some)
    kernel = Kernel("all_and_any", params(x=("in", BOOL, 120), o=("out", BOOL, 2)), b.finish())
    return (
        kernel,
        lambda rng: {"x": rng.random(120) < 0.5, "o": np.zeros(2, bool)},
        lambda a: {"o": np.array([a["x"].all(), a["x"].any()])},
    )


@case()
def integer_arithmetic_wraps():
    """i16 and i64 products and differences beyond their range."""
    b = LoopBuilder()
    with b.loops((50,)) as (i,):
        x, y = Load("x", i, I16), Load("y", i, I64)
        b.store("p", i, call(NEG, call(SUB, call(MUL, x, x), Const(7, I16))))
        b.store("q", i, call(ADD, call(MUL, y, y), call(NEG, y)))
    kernel = Kernel(
        "integer_arithmetic_wraps",
        params(x=("in", I16, 50), y=("in", I64, 50), p=("out", I16, 50), q=("out", I64, 50)),
        b.finish(),
    )

    def expected(a):
        x, y = a["x"], a["y"]
        return {"p": -(x * x - np.int16(7)), "q": y * y + -y}

    return (
        kernel,
        lambda rng: {
            "x": rng.integers(-(2**15), 2**15, 50).astype("i2"),
            "y": rng.integers(-(2**63), 2**63 - 1, 50, endpoint=True),
            "p": np.zeros(50, "i2"),
            "q": np.zeros(50, "i8"),
        },
        expected,
    )


@case()
def select_and_casts():
    b = LoopBuilder()
    with b.loops((40,)) as (i,):
        x = b.let(Load("x", i, F64), "v")
        even = call(EQ, Index(i % 2), Const(0, I64))
        b.store("o", i, Select(even, call(NEG, x), call(MUL, x, Const(0.5, F64))))
        b.store("k", i, Cast(x, I32))
        b.store("f", i, Cast(Index(3 * i - 50), F32))
        b.store("m", i, Cast(call(LT, x, Const(0.0, F64)), U8))
    kernel = Kernel(
        "select_and_casts",
        params(
            x=("in", F64, 40),
            o=("out", F64, 40),
            k=("out", I32, 40),
            f=("out", F32, 40),
            m=("out", U8, 40),
        ),
        b.finish(),
    )

    def expected(a):
        x, i = a["x"], np.arange(40)
        return {
            "o": np.where(i % 2 == 0, -x, x * 0.5),
            "k": x.astype("i4"),
            "f": (3 * i - 50).astype("f4"),
            "m": (x < 0).astype("u1"),
        }

    return (
        kernel,
        lambda rng: {
            "x": rng.normal(size=40) * 1000,
            "o": np.zeros(40),
            "k": np.zeros(40, "i4"),
            "f": np.zeros(40, "f4"),
            "m": np.zeros(40, "u1"),
        },
        expected,
    )


@case()
def gather_by_let():
    """An index read from a 32-bit buffer, used in 64-bit arithmetic."""
    b = LoopBuilder()
    with b.loops((25, 3)) as (i, j):
        at = b.index_of(Load("idx", i, I32), 10)
        b.store("o", 3 * i + j, Load("x", 3 * at + j, F64))
    kernel = Kernel(
        "gather_by_let",
        params(x=("in", F64, 30), idx=("in", I32, 25), o=("out", F64, 75)),
        b.finish(),
    )
    return (
        kernel,
        lambda rng: {
            "x": rng.normal(size=30),
            "o": np.zeros(75),
            "idx": rng.integers(0, 10, 25).astype("i4"),
        },
        lambda a: {"o": a["x"].reshape(10, 3)[a["idx"]].ravel()},
    )


@case()
def updates_repeat():
    """np.add.at: several iterations change one element."""
    b = LoopBuilder()
    with b.loops((60,)) as (i,):
        at = b.index_of(Load("idx", i, I64), 7)
        b.update("o", at, Combine.ADD, call(MUL, Load("x", i, F64), Const(2.0, F64)))
        b.update("top", at, Combine.MAX, Load("x", i, F64))
    kernel = Kernel(
        "updates_repeat",
        params(x=("in", F64, 60), idx=("in", I64, 60), o=("inout", F64, 7), top=("inout", F64, 7)),
        b.finish(),
    )

    def expected(a):
        o, top = a["o"].copy(), a["top"].copy()
        np.add.at(o, a["idx"], a["x"] * 2.0)
        np.maximum.at(top, a["idx"], a["x"])
        return {"o": o, "top": top}

    return (
        kernel,
        lambda rng: {
            "x": rng.normal(size=60),
            "idx": rng.integers(0, 7, 60),
            "o": rng.normal(size=7),
            "top": np.zeros(7),
        },
        expected,
    )


def _checked(name: str):
    b = LoopBuilder()
    with b.loops((12,)) as (i,):
        at = b.let(Load("idx", i, I64), "at")
        b.check(call(LT, at, Const(5, I64)), at, "index {value}")
        with b.when(call(LT, Const(2, I64), at)):
            b.update("o", 0, Combine.ADD, Const(1.0, F64))
    return Kernel(
        name, params(idx=("in", I64, 12), o=("inout", F64, 1), detail=("out", I64, 1)), b.finish()
    )


@case()
def check_holds():
    return (
        _checked("check_holds"),
        lambda rng: {"idx": np.arange(12) % 5, "o": np.zeros(1), "detail": np.zeros(1, "i8")},
        lambda a: {"o": np.array([4.0])},
    )


@case(status=1)
def check_fails():
    """The first offending value is reported."""
    return (
        _checked("check_fails"),
        lambda rng: {
            "idx": np.array([0, 1, 2, 3, 4, 0, 9, 1, 8, 0, 0, 0]),
            "o": np.zeros(1),
            "detail": np.zeros(1, "i8"),
        },
        lambda a: {"detail": np.array([9])},
    )


@case(tolerance=1e-13)
def gemm_batch():
    """Transposed left operand, a batch, products added to what is there."""
    b = LoopBuilder()
    with b.loops((3,)) as (t,):
        b.gemm(
            4,
            5,
            6,
            Operand("a", 24 * t, 1, 4),
            Operand("b", 30 * t, 5, 1),
            Operand("c", 20 * t, 5, 1),
            F64,
            accumulate=True,
        )
    kernel = Kernel(
        "gemm_batch", params(a=("in", F64, 72), b=("in", F64, 90), c=("inout", F64, 60)), b.finish()
    )

    def expected(a):
        left = a["a"].reshape(3, 6, 4).transpose(0, 2, 1)
        return {"c": a["c"] + (left @ a["b"].reshape(3, 6, 5)).ravel()}

    return (
        kernel,
        lambda rng: {"a": rng.normal(size=72), "b": rng.normal(size=90), "c": rng.normal(size=60)},
        expected,
    )


@case()
def gemm_integers():
    b = LoopBuilder()
    b.gemm(3, 3, 4, Operand("a", 0, 4, 1), Operand("a", 0, 1, 4), Operand("c", 0, 1, 3), I32)
    kernel = Kernel("gemm_integers", params(a=("in", I32, 12), c=("out", I32, 9)), b.finish())
    return (
        kernel,
        lambda rng: {"a": rng.integers(-(2**31), 2**31, 12).astype("i4"), "c": np.zeros(9, "i4")},
        lambda a: {"c": (a["a"].reshape(3, 4) @ a["a"].reshape(3, 4).T).T.ravel()},
    )


@case()
def local_rows():
    """A serial recurrence in a buffer of each parallel iteration, unrolled at its start."""
    b = LoopBuilder()
    with b.loops((8,)) as (i,):
        row = b.alloc(F64, 5, "row")
        with b.loop(2, LoopTag.UNROLL) as k:
            b.store(row, k, Load("x", 5 * i + k, F64))
        with b.loop(3) as k:
            b.store(row, k + 2, call(ADD, Load(row, k, F64), Load(row, k + 1, F64)))
        b.store("o", i, Load(row, 4, F64))
    kernel = Kernel("local_rows", params(x=("in", F64, 40), o=("out", F64, 8)), b.finish())

    def expected(a):
        x = a["x"].reshape(8, 5)
        p, q = x[:, 0], x[:, 1]
        for _ in range(3):
            p, q = q, p + q
        return {"o": q}

    return kernel, lambda rng: {"x": rng.normal(size=40), "o": np.zeros(8)}, expected


@case(tolerance=1e-15)
def triangle():
    """Extents that depend on an outer index; a body that is a nest; division of an index."""
    b = LoopBuilder()
    with b.loops((9,)) as (i,):
        with b.reduce((i + 1,)) as r:
            k = r.index[0]
            s = r.accumulate(Combine.ADD, Const(0.0, F64), Load("x", k, F64))
        b.store("o", i, s)
        b.store("h", i, Index((i - 4) // 3 + 10 * ((i - 4) % 3)))
    kernel = Kernel(
        "triangle", params(x=("in", F64, 9), o=("out", F64, 9), h=("out", I64, 9)), b.finish()
    )

    def expected(a):
        i = np.arange(9) - 4
        return {
            "o": np.array([a["x"][: k + 1].sum() for k in range(9)]),
            "h": i // 3 + 10 * (i % 3),
        }

    return (
        kernel,
        lambda rng: {"x": rng.normal(size=9), "o": np.zeros(9), "h": np.zeros(9, "i8")},
        expected,
    )


@case(tolerance=1e-14)
def column_sums():
    """Two reductions down the rows, more rows than a group and more columns than a tile."""
    n, m = 150, 600
    b = LoopBuilder()
    with b.loops((m,)) as (j,):
        w = b.let(Load("w", j, F64), "w_j")
        with b.reduce((n,)) as r:
            x = b.let(call(MUL, Load("x", m * r.index[0] + j, F64), w), "p")
            total = r.accumulate(Combine.ADD, Const(0.0, F64), x)
            top = r.accumulate(Combine.MAX, Const(float("-inf"), F64), x)
        b.store("o", j, call(ADD, total, w))
        b.store("h", j, top)
    kernel = Kernel(
        "column_sums",
        params(x=("in", F64, n * m), w=("in", F64, m), o=("out", F64, m), h=("out", F64, m)),
        b.finish(),
    )

    def arrays(rng):
        x = rng.normal(size=n * m)
        return {"x": x, "w": rng.normal(size=m), "o": np.zeros(m), "h": np.zeros(m)}

    def expected(a):
        scaled = a["x"].reshape(n, m) * a["w"]
        return {"o": scaled.sum(0) + a["w"], "h": scaled.max(0)}

    return kernel, arrays, expected


@case(tolerance=1e-14)
def column_sums_of_stacks():
    """Rows in two loops that do not join, few columns."""
    b = LoopBuilder()
    with b.loops((2, 9)) as (t, j):
        with b.reduce((3, 5)) as r:
            p, q = r.index
            total = r.accumulate(
                Combine.ADD, Const(1.0, F64), Load("x", 270 * t + 90 * p + 9 * q + j, F64)
            )
        b.store("o", 9 * t + j, total)
    kernel = Kernel(
        "column_sums_of_stacks", params(x=("in", F64, 540), o=("out", F64, 18)), b.finish()
    )
    return (
        kernel,
        lambda rng: {"x": rng.normal(size=540), "o": np.zeros(18)},
        lambda a: {"o": 1.0 + a["x"].reshape(2, 3, 10, 9)[:, :, :5].sum((1, 2)).ravel()},
    )


@case()
def masked_branches():
    """Both sides of a condition, nested, with a loop inside."""
    b = LoopBuilder()
    with b.loops((20,)) as (i,):
        x = b.let(Load("x", i, F64), "v")
        with b.when(call(LT, x, Const(0.0, F64))):
            b.store("o", i, call(NEG, x))
            with b.when(call(LT, x, Const(-1.0, F64))), b.loops((2,)) as (j,):
                b.store("p", 2 * i + j, x)
    kernel = Kernel(
        "masked_branches",
        params(x=("in", F64, 20), o=("inout", F64, 20), p=("inout", F64, 40)),
        b.finish(),
    )

    def expected(a):
        x = a["x"]
        return {
            "o": np.where(x < 0, -x, a["o"]),
            "p": np.where(np.repeat(x < -1, 2), np.repeat(x, 2), a["p"]),
        }

    return (
        kernel,
        lambda rng: {"x": rng.normal(size=20) * 2, "o": np.zeros(20), "p": np.zeros(40)},
        expected,
    )
