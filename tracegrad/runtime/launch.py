"""The two call paths of a built library: launcher.c, and ctypes with the same meaning.

``TRACEGRAD_LAUNCHER=ctypes`` chooses the second.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sysconfig
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tracegrad.dims import bounds
from tracegrad.errors import OptionError, ToolchainError
from tracegrad.loops.program import Branch, CheckSite, HostLoop, Launch, Program, Step, WhileLoop
from tracegrad.loops.transform import is_scalar
from tracegrad.runtime.artifact import (
    Accept,
    Engine,
    Leaf,
    Returns,
    has_overlap,
    is_exact,
    raise_check,
)
from tracegrad.runtime.cache import content_key, disk_cache
from tracegrad.runtime.toolchain import (
    Compiler,
    build_shared,
    extension_flags,
    python_include,
)

_MODULE = "_tracegrad_launcher"
# A launch gives up the interpreter lock when it touches more elements than take about 5 us.
_LONG_LAUNCH = 10_000
_TRIPS = 1_000  # what a loop until a condition is taken for


def launcher_module(compiler: Compiler) -> ModuleType | None:
    """The launcher extension, built at first use; None where it is switched off or has no headers.

    Raises:
        ToolchainError: the headers are there and the build failed.
        OptionError: ``TRACEGRAD_LAUNCHER`` has an unknown value.
    """
    choice = os.environ.get("TRACEGRAD_LAUNCHER", "")
    if choice not in ("", "c", "ctypes"):
        raise OptionError(
            f"TRACEGRAD_LAUNCHER cannot be {choice!r}", remedy="Allowed: 'c', 'ctypes'."
        )
    return None if choice == "ctypes" else _load_launcher(compiler)


@lru_cache(maxsize=2)
def _load_launcher(compiler: Compiler) -> ModuleType | None:
    include = python_include()
    if include is None:
        return None
    text = Path(__file__).with_name("launcher.c").read_text(encoding="utf-8")
    flags = extension_flags(compiler, include)
    abi = f"{sysconfig.get_config_var('SOABI')} numpy {np.__version__}"
    key = content_key("launcher", text, " ".join(flags), compiler.identity, abi)
    path = disk_cache().get_or_build(key, lambda out: build_shared(text, flags, out, compiler))
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None, "a loader was given"
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise ToolchainError(f"the launcher does not load: {error}") from error
    return module


def work_of(program: Program) -> int:
    """Elements that the launches of a program touch: a rough measure of its time."""
    return sum(map(_step_work, program.steps))


def _step_work(step: Step) -> int:
    if isinstance(step, HostLoop):
        trips = bounds(step.trips)[1]
        return (_TRIPS if trips is None else max(0, trips)) * sum(map(_step_work, step.body))
    if isinstance(step, WhileLoop):
        return _TRIPS * sum(map(_step_work, (*step.test, *step.body)))
    if isinstance(step, Branch):
        return max(sum(map(_step_work, case)) for case in step.cases)
    if not isinstance(step, Launch):
        return 0
    if is_scalar(step.kernel.body):
        return len(step.kernel.params)
    return sum(p.size for p in step.kernel.params if isinstance(p.size, int))


def bind_launcher(
    module: ModuleType,
    program: Program,
    entry: int,
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    accepts: Sequence[Accept],
    returns: Sequence[Returns],
    externals: Sequence[np.ndarray],
) -> Callable[..., Any]:
    """A C callable of the leaves, see `Executable.bind`; `entry` is the address of the shim."""
    return module.make(
        entry,
        tuple(
            (leaf.dtype.np.num, int(accept), leaf.written, leaf.shape)
            for leaf, accept in zip(inputs, accepts, strict=True)
        ),
        tuple(
            (leaf.dtype.np.num, int(kind), leaf.shape)
            for leaf, kind in zip(outputs, returns, strict=True)
        ),
        tuple(array.ctypes.data for array in externals),
        program.arena_nbytes,
        work_of(program) > _LONG_LAUNCH,
        _failure(program.checks),
        tuple(externals),
    )


def _failure(checks: tuple[CheckSite, ...]) -> Callable[[int, int], None]:
    return lambda status, detail: raise_check(checks, status, detail)


def bind_python(
    engine: Engine,
    program: Program,
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    accepts: Sequence[Accept],
    returns: Sequence[Returns],
) -> Callable[..., Any]:
    """What `bind_launcher` gives, in Python over any engine."""
    wanted = tuple(zip(inputs, accepts, strict=True))
    writes = [leaf.written for leaf in inputs]
    checks = program.checks

    def launch(*args: Any) -> Any:
        if len(args) != len(wanted):
            return NotImplemented
        arrays = []
        for (leaf, accept), value in zip(wanted, args, strict=True):
            array = _exact_array(leaf, accept, value)
            if array is None:
                return NotImplemented
            arrays.append(array)
        if any(writes) and has_overlap(arrays, writes):
            return NotImplemented
        results = [np.empty(leaf.shape, leaf.dtype.np) for leaf in outputs]
        status, detail = engine(arrays, results)
        if status:
            raise_check(checks, status, detail)
        found = [_wrap(result, kind) for result, kind in zip(results, returns, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    return launch


def _exact_array(leaf: Leaf, accept: Accept, value: Any) -> np.ndarray | None:
    kind = type(value)
    if accept & Accept.ARRAY and kind is np.ndarray:
        return value if is_exact(leaf, value) else None
    if accept & Accept.FLOAT and kind is float:
        return np.array(value, leaf.dtype.np)
    if accept & Accept.SCALAR and kind is leaf.dtype.np.type:
        return np.array(value)
    return None


def _wrap(result: np.ndarray, kind: Returns) -> Any:
    if kind is Returns.ARRAY:
        return result
    return result[()] if kind is Returns.SCALAR else float(result[()])


class NativeEngine:
    """Runs the shim of a loaded library through ctypes; keeps one arena, as launcher.c does."""

    def __init__(self, entry: int, nbytes: int, externals: Sequence[np.ndarray]) -> None:
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(entry)
        self._nbytes = nbytes
        self._externals = tuple(externals)
        self._arena: np.ndarray | None = None
        self._lock = threading.Lock()

    def __call__(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> tuple[int, int]:
        arrays = (*inputs, *outputs, *self._externals)
        addresses = (ctypes.c_void_p * max(1, len(arrays)))(*map(_address, arrays))
        is_kept = self._lock.acquire(blocking=False)
        try:
            if not is_kept:
                return self._run(addresses, _new_arena(self._nbytes))
            if self._arena is None:
                self._arena = _new_arena(self._nbytes)
            return self._run(addresses, self._arena)
        finally:
            if is_kept:
                self._lock.release()

    def _run(self, addresses: Any, arena: np.ndarray) -> tuple[int, int]:
        status = self._call(addresses, _address(arena) if self._nbytes else None)
        has_detail = status != 0 and self._nbytes >= 8
        return status, int(arena[:8].view(np.int64)[0]) if has_detail else 0


def _address(array: np.ndarray) -> int:
    # Several times faster than array.ctypes.data.
    return array.__array_interface__["data"][0]


def _new_arena(nbytes: int) -> np.ndarray:
    """`nbytes` bytes, not initialised, aligned to 64."""
    raw = np.empty(nbytes + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + nbytes]
