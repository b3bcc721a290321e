"""What the interpreter refuses, pieces of large domains, and programs."""

from __future__ import annotations

import numpy as np
import pytest
from loop_cases import ADD, LT, MUL, call, params

from tracegrad.dtypes import F32, F64, I64
from tracegrad.errors import VerifyError
from tracegrad.loops import machine
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.interpret import run_kernel
from tracegrad.loops.ir import Combine, Const, Kernel, Load, Operand


def one_loop(write, n=6):
    b = LoopBuilder()
    with b.loops((n,)) as (i,):
        write(b, i)
    return Kernel("k", params(x=("in", F64, 6), o=("inout", F64, 6)), b.finish())


@pytest.mark.parametrize("shift", [1, -1])
def test_index_out_of_bounds_is_refused(shift):
    arrays = {"x": np.zeros(6), "o": np.zeros(6)}
    loads = one_loop(lambda b, i: b.store("o", i, Load("x", i + shift, F64)))
    with pytest.raises(VerifyError, match="index -1 of x|index 6 of x"):
        run_kernel(loads, arrays)
    stores = one_loop(lambda b, i: b.store("o", i + shift, Load("x", i, F64)))
    with pytest.raises(VerifyError, match="of o is outside 0..5"):
        run_kernel(stores, arrays)


def test_dead_lanes_may_hold_any_index():
    def write(b, i):
        with b.when(call(LT, Load("x", i, F64), Const(0.5, F64))):
            at = b.index_of(Load("j", i, I64), 6)
            b.store("o", at, Load("x", at, F64))

    b = LoopBuilder()
    with b.loops((6,)) as (i,):
        write(b, i)
    kernel = Kernel(
        "k", params(x=("in", F64, 6), j=("in", I64, 6), o=("inout", F64, 6)), b.finish()
    )
    arrays = {
        "x": np.array([0.0, 1.0, 0.25, 1.0, 1.0, 1.0]),
        "o": np.full(6, 7.0),
        "j": np.array([2, 99, 0, -99, 6, 7]),
    }
    run_kernel(kernel, arrays)
    np.testing.assert_array_equal(arrays["o"], [0.0, 7.0, 0.25, 7.0, 7.0, 7.0])


def test_gemm_out_of_bounds_is_refused():
    b = LoopBuilder()
    b.gemm(2, 2, 2, Operand("x", 3, 2, 1), Operand("x", 0, 2, 1), Operand("o", 0, 2, 1), F64)
    kernel = Kernel("k", params(x=("in", F64, 6), o=("inout", F64, 6)), b.finish())
    with pytest.raises(VerifyError, match="matrix in x"):
        run_kernel(kernel, {"x": np.zeros(6), "o": np.zeros(6)})


def test_arrays_must_fit_their_params():
    kernel = one_loop(lambda b, i: b.store("o", i, Load("x", i, F64)))
    with pytest.raises(VerifyError, match="x needs a flat f64 array"):
        run_kernel(kernel, {"x": np.zeros(6, np.float32), "o": np.zeros(6)})
    with pytest.raises(VerifyError, match="x has 5 elements, not 6"):
        run_kernel(kernel, {"x": np.zeros(5), "o": np.zeros(6)})


def test_pieces_give_what_the_whole_gives(monkeypatch):
    """Domains cut at any size: local buffers, reductions and stores are the same."""
    b = LoopBuilder()
    with b.loops((7, 5)) as (i, j):
        local = b.alloc(F64, 2)
        b.store(local, 0, Load("x", 5 * i + j, F64))
        with b.reduce((4, 3)) as r:
            k, m = r.index
            total = r.accumulate(
                Combine.ADD,
                Const(1.0, F64),
                call(MUL, Load(local, 0, F64), Load("w", 3 * k + m, F64)),
            )
        b.store("o", 5 * i + j, call(ADD, total, Load(local, 0, F64)))
    kernel = Kernel(
        "k", params(x=("in", F64, 35), w=("in", F64, 12), o=("out", F64, 35)), b.finish()
    )
    x, w = np.linspace(-1, 1, 35), np.linspace(0, 3, 12)
    for chunk in (1, 3, 16, 1 << 17):
        monkeypatch.setattr(machine, "CHUNK", chunk)
        out = np.zeros(35)
        run_kernel(kernel, {"x": x, "w": w, "o": out})
        np.testing.assert_allclose(out, 1 + x * w.sum() + x, rtol=1e-14)


def test_float32_stays_float32():
    """Python scalars in an intrinsic's function do not widen the result."""
    b = LoopBuilder()
    with b.loops((3,)) as (i,):
        b.store("o", i, call(MUL, Load("x", i, F32), Const(0.1, F32)))
    kernel = Kernel("k", params(x=("in", F32, 3), o=("out", F32, 3)), b.finish())
    x, out = np.array([1, 2, 3], "f4"), np.zeros(3, "f4")
    run_kernel(kernel, {"x": x, "o": out})
    np.testing.assert_array_equal(out, x * np.float32(0.1))
