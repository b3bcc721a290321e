"""Every scalar function, printed as C for every dtype, computes what its reference does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tracegrad.codegen.c_builtin
import tracegrad.codegen.c_functions
import tracegrad.ops.bitwise
import tracegrad.ops.integer
import tracegrad.ops.special  # noqa: F401
from tests.ops.edge_values import edge_operands, ulp_distance
from tracegrad import dtypes
from tracegrad.codegen.c_family import CExpressions, CNames
from tracegrad.codegen.c_library import with_dependencies
from tracegrad.dims import symbol
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError
from tracegrad.graph.op import REGISTRY, Attrs, OpDef
from tracegrad.loops.ir import Apply, Cast, Expr, Intrinsic, Load, Var
from tracegrad.ops.cast import convert
from tracegrad.types import TensorType

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

FLAGS = """
-std=c99 -O2 -fno-tree-pre -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off
-Wall -Wextra -Wconversion -Werror -Wno-unknown-pragmas -Wno-unused-function -Wno-parentheses
-fPIC -shared
"""

# Ops that may differ from the reference, by at most ULP units in the last place.
ROUNDED = """
cbrt power exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 hypot
sinh cosh tanh asinh acosh atanh logaddexp logaddexp2 erf erfc sigmoid softplus silu gelu
"""
ULP = 4
# Ops whose zeros must have the reference's sign.
ZEROS = """
add sub mul neg positive sin tan asin atan sinh tanh asinh floor ceil trunc rint sqrt
cbrt expm1 log1p copysign remainder fmod floor_divide erf
"""


@dataclass(frozen=True)
class Case:
    """One loop of the unit: op `op` on operands of `types`."""

    op: OpDef
    types: tuple[DType, ...]
    intrinsic: Intrinsic
    result: DType

    @property
    def name(self) -> str:
        return f"k_{self.op.name}_{'_'.join(t.name for t in self.types)}"

    def text(self, printer: CExpressions) -> str:
        args = tuple(load(f"x{k}", t) for k, t in enumerate(self.types))
        value = Apply(self.intrinsic, args, self.result)
        return loop(printer, self.name, self.types, value)


def load(buffer: str, dtype: DType) -> Load:
    return Load(buffer, symbol("i", 0), dtype)


def loop(printer: CExpressions, name: str, types: tuple[DType, ...], value: Expr) -> str:
    """A C function that computes `value` for each i."""
    params = ", ".join(f"const {t.c} *x{k}" for k, t in enumerate(types))
    return (
        f"void {name}(ptrdiff_t n, {params}, {value.dtype.c} *restrict out) {{\n"
        f"#pragma omp simd\n"
        f"  for (ptrdiff_t i = 0; i < n; i++) out[i] = {printer.expr(value)};\n}}\n"
    )


def cases() -> Iterator[Case]:
    """Every op with an intrinsic, on every dtype that its shape rule takes."""
    for op in REGISTRY:
        if op.intrinsic is None:
            continue
        if op.name == "ldexp":
            for x in dtypes.FLOATS:
                for n in (dtypes.I32, dtypes.I64):
                    yield Case(op, (x, n), op.intrinsic, x)
            continue
        for dtype in dtypes.ALL:
            types = (dtype,) * op.intrinsic.arity
            try:
                out = op.infer(Attrs(), *[TensorType((), t) for t in types])
            except DTypeError:
                continue
            assert isinstance(out, TensorType)
            yield Case(op, types, _chosen(op, types, out), out.dtype)


def _chosen(op: OpDef, types: tuple[DType, ...], out: TensorType) -> Intrinsic:
    """The intrinsic that the op's lowering uses for these dtypes."""
    at = getattr(op.lowering, "at", None)
    if at is None or op.intrinsic is None:
        assert op.intrinsic is not None
        return op.intrinsic
    expr = at(None, Attrs(), out, (), *[lambda index, t=t: Var("x", t) for t in types])
    assert isinstance(expr, Apply)
    return expr.fn


CASES = {case.name: case for case in cases()}
CASTS = [(a, b) for a in dtypes.ALL for b in dtypes.ALL if a is not b]


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("pointwise")
    printer = CExpressions(CNames())
    loops = [case.text(printer) for case in CASES.values()]
    for a, b in CASTS:
        loops.append(loop(printer, f"c_{a}_{b}", (a,), Cast(load("x0", a), b)))
    parts = ["#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"]
    parts += [f.text + "\n" for f in with_dependencies(printer.functions)]
    parts += loops
    (folder / "unit.c").write_text("".join(parts))
    assert COMPILER is not None
    command = [COMPILER, *FLAGS.split(), "-o", "unit.so", "unit.c", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "unit.so"))


def run(unit: ctypes.CDLL, name: str, xs: tuple[np.ndarray, ...], to: DType) -> np.ndarray:
    out = np.empty(xs[0].shape, to.np)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*xs, out)]
    getattr(unit, name)(ctypes.c_ssize_t(out.size), *pointers)
    return out


def operands(case: Case) -> tuple[np.ndarray, ...]:
    if case.op.name == "ldexp":
        x, _ = edge_operands(case.types[0], 2)
        n = np.random.default_rng(1).integers(-1200, 1200, x.size)
        return x, np.where(n % 7 == 0, 2**31 - 1, n).astype(case.types[1].np)
    xs = edge_operands(case.types[0], len(case.types))
    if case.op.name == "power" and case.types[0].kind == "i":
        xs = (xs[0], np.where(xs[1] < 0, xs[1].dtype.type(3), xs[1]))
    return tuple(np.ascontiguousarray(x) for x in xs)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_c_is_the_reference(unit: ctypes.CDLL, case: Case) -> None:
    xs = operands(case)
    with np.errstate(all="ignore"):
        expected = case.op.reference(Attrs(), *xs)
    found = run(unit, case.name, xs, case.result)
    if case.op.name in ROUNDED.split() and case.result.is_float:
        apart = ulp_distance(found, expected)
        worst = int(np.argmax(apart))
        at = [x[worst] for x in xs]
        assert apart[worst] <= ULP, (at, found[worst], expected[worst], apart[worst])
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("source", "to"), CASTS, ids=str)
def test_c_casts_are_the_reference(unit: ctypes.CDLL, source: DType, to: DType) -> None:
    (x,) = edge_operands(source, 1)
    found = run(unit, f"c_{source}_{to}", (x,), to)
    np.testing.assert_array_equal(found, convert(x, to))


@pytest.mark.parametrize("name", ZEROS.split())
def test_signs_of_zeros_are_the_reference(unit: ctypes.CDLL, name: str) -> None:
    for dtype in dtypes.FLOATS:
        case = CASES[f"k_{name}" + f"_{dtype}" * REGISTRY[name].intrinsic.arity]
        xs = operands(case)
        with np.errstate(all="ignore"):
            expected = case.op.reference(Attrs(), *xs)
        found = run(unit, case.name, xs, case.result)
        zero = expected == 0
        assert zero.any()
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))
