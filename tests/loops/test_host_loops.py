"""Loops around launches: interpreted, printed and read back, verified, renamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from host_loop_cases import CHOICES, FLOORS, GROWING, HOST_CASES, RECURRENCE, TRIANGLE, UNTIL
from loop_cases import INTRINSICS

from tracegrad.dims import Symbol, of_atom
from tracegrad.errors import ParseError, VerifyError
from tracegrad.loops.interpret import run_kernel, run_program
from tracegrad.loops.program import HostLoop, Place
from tracegrad.loops.text import parse_kernel, parse_program, print_kernel, print_program
from tracegrad.loops.transform import canonical, definitions, rename, structure
from tracegrad.loops.verify import verify_kernel, verify_program


@pytest.mark.parametrize("name", HOST_CASES)
def test_interpreted(name):
    case = HOST_CASES[name]
    program = case.program()
    verify_program(program)
    (out,) = program.at(Place.OUTPUT)
    got = np.zeros(out.size, out.dtype.np)
    status = run_program(program, case.inputs, [got])
    wanted, wanted_status = case.wanted(*case.inputs)
    assert status == wanted_status
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


@pytest.mark.parametrize("name", HOST_CASES)
def test_text_round_trip(name):
    case = HOST_CASES[name]
    program = case.program()
    assert print_program(program) == case.text
    bare = parse_program(print_program(program, locs=False), INTRINSICS)
    assert "loc(" not in print_program(bare).replace(' loc("limit.py":4:9)', "")
    assert bare.steps == program.steps


def test_walks_open_the_loops():
    program = HOST_CASES["triangle"].program()
    assert [s.kernel.name for s in program.launches()] == ["start", *["note"] * 4]
    assert [k.name for k in program.kernels()] == ["start", "note"]
    assert sum(isinstance(s, HostLoop) for s in program.steps) == 2


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (RECURRENCE, "[i + 1]", "[j + 1]", "j is not in scope"),
        (RECURRENCE, "forward", "backward", "expected forward or reverse"),
        (RECURRENCE, "launch @first(%x, %y)\n", "launch @first(%x, %y)[i]\n", "i is not in scope"),
        (TRIANGLE, "[2, 2]", "[2, j]", "j is not in scope"),
        (GROWING, "to 2*i + 2", "to 2*j", "j is not in scope"),
    ],
)
def test_reading_errors(text, old, new, message):
    assert text.count(old) == 1
    with pytest.raises(ParseError, match=message):
        parse_program(text.replace(old, new), INTRINSICS)


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (RECURRENCE, "[i + 1]", "[i]", "i may leave the range 1..5 of i"),
        (RECURRENCE, "[i + 1]", "[i + 2]", r"i \+ 2 may leave the range"),
        (RECURRENCE, "[i + 1]", "", "has 0 indices for 1"),
        (RECURRENCE, "[i + 1]", "[i + 1, 2]", "has 2 indices for 1"),
        (RECURRENCE, "for i in 5", "for i [0..3] in 5", "has range 0..3 and 5 trips"),
        (TRIANGLE, "for j in i", "for j [0..1] in i", "has range 0..1 and i trips"),
        (TRIANGLE, "[-i + 3, 3]", "[i, 3]\n    for i in 2, forward {}", "inside a loop over i"),
        (FLOORS, "[s [-5..2], unused]", "[s [-5..2], s]", "s is defined twice"),
        (FLOORS, "[s [-5..2], unused]", "[s [-5..2], y]", "y is defined twice"),
        (CHOICES, "branch %at", "branch %y", "Branch cannot read y"),
        (CHOICES, "branch %at", "branch %z", "Branch reads z, which is no buffer"),
        (UNTIL, "while %go", "while %n", "WhileLoop cannot read n"),
        (UNTIL, "i in 4 loc", "i in 5 loc", "i may leave the range 0..3"),
        (UNTIL, "5, reverse, count %n", "5, reverse, count %go", "HostLoop cannot read go"),
        (GROWING, "grow %tape to", "grow %v to", "Grow of v, which does not grow"),
        (GROWING, "2*i + 2, check 1", "2*i + 2, check 3", "check 3 is not described"),
        (GROWING, "%tape to %twin", "%tape to %v", "Copy of v, which does not grow"),
        (GROWING, "f64[2*grown] growing 1", "f64[2*grown] output 1", "is output"),
        (GROWING, "%y: f64[1] output", "%y: f64[1] growing", "is growing"),
        (GROWING, "reverse, count %n", "reverse", "loop over i has no number of trips"),
        (FLOORS, "-mod(j, 3)", "mod(j, 4)", r"mod\(j, 4\) may leave the range -5..2 of s"),
    ],
)
def test_verify_refuses(text, old, new, message):
    assert text.count(old) >= 1
    with pytest.raises(VerifyError, match=message):
        verify_program(parse_program(text.replace(old, new), INTRINSICS))


def test_variables_are_scoped_by_their_loop():
    good = HOST_CASES["recurrence"].program()
    loop = good.steps[1]
    with pytest.raises(VerifyError, match="uses i, which is not in scope"):
        verify_program(replace(good, steps=(good.steps[0], *loop.body)))
    (launch,) = loop.body
    other = replace(launch, indices=(of_atom(Symbol("i", 0, 3)) + 1,))
    with pytest.raises(VerifyError, match="uses i, with another range"):
        verify_program(replace(good, steps=(replace(loop, body=(other,)),)))


def test_kernel_indices_are_checked_as_other_indices():
    text = "kernel @k(out %o: f64[4])[i [4..7]] {\n  store %o[i] = 1.0\n}\n"
    kernel = parse_kernel(text, INTRINSICS)
    assert print_kernel(kernel) == text
    with pytest.raises(VerifyError, match=r"outside 0\.\.3"):
        verify_kernel(kernel)
    never = text.replace("[4..7]", "[4..3]")
    verify_kernel(parse_kernel(never, INTRINSICS))
    with pytest.raises(VerifyError, match="used with two different ranges"):
        verify_kernel(replace(kernel, indices=(Symbol("i", 0, 3),)))


def test_the_interpreter_holds_callers_to_the_range():
    kernel = HOST_CASES["recurrence"].program().kernels()[1]
    arrays = {"x": np.full(6, 2.0), "y": np.ones(6)}
    assert run_kernel(kernel, arrays, [2]) == 0
    np.testing.assert_array_equal(arrays["y"], [1, 1, 2, 1, 1, 1])
    for wrong in (0, 6):
        with pytest.raises(VerifyError, match=rf"index i = {wrong} leaves 1\.\.5"):
            run_kernel(kernel, arrays, [wrong])


def test_kernels_under_other_index_names_are_one():
    kernel = HOST_CASES["recurrence"].program().kernels()[1]
    other = rename(kernel, {"i": "step_7", "y": "out"})
    assert [s.name for s in other.indices] == ["step_7"]
    verify_kernel(other)
    assert other != kernel
    assert structure(other) == structure(kernel)
    assert hash(structure(other)) == hash(structure(kernel))
    assert list(definitions(canonical(other))) == ["x", "out", "step"]
    verify_kernel(canonical(other))
    wider = parse_kernel(print_kernel(kernel).replace("[1..5]", "[1..6]"), INTRINSICS)
    assert structure(wider) != structure(kernel)


def test_a_program_of_a_lambda_has_a_quoted_name():
    case = HOST_CASES["triangle"]
    program = replace(case.program(), name="<lambda>")
    text = print_program(program)
    assert text.startswith('program @"<lambda>" arena')
    assert print_program(parse_program(text, INTRINSICS)) == text
