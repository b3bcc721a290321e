"""Laws that every op obeys, from its declaration alone: a new op has these tests at once."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad.ops  # noqa: F401  (fills the registry)
from tests.ops.derivative_laws import check_samples
from tracegrad import dtypes
from tracegrad.codegen.unit import render
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph, Literal, Stage
from tracegrad.graph.op import REGISTRY, Decompose, NoGradient, OpDef, Sample, Special, Trait
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.interpret import run_program
from tracegrad.loops.program import Place
from tracegrad.options import Options
from tracegrad.runtime.cpu import load
from tracegrad.schedule.plan import Plan, make_plan
from tracegrad.types import TensorType

OPS = sorted(REGISTRY, key=lambda op: op.name)
SAMPLED = [op for op in OPS if op.samples(np.random.default_rng(0))]
LOWERED = [op for op in SAMPLED if not isinstance(op.lowering, Special)]


def by_name(op: OpDef) -> str:
    return op.name


def graph_of(op: OpDef, samples: list[Sample]) -> tuple[Graph, list[np.ndarray]]:
    """All samples of an op as one graph: every node's results are outputs."""
    b = GraphBuilder(f"check_{op.name}", Stage.FUNCTIONAL)
    inputs, outputs = [], []
    for sample in samples:
        operands = []
        for x in sample.operands:
            if isinstance(x, Literal):
                operands.append(x)
                continue
            operands.append(b.input(TensorType(x.shape, dtypes.of(x.dtype)), "x"))
            inputs.append(np.array(x, order="C"))
        if isinstance(op.lowering, Decompose):
            out = op.lowering.build(b, sample.attrs, *operands)
        else:
            out = b.emit(op, operands, sample.attrs)
        outputs.extend(out if isinstance(out, tuple) else (out,))
    return b.finish(outputs), inputs


def outputs_of(plan: Plan, flat: list[np.ndarray]) -> list[np.ndarray]:
    return [flat[slot.index] for slot in plan.outputs]


def assert_close(got: np.ndarray, want: np.ndarray, what: str) -> None:
    want = np.asarray(want)
    assert got.dtype == want.dtype, what
    got = got.reshape(want.shape)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    eps = np.finfo(want.dtype).eps
    np.testing.assert_allclose(got, want, rtol=32 * eps, atol=32 * eps, err_msg=what)


@pytest.mark.parametrize("op", SAMPLED, ids=by_name)
def test_shape_rule_agrees_with_the_reference(op: OpDef) -> None:
    for sample in op.samples(np.random.default_rng(1)):
        arrays = [
            np.asarray(x.value, x.dtype.np) if isinstance(x, Literal) else x
            for x in sample.operands
        ]
        types = op.infer(sample.attrs, *[TensorType(a.shape, dtypes.of(a.dtype)) for a in arrays])
        values = op.reference(sample.attrs, *arrays)
        for t, v in zip(
            types if isinstance(types, tuple) else (types,),
            values if isinstance(values, tuple) else (values,),
            strict=True,
        ):
            assert (t.shape, t.dtype.np) == (np.shape(v), v.dtype)


@pytest.mark.parametrize("op", LOWERED, ids=by_name)
def test_reference_interpreter_and_c_agree(op: OpDef) -> None:
    graph, inputs = graph_of(op, list(op.samples(np.random.default_rng(2))))
    verify(graph)
    want = evaluate(graph, inputs)
    plan = make_plan(graph)
    flat = [
        np.zeros(b.data.size if b.data is not None else int(b.size), b.dtype.np)
        for b in plan.program.at(Place.OUTPUT)
    ]
    status, _ = run_program(plan.program, [x.reshape(-1).copy() for x in inputs], flat)
    assert status == 0
    for k, (got, ref) in enumerate(zip(outputs_of(plan, flat), want, strict=True)):
        assert_close(got, ref, f"{op.name}: interpreter, result {k}")
    unit = render(plan.program, shim=True, embed_all=False)
    compiled = load(plan.program, unit, Options())
    assert compiled.kind in ("launcher", "ctypes")
    for k, (got, ref) in enumerate(zip(outputs_of(plan, compiled(*inputs)), want, strict=True)):
        assert_close(got, ref, f"{op.name}: compiled, result {k}")


@pytest.mark.parametrize("op", SAMPLED, ids=by_name)
def test_text_round_trip(op: OpDef) -> None:
    graph, _ = graph_of(op, list(op.samples(np.random.default_rng(3)))[:6])
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text


@pytest.mark.parametrize(
    "op",
    [op for op in SAMPLED if not isinstance(op.derivative, NoGradient) and not op.has(Trait.HIDES)],
    ids=by_name,
)
def test_derivatives(op: OpDef) -> None:
    check_samples(op, np.random.default_rng(4))


@pytest.mark.parametrize("op", OPS, ids=by_name)
def test_no_gradient_has_a_reason(op: OpDef) -> None:
    if isinstance(op.derivative, NoGradient):
        assert len(op.derivative.reason.split()) >= 3
