"""Which BLAS is here: the addresses of ``cblas_dgemm`` and ``cblas_sgemm``.

Libraries get them as pointers after loading, so that a built kernel does not depend on which
BLAS there is.  ``TRACEGRAD_BLAS=none`` says that there is none: kernels then use their loops.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# (prefix, suffix, whether integers have 64 bits), as the builds of OpenBLAS name their symbols.
_SPELLINGS = (
    ("scipy_cblas_", "64_", True),
    ("scipy_cblas_", "", False),
    ("cblas_", "64_", True),
    ("cblas_", "", False),
)
_POINTERS = {"tg_blas_dgemm": "dgemm", "tg_blas_sgemm": "sgemm"}


@dataclass(frozen=True, slots=True)
class Blas:
    """Addresses of the two functions in the library at `path`; `is64` is their integer type."""

    path: str
    dgemm: int
    sgemm: int
    is64: bool


def find_blas() -> Blas | None:
    """The first of NumPy's own library, scipy-openblas, SciPy's, the system's; None without."""
    return None if os.environ.get("TRACEGRAD_BLAS") == "none" else _search()


@lru_cache(maxsize=1)
def _search() -> Blas | None:
    for name in _libraries():
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        for prefix, suffix, is64 in _SPELLINGS:
            names = [f"{prefix}{gemm}{suffix}" for gemm in ("dgemm", "sgemm")]
            if all(hasattr(library, name) for name in names):
                dgemm, sgemm = (_address(library, name) for name in names)
                return Blas(name, dgemm, sgemm, is64)
    return None


def _libraries() -> Iterator[str]:
    for package in ("numpy", "scipy_openblas32", "scipy"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        home = Path(spec.origin).parent
        for folder in (home.parent / f"{package}.libs", home / ".dylibs", home / "lib"):
            for path in sorted(folder.glob("*openblas*")):
                if path.is_file():
                    yield str(path)
    yield from ("libopenblas.so.0", "libblas.so.3")


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def connect(library: ctypes.CDLL) -> None:
    """Hand the BLAS to a library that asks for one by defining ``tg_blas_dgemm`` and so on."""
    wanted = [name for name in _POINTERS if hasattr(library, name)]
    if not wanted:
        return
    blas = find_blas()
    if blas is None:
        return
    # The integer type first: another thread may be calling the same library.
    if hasattr(library, "tg_blas_is64"):
        ctypes.c_int.in_dll(library, "tg_blas_is64").value = int(blas.is64)
    for name in wanted:
        ctypes.c_void_p.in_dll(library, name).value = getattr(blas, _POINTERS[name])
