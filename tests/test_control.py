"""`scan`, `fori_loop`, `while_loop`, `cond`, `switch`: compiled = interpreted = run as Python."""

from __future__ import annotations

import contextlib
import shutil
import subprocess

import numpy as np
import pytest

import tracegrad as tg
from tests.control_programs import INPUTS, PROGRAMS, branch_of_values, until
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.ir import For, Reduce
from tracegrad.loops.program import HostLoop, WhileLoop, blocks, launches
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.transform import statements
from tracegrad.loops.verify import verify_program
from tracegrad.pipeline import GRAPH_STAGES


def by_name(f):
    return f.__name__


@pytest.mark.parametrize("f", PROGRAMS, ids=by_name)
def test_compiled_is_python(f):
    compiled = tg.compile(f)
    for x in INPUTS:
        np.testing.assert_allclose(compiled(x.copy()), f(x.copy()), rtol=1e-11)


@pytest.mark.parametrize("f", PROGRAMS, ids=by_name)
def test_derivatives_are_finite_differences(f):
    for x in INPUTS[:2]:
        tg.check_grads(tg.compile(f, backend="numpy"), (x,), order=2 if x is INPUTS[0] else 1)


@pytest.mark.parametrize("f", PROGRAMS, ids=by_name)
def test_every_stage_means_the_same_and_prints(f):
    """Of the gradient: graphs evaluate alike, verify, and survive their text form."""
    x = INPUTS[0]
    made = tg.compile(tg.value_and_grad(f), backend="numpy")
    value, gradient = made(x.copy())
    lowered = made.lower(x)
    for stage in GRAPH_STAGES:
        graph = lowered.graph(stage).graph
        verify(graph)
        text = print_graph(graph)
        assert print_graph(parse_graph(text)) == text
        if stage in ("joint", "optimized"):
            found = evaluate(graph, [x])
            np.testing.assert_allclose(found[0], value, rtol=1e-11)
            np.testing.assert_allclose(found[1], gradient, rtol=1e-9, atol=1e-12)
    program = lowered.specialisation.lowering.plan.program
    verify_program(program)
    text = print_program(program)
    assert print_program(parse_program(text, REGISTRY.intrinsics())) == text


# ---------------------------------------------------------------------------------- meaning


def test_only_the_branch_taken_is_differentiated():
    def f(x):
        return tg.cond(x > 0, lambda: np.sqrt(x), lambda: x * 2)

    assert tg.grad(f)(-1.0) == 2.0
    assert tg.grad(f)(4.0) == 0.25
    assert tg.grad(tg.grad(f))(0.0) == 0.0


def test_a_check_in_a_branch_stops_only_where_it_runs():
    @tg.compile
    def f(x, k, go):
        s = 0.0
        for i in range(10):
            s = s + tg.cond(go, lambda: x[k], lambda: 1.0) * i
        return s

    x = np.arange(3.0)
    assert f(x, np.int64(2), True) == 90.0
    assert f(x, np.int64(7), False) == 45.0
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        f(x, np.int64(7), True)


def test_indices_are_clamped():
    @tg.compile
    def f(k, x):
        return tg.switch(k, [lambda a: a, lambda a: a * 10, lambda a: a * 100], x)

    for k, want in ((-5, 1.0), (0, 1.0), (1, 10.0), (2, 100.0), (9, 100.0), (2**62, 100.0)):
        assert f(np.int64(k), 1.0) == want
    assert f(np.uint64(2**64 - 1), 1.0) == 100.0
    assert [f(k, 1.0) for k in (-1, 1, 5)] == [1.0, 10.0, 100.0]


def test_a_known_predicate_leaves_the_other_branch_alone():
    @tg.compile
    def f(x):
        return tg.cond(len(x) > 2, lambda: x[2], lambda: x[1, 1])

    assert f(np.arange(3.0)) == 2.0
    assert "cond" not in f.graph(np.arange(3.0))


def test_python_at_the_prompt():
    x = np.arange(4.0)
    assert tg.cond(x[1] > 0, lambda a: a[3], lambda a: a[0], x) == 3.0
    assert tg.switch(7, [lambda: 1, lambda: 2]) == 2
    carry, ys = tg.scan(lambda c, v: (c + v, c * v), 0.0, x)
    assert carry == 6.0 and ys.tolist() == [0.0, 0.0, 2.0, 9.0]
    assert tg.fori_loop(0, 4, lambda i, s: s + i, 0) == 6
    assert tg.while_loop(lambda v: v < 10, lambda v: v * 2, 1) == 16
    y = tg.cond(True, lambda: x, lambda: x)
    y[0] = 9.0
    assert x[0] == 0.0
    start = np.zeros(2)

    def body(i, a):
        a[0] += i
        return a

    assert tg.fori_loop(0, 3, body, start)[0] == 3.0
    assert start[0] == 0.0


