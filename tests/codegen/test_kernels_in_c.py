"""Interpreter = NumPy, and compiled C = interpreter, before and after mapping to the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import CC, build, call, render_kernel
from loop_cases import CASES, INTRINSICS

from tracegrad.loops.interpret import run_kernel
from tracegrad.loops.text import parse_kernel, print_kernel
from tracegrad.loops.verify import verify_kernel, verify_program
from tracegrad.schedule.map_cpu import map_cpu

needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler")


def arrays_of(case, seed=7):
    arrays = case.arrays(np.random.default_rng(seed))
    return {k: np.ascontiguousarray(v) for k, v in arrays.items()}


def assert_same(got, wanted, tolerance):
    """Equal with the sign of zero, or within `tolerance` of the largest element."""
    if tolerance:
        scale = np.max(np.abs(wanted), initial=1.0)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(got, wanted)
        if got.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_interpreter_is_numpy(name, mapped):
    case = CASES[name]
    kernel = map_cpu(case.kernel) if mapped else case.kernel
    verify_kernel(kernel)
    arrays = arrays_of(case)
    with np.errstate(over="ignore"):
        wanted = case.expected({k: v.copy() for k, v in arrays.items()})
    assert run_kernel(kernel, arrays) == case.status
    for k, v in wanted.items():
        assert_same(arrays[k], v, case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_text_round_trip(name):
    for kernel in (CASES[name].kernel, map_cpu(CASES[name].kernel)):
        text = print_kernel(kernel)
        again = parse_kernel(text, INTRINSICS)
        assert again == kernel
        assert print_kernel(again) == text


@needs_compiler
def test_compiled_is_interpreter(tmp_path):
    """Each kernel twice: as written, and mapped to vector loops."""
    for name, case in CASES.items():
        for mapped in (False, True):
            kernel = map_cpu(case.kernel) if mapped else case.kernel
            program, unit = render_kernel(kernel)
            verify_program(program)
            folder = tmp_path / f"{name}{int(mapped)}"
            folder.mkdir()
            library = build(unit.text, folder)
            ours, theirs = arrays_of(case), arrays_of(case)
            ours["ws"] = np.zeros(8, np.int64)
            assert call(unit, library, program, ours) == case.status, name
            assert run_kernel(kernel, theirs) == case.status
            if "detail" in theirs:
                ours["detail"] = ours["ws"][:1]
            if case.status:
                assert ours["detail"][0] == theirs["detail"][0]
                continue
            for k, v in theirs.items():
                assert_same(ours[k], v, case.tolerance)
