"""Memory of `while_loop` without `max_trips`: what grows, what does not, and what refuses it."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tracegrad as tg
from tests.autodiff.test_whiles import (
    INPUTS,
    bounded,
    of_a_number,
    of_a_vector,
    that_needs_no_tape,
    unbounded,
)
from tracegrad.loops.program import Copy, Grow, HostLoop, Place, all_steps


def many(x, n):
    return tg.while_loop(lambda s: s[1] < n, lambda s: (np.sin(s[0]) * x, s[1] + 1), (x, 0))[0]


def test_memory_is_that_of_the_iterations_that_run():
    made = tg.grad(many)
    program = made.lower(1.0, np.int64(1)).specialisation.lowering.plan.program
    assert program.arena_nbytes < 1000
    assert {b.shape[1:] for b in program.at(Place.GROWING)} == {()}
    for n in (0, 1, 31, 32, 33, 100_000):
        v, d = 1.01, 1.0
        for _ in range(n):
            v, d = np.sin(v) * 1.01, np.sin(v) + np.cos(v) * d * 1.01
        np.testing.assert_allclose(made(1.01, np.int64(n)), d, rtol=1e-9)


def test_an_inner_loop_runs_again_and_nothing_is_kept_of_it_outside():
    """No array of arrays of unknown lengths, and no tape of the iterations that run first."""

    def f(x):
        s = 0.0
        for i in range(40):
            s = s + tg.while_loop(lambda v: v < 9.0, lambda v, i=i: v * v * x[i] + 1.0, x[i] + 1.0)
        return s

    x = np.linspace(0.5, 1.5, 40)
    program = tg.value_and_grad(f).lower(x).specialisation.lowering.plan.program
    (buffer,) = program.at(Place.GROWING)
    assert len(buffer.shape) == 1
    forward, reverse = (s for s in program.steps if isinstance(s, HostLoop))
    assert not any(isinstance(s, Grow) for s in all_steps(forward.body))
    assert sum(isinstance(s, Grow) for s in all_steps(reverse.body)) == 1


def test_parallel_loops_with_loops_that_grow_run_in_order():
    def f(x):
        y = np.zeros(len(x))
        for i in tg.range(len(x), parallel=True):
            y[i] = tg.while_loop(lambda v: v < 9.0, lambda v, i=i: v * v * x[i] + 1.0, x[i] + 1.0)
        return np.sum(y * y)

    def slopes(x):
        y = np.zeros(len(x))
        for i in tg.range(len(x), parallel=True):
            y[i] = tg.grad(
                lambda a: tg.while_loop(lambda v: v < 9.0, lambda v: v * v * a + 1.0, a + 1.0)
            )(x[i])
        return y

    x = np.linspace(0.5, 1.5, 300)
    v, d = x + 1.0, np.ones(300)
    while (v < 9.0).any():
        d = np.where(v < 9.0, v * v + 2 * v * d * x, d)
        v = np.where(v < 9.0, v * v * x + 1.0, v)
    for threads in (1, 2):
        made = tg.grad(f, threads=threads)
        np.testing.assert_allclose(made(x), 2 * v * d, rtol=1e-12)
        assert "in order: threads do not share what a while_loop leaves" in made.explain(x)
        np.testing.assert_allclose(tg.compile(slopes, threads=threads)(x), d, rtol=1e-12)


def test_a_loop_without_tapes_asks_for_no_memory():
    def f(x):
        return that_needs_no_tape(tg.while_loop, x)

    program = tg.grad(f).lower(INPUTS[0]).specialisation.lowering.plan.program
    assert not program.at(Place.GROWING)
    assert not any(isinstance(s, (Grow, Copy)) for s in all_steps(program.steps))


def test_an_error_in_the_loop_gives_the_memory_back():
    def f(x, k):
        def body(s):
            u, i = s
            return u * u * x[k + i], i + 1

        u, _ = tg.while_loop(lambda s: s[1] < 40, body, (x, 0))
        x[0] = 7.0
        return np.sum(u)

    made = tg.grad(f, argnums=0)
    x = np.ones(50_000)
    before = None
    for _ in range(20):
        with pytest.raises(IndexError, match="index 50000 is out of bounds"):
            made(x, np.int64(49_970))
        before = before or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert x[0] == 1.0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 60_000, "kilobytes; each call takes about 12,000"


ENDLESS = """
    import resource
    import numpy as np
    import tracegrad as tg

    def f(x, go):
        u, _ = tg.while_loop(lambda s: s[1] < go, lambda s: (s[0] * s[0], s[1] + 1), (x, 0))
        x[0] = 7.0
        return np.sum(u)

    made = tg.grad(f, argnums=0, backend="{backend}")
    x = np.ones(1_000_000)
    made(x, np.int64(2))
    x[:] = 1.0
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 300_000_000,) * 2)
    try:
        made(x, np.int64(2**62))
    except MemoryError as e:
        assert x[0] == 1.0
        assert isinstance(e, tg.errors.TracegradError) and e.kind == "out_of_memory"
        assert "max_trips" in e.remedy and e.loc.line == 7, e.loc
        print(e.message)
    d = made(x, np.int64(2))
    assert d[1] == 4.0 and x[0] == 7.0
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux has them")
@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_a_loop_without_end_is_a_memory_error(backend):
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ENDLESS.format(backend=backend))],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("no memory for ") and "iterations of a while_loop" in ran.stdout


