"""The proof that iterations are independent: against enumeration, and by running them shuffled."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

import tracegrad as tg
from tests.parallel_programs import PROGRAMS
from tracegrad.dims import add, evaluate, mul, symbol
from tracegrad.errors import UnsupportedError
from tracegrad.loops import interpret
from tracegrad.loops.program import Place, all_steps
from tracegrad.schedule.parallel import never_zero

N = 9


def values(d, spans):
    """Every value of `d`; `spans` are (name, lo, hi), hi perhaps a name: below that symbol."""
    found = set()
    ranges = [range(lo, (hi if isinstance(hi, int) else 4) + 1) for _, lo, hi in spans]
    for at in itertools.product(*ranges):
        env = {name: k for (name, _, _), k in zip(spans, at, strict=True)}
        if all(isinstance(hi, int) or env[name] <= env[hi] - 1 for name, _, hi in spans):
            found.add(evaluate(d, env))
    return found


def test_what_is_proved_is_never_zero():
    rng = np.random.default_rng(0)
    proved = possible = 0
    for _ in range(3000):
        spans = [("i", 0, int(rng.integers(0, 5))), ("d", 0, int(rng.integers(0, 5)))]
        spans.append(("j", 0, "i") if rng.random() < 0.3 else ("j", 0, int(rng.integers(0, 5))))
        below = add(symbol(*spans[0]), -1)
        symbols = {n: symbol(n, lo, hi if isinstance(hi, int) else below) for n, lo, hi in spans}
        d = int(rng.integers(-12, 13))
        for s in symbols.values():
            d = add(d, mul(s, int(rng.choice([-10, -5, -3, -2, -1, 0, 1, 2, 5, 10]))))
        certain = 0 not in values(d, spans)
        if never_zero(d):
            assert certain, d
        proved += never_zero(d)
        possible += certain
    assert proved > 0.85 * possible


def test_rows_columns_and_diagonals_are_proved():
    i, j, k = symbol("i", 0, 6), symbol("j", 0, 7), symbol("k", 0, 7)
    gap = symbol("gap", 0, add(6, mul(i, -1)))
    later = add(add(i, 1), gap)
    for row in (lambda x, y: add(mul(x, 8), y), lambda x, y: add(mul(y, 8), x)):
        assert never_zero(add(row(i, j), mul(row(later, k), -1)))
    assert never_zero(add(mul(i, 9), mul(later, -9)))
    assert never_zero(add(mul(i, 9), mul(add(mul(k, 8), later), -1)))
    assert not never_zero(add(add(mul(i, 8), j), mul(add(mul(k, 8), later), -1)))


def elements(pattern, i):
    first, step, width = pattern
    return set(range(first + step * i, first + step * i + width))


@pytest.mark.parametrize("seed", range(3))
def test_loops_are_accepted_just_where_their_elements_are_apart(seed):
    rng = np.random.default_rng(seed)

    def pattern():
        step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
        return int(rng.integers(0, 4)) + 27 * (step < 0), step, int(rng.integers(1, 4))

    for _ in range(25):
        write, read = pattern(), pattern()

        def f(x, write=write, read=read):
            y = x * 1.0
            for i in tg.range(N, parallel=True):
                a, b = write[0] + write[1] * i, read[0] + read[1] * i
                y[a : a + write[2]] = 2.0 * np.sum(y[b : b + read[2]])
            return y

        apart = all(
            not elements(write, i) & (elements(write, k) | elements(read, k))
            for i, k in itertools.permutations(range(N), 2)
        )
        try:
            tg.compile(f, backend="numpy")(np.ones(40))
            accepted = True
        except UnsupportedError as e:
            assert e.kind == "parallel"
            accepted = False
        assert accepted == apart, (write, read)


@pytest.mark.parametrize("name", PROGRAMS)
def test_iterations_in_any_order_with_temporaries_of_their_own(name, monkeypatch):
    """What the proof says: shuffled iterations, each from poisoned private buffers."""
    program, args = PROGRAMS[name]
    over = partial(tg.range, parallel=True)
    which = tuple(range(len(args)))
    loss = tg.value_and_grad(lambda *xs: np.sum(np.sin(program(over, *xs))), argnums=which)
    plan = tg.compile(loss, threads=3).lower(*args).specialisation.lowering.plan
    loops = [s for s in all_steps(plan.program.steps) if getattr(s, "workers", None)]
    assert loops
    rng = np.random.default_rng(1)
    in_order = interpret._run_loop

    def shuffled(loop, arrays, env):
        if loop.workers is None:
            return in_order(loop, arrays, env)
        trips = interpret.evaluate(loop.trips, env)
        for i in rng.permutation(trips):
            for held in loop.workers.private:
                arrays[held].view(np.uint8)[...] = 0xFF
            status, detail = interpret._run_steps(loop.body, arrays, env | {loop.var.name: int(i)})
            assert not status, detail
        return 0, 0

    def run():
        inputs = [np.ascontiguousarray(x).reshape(-1).copy() for x in args]
        outputs = [np.zeros(b.size, b.dtype.np) for b in plan.program.at(Place.OUTPUT)]
        interpret.run_program(plan.program, inputs, outputs)
        return outputs

    wanted = run()
    monkeypatch.setattr(interpret, "_run_loop", shuffled)
    for a, b in zip(run(), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
