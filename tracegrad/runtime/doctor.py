"""What is here, what is missing, and what each missing thing costs."""

from __future__ import annotations

import platform
import shlex
import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracegrad.errors import TracegradError
from tracegrad.runtime import toolchain
from tracegrad.runtime.blas import find_blas
from tracegrad.runtime.cache import disk_cache
from tracegrad.runtime.launch import launcher_module
from tracegrad.runtime.threads import load_pool, thread_count

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report; `cost` says what is lost when `state` is not ``ok``."""

    item: str
    state: State
    value: str
    cost: str = ""


def doctor() -> tuple[Row, ...]:
    """The report, one row per item; looks and builds the launcher, raises nothing."""
    compiler, compiler_rows = _compiler_rows()
    return (
        Row("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Row("numpy", "ok", np.__version__),
        *compiler_rows,
        _headers_row(),
        _launcher_row(compiler),
        _threads_row(compiler),
        *_cache_rows(),
        _blas_row(),
        _nvcc_row(),
    )


def format_report(rows: tuple[Row, ...]) -> str:
    """The report as plain text, one row a line and its cost below."""
    width = max(len(row.item) for row in rows)
    mark = {"ok": "ok     ", "missing": "missing", "problem": "PROBLEM"}
    lines = []
    for row in rows:
        lines.append(f"{row.item:<{width}}  {mark[row.state]}  {row.value}".rstrip())
        if row.cost and row.state != "ok":
            lines.append(f"{'':<{width}}           {row.cost}")
    return "\n".join(lines)


def _compiler_rows() -> tuple[toolchain.Compiler | None, tuple[Row, ...]]:
    cost = "without it every call runs through the NumPy reference, some hundred times slower"
    try:
        compiler = toolchain.find_compiler()
        if compiler is None:
            return None, (Row("C compiler", "missing", "none of cc, gcc, clang", cost),)
        flags = toolchain.build_flags(compiler, fastmath=False)
    except TracegradError as error:
        return None, (Row("C compiler", "problem", error.message, cost),)
    command = shlex.join(compiler.command)
    found = Row("C compiler", "ok", f"{command}: {compiler.version}")
    return compiler, (found, Row("flags", "ok", shlex.join(flags)))


def _headers_row() -> Row:
    include = toolchain.python_include()
    if include is None:
        return Row(
            "Python.h",
            "missing",
            "headers of Python or NumPy (for example: apt install python3-dev)",
            "without them calls go through ctypes, some microseconds more per call",
        )
    return Row("Python.h", "ok", include[0])


def _launcher_row(compiler: toolchain.Compiler | None) -> Row:
    cost = "calls go through ctypes, some microseconds more per call"
    if compiler is None:
        return Row("launcher", "missing", "reference (there is no compiler)", cost)
    try:
        module = launcher_module(compiler)
    except TracegradError as error:
        return Row("launcher", "problem", error.message.splitlines()[0], cost)
    if module is None:
        return Row("launcher", "missing", "ctypes", cost)
    return Row("launcher", "ok", f"C extension {module.__file__}")


def _threads_row(compiler: toolchain.Compiler | None) -> Row:
    cost = "parallel loops run on one thread"
    if compiler is None:
        return Row("threads", "missing", "none (there is no compiler)", cost)
    try:
        count = thread_count(None)
        load_pool(compiler)
    except TracegradError as error:
        return Row("threads", "problem", error.message.splitlines()[0], cost)
    return Row("threads", "ok", f"{count} for parallel loops")


def _cache_rows() -> tuple[Row, ...]:
    cache = disk_cache()
    size = f"{cache.nbytes() / 1e6:.1f} of {cache.limit / 1e6:.0f} MB"
    if cache.fallback_reason is not None:
        cost = "libraries are built anew in every process; set TRACEGRAD_CACHE_DIR"
        return (Row("cache", "problem", f"{cache.root} ({cache.fallback_reason})", cost),)
    return (Row("cache", "ok", f"{cache.root} ({size})"),)


def _blas_row() -> Row:
    blas = find_blas()
    if blas is None:
        cost = "large matrix products run through generated loops"
        return Row("BLAS", "missing", "no library with cblas_dgemm", cost)
    return Row("BLAS", "ok", f"{blas.path} ({64 if blas.is64 else 32}-bit integers)")


def _nvcc_row() -> Row:
    nvcc = toolchain.find_nvcc()
    if nvcc is None:
        return Row("nvcc", "missing", "", "only needed to check CUDA source")
    return Row("nvcc", "ok", nvcc)
