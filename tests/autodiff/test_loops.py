"""Loops: values, derivatives of both modes and second order, plans and C against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad.autodiff  # noqa: F401
from tests.autodiff.loop_programs import PROGRAMS, LoopProgram
from tracegrad.autodiff.jvp import jvp_graph
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.codegen.unit import render
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.interpret import run_program
from tracegrad.loops.program import Place
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.options import Options
from tracegrad.pipeline import optimize
from tracegrad.runtime.cpu import load
from tracegrad.schedule.plan import make_plan

programs = pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)


def gradient(p: LoopProgram):
    wrt = range(len(p.inputs))
    seeds = [1.0] + [None] * (len(p.graph.outputs) - 1)
    return vjp_graph(p.graph, list(wrt), seeds=seeds)


def directions(p: LoopProgram, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(x.shape)) for x in p.inputs]


def moved(p: LoopProgram, ds, h):
    return [x + h * d for x, d in zip(p.inputs, ds, strict=True)]


@programs
def test_value(p):
    verify(p.graph)
    for got, want in zip(evaluate(p.graph, p.inputs), p.reference(*p.inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@programs
def test_gradient_by_differences(p):
    joint = gradient(p)
    verify(joint)
    ds, h = directions(p), 1e-6
    grads = evaluate(joint, p.inputs)[len(p.graph.outputs) :]
    got = sum(np.sum(g * d) for g, d in zip(grads, ds, strict=True))
    want = (p.reference(*moved(p, ds, h))[0] - p.reference(*moved(p, ds, -h))[0]) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


@programs
def test_forward_mode_agrees_with_reverse(p):
    forward = jvp_graph(p.graph, list(range(len(p.inputs))))
    verify(forward)
    ds = directions(p)
    n = len(p.graph.outputs)
    dot = evaluate(forward, [*p.inputs, *ds])[n]
    grads = evaluate(gradient(p), p.inputs)[n:]
    np.testing.assert_allclose(
        dot, sum(np.sum(g * d) for g, d in zip(grads, ds, strict=True)), rtol=1e-12
    )


@programs
def test_second_order(p):
    joint = gradient(p)
    n = len(p.graph.outputs)
    seeds = [None] * n + [1.0] + [None] * (len(p.inputs) - 1)
    twice = vjp_graph(joint, list(range(len(p.inputs))), seeds=seeds)
    verify(twice)
    ds, h = directions(p, 1), 1e-5
    found = evaluate(twice, p.inputs)[len(joint.outputs) :]
    got = sum(np.sum(g * d) for g, d in zip(found, ds, strict=True))

    def first(xs):
        return np.sum(evaluate(joint, xs)[n])

    want = (first(moved(p, ds, h)) - first(moved(p, ds, -h))) / (2 * h)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@programs
@pytest.mark.parametrize("what", ["value", "gradient", "tangent"])
def test_text_simplified_interpreted_and_compiled(p, what):
    graph, inputs = p.graph, list(p.inputs)
    if what == "gradient":
        graph = gradient(p)
    elif what == "tangent":
        graph = jvp_graph(p.graph, list(range(len(p.inputs))))
        inputs += directions(p)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    want = evaluate(graph, inputs)
    simple = optimize(graph)
    verify(simple)
    for got, ref in zip(evaluate(simple, inputs), want, strict=True):
        np.testing.assert_allclose(got, ref, rtol=1e-12, atol=1e-14)
    plan = make_plan(simple)
    verify_program(plan.program)
    lines = print_program(plan.program)
    assert print_program(parse_program(lines, REGISTRY.intrinsics())) == lines
    flat = [np.zeros(int(b.size), b.dtype.np) for b in plan.program.at(Place.OUTPUT)]
    assert run_program(plan.program, [np.array(x).reshape(-1) for x in inputs], flat)[0] == 0
    compiled = load(plan.program, render(plan.program, shim=True, embed_all=False), Options())
    out = compiled(*inputs)
    for slot, ref in zip(plan.outputs, want, strict=True):
        np.testing.assert_allclose(flat[slot.index].reshape(ref.shape), ref, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(out[slot.index], ref, rtol=1e-12, atol=1e-14)
