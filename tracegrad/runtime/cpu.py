"""C text to an `Executable`: build or find the library, load it, connect it, bind it."""

from __future__ import annotations

import ctypes
import os
import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.codegen.unit import SourceUnit
from tracegrad.errors import NoCompilerWarning, OptionError, PerformanceWarning, ToolchainError
from tracegrad.loops.program import Place, Program
from tracegrad.options import Options
from tracegrad.runtime import blas, threads
from tracegrad.runtime.artifact import Accept, Binder, Engine, Executable, Kind, Returns, leaf_of
from tracegrad.runtime.cache import content_key, disk_cache
from tracegrad.runtime.launch import NativeEngine, bind_launcher, bind_python, launcher_module
from tracegrad.runtime.reference import ReferenceEngine
from tracegrad.runtime.toolchain import Compiler, build_flags, build_shared, find_compiler


def load(program: Program, unit: SourceUnit, options: Options) -> Executable:
    """What runs `program`; `unit` is its C source with the shim (``render(..., shim=True)``).

    ``options.backend == "numpy"``, or no compiler, gives the reference interpreter (the second
    with one `NoCompilerWarning` per process).

    Raises:
        ToolchainError: the compiler failed on the text, or there is none and `options.strict`.
        OptionError: a backend that this module does not serve.
    """
    if options.backend == "numpy":
        return _reference(program, unit.text)
    if options.backend != "c":
        raise OptionError(f"backend={options.backend!r} does not run on this processor")
    compiler = find_compiler()
    if compiler is not None:
        return _native(program, unit, options, compiler)
    if options.strict:
        raise ToolchainError("no C compiler was found", remedy=_NO_COMPILER)
    _warn_no_compiler(os.getpid())
    return _reference(program, unit.text)


_NO_COMPILER = (
    "Install one (for example: apt install gcc) or name it in TRACEGRAD_CC; "
    "python -m tracegrad doctor shows what is missing."
)


@lru_cache(maxsize=4)
def _warn_no_compiler(pid: int) -> None:
    _warn(
        "no C compiler was found: compiled functions run through the NumPy reference, "
        f"correct but slow. {_NO_COMPILER}",
        NoCompilerWarning,
    )


@lru_cache(maxsize=4)
def _warn_no_launcher(message: str) -> None:
    _warn(f"calls go through ctypes, some microseconds slower: {message}", PerformanceWarning)


@lru_cache(maxsize=4)
def _warn_no_threads(message: str) -> None:
    _warn(f"parallel loops run on one thread: {message}", PerformanceWarning)


def _warn(message: str, category: type[Warning]) -> None:
    frame = source.user_frame()
    file, line = ("tracegrad", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, category, file, line)


def _reference(program: Program, unit_text: str) -> Executable:
    engine = ReferenceEngine(program)
    return Executable(program, unit_text, "reference", engine, _python_binder(program, engine))


def _python_binder(program: Program, engine: Engine) -> Binder:
    inputs = tuple(leaf_of(b) for b in program.at(Place.INPUT))
    outputs = tuple(leaf_of(b) for b in program.at(Place.OUTPUT))
    return partial(bind_python, engine, program, inputs, outputs)


def _native(program: Program, unit: SourceUnit, options: Options, compiler: Compiler) -> Executable:
    flags = build_flags(compiler, fastmath=options.fastmath, statements=unit.statements)
    path = build_library(unit.text, flags, compiler, program)
    try:
        library = ctypes.CDLL(path)
        entry = ctypes.cast(getattr(library, unit.entry), ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise ToolchainError(
            f"the library that was built does not load: {error}",
            source=path,
            remedy="If the folder may not hold programs (noexec), set TRACEGRAD_CACHE_DIR.",
        ) from error
    assert entry is not None, "a symbol that was found has an address"
    blas.connect(library)
    _connect_threads(library, compiler, options)
    externals = tuple(np.ascontiguousarray(b.data) for b in unit.external_constants)
    engine = NativeEngine(entry, program.arena_nbytes, externals)
    kind, binder = _binder(program, engine, entry, externals, compiler, options)
    return Executable(program, unit.text, kind, engine, binder, path)


def _connect_threads(library: ctypes.CDLL, compiler: Compiler, options: Options) -> None:
    try:
        threads.connect(library, compiler)
    except ToolchainError as error:
        if options.strict:
            raise
        _warn_no_threads(error.message)


def _binder(
    program: Program,
    engine: NativeEngine,
    entry: int,
    externals: Sequence[np.ndarray],
    compiler: Compiler,
    options: Options,
) -> tuple[Kind, Binder]:
    try:
        module = launcher_module(compiler)
    except ToolchainError as error:
        if options.strict:
            raise
        _warn_no_launcher(error.message)
        module = None
    if module is None:
        return "ctypes", _python_binder(program, engine)
    inputs = tuple(leaf_of(b) for b in program.at(Place.INPUT))
    outputs = tuple(leaf_of(b) for b in program.at(Place.OUTPUT))

    def bind(accepts: Sequence[Accept], returns: Sequence[Returns]) -> Callable[..., Any]:
        return bind_launcher(module, program, entry, inputs, outputs, accepts, returns, externals)

    return "launcher", bind


def build_library(
    unit_text: str, flags: tuple[str, ...], compiler: Compiler, program: Program
) -> str:
    """Path of the library of `unit_text`, from the disk cache or built now.

    Raises:
        ToolchainError: the compiler failed; names the kernel and the user's line.
    """
    key = content_key("unit", unit_text, "\0".join(flags), compiler.identity)
    try:
        made = disk_cache().get_or_build(
            key, lambda out: build_shared(unit_text, flags, out, compiler)
        )
    except ToolchainError as error:
        raise _explain(error, unit_text, program) from None
    return str(made)


def _explain(error: ToolchainError, unit_text: str, program: Program) -> ToolchainError:
    """`error` with the kernel the compiler stopped in, its user line and where the text is."""
    kernels = {k.name: k for k in program.kernels()}
    kernel = next(iter(kernels.values())) if len(kernels) == 1 else None
    if error.line is not None:
        for text in reversed(unit_text.splitlines()[: error.line]):
            # A definition starts in column 0 and names its function before the bracket.
            found = re.match(r"[A-Za-z_][\w\s*]*?(\w+)\s*\(", text)
            if found and not text.rstrip().endswith(";"):
                # The printer numbers a name that is taken.
                kernel = kernels.get(found[1]) or kernels.get(re.sub(r"_\d+$", "", found[1]))
                break
    message = error.message
    loc = next((k.loc for k in kernels.values() if k.loc is not None), None)
    if kernel is not None:
        message, loc = f"in kernel {kernel.name}: {message}", kernel.loc
    elif kernels:
        message = f"in one of the kernels {', '.join(list(kernels)[:8])}: {message}"
    return ToolchainError(
        message,
        tool=error.tool,
        flags=error.flags,
        stderr=error.stderr,
        source=error.source,
        line=error.line,
        loc=loc,
        remedy=f"The C text is kept in {error.source}." if error.source else error.remedy,
    )
