"""How many threads loops run on, and the pool that runs them.

``TRACEGRAD_NUM_THREADS`` is the number where `Options.threads` gives none; without it, one for
each processor that this process may use.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

from tracegrad.errors import OptionError, ToolchainError
from tracegrad.runtime.cache import content_key, disk_cache
from tracegrad.runtime.toolchain import Compiler, build_shared, extension_flags

MOST_THREADS = 64  # as in pool.c
_VARIABLE = "TRACEGRAD_NUM_THREADS"
_POINTER = "tg_parallel"


def thread_count(chosen: int | None) -> int:
    """Threads that a loop may use, where the option says `chosen`.

    Raises:
        OptionError: the environment variable is no positive integer.
    """
    if chosen is not None:
        return min(chosen, MOST_THREADS)
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return min(_processors(), MOST_THREADS)
    if not text.isdecimal() or int(text) < 1:
        raise OptionError(
            f"{_VARIABLE} cannot be {text!r}", remedy="Give an integer of at least 1, or unset it."
        )
    return min(int(text), MOST_THREADS)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def connect(library: ctypes.CDLL, compiler: Compiler) -> None:
    """Hand the pool to a library that asks for it by defining ``tg_parallel``.

    Raises:
        ToolchainError: the pool does not build; the library then runs its loops on one thread.
    """
    if hasattr(library, _POINTER):
        ctypes.c_void_p.in_dll(library, _POINTER).value = pool_address(compiler)


def pool_address(compiler: Compiler) -> int | None:
    """The address of ``tg_pool_run``."""
    return ctypes.cast(load_pool(compiler).tg_pool_run, ctypes.c_void_p).value


@lru_cache(maxsize=2)
def load_pool(compiler: Compiler) -> ctypes.CDLL:
    """The pool's library, built at first use, one for the process."""
    text = Path(__file__).with_name("pool.c").read_text(encoding="utf-8")
    flags = (*extension_flags(compiler, ()), "-pthread")
    key = content_key("pool", text, " ".join(flags), compiler.identity)
    path = disk_cache().get_or_build(key, lambda out: build_shared(text, flags, out, compiler))
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"the pool of threads does not load: {error}") from error
