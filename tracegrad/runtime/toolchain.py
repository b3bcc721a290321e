"""The C compiler: which one, what it is, its flags, and one build of one text.

Optional tools are looked for in this file only.  Environment variables:

- ``TRACEGRAD_CC``: the compiler, before ``CC``; ``none`` says that there is none;
- ``TRACEGRAD_CFLAGS``: flags added to every build, within limits (`check_user_flags`).
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tracegrad.errors import ToolchainError
from tracegrad.runtime.cache import content_key, disk_cache

_CANDIDATES = ("cc", "gcc", "clang")
_LONG_UNIT = 2000  # statements; above, -O2 costs more compile time than it gains

# Each breaks NaN, infinities or subnormals; -ffast-math on the link line even sets the whole
# process to flush subnormals when the library is loaded.
_REFUSED = (
    "-ffast-math", "-Ofast", "-fassociative-math", "-funsafe-math-optimizations",
    "-ffinite-math-only", "-mdaz-ftz",
)  # fmt: skip

_COMMON = ("-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math")
_FASTMATH = ("-ffp-contract=fast", "-fno-signed-zeros", "-freciprocal-math")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler that answered.

    `command` is how it is called, `family` is ``gcc``, ``clang`` or ``other``, `identity` (version,
    size and time of the binary, what -march=native means on this CPU) is in the key of each build.
    """

    command: tuple[str, ...]
    family: str
    version: str
    identity: str


def find_compiler() -> Compiler | None:
    """The compiler of this environment, or None; asked once per process and setting.

    Raises:
        ToolchainError: ``TRACEGRAD_CC`` or ``CC`` names something that does not run.
    """
    return _find(
        os.environ.get("TRACEGRAD_CC", ""), os.environ.get("CC", ""), os.environ.get("PATH", "")
    )


@lru_cache(maxsize=8)
def _find(own: str, cc: str, path: str) -> Compiler | None:
    if own == "none":
        return None
    for variable, value in (("TRACEGRAD_CC", own), ("CC", cc)):
        if value:
            command = _resolve(shlex.split(value), path)
            if command is None:
                raise ToolchainError(
                    f"{variable}={value!r} does not name a program",
                    tool=value,
                    remedy=f"Correct or unset {variable}.",
                )
            return _identify(command)
    for name in _CANDIDATES:
        command = _resolve([name], path)
        if command is not None:
            return _identify(command)
    return None


def _resolve(words: list[str], path: str) -> tuple[str, ...] | None:
    found = shutil.which(words[0], path=path) if words else None
    # Absolute, since builds run in folders of their own.
    return (os.path.abspath(found), *words[1:]) if found else None


def _identify(command: tuple[str, ...]) -> Compiler:
    """Ask the compiler what it is, or read the answer of an earlier process."""
    stamps = []
    for word in command:
        # "ccache gcc" is two programs: either may change.
        program = shutil.which(word)
        if program is not None:
            real = os.path.realpath(program)
            info = os.stat(real)
            stamps.append(f"{real} {info.st_size} {info.st_mtime_ns}")
    key = content_key("compiler", *command, *stamps, cpu_identity())
    facts = disk_cache().read_facts(key)
    if not {"family", "version", "native"} <= facts.keys():
        facts = _ask(command)
        disk_cache().write_facts(key, facts)
    identity = "\n".join((*stamps, facts["version"], facts["native"], cpu_identity()))
    return Compiler(command, facts["family"], facts["version"], identity)


