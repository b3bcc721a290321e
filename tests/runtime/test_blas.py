"""The BLAS found on this machine multiplies, through the pointers a unit declares."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from tracegrad.codegen.unit import SourceUnit, render
from tracegrad.dtypes import F32, F64
from tracegrad.loops.ir import Access, Gemm, Kernel, Operand, Param
from tracegrad.loops.program import Buffer, Launch, Place, Program
from tracegrad.options import Options
from tracegrad.runtime.blas import find_blas
from tracegrad.runtime.cpu import load

TEXT = """
#include <stdint.h>
int tg_blas_is64;
void (*tg_blas_{p}gemm)(void);
int entry(void *const *bufs, void *ws)
{{
    (void)ws;
    {t} *c = bufs[2];
    if (!tg_blas_{p}gemm) {{ c[0] = -1; return 0; }}
    if (tg_blas_is64)
        ((void (*)(int, int, int, int64_t, int64_t, int64_t, {t}, const {t} *, int64_t,
                   const {t} *, int64_t, {t}, {t} *, int64_t))tg_blas_{p}gemm)
            (101, 111, 111, 2, 2, 3, 1, bufs[0], 3, bufs[1], 2, 0, c, 2);
    else
        ((void (*)(int, int, int, int, int, int, {t}, const {t} *, int,
                   const {t} *, int, {t}, {t} *, int))tg_blas_{p}gemm)
            (101, 111, 111, 2, 2, 3, 1, bufs[0], 3, bufs[1], 2, 0, c, 2);
    return 0;
}}
"""


def product(dtype):
    sizes = {"a": (2, 3), "b": (3, 2), "c": (2, 2)}
    params = tuple(Param(n, dtype, 6, Access.IN) for n in sizes)
    buffers = tuple(
        Buffer(
            name,
            dtype,
            shape[0] * shape[1],
            Place.OUTPUT if name == "c" else Place.INPUT,
            0 if name == "c" else index,
            shape=shape,
        )
        for index, (name, shape) in enumerate(sizes.items())
    )
    program = Program("product", buffers, (Launch(Kernel("product", params, ()), tuple(sizes)),))
    letter, c = ("d", "double") if dtype is F64 else ("s", "float")
    return program, SourceUnit(TEXT.format(p=letter, t=c), "entry", "", ())


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
needs_blas = pytest.mark.skipif(find_blas() is None, reason="no BLAS")


@needs_cc
@needs_blas
@pytest.mark.parametrize("dtype", [F64, F32])
def test_a_unit_gets_the_blas_it_declares(cache_dir, dtype):
    a = np.arange(6, dtype=dtype.np).reshape(2, 3)
    b = np.arange(6, dtype=dtype.np).reshape(3, 2)
    (c,) = load(*product(dtype), Options())(a, b)
    np.testing.assert_array_equal(c, a @ b)


@needs_cc
def test_none_says_that_there_is_none(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_BLAS", "none")
    assert find_blas() is None
    program, unit = product(F64)
    # Another text: one library has one set of pointers per process.
    (c,) = load(program, replace(unit, text=unit.text + "/* none */"), Options())(
        np.ones((2, 3)), np.ones((3, 2))
    )
    assert c[0, 0] == -1


@needs_cc
@pytest.mark.parametrize("setting", ["", "none"])
def test_a_rendered_product_is_right_with_and_without_blas(cache_dir, monkeypatch, setting):
    monkeypatch.setenv("TRACEGRAD_BLAS", setting)
    n = 150 if setting else 160
    square = {name: Param(name, F64, n * n, Access.IN) for name in "ab"}
    params = (*square.values(), Param("c", F64, n * n, Access.OUT))
    # b is read transposed.
    gemm = Gemm(n, n, n, Operand("a", 0, n, 1), Operand("b", 0, 1, n), Operand("c", 0, n, 1), F64)
    places = {"a": (Place.INPUT, 0), "b": (Place.INPUT, 1), "c": (Place.OUTPUT, 0)}
    buffers = tuple(Buffer(name, F64, n * n, *at, shape=(n, n)) for name, at in places.items())
    program = Program(
        "product", buffers, (Launch(Kernel("product_1", params, (gemm,)), ("a", "b", "c")),)
    )
    unit = render(program, shim=True, embed_all=False)
    a, b = np.random.default_rng(0).random((2, n, n))
    (c,) = load(program, unit, Options())(a, b)
    assert unit.uses_blas
    np.testing.assert_allclose(c, a @ b.T, rtol=1e-12)
