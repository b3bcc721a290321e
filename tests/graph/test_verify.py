"""The verifier: graphs that break one invariant each, and the text around the place."""

from __future__ import annotations

import pytest

from tracegrad.dtypes import BOOL, F64
from tracegrad.errors import VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import AliasReport, Graph, Node, Stage, Value, WriteBack
from tracegrad.graph.storage import Index, Pick, View
from tracegrad.graph.text import parse_graph
from tracegrad.graph.verify import verify
from tracegrad.ops.arithmetic import add, mul
from tracegrad.ops.handles import HandleAttrs, stop_gradient, view
from tracegrad.ops.views import ViewAttrs, as_strided
from tracegrad.types import TensorType

ROW = View((Index((Pick(0),)),))


def functional(
    body: str, inputs: str = "%x: f64[3], %c: f64[]", returns: str = "%x", types: str = "f64[3]"
) -> Graph:
    return parse_graph(
        f"graph @f({inputs}) -> ({types}) stage=functional {{\n  {body}\n  return {returns}\n}}\n"
    )


def traced(body: str) -> Graph:
    return parse_graph(
        f"graph @f(%x: f64[3] in s0) -> (f64[3]) stage=traced {{\n  {body}\n  return %x\n}}\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "%y = add(%x, %x) : f64[3]",
        "%y = add(%x, 1.0) : f64[3]",
        "%y = add(%c, %c) : f64[]",
        "%y = copy_slices(0.0, %c) {view = [1], shape = [3]} : f64[3]",
        "%y = full() {shape = [2], value = 1:i64} : i64[2]",
        '%y = constant() {data = "f64[2]: 1.0 2.0"} : f64[2]',
    ],
)
def test_sound_functional_nodes_pass(body: str) -> None:
    verify(functional(body), Stage.FUNCTIONAL)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y = add(%x, %x) : f64[4]", r"add gives f64\[3\] by its shape rule"),
        ("%y = add(%x, 1:i64) : f64[3]", "add rejects its operands"),
        ("%y = add(%x, %c) : f64[3]", r"c of shape \(\) stands for a tensor of shape \(3,\)"),
        ("%y = copy_slices(%c, 0.0) {view = [1], shape = [3]} : f64[3]", r"c of shape \(\) stands"),
        ("%y = view(%x) {view = [1]} : f64[]", "legal in the traced stage only"),
        ("%y = detach(%x) : f64[3]", "legal in the traced stage only"),
        ("%y = square(%x) : f64[3]", "must be decomposed"),
        ("add_(%x, 1.0) writes s0", "writes through a target in the functional stage"),
        ("%y = add(%x, %x) : f64[3] in s1", "has a storage in the functional stage"),
    ],
)
def test_broken_functional_nodes_are_named(body: str, message: str) -> None:
    inputs = "%x: f64[3] in s0, %c: f64[]" if "writes" in body else "%x: f64[3], %c: f64[]"
    graph = functional(body, inputs)
    if "writes" in body:
        x = Value(TensorType((3,), F64), "x")
        node = graph.nodes[0]
        graph = Graph(
            "f",
            Stage.FUNCTIONAL,
            (x,),
            (Node(node.op, (x, *node.operands[1:]), node.attrs, (), (), x),),
            (x,),
        )
    with pytest.raises(VerifyError, match=message):
        verify(graph)


@pytest.mark.parametrize(
    "body",
    [
        "add_(%x, 1.0) writes s0",
        "%v = view(%x) {view = [1:3]} : f64[2] in s0",
        "mul(2.0, %x) -> %x writes s0",
    ],
)
def test_sound_traced_nodes_pass(body: str) -> None:
    verify(traced(body), Stage.TRACED)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%v = view(%x) {view = [1:3]} : f64[2] in s1", "leaves the storage of its operand"),
        ("%y = add(%x, 1.0) : f64[3]", "has no storage in the traced stage"),
        ("gt(%x, 1.0) -> %x writes s0", r"writes bool\[3\] through a target of type f64\[3\]"),
    ],
)
def test_broken_traced_nodes_are_named(body: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(traced(body))


def test_the_wrong_stage_is_refused() -> None:
    with pytest.raises(VerifyError, match="graph f is traced, not functional"):
        verify(traced("add_(%x, 1.0) writes s0"), Stage.FUNCTIONAL)


def test_uses_before_definitions_and_double_definitions() -> None:
    b = GraphBuilder("f")
    x = b.input(TensorType((3,), F64), "x")
    first = add(b, x, 1.0)
    second = mul(b, first, 2.0)
    g = b.finish([second])
    swapped = Graph("f", g.stage, g.inputs, tuple(reversed(g.nodes)), g.outputs, g.tracked)
    with pytest.raises(VerifyError, match="mul uses add, which is not made before"):
        verify(swapped)
    doubled = Graph("f", g.stage, g.inputs, (*g.nodes, g.nodes[0]), g.outputs, g.tracked)
    with pytest.raises(VerifyError, match="add is made twice"):
        verify(doubled)
    alien = Graph("f", g.stage, g.inputs, g.nodes, (Value(x.type, "alien"),), g.tracked)
    with pytest.raises(VerifyError, match="the graph returns alien"):
        verify(alien)


def test_attributes_have_the_class_of_the_op() -> None:
    x = Value(TensorType((3,), F64), "x")
    out = Value(TensorType((), F64), "y")
    node = Node(as_strided, (x,), HandleAttrs(ROW), (out,))
    with pytest.raises(VerifyError, match="attributes HandleAttrs, not ViewAttrs"):
        verify(Graph("f", Stage.FUNCTIONAL, (x,), (node,), (out,)))
    assert view.attrs is HandleAttrs and as_strided.attrs is ViewAttrs


def test_alias_report_names_existing_outputs() -> None:
    b = GraphBuilder("f")
    x = b.input(TensorType((3,), F64), "x")
    with pytest.raises(VerifyError, match="outputs that do not exist"):
        verify(b.finish([x], AliasReport(1, (WriteBack(0, 1),))))


def test_regions_are_verified() -> None:
    b = GraphBuilder("body")
    c = b.input(TensorType((3,), F64), "c")
    region = b.finish([Value(c.type, "nowhere")])
    b = GraphBuilder("f")
    x = b.input(TensorType((3,), F64), "x")
    y = b.emit(stop_gradient, (x,), regions=(region,))
    with pytest.raises(VerifyError, match="graph body: the graph returns nowhere"):
        verify(b.finish([y]))


def test_the_message_shows_the_lines_around() -> None:
    b = GraphBuilder("f")
    x = b.input(TensorType((3,), F64), "x")
    y = x
    for _ in range(20):
        y = add(b, y, 1.0)
    b.append(Node(add, (y, y), add.attrs(), (Value(TensorType((3,), BOOL), "bad"),)))
    for _ in range(20):
        y = add(b, y, 1.0)
    with pytest.raises(VerifyError) as e:
        verify(b.finish([y]))
    lines = e.value.message.split("\n")[1:]
    assert len(lines) == 11
    assert lines[5] == "->   %bad = add(%add.19, %add.19) : bool[3]"
    assert [k for k, line in enumerate(lines) if line.startswith("->")] == [5]
