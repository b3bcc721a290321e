"""Cotangents of an array that nested loops read are added in place: nothing per outer iteration."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.loops.ir import For, Reduce
from tracegrad.loops.program import HostLoop, all_steps, launches
from tracegrad.loops.transform import statements

N, M = 500, 9


def by_row(a):
    out = np.zeros(len(a))
    for i in range(len(a)):
        s = 0.0
        for j in range(a.shape[1]):
            s += np.sin(a[i, j])
        out[i] = s
    return np.sum(out**2)


def by_while(a):
    out = np.zeros(len(a))
    for i in range(len(a)):
        out[i] = tg.while_loop(
            lambda c: c[0] < 4, lambda c, i=i: (c[0] + 1, c[1] * a[i, 0]), (0, 1.0), max_trips=6
        )[1]
    return np.sum(out**2)


def after_another_use(a):
    return by_row(a) + np.sum(a * a)


@pytest.mark.parametrize("f", [by_row, by_while, after_another_use])
def test_no_array_is_touched_whole_in_each_iteration(f):
    a = np.random.default_rng(0).uniform(0.5, 1.0, (N, M))
    g = tg.grad(f)
    steps = g.lower(a).specialisation.lowering.plan.program.steps
    inside = [s for loop in steps if isinstance(loop, HostLoop) for s in launches((loop,))]
    assert len([s for s in all_steps(steps) if isinstance(s, HostLoop)]) >= 2
    for launch in inside:
        for s in statements(launch.kernel.body):
            extents = [s.extent] if isinstance(s, For) else []
            extents += [n for _, n in s.loops] if isinstance(s, Reduce) else []
            assert all(n <= M for n in extents), launch.kernel.name
    tg.check_grads(f, (a,), order=1, modes=("rev",))
