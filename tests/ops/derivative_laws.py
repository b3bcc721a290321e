"""Laws that every op keeps, checked on its samples: used by the test files of the op families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.autodiff.jvp import jvp_graph
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph, Literal, Value
from tracegrad.graph.op import NoGradient, OpDef, Sample
from tracegrad.types import TensorType

STEP = 1e-6


def type_of(x: np.ndarray) -> TensorType:
    return TensorType(x.shape, dtypes.of(x.dtype))


def build(f: Callable[..., Any], *arrays: np.ndarray) -> Graph:
    """The graph of ``f(b, *values)``, which returns a value or a tuple of them."""
    b = GraphBuilder("f")
    xs = [b.input(type_of(a), f"x{k}", tracked=True) for k, a in enumerate(arrays)]
    out = f(b, *xs)
    return b.finish(out if isinstance(out, tuple) else (out,))


def call(f: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The single output of ``f(b, *values)`` on `arrays`."""
    return evaluate(build(f, *arrays), arrays)[0]


def sample_graph(op: OpDef, sample: Sample) -> tuple[Graph, list[np.ndarray]]:
    """A graph of one node, its array operands made inputs."""
    arrays = [np.asarray(x) for x in sample.operands if not isinstance(x, Literal)]

    def f(b: GraphBuilder, *values: Value) -> Any:
        rest = iter(values)
        return b.emit(
            op, [x if isinstance(x, Literal) else next(rest) for x in sample.operands], sample.attrs
        )

    return build(f, *arrays), arrays


def check_samples(op: OpDef, rng: np.random.Generator) -> None:
    """Shape rule against reference, and derivatives of float64 samples."""
    samples = list(op.samples(rng))
    assert samples
    differentiated = 0
    for sample in samples:
        graph, arrays = sample_graph(op, sample)
        for value, array in zip(graph.outputs, evaluate(graph, arrays), strict=True):
            assert value.type == type_of(np.asarray(array)), (op, sample)
        if isinstance(op.derivative, NoGradient) or graph.outputs[0].dtype is not dtypes.F64:
            continue
        if all(np.isfinite(a).all() for a in arrays):
            differentiated += 1
            check_derivatives(graph, arrays)
    assert differentiated or isinstance(op.derivative, NoGradient), op


def numeric(
    f: Callable[..., np.ndarray],
    xs: Sequence[np.ndarray],
    wrt: Sequence[int],
    ts: Sequence[np.ndarray],
) -> np.ndarray:
    """Central difference of ``f(*xs)`` along `ts`."""
    ends = []
    for sign in (1, -1):
        moved = list(xs)
        for k, t in zip(wrt, ts, strict=True):
            moved[k] = xs[k] + sign * STEP * t
        ends.append(f(*moved))
    return (ends[0] - ends[1]) / (2 * STEP)


def check_derivatives(graph: Graph, xs: Sequence[np.ndarray], second: bool = True) -> None:
    """jvp against differences, vjp against jvp, and (`second`) the same of the vjp."""
    rng = np.random.default_rng(7)
    xs = list(xs)
    wrt = [k for k, x in enumerate(xs) if x.dtype == np.float64]
    ts = [rng.standard_normal(xs[k].shape) for k in wrt]
    value = evaluate(graph, xs)[0]
    ct = rng.standard_normal(value.shape)

    tangent = evaluate(jvp_graph(graph, wrt), [*xs, *ts])[1]
    expected = numeric(lambda *a: evaluate(graph, a)[0], xs, wrt, ts)
    np.testing.assert_allclose(tangent, expected, rtol=2e-6, atol=2e-6)

    joint = vjp_graph(graph, wrt)
    grads = evaluate(joint, [*xs, ct])[1:]
    for k, g in zip(wrt, grads, strict=True):
        assert g.shape == xs[k].shape
    ours = sum(float(np.sum(g * t)) for g, t in zip(grads, ts, strict=True))
    np.testing.assert_allclose(ours, np.sum(ct * tangent), rtol=1e-9, atol=1e-9)

    if second:
        flat = build_flat(cotangents(graph, wrt))
        check_derivatives(flat, [*xs, ct], second=False)


def cotangents(
    graph: Graph, wrt: Sequence[int], seeds: Sequence[float | None] | None = None
) -> Graph:
    """The vjp of `graph` without the outputs of `graph` itself."""
    joint = vjp_graph(graph, wrt, seeds=seeds)
    return replace(joint, outputs=joint.outputs[len(graph.outputs) :], alias=None)


def build_flat(graph: Graph) -> Graph:
    """`graph` with one output: a fixed weighted sum of its outputs' elements."""
    from tracegrad.ops.arithmetic import add, mul
    from tracegrad.ops.create import iota
    from tracegrad.ops.reduce import sum_

    b = GraphBuilder(graph.name)
    for x in graph.inputs:
        b.inputs.append(x)
        b.tracked.append(True)
    for node in graph.nodes:
        b.append(node)
    total: Any = Literal(0.25, dtypes.F64)
    for k, out in enumerate(graph.outputs):
        axes = tuple(range(len(out.shape)))
        weights: Any = Literal(k + 1.0, dtypes.F64)
        for axis in axes:
            place = iota(b, shape=out.shape, axis=axis, dtype=dtypes.F64)
            weights = add(b, mul(b, place, 0.5 + axis), weights)
        total = add(b, total, sum_(b, mul(b, out, weights), axes=axes))
    return b.finish((total,))
