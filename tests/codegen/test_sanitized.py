"""Emitted C runs clean under the address and undefined-behaviour sanitizers, as plain programs."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from compiled import CC, WARNINGS, program_of
from host_loop_cases import HOST_CASES
from loop_cases import ADD, CASES, MUL, call

from tracegrad.codegen.c_family import literal
from tracegrad.codegen.unit import render
from tracegrad.dtypes import F32, F64, FLOATS, INTEGERS
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.ir import Access, Cast, Const, Kernel, Load, Param
from tracegrad.loops.program import Place, Program
from tracegrad.schedule.map_cpu import map_cpu

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
FLAGS = [
    "-std=c99",
    "-O1",
    "-g",
    "-fopenmp-simd",
    "-ffp-contract=off",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]


def sanitized(kernel: Kernel, arrays: dict[str, np.ndarray], folder) -> None:
    sanitized_program(program_of(kernel), arrays, folder)


def sanitized_program(program: Program, arrays: dict[str, np.ndarray], folder) -> None:
    """An executable that calls `program` on heap copies of `arrays`; must exit with its status."""
    unit = render(program, shim=True, embed_all=True)
    lines = ["#include <stdlib.h>", "int main(void) {"]
    lines.append(f"  void *bufs[16]; void *ws = malloc({max(64, program.arena_nbytes)});")
    buffers = (*program.at(Place.INPUT), *program.at(Place.OUTPUT))
    for k, b in enumerate(buffers):
        values = ", ".join(literal(v, b.dtype)[0] for v in arrays[b.name].tolist()) or "0"
        lines.append(f"  const {b.dtype.c} v{k}[] = {{{values}}};")
        lines.append(f"  bufs[{k}] = malloc({arrays[b.name].nbytes});")
        lines.append(f"  memcpy(bufs[{k}], v{k}, {arrays[b.name].nbytes});")
    lines.append("  const int status = tg_entry(bufs, ws);")
    lines += [f"  free(bufs[{k}]);" for k in range(len(buffers))]
    lines += ["  free(ws);", "  return status;", "}"]
    source, program_file = folder / "main.c", folder / "main"
    source.write_text(unit.text + "\n".join(lines) + "\n")
    built = subprocess.run(
        [str(CC), *FLAGS, *WARNINGS, "-o", str(program_file), str(source), "-lm"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(program_file)], capture_output=True, text=True)
    assert "runtime error" not in ran.stderr and "AddressSanitizer" not in ran.stderr, ran.stderr
    assert ran.returncode in range(len(program.checks) + 1)


@pytest.mark.parametrize(
    "name",
    [
        "sum_f32_short_rows",
        "sum_of_nothing",
        "max_nan_wins",
        "integer_sum_wraps",
        "integer_arithmetic_wraps",
        "gather_by_let",
        "check_fails",
        "gemm_integers",
        "local_rows",
        "triangle",
    ],
)
def test_cases(name, tmp_path):
    case = CASES[name]
    sanitized(map_cpu(case.kernel), case.arrays(np.random.default_rng(3)), tmp_path)


@pytest.mark.parametrize("name", HOST_CASES)
def test_loops_around_launches(name, tmp_path):
    case = HOST_CASES[name]
    program = case.program()
    arrays = {b.name: x for b, x in zip(program.at(Place.INPUT), case.inputs, strict=True)}
    arrays |= {b.name: np.zeros(b.size, b.dtype.np) for b in program.at(Place.OUTPUT)}
    sanitized_program(program, arrays, tmp_path)


def test_float_to_integer_is_defined_for_every_value(tmp_path):
    edges = [
        0.0,
        -0.0,
        1.9,
        -1.9,
        np.nan,
        np.inf,
        -np.inf,
        1e300,
        -1e300,
        2.0**31,
        -(2.0**31),
        2.0**63,
        -(2.0**63),
        2.0**64,
        255.5,
        -1.0,
    ]
    b = LoopBuilder()
    params = []
    for source in FLOATS:
        params.append(Param(f"x_{source}", source, len(edges), Access.IN))
        for target in INTEGERS:
            out = f"o_{source}_{target}"
            params.append(Param(out, target, len(edges), Access.OUT))
            with b.loops((len(edges),)) as (i,):
                b.store(out, i, Cast(Load(f"x_{source}", i, source), target))
    # 18 buffers would not fit the driver's table: one source type a program.
    for source in FLOATS:
        mine = tuple(p for p in params if f"_{source}" in p.name)
        body = tuple(s for s in b.finish() if s.body[0].buffer.startswith(f"o_{source}"))
        with np.errstate(over="ignore"):
            arrays = {p.name: np.zeros(len(edges), p.dtype.np) for p in mine}
            arrays[f"x_{source}"] = np.array(edges).astype(source.np)
        folder = tmp_path / source.name
        folder.mkdir()
        sanitized(map_cpu(Kernel("casts", mine, body)), arrays, folder)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_float_sum_of_products(dtype, tmp_path):
    b = LoopBuilder()
    with b.loops((7, 9)) as (i, j):
        x = Load("x", 9 * i + j, dtype)
        b.store("o", 9 * i + j, call(ADD, call(MUL, x, x), Const(float("inf"), dtype)))
    kernel = Kernel(
        "squares", (Param("x", dtype, 63, Access.IN), Param("o", dtype, 63, Access.OUT)), b.finish()
    )
    arrays = {"x": np.linspace(-1, 1, 63, dtype=dtype.np), "o": np.zeros(63, dtype.np)}
    sanitized(map_cpu(kernel), arrays, tmp_path)