def test_results_and_carries_are_fresh_when_compiled():
    @tg.compile
    def f(x, p):
        y = tg.cond(p, lambda: x, lambda: x)
        y[0] = 9.0

        def body(i, a):
            a[0] += i
            return a

        z = tg.fori_loop(0, 3, body, x)
        return x, y, z

    given = np.zeros(2)
    x, y, z = f(given, True)
    assert x.tolist() == [0.0, 0.0] and y.tolist() == [9.0, 0.0] and z.tolist() == [3.0, 0.0]


def test_writes_reach_the_caller():
    @tg.compile
    def f(x, n):
        def body(s):
            x[s] = -x[s]
            return s + 1

        return tg.while_loop(lambda s: s < n, body, 0)

    x = np.arange(5.0)
    assert f(x, np.int64(3)) == 3
    assert x.tolist() == [0.0, -1.0, -2.0, 3.0, 4.0]


def test_types_of_numbers_come_to_rest():
    x = np.arange(1, 4, dtype=np.float32)

    @tg.compile
    def f(x):
        return tg.scan(lambda s, v: (s + v, s), 0.0, x)

    total, sums = f(x)
    assert type(total) is np.float32 and total == 6
    assert sums.dtype == np.float32 and sums.tolist() == [0.0, 1.0, 3.0]

    @tg.compile
    def g(x):
        return tg.while_loop(lambda s: s < 3, lambda s: s + x[0] / 2, 0)

    assert type(g(x.astype(float))) is np.float64


def test_tensors():
    @tg.compile
    def f(x):
        y = x.clone()

        def then():
            y[0].mul_(x[1])

        tg.cond(x.sum() > 0, then, lambda: None)
        return tg.scan(lambda c, v: (c * v, c + v), y[0], x)[0].sum()

    x = tg.tensor(np.array([1.5, 2.0, 0.5]), requires_grad=True)
    f(x).backward()
    a, b, c = 1.5, 2.0, 0.5
    np.testing.assert_allclose(
        x.grad.numpy(), [2 * a * b * b * c, 2 * a * a * b * c, a * a * b * b]
    )


def test_no_grad_inside_a_branch():
    def f(x):
        y = x * 1.0

        def then():
            with tg.no_grad():
                y[0] = x[1] * 5

        tg.cond(x[0] > 0, then, lambda: None)
        return np.sum(y * y)

    # The hidden write changes the value; its path is the old element's.
    np.testing.assert_allclose(tg.grad(f)(np.array([1.0, 2.0])), [20.0, 4.0])
    np.testing.assert_allclose(tg.grad(f)(np.array([-1.0, 2.0])), [-2.0, 4.0])


def test_scan_of_nothing():
    @tg.compile
    def f(x):
        return tg.scan(lambda c, v: (c + v[0], v * 2), 1.0, x)

    c, ys = f(np.zeros((0, 3)))
    assert c == 1.0 and ys.shape == (0, 3)


# ------------------------------------------------------------------------------------- costs


def test_loops_do_not_copy_arrays_for_branches():
    """A branch that writes an element of a carried array costs no array, either way."""

    def f(x):
        y = x * 1.0

        def body(i, s):
            def then():
                y[i] = np.sin(y[i - 1])

            tg.cond(x[i] > 0.5, then, lambda: None)
            return s

        tg.fori_loop(1, 1000, body, 0.0)
        return np.sum(y)

    made = tg.value_and_grad(f)
    lowered = made.lower(np.linspace(0, 1, 1000))
    program = lowered.specialisation.lowering.plan.program
    inside = [s for s in program.steps if isinstance(s, HostLoop)]
    assert len(inside) == 2
    assert not arrays_touched(inside)
    assert program.arena_nbytes < 4 * 8 * 1000


def arrays_touched(steps):
    """Whether a kernel launched inside `steps` loops over an array."""
    return any(
        isinstance(s, (For, Reduce))
        for step in steps
        for block in blocks(step)
        for launch in launches(block)
        for s in statements(launch.kernel.body)
    )


def test_loops_until_a_condition_index_by_values_in_place():
    def f(x):
        y = x * 1.0

        def body(s):
            y[s] = np.sin(y[s - 1]) * x[s]
            return s + 1

        tg.while_loop(lambda s: s < len(x), body, 1, max_trips=2000)
        return np.sum(y)

    lowered = tg.value_and_grad(f).lower(np.linspace(0, 1, 1000))
    program = lowered.specialisation.lowering.plan.program
    inside = [s for s in program.steps if isinstance(s, (HostLoop, WhileLoop))]
    assert len(inside) == 2 and not arrays_touched(inside)
    tg.check_grads(f, (np.linspace(0.2, 1, 6),), order=2)


def test_the_reverse_runs_as_many_iterations_as_there_were():
    """With a bound far beyond the iterations, the program has no loop over the bound."""

    def f(x):
        return tg.while_loop(lambda v: v < 100.0, lambda v: v * 2.0 * x, x, max_trips=10**7)

    made = tg.grad(f)
    text = made.graph(1.0, stage="scheduled")
    assert "count %" in text
    eps = 1e-6
    numeric = (f(1.0 + eps) - f(1.0 - eps)) / (2 * eps)
    np.testing.assert_allclose(made(1.0), numeric, rtol=1e-5)


