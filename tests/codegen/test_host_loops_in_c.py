"""Loops around launches as C: the text, and the same results as interpreted."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import CC, build, call
from host_loop_cases import HOST_CASES
from loop_cases import INTRINSICS

from tracegrad.codegen.unit import render
from tracegrad.loops.interpret import run_program
from tracegrad.loops.program import Place
from tracegrad.loops.text import parse_program

needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler")


@needs_compiler
@pytest.mark.parametrize("name", HOST_CASES)
def test_compiled_as_interpreted(name, tmp_path):
    case = HOST_CASES[name]
    program = case.program()
    unit = render(program, shim=True, embed_all=False)
    (out,) = program.at(Place.OUTPUT)
    arrays = {b.name: x for b, x in zip(program.at(Place.INPUT), case.inputs, strict=True)}
    arrays[out.name] = np.zeros(out.size, out.dtype.np)
    arrays["ws"] = np.zeros(32, np.int64)
    wanted = np.zeros(out.size, out.dtype.np)
    status, detail = run_program(program, case.inputs, [wanted])
    assert call(unit, build(unit.text, tmp_path), program, arrays) == status
    assert not status or arrays["ws"][0] == detail
    np.testing.assert_array_equal(arrays[out.name], wanted)


def steps_of(name: str) -> str:
    """The statements of the typed function."""
    text = render(HOST_CASES[name].program(), shim=False, embed_all=False).text
    return re.search(r"\(void\)ws;\n(.*?)  return 0;\n", text, re.S)[1]


def test_loops_are_written_as_loops():
    assert steps_of("recurrence") == (
        "  first(x, y);\n"
        "  /* decay.py:2 */\n"
        "  for (ptrdiff_t i = 0; i < 5; ++i) {\n"
        "    /* decay.py:3 */\n"
        "    next(x, y, i + 1);\n"
        "  }\n"
    )
    assert steps_of("triangle") == (
        "  start(y);\n"
        "  for (ptrdiff_t i = 3; i >= 0; --i) {\n"
        "    for (ptrdiff_t j = 0; j < i; ++j) {\n"
        "      note(y, i, j);\n"
        "    }\n"
        "    note(y, 3 - i, 3);\n"
        "    for (ptrdiff_t j = 3 - i; j >= 0; --j) {\n"
        "      note(y, j, i);\n"
        "    }\n"
        "  }\n"
        "  for (ptrdiff_t i = 0; i < 0; ++i) {\n"
        "    note(y, 2, 2);\n"
        "  }\n"
    )


def test_a_check_leaves_the_loop():
    assert steps_of("guard_fails") == (
        "  clear(y);\n"
        "  for (ptrdiff_t i = 4; i >= 0; --i) {\n"
        "    status = take(x, y, detail, i);\n"
        "    if (status != 0) return 1 + status;\n"
        "  }\n"
    )


def test_divisions_in_launches_round_down():
    assert "count(y, -tg_mod(j, 3), tg_floordiv(j, 2));" in steps_of("floors")


def test_scalar_kernels_in_loops_may_be_inlined():
    text = render(HOST_CASES["recurrence"].program(), shim=False, embed_all=False).text
    assert "static inline void next(const double *restrict x, double *restrict y," in text
    assert "static TG_NOINLINE void first(" in text
    text = render(HOST_CASES["rows"].program(), shim=False, embed_all=False).text
    assert text.count("static TG_NOINLINE") == 3
    assert "static inline" not in text


def test_variables_avoid_the_names_of_buffers_and_kernels():
    text = HOST_CASES["recurrence"].text
    text = text.replace("i in 5", "y in 5").replace("[i + 1] loc", "[y + 1] loc")
    unit = render(parse_program(text, INTRINSICS), shim=False, embed_all=False)
    assert "for (ptrdiff_t y_1 = 0; y_1 < 5; ++y_1) {" in unit.text
    assert "next(x, y, y_1 + 1);" in unit.text


def test_overlap_inside_a_loop_drops_restrict():
    text = HOST_CASES["rows"].text.replace("@put_row(%t, %y)", "@put_row(%u, %y)")
    text = text.replace("y: f64[12] output 0 shape (4, 3)", "y: f64[12] arena 1 shape (4, 3)")
    text = text.replace(
        "  kernel @clear", "  buffer %u: f64[3] arena 2 offset 64 shape (3)\n  kernel @clear", 1
    )
    text = render(parse_program(text, INTRINSICS), shim=False, embed_all=False).text
    assert "void put_row(const double *t, double *y, ptrdiff_t i)" in text
    assert "void add_row(const double *restrict x, double *restrict t, ptrdiff_t i)" in text