def _ask(command: tuple[str, ...]) -> dict[str, str]:
    done = _run((*command, "--version"))
    version = done.stdout.strip()
    if done.returncode != 0 or not version:
        raise ToolchainError(
            f"{shlex.join(command)} --version failed with status {done.returncode}",
            tool=shlex.join(command),
            flags=("--version",),
            stderr=done.stderr,
            remedy="Set TRACEGRAD_CC to a C compiler that works, or to none.",
        )
    if "clang" in version:
        family = "clang"
    elif "Free Software Foundation" in version or "gcc" in version.lower():
        family = "gcc"
    else:
        family = "other"
    native = ""
    if family == "gcc":
        done = _run((*command, "-march=native", "-Q", "--help=target"))
        lines = done.stdout.splitlines()
        native = " ".join(
            " ".join(line.split()) for line in lines if "-march=" in line or "[enabled]" in line
        )
    return {"family": family, "version": version.splitlines()[0], "native": native}


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """Machine and instruction sets: what ``-march=native`` depends on."""
    parts = [platform.system(), platform.machine()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                # x86 says "flags" and "model", Arm "Features", "CPU part" and so on.
                name = line.partition(":")[0].strip()
                if name in ("flags", "Features", "cpu family", "model", "CPU part"):
                    parts.append(line.strip())
                if not line.strip():
                    break
    except OSError:
        parts.append(platform.processor())
    return "\n".join(parts)


def check_user_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """`flags`, unless one of them would change what numbers mean.

    Raises:
        ToolchainError: a refused flag, or a response file (it could hold one).
    """
    for flag in flags:
        if flag in _REFUSED or flag.startswith("@"):
            raise ToolchainError(
                f"TRACEGRAD_CFLAGS may not contain {flag}",
                flags=tuple(flags),
                remedy="It changes results (NaN, infinities, subnormals, order of sums), some of "
                "it for the whole process. Options(fastmath=True) is the supported form.",
            )
    return tuple(flags)


def build_flags(compiler: Compiler, *, fastmath: bool, statements: int = 0) -> tuple[str, ...]:
    """The flags of a kernel library; `statements` of the unit choose -O2 or -O1."""
    level = "-O1" if statements > _LONG_UNIT else "-O2"
    flags = [level, *_COMMON]
    if compiler.family == "gcc":
        # tree-pre keeps NaN-propagating maxima from vectorising; epilogues double compile time.
        flags += ["-march=native", "-fopenmp-simd", "-fno-tree-pre"]
        flags += ["--param", "vect-epilogues-nomask=0"]
    elif compiler.family == "clang":
        is_arm = platform.machine() in ("arm64", "aarch64")
        flags += ["-mcpu=native" if is_arm else "-march=native", "-fopenmp-simd"]
    if compiler.family != "other":
        flags += _FASTMATH if fastmath else ("-ffp-contract=off",)
    return (*flags, *check_user_flags(shlex.split(os.environ.get("TRACEGRAD_CFLAGS", ""))))


def extension_flags(compiler: Compiler, include: Sequence[str]) -> tuple[str, ...]:
    """The flags of a CPython extension built against the headers in `include`."""
    flags = ["-O2", "-fPIC", "-std=gnu11", "-fvisibility=hidden"]
    flags += ["-bundle", "-undefined", "dynamic_lookup"] if _is_macos() else ["-shared"]
    return (*flags, *(f"-I{path}" for path in include))


def _is_macos() -> bool:
    return platform.system() == "Darwin"


def python_include() -> tuple[str, ...] | None:
    """Folders with ``Python.h`` and NumPy's headers; None when one of them is missing."""
    import numpy as np

    python = sysconfig.get_path("include")
    numpy = np.get_include()
    has_both = (Path(python) / "Python.h").is_file() and (
        Path(numpy) / "numpy" / "ndarrayobject.h"
    ).is_file()
    return (python, numpy) if has_both else None


def find_nvcc() -> str | None:
    """Path of the CUDA compiler, for the report of `doctor`."""
    return shutil.which("nvcc")


def build_shared(
    source_text: str, flags: Sequence[str], out_path: Path, compiler: Compiler
) -> None:
    """Compile one C text into the shared library `out_path`.

    The text is written as ``unit.c`` beside `out_path`, and left there.

    Raises:
        ToolchainError: the compiler failed; has tool, flags, its stderr and the path of the text.
    """
    source = out_path.parent / "unit.c"
    source.write_text(source_text, encoding="utf-8")
    # Relative names keep temporary paths out of the library: same text, same bytes.
    command = (*compiler.command, *flags, source.name, "-o", out_path.name, "-lm")
    done = _run(command, folder=out_path.parent)
    if done.returncode != 0 or not out_path.is_file():
        raise _build_failure(compiler, flags, done, source)


def _build_failure(
    compiler: Compiler,
    flags: Sequence[str],
    done: subprocess.CompletedProcess[str],
    source: Path,
) -> ToolchainError:
    tool = shlex.join(compiler.command)
    first = re.search(r"unit\.c:(\d+):(?:\d+:)? (?:fatal )?error", done.stderr)
    ended = (
        f"was killed by signal {-done.returncode}"
        if done.returncode < 0
        else f"failed with status {done.returncode}"
    )
    said = "\n".join(done.stderr.strip().splitlines()[:30])
    message = f"the C compiler {ended}\n  tool: {tool}\n  flags: {shlex.join(flags)}"
    return ToolchainError(
        f"{message}\n{said}" if said else message,
        tool=tool,
        flags=tuple(flags),
        stderr=done.stderr,
        source=str(source),
        line=int(first[1]) if first else None,
    )


def _run(command: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool; messages in English, so that they can be read for line numbers."""
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolchainError(
            f"cannot run {command[0]}: {error}",
            tool=command[0],
            remedy="Set TRACEGRAD_CC to a C compiler that works, or to none.",
        ) from error
