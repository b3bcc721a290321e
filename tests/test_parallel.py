"""`tg.range(n, parallel=True)`: what it computes, at any number of threads, and what it refuses."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import threading
from functools import partial

import numpy as np
import pytest

import tracegrad as tg
from tests.parallel_programs import PROGRAMS, shared, stencil, temporaries
from tracegrad.errors import (
    ArgumentError,
    OptionError,
    RuntimeIndexError,
    UnsupportedError,
)
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.parse import parse_graph
from tracegrad.graph.text import print_graph
from tracegrad.loops.program import HostLoop, all_steps
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.runtime.threads import thread_count
from tracegrad.runtime.toolchain import find_compiler

PARALLEL = partial(tg.range, parallel=True)


def plan_of(f, *args):
    return f.lower(*args).specialisation.lowering.plan


def loops_on_threads(f, *args):
    steps = all_steps(plan_of(f, *args).program.steps)
    return [s for s in steps if isinstance(s, HostLoop) and s.workers is not None]


def loss_of(program, over):
    return lambda *args: np.sum(np.sin(program(over, *args)))


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def both(program, over, args):
    """The value and, beside it, the gradients of a sum of it."""
    gradient = tg.grad(loss_of(program, over), argnums=tuple(range(len(args))))
    return lambda *xs: (program(over, *xs), *gradient(*xs))


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_loop_in_order(name):
    program, args = PROGRAMS[name]
    threaded = tg.compile(both(program, PARALLEL, args), threads=3)
    assert loops_on_threads(threaded, *args)
    verify_program(plan_of(threaded, *args).program)
    value, *grads = threaded(*args)
    wanted, *wanted_grads = tg.compile(both(program, tg.range, args))(*args)
    assert same_bits(value, wanted)
    np.testing.assert_allclose(value, program(range, *[x.copy() for x in args]), rtol=1e-12)
    for a, b in zip(grads, wanted_grads, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["rows", "temporaries"])
def test_derivatives_agree_with_finite_differences(name):
    program, args = PROGRAMS[name]
    tg.check_grads(loss_of(program, PARALLEL), args, order=1)


@pytest.mark.parametrize("name", ["shared", "until"])
def test_the_bits_do_not_depend_on_the_number_of_threads(name):
    program, args = PROGRAMS[name]
    f = both(program, PARALLEL, args)
    first, *others = [tg.compile(f, threads=n)(*args) for n in (1, 2, 3, 4, 8)]
    for found in others:
        assert all(same_bits(a, b) for a, b in zip(found, first, strict=True))


def weighted(x, w):
    out = np.zeros_like(x)
    for i in tg.range(len(x), parallel=True):
        out[i] = w * x[i] * x[i]
    return np.sum(out)


def test_the_interpreter_adds_in_the_same_order():
    x = np.random.default_rng(5).standard_normal(1000)
    in_c = tg.grad(weighted, argnums=1, threads=4)
    assert loops_on_threads(in_c, x, 0.5)[-1].workers.sums
    got = in_c(x, 0.5)
    assert same_bits(got, tg.grad(weighted, argnums=1, backend="numpy")(x, 0.5))
    assert got != np.cumsum(x[::-1] * x[::-1])[-1], "the sum in order has other bits"


def test_sums_into_shared_arrays_go_through_parts():
    _, args = PROGRAMS["shared"]
    forward, reverse = loops_on_threads(tg.grad(loss_of(shared, PARALLEL), threads=2), *args)
    assert not forward.reverse and not forward.workers.sums
    assert reverse.reverse and len(reverse.workers.sums) == 1
    assert reverse.workers.chunks == 64


def test_a_reverse_loop_that_cannot_is_in_order_and_says_why():
    _, args = PROGRAMS["stencil"]
    g = tg.grad(loss_of(stencil, PARALLEL), threads=2)
    assert [s.reverse for s in loops_on_threads(g, *args)] == [False]
    report = g.explain(*args)
    assert "a parallel loop: 22 chunks, up to 2 threads" in report
    assert "a derivative loop that runs in order: parts of the sum" in report


def test_the_report_names_parallel_loops():
    _, args = PROGRAMS["temporaries"]
    report = tg.compile(partial(temporaries, PARALLEL), threads=2).explain(*args)
    assert "one loop for 24 iterations, parallel" in report


def test_each_thread_has_its_own_temporaries():
    _, args = PROGRAMS["temporaries"]
    (loop,) = loops_on_threads(tg.compile(partial(temporaries, PARALLEL), threads=3), *args)
    assert loop.workers.private
    assert loop.workers.stride >= 24 * 8


def test_arrays_of_the_caller_are_written_by_all_threads():
    @tg.compile(threads=2)
    def f(a):
        for i in tg.range(len(a), parallel=True):
            a[i] = a[i] * 2.0

    a = np.ones((50, 3))
    f(a)
    assert (a == 2.0).all()


def test_outside_of_a_trace_it_is_a_range():
    assert tg.range(2, 9, 3, parallel=True) == range(2, 9, 3)
    with pytest.raises(ArgumentError, match="parallel must be True or False, not 'yes'"):
        tg.range(3, parallel="yes")


def test_the_demand_survives_what_is_built_on_the_range():
    def f(x):
        y, z = np.zeros_like(x), np.zeros_like(x)
        for i in reversed(tg.range(len(x), parallel=True)):
            y[i] = x[i] * 2.0
        for i, v in zip(tg.range(len(x), parallel=True), x, strict=True):
            z[i] = y[i] * v
        return z

    assert len(loops_on_threads(tg.compile(f, threads=2), np.ones(20))) == 2


# ------------------------------------------------------------------------------------ refusals


def refused(f, *args):
    with pytest.raises(UnsupportedError) as caught:
        tg.compile(f)(*args)
    assert caught.value.kind == "parallel"
    return str(caught.value)


def test_a_recurrence_is_refused():
    def f(x):
        y = x * 1.0
        for i in tg.range(1, len(x), parallel=True):
            y[i] = y[i] + y[i - 1]
        return y

    text = refused(f, np.ones(20))
    assert "an iteration may read what another one writes in y" in text
    assert "y[i] = y[i] + y[i - 1]" in text
    assert "for i in tg.range(1, len(x), parallel=True):" in text
    assert "such as y[i]" in text


def test_a_sum_is_refused_with_what_to_write_instead():
    def f(x):
        s = 0.0
        for i in tg.range(len(x), parallel=True):
            s += x[i]
        return s

    text = refused(f, np.ones(20))
    assert "s is a sum over the iterations" in text
    assert "s += x[i]" in text
    assert "terms[i] = ..." in text


def test_a_carried_scalar_is_refused():
    def f(x):
        y = np.zeros_like(x)
        t = 1.0
        for i in tg.range(len(x), parallel=True):
            t = t * x[i]
            y[i] = t
        return y

    assert "an iteration may read what another one writes in t" in refused(f, np.ones(20))


def test_a_name_that_the_last_iteration_leaves_is_refused():
    def f(x):
        y = np.zeros_like(x)
        for i in tg.range(len(x), parallel=True):
            t = x[i] * 2.0
            y[i] = t
        return y + t

    assert "every iteration sets t, which is used behind the loop" in refused(f, np.ones(20))


@pytest.mark.parametrize(
    "write",
    [
        lambda y, i, x, k: y.__setitem__(k[i], x[i]),
        lambda y, i, x, k: y.__setitem__(i // 2, x[i]),
        lambda y, i, x, k: y.__setitem__(slice(i, i + 2), x[i]),
        lambda y, i, x, k: y.__setitem__(slice(None), x[i]),
    ],
    ids=["by_data", "two_each", "overlapping", "whole"],
)
def test_writes_that_may_meet_are_refused(write):
    def f(x, k):
        y = np.zeros(30)
        for i in tg.range(len(x), parallel=True):
            write(y, i, x, k)
        return y

    refused(f, np.ones(20), np.arange(20))


def test_a_body_that_cannot_roll_is_refused():
    def f(x):
        y = np.zeros_like(x)
        for i in tg.range(len(x), parallel=True):
            y[i] = x[i] * {0: 1.0}.get(i, 2.0)
        return y

    with pytest.raises(UnsupportedError, match="cannot be one loop"):
        tg.compile(f)(np.ones(20))


def test_values_that_are_appended_are_kept_in_order():
    def f(x):
        out = []
        for i in tg.range(len(x), parallel=True):
            out.append(np.sin(x[i]) * i)
        return np.stack(out)

    x = np.linspace(0.0, 1.0, 300)
    np.testing.assert_allclose(tg.compile(f, threads=2)(x), f(x), rtol=1e-14)


# ------------------------------------------------------------------------------ errors, threads


def looks_up(x, k):
    y = np.zeros_like(x)
    for i in tg.range(len(x), parallel=True):
        y[i] = x[k[i]]
    return y


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_error_is_that_of_the_first_iteration(threads):
    f = tg.compile(looks_up, threads=threads)
    k = np.arange(200)
    k[57:] = 1000 + np.arange(200 - 57)
    for _ in range(20):
        with pytest.raises(RuntimeIndexError, match="index 1000 is out of bounds"):
            f(np.ones(200), k)
    assert (f(np.ones(200), np.arange(200)) == 1.0).all()


def test_calls_from_several_threads_at_once():
    f = tg.compile(partial(temporaries, PARALLEL), threads=2)
    rng = np.random.default_rng(3)
    given = [rng.standard_normal((60, 60)) for _ in range(4)]
    wanted = [f(a) for a in given]
    wrong = []

    def work(k):
        for _ in range(50):
            if not same_bits(f(given[k]), wanted[k]):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def _in_a_child(queue, f, a):
    queue.put(f(a))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_workers_of_its_own():
    f = tg.compile(partial(temporaries, PARALLEL), threads=2)
    a = np.random.default_rng(4).standard_normal((60, 60))
    wanted = f(a)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue, f, a))
    child.start()
    assert same_bits(queue.get(timeout=60), wanted)
    child.join(timeout=60)
    assert child.exitcode == 0
    assert same_bits(f(a), wanted)


def test_loops_inside_run_in_order():
    program, args = PROGRAMS["two_levels"]
    f = tg.compile(partial(program, PARALLEL), threads=2)
    assert len(loops_on_threads(f, *args)) == 1
    assert "the loop around it runs on threads" in f.explain(*args)


# ------------------------------------------------------------------------------ options, texts


def test_the_environment_gives_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", "5")
    assert thread_count(None) == 5
    assert thread_count(2) == 2
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", "none")
    with pytest.raises(OptionError, match="TRACEGRAD_NUM_THREADS cannot be 'none'"):
        thread_count(None)
    monkeypatch.delenv("TRACEGRAD_NUM_THREADS")
    assert 1 <= thread_count(None) <= 64


@pytest.mark.parametrize("stage", ["traced", "functional", "joint", "optimized"])
def test_graphs_keep_the_flag_and_round_trip(stage):
    _, args = PROGRAMS["shared"]
    graph = tg.value_and_grad(loss_of(shared, PARALLEL)).lower(*args).graph(stage).graph
    text = print_graph(graph)
    assert "parallel = required" in text
    assert ("parallel = possible" in text) == (stage in ("joint", "optimized"))
    assert print_graph(parse_graph(text)) == text


def test_programs_round_trip():
    _, args = PROGRAMS["shared"]

    def loss(w, x):
        return np.sum(shared(PARALLEL, w, x))

    program = plan_of(tg.value_and_grad(loss, threads=2), *args).program
    text = print_program(program)
    assert "chunks 64 threads 2" in text
    assert print_program(parse_program(text, REGISTRY.intrinsics())) == text


def test_forward_mode_and_second_derivatives():
    program, (w, x) = PROGRAMS["shared"]
    w, x = w[:2], x[:60]
    threaded, in_order = loss_of(program, PARALLEL), loss_of(program, tg.range)
    tangents = (np.ones_like(w), np.ones_like(x))
    a = tg.jvp(threaded, (w, x), tangents)
    b = tg.jvp(in_order, (w, x), tangents)
    np.testing.assert_allclose(a, b, rtol=1e-13)
    np.testing.assert_allclose(
        tg.hessian(threaded)(w, x), tg.hessian(in_order)(w, x), rtol=1e-11, atol=1e-13
    )


def test_under_a_memory_limit():
    def f(a):
        out = np.zeros(len(a))
        for i in tg.range(len(a), parallel=True):
            t = 1.0
            for j in range(a.shape[1]):
                t = np.sin(t) * a[i, j]
            out[i] = t
        return np.sum(out)

    a = np.random.default_rng(6).uniform(0.9, 1.1, (64, 30))
    free = tg.grad(f, threads=2)
    need = plan_of(free, a).program.arena_nbytes
    limited = tg.grad(f, threads=2, memory_limit=need // 2)
    assert plan_of(limited, a).program.arena_nbytes <= need // 2
    np.testing.assert_allclose(limited(a), free(a), rtol=1e-12)


def test_exported_code_runs_in_order_with_the_same_results(tmp_path):
    _, (w, x) = PROGRAMS["shared"]

    def gradient(w, x):
        return tg.grad(loss_of(shared, PARALLEL))(w, x)

    tg.export(gradient, (w, x), tmp_path, name="gradient", overwrite=True)
    text = (tmp_path / "gradient.c").read_text()
    assert "tg_parallel" not in text
    assert "tg_join_parts_f64" in text
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared"]
    built = subprocess.run(
        [*find_compiler().command, *flags, "-fPIC", "gradient.c", "-o", "gradient.so", "-lm"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    out, ws = np.empty_like(w), np.empty(1 << 16)
    ctypes.CDLL(str(tmp_path / "gradient.so")).gradient(
        *(ctypes.c_void_p(a.ctypes.data) for a in (w, x, out, ws))
    )
    np.testing.assert_allclose(out, tg.compile(gradient, threads=2)(w, x), rtol=1e-14)
