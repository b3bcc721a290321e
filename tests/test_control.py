"""`scan`, `fori_loop`, `while_loop`, `cond`, `switch`: compiled = interpreted = run as Python."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import tracegrad as tg
from tests.control_programs import INPUTS, PROGRAMS, branch_of_values, until
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.ops import REGISTRY
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
