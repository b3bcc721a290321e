"""Whole units: text, constants, arena, checks, restrict, BLAS pointers, header."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from compiled import CC, build, call, program_of
from loop_cases import ADD, CASES, INTRINSICS, LT, MUL, SUB
from loop_cases import call as apply

from tracegrad.codegen.unit import EMBED_LIMIT, render
from tracegrad.dtypes import F64, I64
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.interpret import run_program
from tracegrad.loops.ir import Access, Const, Kernel, Load, Operand, Param
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.schedule.map_cpu import map_cpu
from tracegrad.source import SourceLoc

needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler")


def sum_kernel(n: int) -> Kernel:
    b = LoopBuilder()
    with b.loops((n,)) as (i,):
        b.store("c", i, apply(ADD, Load("a", i, F64), Load("b", i, F64)))
    return map_cpu(
        Kernel(
            "sum",
            (
                Param("a", F64, n, Access.IN),
                Param("b", F64, n, Access.IN),
                Param("c", F64, n, Access.OUT),
            ),
            b.finish(),
        )
    )


def guard_kernel() -> Kernel:
    b = LoopBuilder()
    k = b.let(Load("k", 0, I64), "at")
    b.check(apply(LT, k, Const(3, I64)), k, "index {value}")
    return Kernel(
        "guard", (Param("k", I64, 1, Access.IN), Param("detail", I64, 1, Access.OUT)), b.finish()
    )


def sample_program(n: int = 100, places: int = EMBED_LIMIT) -> Program:
    """out = (x + small) + large[:n], with a temporary and a check in between."""
    add, guard = sum_kernel(n), guard_kernel()
    buffers = (
        Buffer("detail", I64, 1, Place.ARENA),
        Buffer("x", F64, n, Place.INPUT, 0, shape=(n,), hint="signal"),
        Buffer("k", I64, 1, Place.INPUT, 1, shape=()),
        Buffer("y", F64, n, Place.OUTPUT, 0, shape=(n,)),
        Buffer("t", F64, n, Place.ARENA, offset=64),
        Buffer("small", F64, n, Place.CONSTANT, 0, data=np.arange(n) / 7),
    )
    steps = (
        Launch(add, ("x", "small", "t")),
        Launch(guard, ("k", "detail"), 1),
        Launch(add, ("t", "t", "y")),
    )
    checks = (CheckSite("unused"), CheckSite("index {value}"))
    return Program("filter", buffers, steps, 64 + 8 * n, checks)


@needs_compiler
@pytest.mark.parametrize("n", [100, EMBED_LIMIT + 1])
@pytest.mark.parametrize("embed_all", [False, True])
def test_program_runs_as_interpreted(n, embed_all, tmp_path):
    program = sample_program(n)
    verify_program(program)
    unit = render(program, shim=True, embed_all=embed_all)
    assert bool(unit.external_constants) == (n > EMBED_LIMIT and not embed_all)
    library = build(unit.text, tmp_path)
    for k in (2, 5):
        x, index = np.linspace(0, 1, n), np.array([k])
        y, wanted = np.zeros(n), np.zeros(n)
        ws = np.zeros(program.arena_nbytes // 8 + 8, np.int64)
        status = call(unit, library, program, {"x": x, "k": index, "y": y, "ws": ws})
        assert (status, int(ws[0]) if status else 0) == run_program(program, [x, index], [wanted])
        assert status == (0 if k < 3 else 2)
        np.testing.assert_array_equal(y, wanted)
        assert status or y[3] == 2 * (x[3] + 3 / 7)


def test_equal_kernels_are_printed_once():
    unit = render(sample_program(), shim=False, embed_all=False)
    assert unit.text.count("static TG_NOINLINE") == 2
    assert unit.entry == "filter"
    assert "int filter(const double *signal, const int64_t *k, double *y, void *ws);" in unit.header
    assert "#define FILTER_WORKSPACE 864" in unit.header
    assert "2  index {value}" in unit.header


def test_restrict_follows_the_launches():
    """A kernel that some launch runs in place has no restrict on the params concerned."""
    kernel = sum_kernel(8)
    x = Buffer("x", F64, 8, Place.INPUT, 0, written=True)
    y = Buffer("y", F64, 8, Place.INPUT, 1)
    apart = Program(
        "p", (x, y, Buffer("o", F64, 8, Place.OUTPUT, 0)), (Launch(kernel, ("x", "y", "o")),)
    )

    def header(program):
        text = render(program, shim=False, embed_all=False).text
        return " ".join(text[text.index("void sum(") :].split("{")[0].split())

    assert header(apart) == (
        "void sum(const double *restrict a, const double *restrict b, double *restrict c)"
    )
    within = Program("p", (x, y), (Launch(kernel, ("x", "y", "x")),))
    assert header(within) == "void sum(const double *a, const double *restrict b, double *c)"
    arena = [Buffer(n, F64, 8, Place.ARENA, offset=at) for n, at in (("t", 0), ("u", 64))]
    moved = Buffer("u", F64, 8, Place.ARENA, offset=0)
    disjoint = Program("p", (*arena, y), (Launch(kernel, ("t", "y", "u")),), 128)
    assert "double *restrict c" in header(disjoint)
    shared = Program("p", (arena[0], moved, y), (Launch(kernel, ("t", "y", "u")),), 128)
    assert "double *c" in header(shared)


def test_program_text_round_trip():
    for n in (20, 100):
        text = print_program(sample_program(n))
        again = parse_program(text, INTRINSICS)
        verify_program(again)
        assert print_program(again) == text
        np.testing.assert_array_equal(again.buffers[-1].data, np.arange(n) / 7)


def test_zero_signs_are_not_merged():
    """Kernels that differ only in the sign of a zero constant stay two kernels."""
    assert Const(0.0, F64) != Const(-0.0, F64)
    assert Const(float("nan"), F64) == Const(float("nan"), F64)


GOLDEN = """\
static TG_NOINLINE void scale(const double *restrict x, double *restrict v_exp) {
  /* heat.py:3 */
  TG_SIMD
  for (ptrdiff_t i = 0; i < 12; ++i) {
    const double t = x[i] * -0.5;
    v_exp[i] = x[i] - (t - 1.0);
  }
}"""


def test_golden_pointwise():
    """Names of libm are not used for variables; operators keep their grouping."""
    b = LoopBuilder()
    b.loc = SourceLoc("/home/someone/heat.py", 3, 4, 9)
    with b.loops((3, 4)) as (i, j):
        x = Load("x", 4 * i + j, F64)
        t = b.let(apply(MUL, x, Const(-0.5, F64)))
        b.store("exp", 4 * i + j, apply(SUB, x, apply(SUB, t, Const(1.0, F64))))
    kernel = Kernel(
        "scale", (Param("x", F64, 12, Access.IN), Param("exp", F64, 12, Access.OUT)), b.finish()
    )
    unit = render(program_of(map_cpu(kernel)), shim=False, embed_all=True)
    assert GOLDEN in unit.text


GOLDEN_SUM = """\
  for (ptrdiff_t i = 0; i < 3; ++i) {
    double acc;
    {
      double acc_all = -HUGE_VAL;
      ptrdiff_t r_base = 0;
      double acc_lanes[64];
      for (int lane = 0; lane < 64; ++lane) acc_lanes[lane] = -HUGE_VAL;
      for (; r_base + 64 <= 130; r_base += 64) {
        TG_SIMD
        for (int lane = 0; lane < 64; ++lane) {
          const ptrdiff_t r = r_base + lane;
          acc_lanes[lane] = tg_join_max_f64(acc_lanes[lane], x[130 * i + r]);
        }
      }
      for (ptrdiff_t r = r_base; r < 130; ++r) {
        acc_lanes[r - r_base] = tg_join_max_f64(acc_lanes[r - r_base], x[130 * i + r]);
      }
      acc_all = tg_join_max_f64(acc_all, tg_fold_max_f64(acc_lanes));
      acc = tg_join_max_f64(-HUGE_VAL, acc_all);
    }
    o[i] = acc;
  }
