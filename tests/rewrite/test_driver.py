"""The driver and the passes: merging, dead code, marks, places, random programs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.graphs import (
    EMPTY,
    EVEN,
    ODD,
    OTHER_ROW,
    PART_OF_ROW,
    ROW,
    TURNED,
    S,
    X,
    fill,
    make,
    padded,
    put,
    read,
    typed,
)
from tracegrad.dtypes import F32
from tracegrad.errors import VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Operand, Value
from tracegrad.graph.op import NoGradient, OpDef, Special, Trait
from tracegrad.graph.storage import (
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
    View,
)
from tracegrad.graph.text import canonical
from tracegrad.graph.verify import verify
from tracegrad.ops.arithmetic import add, mul, neg, sub
from tracegrad.ops.handles import graft, stop_gradient
from tracegrad.ops.index import wrap_index
from tracegrad.ops.views import as_strided, as_view, copy_slices
from tracegrad.rewrite.cleanup import drop_grafts, remove_dead
from tracegrad.rewrite.driver import cse, simplify
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType


def test_cse_merges_equal_nodes_and_only_those() -> None:
    g = make(
        lambda b, x, y: (
            add(b, x, y),
            add(b, y, x),
            sub(b, x, y),
            sub(b, y, x),
            mul(b, x, 0.0),
            mul(b, x, -0.0),
        ),
        X,
        X,
    )
    after = cse(g)
    assert len(after.nodes) == 5
    assert after.outputs[0] is after.outputs[1]
    assert after.outputs[4] is not after.outputs[5]


def test_dead_nodes_go_and_checks_stay() -> None:
    def build(b: GraphBuilder, x: Value, i: Value) -> Operand:
        mul(b, x, 7.0)
        wrap_index(b, i, size=3, axis=0)
        return add(b, x, 1.0)

    after = remove_dead(make(build, X, "i64[2]"))
    assert wrap_index.has(Trait.CHECKED)
    assert [n.op for n in after.nodes] == [wrap_index, add]


def test_effects_are_kept_apart() -> None:
    note = OpDef(
        name="note",
        infer=lambda a, x: (),
        reference=lambda a, x: None,
        derivative=NoGradient("it has no results"),
        lowering=Special("a test"),
        traits=frozenset({Trait.EFFECT}),
        samples=lambda rng: [],
    )

    def build(b: GraphBuilder, x: Value) -> Operand:
        b.emit(note, (x,))
        b.emit(note, (x,))
        return add(b, x, 1.0)

    after = simplify(make(build, X))
    assert [n.op for n in after.nodes] == [note, note, add]

    def of_copy(b: GraphBuilder, x: Value) -> Operand:
        b.emit(note, (mul(b, x, 1.0),))
        return add(b, x, 1.0)

    after = simplify(make(of_copy, X))
    assert [n.op for n in after.nodes] == [note, add]
    assert after.nodes[0].operands == after.inputs and after.nodes[0].results == ()


def test_grafts_are_kept_until_dropped() -> None:
    g = make(lambda b, x, y: add(b, graft(b, x, y), stop_gradient(b, x)), X, X)
    assert len(simplify(g).nodes) == 3
    after = drop_grafts(g)
    assert [n.op for n in after.nodes] == [add]
    assert after.nodes[0].operands == (after.inputs[0], after.inputs[0])


def test_nodes_without_gradients_are_left_until_marks_are_dropped() -> None:
    def build(b: GraphBuilder, x: Value) -> Operand:
        b.grad = False
        once = neg(b, x)
        b.grad = True
        return neg(b, once)

    g = make(build, X)
    assert len(simplify(g).nodes) == 2
    assert simplify(drop_grafts(g)).outputs == (g.inputs[0],)


def test_replacements_have_the_place_of_the_root() -> None:
    b = GraphBuilder("f")
    x = b.input(typed(X), "x")
    with b.at(SourceLoc("a.py", 1, 0, 1)):
        inner = neg(b, x)
    with b.at(SourceLoc("a.py", 2, 0, 1)):
        out = mul(b, inner, 3.0)
    after = simplify(b.finish([out]))
    assert [n.loc.line for n in after.nodes] == [2]


def test_copy_slices_gradient_becomes_one_write() -> None:
    """The backward graph of ``v = y[1]; v *= 3``: the rule that gives PyTorch's CopySlices."""

    def build(b: GraphBuilder, ct: Value) -> Operand:
        g0 = as_view(b, ct, Index((NewAxis(), NewAxis())), Expand((4, 3)))
        g3 = mul(b, read(b, g0, ROW), 3.0)
        return mul(b, add(b, put(b, g0, 0.0, ROW), padded(b, g3, ROW)), 2.0)

    graph = make(build, "f64[]")
    after = simplify(graph)
    assert [n.op.name for n in after.nodes] == [
        "as_strided",
        "as_strided",
        "mul",
        "copy_slices",
        "mul",
    ]
    np.testing.assert_array_equal(
        evaluate(after, [np.asarray(1.0)])[0],
        np.where(np.arange(4)[:, None] == 1, 6.0, 2.0) * np.ones((4, 3)),
    )