# ------------------------------------------------------------------------------------ errors


def refused(f, *args):
    with pytest.raises(tg.errors.TracegradError) as caught:
        tg.compile(f)(*args)
    assert caught.value.loc is not None
    return caught.value


def test_carries_keep_their_type():
    x = np.arange(3.0)
    e = refused(lambda x: tg.scan(lambda c, v: (np.append(c, v), None), x, x), x)
    assert e.kind == "carry_type" and "f64[3]" in str(e) and "f64[4]" in str(e)
    assert isinstance(e, TypeError)
    e = refused(
        lambda x: tg.while_loop(lambda v: v < 3, lambda v: v * 0.5, x[0].astype(np.int64)), x
    )
    assert e.kind == "carry_type" and "i64" in e.message and "f64" in e.message
    e = refused(lambda x: tg.fori_loop(0, 3, lambda i, s: (s, s), x), x)
    assert e.kind == "carry_type" and "(*, *)" in e.message


def test_branches_agree():
    x = np.arange(3.0)
    e = refused(lambda x: tg.cond(x[0] > 0, lambda: x, lambda: x[:2]), x)
    assert e.kind == "branch_type" and "f64[3]" in e.message and "f64[2]" in e.message
    e = refused(lambda x: tg.cond(x[0] > 0, lambda: (x, x), lambda: x), x)
    assert e.kind == "branch_type"


def test_what_cannot_be_chosen_by_is_refused():
    x = np.arange(3.0)
    assert refused(lambda x: tg.cond(x > 0, lambda: 1, lambda: 2), x).kind == "shape"
    assert refused(lambda x: tg.switch(x[0], [lambda: 1, lambda: 2]), x).kind == "dtype"
    assert refused(lambda x: tg.while_loop(lambda v: v > 0, lambda v: v, x), x).kind == "shape"
    assert refused(lambda x: tg.cond("a", lambda: 1, lambda: 2), x).kind == "argument"
    assert refused(lambda x: tg.scan(lambda c, v: c, 0.0, x), x).kind == "argument"
    assert refused(lambda x: tg.scan(lambda c, v: (c, v), 0.0, x, length=4), x).kind == "argument"
    assert refused(lambda x: tg.scan(lambda c, v: (c, v), 0.0), x).kind == "argument"


def test_effects_outside_arrays_are_refused():
    def prints(x):
        return tg.cond(x > 0, lambda: tg.debug.print("{}", x) or x, lambda: x)

    assert refused(prints, 1.0).kind == "control_print"

    def keeps(x):
        seen = []
        tg.cond(x > 0, lambda: seen.append(1), lambda: None)
        return len(seen) * x

    assert refused(keeps, 1.0).kind == "control_effect"

    def asks(x):
        def test(v):
            x[0] = v
            return v < 3

        return tg.while_loop(test, lambda v: v + 1, 0.0)

    assert refused(asks, np.zeros(2)).kind == "condition_write"


def test_both_modes_need_no_bound():
    def f(x):
        return tg.while_loop(lambda v: v < 10.0, lambda v: v * x, 1.0)

    assert tg.grad(f)(2.0) == 32.0
    value, tangent = tg.jvp(f, (2.0,), (1.0,))
    assert (value, tangent) == (16.0, 32.0)


def test_more_iterations_than_max_trips():
    def f(x):
        y = x * 1.0
        y[1] = tg.while_loop(lambda v: v < 10.0, lambda v: v * x[0], 1.0, max_trips=3)
        x[1] = 7.0
        return np.sum(y)

    for run in (f, tg.compile(f), tg.grad(f)):
        with pytest.raises(ValueError, match="max_trips=3"):
            run(np.array([2.0, 1.0]))
        run(np.array([3.0, 1.0]))
    given = np.array([2.0, 1.0])
    with pytest.raises(ValueError, match="max_trips=3"):
        tg.compile(f)(given)
    assert given.tolist() == [2.0, 1.0]


def test_errors_leave_no_trace_open():
    @tg.compile
    def f(x):
        with contextlib.suppress(AttributeError):
            tg.cond(x > 0, lambda: x.nothing, lambda: x)
        return tg.cond(x > 0, lambda: x * 2, lambda: x)

    assert f(3.0) == 6.0


# ---------------------------------------------------------------------------------- exported


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_exported_c_runs_alone(tmp_path):
    """Under the sanitizers, against the values of the example that comes with it."""

    def f(x):
        return branch_of_values(x) * until(x) + tg.switch(
            np.floor(x[0]).astype(np.int64), [lambda: x[1], lambda: x[2], lambda: x[0]]
        )

    tg.export(tg.value_and_grad(f), [tg.spec((3,))], tmp_path / "out", name="control")
    text = (tmp_path / "out" / "control.c").read_text()
    assert "} else if (" in text and "break;" in text
    built = subprocess.run(
        [
            "gcc",
            "-std=c99",
            "-O1",
            "-g",
            "-fopenmp-simd",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            "-o",
            "run",
            "out/example_main.c",
            "out/control.c",
            "-lm",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(tmp_path / "run")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