"""


def test_golden_reduction():
    unit = render(program_of(CASES["max_nan_wins"].kernel), shim=False, embed_all=True)
    assert GOLDEN_SUM in unit.text


GOLDEN_TOP = """\
TG_EXPORT int filter(const double *signal, const int64_t *k, double *y, void *ws) {
  int64_t *detail = ws;
  double *t = (void *)((char *)ws + 64);
  int status;
  (void)ws;
  sum(signal, filter_small, t);
  status = guard(k, detail);
  if (status != 0) return 1 + status;
  sum(t, t, y);
  return 0;
}
"""


def test_golden_top_function():
    text = render(sample_program(), shim=False, embed_all=True).text
    assert GOLDEN_TOP in text
    assert "tg_entry" not in text


@needs_compiler
@pytest.mark.parametrize("transposed", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1), (0, 0, 1)])
def test_gemm_calls_blas_through_the_pointer(transposed, tmp_path):
    """A stand-in for cblas_dgemm records the call and computes from its arguments."""
    m, n, k = 20, 30, 25

    def operand(name, rows, cols, flip):
        return Operand(name, 0, 1, rows) if flip else Operand(name, 0, cols, 1)

    b = LoopBuilder()
    b.gemm(
        m,
        n,
        k,
        operand("a", m, k, transposed[0]),
        operand("b", k, n, transposed[1]),
        operand("c", m, n, transposed[2]),
        F64,
    )
    kernel = Kernel(
        "product",
        (
            Param("a", F64, m * k, Access.IN),
            Param("b", F64, k * n, Access.IN),
            Param("c", F64, m * n, Access.OUT),
        ),
        b.finish(),
    )
    program = program_of(kernel)
    unit = render(program, shim=True, embed_all=False)
    assert unit.uses_blas
    assert not render(program, shim=True, embed_all=True).uses_blas
    library = build(unit.text, tmp_path)
    i64, f64, p = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    calls = []

    def view(address, trans, ld, rows, cols):
        shape = (rows, cols) if trans == 111 else (cols, rows)
        flat = np.ctypeslib.as_array((f64 * (ld * shape[0])).from_address(address))
        matrix = flat.reshape(shape[0], ld)[:, : shape[1]]
        return matrix if trans == 111 else matrix.T

    def dgemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        calls.append((order, alpha, beta))
        view(c, 111, ldc, m, n)[...] = view(a, ta, lda, m, k) @ view(b, tb, ldb, k, n)

    integer = ctypes.c_int
    stand_in = ctypes.CFUNCTYPE(
        None, integer, integer, integer, i64, i64, i64, f64, p, i64, p, i64, f64, p, i64
    )(dgemm)
    rng = np.random.default_rng(0)
    a, b_, c = rng.normal(size=m * k), rng.normal(size=k * n), np.zeros(m * n)
    plain = np.zeros(m * n)
    ws = np.zeros(8, np.int64)
    call(unit, library, program, {"a": a, "b": b_, "c": plain, "ws": ws})
    assert not calls
    ctypes.c_void_p.in_dll(library, "tg_blas_dgemm").value = ctypes.cast(stand_in, p).value
    ctypes.c_int.in_dll(library, "tg_blas_is64").value = 1
    call(unit, library, program, {"a": a, "b": b_, "c": c, "ws": ws})
    assert calls == [(101, 1.0, 0.0)]
    left = a.reshape(k, m).T if transposed[0] else a.reshape(m, k)
    right = b_.reshape(n, k).T if transposed[1] else b_.reshape(k, n)
    wanted = (left @ right).T.ravel() if transposed[2] else (left @ right).ravel()
    np.testing.assert_allclose(c, wanted, atol=1e-12)
    np.testing.assert_allclose(plain, wanted, atol=1e-12)
