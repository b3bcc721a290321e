"""The library's own elementary functions against mpmath, in units in the last place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import tracegrad.codegen.c_functions  # noqa: F401
from tracegrad.codegen.c_library import with_dependencies
from tracegrad.dtypes import F32, F64, FLOATS, DType

mpmath = pytest.importorskip("mpmath")
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
FLAGS = "-std=c99 -O2 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off"

# name: (bound in ULP, intervals of arguments)
BOUNDS = {
    "exp": (1.1, [(-1, 1), (-700, 700), (-87, 88), (-745, -700)]),
    "log": (1.0, [(0.5, 2), (0.9, 1.1), (1e-30, 1e30)]),
    "log1p": (1.6, [(-0.5, 1), (-1e-3, 1e-3), (-0.999, -0.5), (1, 1e20)]),
    "expm1": (1.6, [(-0.4, 0.4), (-2, 2), (-50, 80), (-1e-4, 1e-4), (0.3, 1.1)]),
    "tanh": (2.5, [(-0.3, 0.3), (-3, 3), (-25, 25), (-1e-4, 1e-4)]),
    "sigmoid": (2.5, [(-3, 3), (-80, 80)]),
}


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("elementary")
    text = ["#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"]
    names = [f"{n}_{t}" for n in BOUNDS for t in FLOATS]
    text += [f.text + "\n" for f in with_dependencies(names)]
    for n in BOUNDS:
        for t in FLOATS:
            text.append(
                f"void run_{n}_{t}(ptrdiff_t n, const {t.c} *x, {t.c} *restrict y) {{\n"
                f"#pragma omp simd\n"
                f"  for (ptrdiff_t i = 0; i < n; i++) y[i] = tg_{n}_{t}(x[i]);\n}}\n"
            )
    (folder / "unit.c").write_text("".join(text))
    assert COMPILER is not None
    command = [COMPILER, *FLAGS.split(), "-fPIC", "-shared", "-o", "unit.so", "unit.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "unit.so"))


def run(unit: ctypes.CDLL, name: str, dtype: DType, x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x, dtype.np)
    y = np.empty_like(x)
    getattr(unit, f"run_{name}_{dtype}")(
        ctypes.c_ssize_t(x.size), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    )
    return y


def exact(name: str, x: float) -> object:
    if name == "sigmoid":
        return 1 / (1 + mpmath.exp(-x))
    return getattr(mpmath, name)(x)


def worst_error(name: str, dtype: DType, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Largest error in ULP of the exact result, and the argument that has it."""
    worst = (0.0, 0.0)
    with mpmath.workdps(40), np.errstate(over="ignore"):
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            true = exact(name, mpmath.mpf(a))
            rounded = dtype.np.type(float(true))
            if not np.isfinite(rounded):
                assert not np.isfinite(b), (a, b)
                continue
            error = float(abs(mpmath.mpf(b) - true) / mpmath.mpf(float(np.spacing(abs(rounded)))))
            worst = max(worst, (error, a))
    return worst


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize("name", BOUNDS)
def test_error_bound(unit: ctypes.CDLL, name: str, dtype: DType) -> None:
    bound, intervals = BOUNDS[name]
    rng = np.random.default_rng(11)
    for lo, hi in intervals:
        x = rng.uniform(lo, hi, 400) if hi < 1e10 else np.exp(rng.uniform(-60, 60, 400))
        x = x.astype(dtype.np)
        error, at = worst_error(name, dtype, x, run(unit, name, dtype, x))
        assert error <= bound, (name, dtype, at, error)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_subnormal_arguments_and_results(unit: ctypes.CDLL, dtype: DType) -> None:
    tiny = np.finfo(dtype.np).tiny
    x = (tiny * np.array([0.5, 0.1, 1e-3, 1.0, 3.0])).astype(dtype.np)
    error, at = worst_error("log", dtype, x, run(unit, "log", dtype, x))
    assert error <= 1, at
    for name in ("log1p", "expm1", "tanh"):
        np.testing.assert_array_equal(run(unit, name, dtype, x), x)
    low = np.array([-740.0, -709.0] if dtype is F64 else [-100.0, -90.0], dtype.np)
    error, at = worst_error("exp", dtype, low, run(unit, "exp", dtype, low))
    assert error <= 1.1, at


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_special_values(unit: ctypes.CDLL, dtype: DType) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([0.0, -0.0, inf, -inf, nan, -1.0, 1.0])
    expected = {
        "exp": [1, 1, inf, 0, nan],
        "log": [-inf, -inf, inf, nan, nan, nan, 0],
        "log1p": [0.0, -0.0, inf, nan, nan, -inf],
        "expm1": [0.0, -0.0, inf, -1, nan],
        "tanh": [0.0, -0.0, 1, -1, nan],
        "sigmoid": [0.5, 0.5, 1, 0, nan],
    }
    for name, values in expected.items():
        found = run(unit, name, dtype, x)[: len(values)]
        np.testing.assert_array_equal(found, np.array(values, dtype.np), err_msg=name)
        zero = np.array(values) == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(np.array(values)[zero]))


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_does_not_depend_on_its_place(unit: ctypes.CDLL, name: str) -> None:
    """Vector body and scalar tail give the same bits."""
    x = np.full(37, 0.7391)
    for dtype in (F32, F64):
        y = run(unit, name, dtype, x)
        assert (y == y[0]).all() and y[0] == run(unit, name, dtype, x[:1])[0]
