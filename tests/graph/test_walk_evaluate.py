"""Walking, replaying and evaluating graphs."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import tracegrad.ops
from tracegrad import dims
from tracegrad.dtypes import F64, I64
from tracegrad.errors import ValueArgumentError, VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import REGISTRY, Decompose, Linear, OpDef, Special, Trait
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.graph.text import canonical, parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.graph.walk import (
    all_nodes,
    graphs,
    is_observable,
    last_uses,
    live_nodes,
    producers,
    rebuild,
    topological,
    use_counts,
    uses,
)
from tracegrad.ops.arithmetic import add, mul, sub
from tracegrad.ops.index import wrap_index
from tracegrad.ops.views import as_strided
from tracegrad.types import TensorType

VECTOR = TensorType((3,), F64)


def diamond() -> tuple[Graph, list[Value]]:
    b = GraphBuilder("f")
    x = b.input(VECTOR, "x")
    p = add(b, x, 1.0)
    q = mul(b, p, p)
    unused = sub(b, x, q)
    r = add(b, q, p)
    return b.finish([r, x, Literal(2.5, F64)]), [x, p, q, unused, r]


def _repeat(attrs: object, x: np.ndarray, regions: tuple) -> np.ndarray:  # type: ignore[type-arg]
    for _ in range(3):
        (x,) = regions[0](x)
    return x


# Its region applied three times: a stand-in for loops.
REPEAT = OpDef(
    name="repeat",
    infer=lambda a, x: x,
    reference=_repeat,
    derivative=Linear(lambda b, a, ct, xs: (ct,)),
    lowering=Special("a test"),
    samples=lambda rng: [],
)


@pytest.fixture
def repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the op known to the parser."""
    monkeypatch.setitem(REGISTRY._ops, "repeat", REPEAT)


def with_region(inner: str = "%y = mul(%x, 2.0) : f64[3]") -> Graph:
    return parse_graph(f"""graph @f(%x: f64[3]) -> (f64[3]) stage=functional {{
      %y = repeat(%x) : f64[3] {{
        graph @body(%x: f64[3]) -> (f64[3]) stage=functional {{
          {inner}
          return %y
        }}
      }}
      return %y
    }}""")


def test_uses_and_producers() -> None:
    g, (x, p, q, unused, r) = diamond()
    assert [(u.node.op, u.position) for u in uses(g)[p]] == [(mul, 0), (mul, 1), (add, 1)]
    assert uses(g)[unused] == []
    assert use_counts(g) == {x: 3, p: 3, q: 2, r: 1}
    assert producers(g)[q].op is mul and x not in producers(g)


def test_values_die_at_their_last_use_and_outputs_never() -> None:
    g, (_, p, q, unused, _) = diamond()
    assert [set(d) for d in last_uses(g)] == [set(), set(), {unused}, {p, q}]


def test_live_nodes() -> None:
    g, _ = diamond()
    assert live_nodes(g) == [True, True, False, True]


def test_topological_restores_an_order_and_finds_cycles() -> None:
    g, (x, *_) = diamond()
    assert topological(g.nodes, [x]) == list(g.nodes)
    shuffled = topological(reversed(g.nodes), [x])
    verify(Graph("f", g.stage, g.inputs, tuple(shuffled), g.outputs, g.tracked))
    with pytest.raises(VerifyError, match="uses a value that nothing makes"):
        topological(g.nodes[1:], [x])


def test_regions_are_walked_and_run(repeat: None) -> None:
    g = with_region()
    assert [r.name for r in graphs(g)] == ["f", "body"]
    assert [n.op.name for n in all_nodes(g)] == ["repeat", "mul"]
    verify(g)
    np.testing.assert_array_equal(evaluate(g, [np.arange(3.0)])[0], np.arange(3.0) * 8)
    assert print_graph(parse_graph(print_graph(g))) == print_graph(g)


def test_a_check_inside_a_region_is_observable(repeat: None) -> None:
    check = "%k = wrap_index(1:i64) {size = 3, axis = 0} : i64[]\n %y = mul(%x, 2.0) : f64[3]"
    assert wrap_index.has(Trait.CHECKED)
    assert is_observable(with_region(check).nodes[0])
    assert not is_observable(with_region().nodes[0])


