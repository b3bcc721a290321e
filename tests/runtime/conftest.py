"""Small programs with their C text by hand, for tests of the runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tracegrad.codegen.unit import SourceUnit
from tracegrad.dims import Symbol, of_atom
from tracegrad.dtypes import BOOL, F64, I64
from tracegrad.loops.ir import (
    Access,
    Apply,
    Check,
    Const,
    For,
    Intrinsic,
    Kernel,
    Load,
    LoopTag,
    Param,
    Store,
)
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program
from tracegrad.source import SourceLoc

N = 4
LOC = SourceLoc(__file__, 1, 0, 3, "user")


def _intrinsic(name, numpy, c):
    return Intrinsic(name, 2, numpy, c, precedence=1)


ADD = _intrinsic("add", lambda a, b: a + b, "{0} + {1}")
LESS = _intrinsic("less", lambda a, b: a < b, "{0} < {1}")


def make_scale_add() -> tuple[Program, SourceUnit]:
    """``out[i] = x[i] + s``; ``x`` is then set to its double in place."""
    i = Symbol("i", 0, N - 1)
    j = Symbol("j", 0, N - 1)
    at, again = of_atom(i), of_atom(j)
    x, s = Load("x", at, F64), Load("s", 0, F64)
    twice = Apply(ADD, (Load("x", again, F64), Load("x", again, F64)), F64)
    kernel = Kernel(
        "scale_add",
        (
            Param("x", F64, N, Access.INOUT),
            Param("s", F64, 1, Access.IN),
            Param("out", F64, N, Access.OUT),
        ),
        (
            For(i, N, LoopTag.PARALLEL, (Store("out", at, Apply(ADD, (x, s), F64)),)),
            For(j, N, LoopTag.PARALLEL, (Store("x", again, twice),)),
        ),
        LOC,
    )
    program = Program(
        "scale_add",
        (
            Buffer("x", F64, N, Place.INPUT, 0, written=True, shape=(2, 2)),
            Buffer("s", F64, 1, Place.INPUT, 1, shape=()),
            Buffer("out", F64, N, Place.OUTPUT, 0, shape=(2, 2)),
        ),
        (Launch(kernel, ("x", "s", "out")),),
    )
    text = """
static void scale_add(double *x, const double *s, double *out)
{
    for (int i = 0; i < 4; i++) out[i] = x[i] + s[0];
    for (int i = 0; i < 4; i++) x[i] = x[i] + x[i];
}
int entry(void *const *bufs, void *ws)
{
    (void)ws;
    scale_add((double *)bufs[0], (const double *)bufs[1], (double *)bufs[2]);
    return 0;
}
"""
    return program, SourceUnit(text, "entry", "", ())


def make_pick(message: str = "index {value} is out of bounds for axis 0 with size 4"):
    """``out = x[k]`` for ``k < 4``, through an arena of 128 bytes."""
    k = Load("k", 0, I64)
    kernel = Kernel(
        "pick",
        (
            Param("x", F64, N, Access.IN),
            Param("k", I64, 1, Access.IN),
            Param("out", F64, 1, Access.OUT),
            Param("detail", I64, 1, Access.OUT),
        ),
        (
            Check(Apply(LESS, (k, Const(N, I64)), BOOL), 1, k),
            Store("out", 0, Load("x", 3, F64)),
        ),
        LOC,
    )
    program = Program(
        "pick",
        (
            Buffer("x", F64, N, Place.INPUT, 0, shape=(N,)),
            Buffer("k", I64, 1, Place.INPUT, 1, shape=()),
            Buffer("out", F64, 1, Place.OUTPUT, 0, shape=()),
            Buffer("detail", I64, 1, Place.ARENA, offset=0),
        ),
        (Launch(kernel, ("x", "k", "out", "detail")),),
        arena_nbytes=128,
        checks=(CheckSite(message, LOC),),
    )
    text = """
#include <stdint.h>
int entry(void *const *bufs, void *ws)
{
    int64_t k = *(const int64_t *)bufs[1];
    if ((uintptr_t)ws % 64) return 99;
    if (!(k < 4)) { *(int64_t *)ws = k; return 1; }
    *(double *)bufs[2] = ((const double *)bufs[0])[3];
    return 0;
}
"""
    return program, SourceUnit(text, "entry", "", ())


def make_busy(n: int = 20_000) -> tuple[Program, SourceUnit]:
    """``out = 3 * x``, the copy kept in the arena for a while: wrong if two calls share it."""
    kernel = Kernel("busy", (Param("x", F64, n, Access.IN), Param("out", F64, n, Access.OUT)), ())
    program = Program(
        "busy",
        (
            Buffer("x", F64, n, Place.INPUT, 0, shape=(n,)),
            Buffer("out", F64, n, Place.OUTPUT, 0, shape=(n,)),
        ),
        (Launch(kernel, ("x", "out")),),
        arena_nbytes=8 * n,
    )
    text = f"""
int entry(void *const *bufs, void *ws)
{{
    const double *x = bufs[0];
    double *out = bufs[1];
    volatile double *kept = ws;
    for (int i = 0; i < {n}; i++) kept[i] = x[i];
    for (int r = 0; r < 20; r++) for (int i = 0; i < {n}; i++) kept[i] = kept[i] + x[i] / 10;
    for (int i = 0; i < {n}; i++) out[i] = kept[i];
    return 0;
}}
"""
    return program, SourceUnit(text, "entry", "", ())


def make_table_lookup(n):
    """``out = x + table`` for a table of n numbers, which is too long to be part of the text."""
    i = Symbol("i", 0, n - 1)
    at = of_atom(i)
    total = Apply(ADD, (Load("x", at, F64), Load("table", at, F64)), F64)
    params = tuple(
        Param(name, F64, n, Access.OUT if name == "out" else Access.IN)
        for name in ("x", "table", "out")
    )
    kernel = Kernel("look_up", params, (For(i, n, LoopTag.PARALLEL, (Store("out", at, total),)),))
    return Program(
        "look_up",
        (
            Buffer("x", F64, n, Place.INPUT, 0, shape=(n,)),
            Buffer("table", F64, n, Place.CONSTANT, 0, data=np.arange(float(n)), shape=(n,)),
            Buffer("out", F64, n, Place.OUTPUT, 0, shape=(n,)),
        ),
        (Launch(kernel, ("x", "table", "out")),),
    )


@pytest.fixture
def table_lookup():
    return make_table_lookup


@pytest.fixture
def cache_dir(tmp_path, monkeypatch):
    """An empty disk cache, and no other setting of the runtime."""
    for name in ("TRACEGRAD_CC", "TRACEGRAD_CFLAGS", "TRACEGRAD_LAUNCHER", "TRACEGRAD_BLAS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def scale_add():
    return make_scale_add()


@pytest.fixture
def pick():
    return make_pick()


@pytest.fixture
def make_pick_with():
    return make_pick


@pytest.fixture
def busy():
    return make_busy()
