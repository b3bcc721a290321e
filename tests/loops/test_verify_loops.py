"""Each invariant of loop IR, broken once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loop_cases import ADD, LT, params

from tracegrad.dims import Symbol, of_atom
from tracegrad.dtypes import BOOL, F32, F64, I64
from tracegrad.errors import VerifyError
from tracegrad.loops.ir import (
    Accumulator,
    Alloc,
    Apply,
    Check,
    Combine,
    Const,
    For,
    Gemm,
    If,
    Kernel,
    Let,
    Load,
    LoopTag,
    Operand,
    Reduce,
    Select,
    Store,
    Update,
    Var,
)
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program
from tracegrad.loops.verify import verify_kernel, verify_program

I = Symbol("i", 0, 3)  # noqa: E741
i = of_atom(I)
ONE = Const(1.0, F64)
PARAMS = params(x=("in", F64, 4), o=("out", F64, 4), u=("inout", F64, 4))


def loop(*body, var=I, extent=4, tag=LoopTag.PARALLEL):
    return For(var, extent, tag, body)


BROKEN = {
    "x is an in param and written": loop(Store("x", i, ONE)),
    "o is an out param and read": loop(Store("u", i, Load("o", i, F64))),
    "o is an out param and read before": loop(Update("o", i, Combine.ADD, ONE)),
    "index i of u uses|index i uses i": Store("u", i, ONE),
    "buffer y is not in scope": loop(Store("y", i, ONE)),
    "t: f64 is not in scope": loop(Store("u", i, Var("t", F64))),
    "t is defined twice": loop(Let("t", ONE), Let("t", ONE)),
    "u is defined twice": loop(Let("u", ONE)),
    "f32 stored into u": loop(Store("u", i, Const(1.0, F32))),
    "load of x as f32": loop(Let("t", Load("x", i, F32))),
    r"index i \+ 1 of u is outside": loop(Store("u", i + 1, ONE)),
    "index 2\\*i of u is outside": loop(Store("u", 2 * i, ONE)),
    "index 4 of u is outside": Store("u", 4, ONE),
    "select needs a bool": loop(Let("t", Select(ONE, ONE, ONE))),
    "add takes 2 arguments": loop(Let("t", Apply(ADD, (ONE,), F64))),
    "the condition is not bool": If(ONE, ()),
    "has range 0..3, extent 5": loop(extent=5),
    "is no constant of i64": Let("t", Const(1.5, I64)),
    "does not fit i64": Let("t", Const(2**63, I64)),
    "needs a known extent": loop(
        var=Symbol("n"), extent=of_atom(Symbol("m", 0, 4)), tag=LoopTag.UNROLL
    ),
    "acc starts as f32, adds f64": Reduce(
        (Accumulator("acc", Combine.ADD, Const(0.0, F32), Load("x", i, F64)),), ((I, 4),)
    ),
    "result of a gemm is one of its operands": Gemm(
        1, 1, 1, Operand("u", 0, 1, 1), Operand("x", 0, 1, 1), Operand("u", 0, 1, 1), F64
    ),
    "of x is outside 0..3": Gemm(
        2, 2, 3, Operand("x", 0, 3, 1), Operand("x", 0, 1, 1), Operand("u", 0, 2, 1), F64
    ),
    "checks need a last param detail": Check(Const(True, BOOL), 1, Const(1, I64)),
    "'a b' is not a name": Let("a b", ONE),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_kernel(message):
    stmt = BROKEN[message]
    if message.startswith("needs a known"):
        stmt = loop(replace(stmt, extent=of_atom(Symbol("m", 0, 3))), var=Symbol("m", 0, 3))
    with pytest.raises(VerifyError, match=message):
        verify_kernel(Kernel("k", PARAMS, (stmt,)))


def test_guards_and_empty_loops_prove_nothing():
    """An index that only seems outside: under a condition, or in a loop that never runs."""
    cond = Apply(LT, (Load("x", 0, F64), ONE), BOOL)
    guarded = loop(If(cond, (Store("u", i + 1, ONE),)))
    never = loop(Store("u", of_atom(Symbol("z", 0, -1)), ONE), var=Symbol("z", 0, -1), extent=0)
    verify_kernel(Kernel("k", PARAMS, (guarded, never)))


def test_locals_end_with_their_block():
    body = (loop(Alloc("t", F64, 2), Store("t", 0, ONE)), Store("t", 0, ONE))
    with pytest.raises(VerifyError, match="buffer t is not in scope"):
        verify_kernel(Kernel("k", PARAMS, body))


def program(**changes):
    kernel = Kernel(
        "k", params(x=("in", F64, 4), o=("out", F64, 4)), (loop(Store("o", i, Load("x", i, F64))),)
    )
    fields = {
        "name": "p",
        "buffers": (
            Buffer("x", F64, 4, Place.INPUT),
            Buffer("y", F64, 4, Place.OUTPUT),
            Buffer("t", F64, 4, Place.ARENA, offset=64),
            Buffer("c", F64, 4, Place.CONSTANT, data=np.zeros(4)),
        ),
        "steps": (Launch(kernel, ("x", "t")), Launch(kernel, ("t", "y"))),
        "arena_nbytes": 96,
    }
    return Program(**(fields | changes)), kernel


def test_broken_programs():
    good, kernel = program()
    verify_program(good)
    short = Buffer("s", F64, 3, Place.OUTPUT)
    checked = Kernel(
        "c", params(detail=("out", I64, 1)), (Check(Const(True, BOOL), 1, Const(1, I64)),)
    )
    detail = Buffer("detail", I64, 1, Place.ARENA)
    broken = {
        "writes x, which is read only": program(steps=(Launch(kernel, ("t", "x")),)),
        "writes c, which is read only": program(steps=(Launch(kernel, ("t", "c")),)),
        "no buffer z": program(steps=(Launch(kernel, ("z", "y")),)),
        "has 1 arguments for 2": program(steps=(Launch(kernel, ("x",)),)),
        "s is f64": program(buffers=(*good.buffers, short), steps=(Launch(kernel, ("x", "s")),)),
        "leaves the arena of 64 bytes": program(arena_nbytes=64),
        "two buffers have one name": program(buffers=(*good.buffers, good.buffers[0])),
        "aligned offset": program(buffers=(Buffer("t", F64, 4, Place.ARENA, offset=8),)),
        "has no data": program(buffers=(Buffer("c", F64, 4, Place.CONSTANT),)),
        "check 1 is not described": program(
            buffers=(*good.buffers, detail), steps=(Launch(checked, ("detail",)),)
        ),
    }
    for message, (bad, _) in broken.items():
        with pytest.raises(VerifyError, match=message):
            verify_program(bad)
    fine, _ = program(
        buffers=(*good.buffers, detail),
        steps=(Launch(checked, ("detail",)),),
        checks=(CheckSite("wrong"),),
    )
    verify_program(fine)