def test_rebuild_changes_nodes_and_keeps_the_rest() -> None:
    g, _ = diamond()

    def swap(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Operand:
        op = mul if node.op is add else node.op
        return b.emit(op, operands, node.attrs)  # type: ignore[no-any-return]

    out = rebuild(g, swap)
    verify(out)
    assert [n.op for n in out.nodes] == [mul, mul, sub, mul]
    assert out.inputs == g.inputs and out.tracked == g.tracked
    same = rebuild(g, lambda b, node, xs: b.emit(node.op, xs, node.attrs))
    assert canonical(same) == canonical(g)


def test_evaluate_gives_numpys_values() -> None:
    g, _ = diamond()
    x = np.array([0.0, -1.0, 2.0])
    out = evaluate(g, [x])
    np.testing.assert_array_equal(out[0], (x + 1) ** 2 + (x + 1))
    assert out[2].shape == () and out[2] == 2.5


def test_evaluate_binds_symbolic_sizes() -> None:
    n = dims.symbol("n", 1)
    b = GraphBuilder("f")
    x = b.input(TensorType((n,), F64), "x")
    g = b.finish([mul(b, x, 2.0)])
    np.testing.assert_array_equal(evaluate(g, [np.ones(5)])[0], np.full(5, 2.0))


def test_evaluate_refuses_what_does_not_fit() -> None:
    g, _ = diamond()
    with pytest.raises(ValueArgumentError, match="takes 1 inputs, not 0"):
        evaluate(g, [])
    with pytest.raises(ValueArgumentError, match=r"input x of graph f is f64\[3\], not int64\[3\]"):
        evaluate(g, [np.arange(3)])
    b = GraphBuilder("t", Stage.TRACED)
    with pytest.raises(VerifyError, match="only functional graphs run"):
        evaluate(b.finish([b.input(VECTOR, "x")]), [np.zeros(3)])


def test_a_reference_that_breaks_its_shape_rule_is_found() -> None:
    x = Value(VECTOR, "x")
    out = Value(TensorType((2,), F64), "y")
    g = Graph("f", Stage.FUNCTIONAL, (x,), (Node(add, (x, x), add.attrs(), (out,)),), (out,))
    with pytest.raises(VerifyError, match=r"the reference of add gives float64\[3\]"):
        evaluate(g, [np.zeros(3)])


def test_long_graphs_are_walked_without_recursion() -> None:
    b = GraphBuilder("f")
    x = b.input(VECTOR, "x")
    part = as_strided(b, x, view=View((Index((Span(0, 3, 1),)),)))
    for _ in range(30_000):
        part = add(b, part, 1.0)
    g = b.finish([part])
    assert evaluate(g, [np.zeros(3)])[0][0] == 30_000
    verify(g)
    assert all(live_nodes(g)) and len(topological(g.nodes, [x])) == len(g.nodes)


def all_ops() -> list[object]:
    for module in pkgutil.iter_modules(tracegrad.ops.__path__):
        importlib.import_module(f"tracegrad.ops.{module.name}")
    return [op for op in REGISTRY if not op.has(Trait.TRACED_ONLY)]


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.name)
def test_samples_of_every_op_evaluate_verify_and_round_trip(op: object) -> None:
    for sample in list(op.samples(np.random.default_rng(0)))[:8]:  # type: ignore[attr-defined]
        b = GraphBuilder("sample")
        arrays = [x for x in sample.operands if not isinstance(x, Literal)]
        inputs = iter(
            [
                b.input(TensorType(x.shape, tracegrad.dtypes.of(x.dtype)), "x")
                for x in map(np.asarray, arrays)
            ]
        )
        xs = [x if isinstance(x, Literal) else next(inputs) for x in sample.operands]
        out = b.emit(op, xs, sample.attrs)  # type: ignore[arg-type]
        g = b.finish(out if isinstance(out, tuple) else (out,) if out is not None else ())
        if not isinstance(op.lowering, Decompose):  # type: ignore[attr-defined]
            verify(g)
        evaluate(g, [np.asarray(x) for x in arrays])
        again = parse_graph(print_graph(g))
        assert print_graph(again) == print_graph(g)
        for a, c in zip(g.nodes, again.nodes, strict=True):
            assert a.attrs == c.attrs


def test_picks_of_literal_indices_print_as_numbers() -> None:
    b = GraphBuilder("f")
    x = b.input(VECTOR, "x")
    y = as_strided(b, x, view=View((Index((Pick(2),)),)))
    assert "%y = as_strided(%x) {view = [2]} : f64[]" in print_graph(b.finish([y])).replace(
        "%as_strided", "%y"
    )
    assert Literal(1, I64) == Literal(1, I64)
