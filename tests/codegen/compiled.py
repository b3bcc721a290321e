"""Kernels and programs through the C compiler, called by ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tracegrad.codegen.unit import SourceUnit, render
from tracegrad.loops.ir import Access, Kernel
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program

CC = shutil.which("gcc") or shutil.which("cc")
STRICT = [
    *("-std=c99", "-O2", "-fno-tree-pre", "-march=native", "-fopenmp-simd", "-fno-math-errno"),
    *("-fno-trapping-math", "-ffp-contract=off", "-fPIC", "-shared"),
    *("--param", "vect-epilogues-nomask=0"),
]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-parentheses"]


def program_of(kernel: Kernel) -> Program:
    """One launch: in and inout params are inputs (written ones marked), out params outputs."""
    buffers, counts = [], {Place.INPUT: 0, Place.OUTPUT: 0}
    for p in kernel.params:
        if p.name == "detail":
            buffers.append(Buffer("detail", p.dtype, 1, Place.ARENA))
            continue
        place = Place.OUTPUT if p.access is Access.OUT else Place.INPUT
        buffers.append(
            Buffer(p.name, p.dtype, p.size, place, counts[place], written=p.access is Access.INOUT)
        )
        counts[place] += 1
    launch = Launch(kernel, tuple(p.name for p in kernel.params))
    return Program(
        f"run_{kernel.name}", tuple(buffers), (launch,), 64, (CheckSite("index {value}"),) * 3
    )


def build(text: str, folder: Path, flags: Sequence[str] = STRICT) -> ctypes.CDLL:
    """A shared library from C text; warnings are errors."""
    source, library = folder / "unit.c", folder / "unit.so"
    source.write_text(text)
    command = [str(CC), *flags, *WARNINGS, "-o", str(library), str(source), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def call(
    unit: SourceUnit, library: ctypes.CDLL, program: Program, arrays: dict[str, np.ndarray]
) -> int:
    """Call the shim with the program's buffers by name; the workspace is ``arrays["ws"]``."""
    order = (*program.at(Place.INPUT), *program.at(Place.OUTPUT))
    pointers = [arrays[b.name].ctypes.data for b in order]
    pointers += [b.data.ctypes.data for b in unit.external_constants]
    bufs = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
    entry = getattr(library, unit.entry)
    entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return entry(bufs, arrays["ws"].ctypes.data)


def render_kernel(kernel: Kernel) -> tuple[Program, SourceUnit]:
    program = program_of(kernel)
    return program, render(program, shim=True, embed_all=False)