def test_a_long_chain_is_rewritten_in_one_go() -> None:
    def build(b: GraphBuilder, x: Value) -> Operand:
        for _ in range(20_000):
            x = mul(b, neg(b, x), 1.0)
        return x

    assert simplify(make(build, "f64[2]")).outputs[0].hint == "x0"


def test_time_steps_can_still_run_in_place() -> None:
    """Each write keeps the state before it as its base, and no old state is read after a write."""
    middle, left = (View((Index((Span(k, 6),)),)) for k in (1, 0))
    edge = View((Index((Pick(0),)),))

    def build(b: GraphBuilder, u: Value) -> tuple[Operand, ...]:
        seen = []
        for _ in range(3):
            step = mul(b, read(b, u, left), read(b, u, middle))
            u = copy_slices(b, u, step, view=middle, shape=(8,))
            seen.append(read(b, u, edge))
        return (u, *seen)

    graph = make(build, "f64[8]")
    after = simplify(graph)
    writes = [n for n in after.nodes if n.op is copy_slices]
    states = [graph.inputs[0], *(n.result for n in writes)]
    assert [n.operands[0] for n in writes] == states[:3]
    for node in after.nodes:
        if node.op is as_strided and node.operands[0] in states:
            state = states.index(node.operands[0])
            assert state == 3 or after.nodes.index(node) < after.nodes.index(writes[state])


def test_random_programs_keep_their_meaning() -> None:
    """Random graphs of arithmetic, views and writes, before and after."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = make(lambda b, *xs, r=rng: random_program(b, r, list(xs)), X, X, S)
        after = simplify(graph)
        verify(after)
        assert canonical(simplify(after)) == canonical(after), seed
        inputs = [rng.normal(size=v.shape) for v in graph.inputs]
        for a, b in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"seed {seed}")


def random_program(
    b: GraphBuilder, rng: np.random.Generator, xs: list[Operand]
) -> tuple[Operand, ...]:
    views = [
        ROW,
        OTHER_ROW,
        EVEN,
        ODD,
        PART_OF_ROW,
        TURNED,
        View((Reshape((12,)),)),
        EMPTY,
        View((Index((Span(3, 4, -1), Pick(1))),)),
        View((Reshape((2, 6)), Permute((1, 0)))),
    ]
    by_shape: dict[tuple[int, ...], list[Operand]] = {}

    def keep(x: Operand) -> None:
        by_shape.setdefault(x.shape, []).append(x)

    def pick(shape: tuple[int, ...]) -> Operand:
        pool = by_shape.get(shape)
        if not pool:
            return fill(b, float(rng.choice([0.0, 1.0, 2.0])), shape)
        return pool[rng.integers(len(pool))]

    for x in xs:
        keep(x)
    for _ in range(25):
        view = views[rng.integers(len(views))]
        base, part = pick((4, 3)), view.shape((4, 3))
        shape = list(by_shape)[rng.integers(len(by_shape))]
        kind = rng.integers(7)
        if kind == 0:
            keep(read(b, base, view))
        elif kind == 1:
            keep(put(b, base, pick(part), view))
        elif kind == 2:
            keep(add(b, base, padded(b, pick(part), view)))
        elif kind == 3:
            keep(put(b, base, 0.0, view))
        elif kind == 4:
            op = (add, sub, mul)[rng.integers(3)]
            keep(op(b, pick(shape), pick(shape)))
        elif kind == 5:
            keep(mul(b, pick(shape), float(rng.choice([1.0, -1.0, 0.5]))))
        else:
            keep(neg(b, pick(shape)))
    return tuple(pool[-1] for pool in by_shape.values())


def test_traced_graphs_are_refused() -> None:
    from tracegrad.graph.ir import Stage

    b = GraphBuilder("f", Stage.TRACED)
    x = b.input(TensorType((2,), F32), "x")
    with pytest.raises(VerifyError, match="only functional graphs"):
        simplify(b.finish([x]))