def test_names_of_the_user_are_not_those_of_the_library():
    def f(realloc, free, more):
        grown, done = realloc * 1.0, free * 1.0

        def body(s):
            tg_grow, room = s
            return np.sin(tg_grow) * room, room * more

        grown, done = tg.while_loop(lambda s: s[1] < 9.0, body, (grown, done))
        return grown * done

    x = (0.3, 1.1, 1.7)
    eps = 1e-6
    wanted = [(f(*x[:k], x[k] + eps, *x[k + 1 :]) - f(*x)) / eps for k in range(3)]
    np.testing.assert_allclose(tg.grad(f, argnums=(0, 1, 2))(*x), wanted, rtol=1e-4)


# ----------------------------------------------------------------------------------- refusals


def test_a_memory_limit_cannot_be_promised():
    f = unbounded(of_a_number)
    with pytest.raises(tg.errors.MemoryLimitError, match="max_trips") as caught:
        tg.grad(f, memory_limit="1MB")(INPUTS[0])
    assert caught.value.loc is not None
    wanted = tg.grad(f)(INPUTS[0])
    limited = tg.grad(bounded(of_a_number), memory_limit="1MB")
    np.testing.assert_array_equal(limited(INPUTS[0]), wanted)
    assert tg.compile(f, memory_limit="1MB")(INPUTS[0]) == f(INPUTS[0])


def test_exported_functions_ask_for_no_memory(tmp_path):
    specs = [tg.spec((3,))]
    f = unbounded(of_a_number)
    with pytest.raises(tg.errors.ExportError, match="max_trips") as caught:
        tg.export(tg.grad(f), specs, tmp_path / "grown", name="grown")
    assert caught.value.loc is not None
    assert not (tmp_path / "grown").exists()
    tg.export(tg.compile(f), specs, tmp_path / "value", name="value")
    tg.export(tg.grad(bounded(of_a_number)), specs, tmp_path / "fixed", name="fixed")
    for name in ("value", "fixed"):
        assert "alloc" not in (tmp_path / name / f"{name}.c").read_text()


def test_explain_says_what_grows():
    rows = tg.grad(unbounded(of_a_vector)).explain(INPUTS[0]).splitlines()
    assert any("24 bytes for each iteration of a while_loop" in row for row in rows)
    assert not any("growing" in r for r in tg.compile(unbounded(of_a_vector)).explain(INPUTS[0]))
