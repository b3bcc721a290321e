"""gcc reports every marked loop of these kernels as vectorised."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from compiled import STRICT, render_kernel
from loop_cases import ADD, LT, MAX, MUL, NEG, call, params

from tracegrad.dtypes import F32, F64
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.ir import Combine, Const, Kernel, Load, Select
from tracegrad.schedule.map_cpu import map_cpu

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
N = 4096


def selects(dtype):
    """Nested selects with loads on both sides, and several maxima."""
    b = LoopBuilder()
    with b.loops((N,)) as (i,):
        x, y = b.let(Load("x", i, dtype), "a"), b.let(Load("y", i, dtype), "b")
        zero = Const(0.0, dtype)
        t = b.let(Select(call(LT, x, zero), call(NEG, y), Select(call(LT, y, x), x, zero)))
        for _ in range(3):
            t = b.let(call(MAX, call(MUL, t, x), call(ADD, t, y)))
        b.store("o", i, t)
    return Kernel(
        "selects", params(x=("in", dtype, N), y=("in", dtype, N), o=("out", dtype, N)), b.finish()
    )


def reductions(dtype):
    b = LoopBuilder()
    with b.reduce((N + 5,)) as r:
        x = Load("x", r.index[0], dtype)
        total = r.accumulate(Combine.ADD, Const(0.0, dtype), x)
        top = r.accumulate(Combine.MAX, Const(0.0, dtype), x)
    b.store("o", 0, call(ADD, total, top))
    return Kernel("reductions", params(x=("in", dtype, N + 5), o=("out", dtype, 1)), b.finish())


def columns(dtype):
    b = LoopBuilder()
    with b.loops((512,)) as (i,):
        with b.reduce((70,)) as r:
            x = Load("x", 512 * r.index[0] + i, dtype)
            total = r.accumulate(Combine.ADD, Const(0.0, dtype), x)
        b.store("o", i, total)
    return Kernel("columns", params(x=("in", dtype, 512 * 70), o=("out", dtype, 512)), b.finish())


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("make", [selects, reductions, columns])
def test_marked_loops_are_vectorised(make, dtype, tmp_path):
    _, unit = render_kernel(map_cpu(make(dtype)))
    source = tmp_path / "unit.c"
    source.write_text(unit.text)
    done = subprocess.run(
        [
            "gcc",
            *STRICT,
            "-fopt-info-optimized",
            "-c",
            "-o",
            str(tmp_path / "unit.o"),
            str(source),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # gcc places a loop at its head or its body; loops that fill or copy become library calls.
    found = re.findall(r":(\d+):\d+: optimized: .*(?:loop vectorized|library calls)", done.stderr)
    reported = {int(n) for n in found} | {int(n) - 1 for n in found}
    lines = unit.text.splitlines()
    marked = {k + 2 for k, line in enumerate(lines) if line.strip() == "TG_SIMD"}
    assert marked
    assert marked <= reported, [lines[k - 1] for k in sorted(marked - reported)]
