"""Text form of graphs: round trips, what is printed, and parse errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tracegrad import dims
from tracegrad.dtypes import F32, F64
from tracegrad.errors import ParseError, VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Stage
from tracegrad.graph.storage import (
    Index,
    Permute,
    Pick,
    View,
)
from tracegrad.graph.text import canonical, parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.ops.arithmetic import add, mul
from tracegrad.ops.views import copy_slices
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType

TRACED = """\
graph @f(%x: f32[4, 3] in s0 tracked, %n: i64[] in s1) -> (f32[], f64[]) stage=traced {
  %y = mul(%x, 2.0) : f32[4, 3] in s2 loc("demo.py":4:9)
  %v = view(%y) {view = [1, 0:3]} : f32[3] in s2 loc("demo.py":5:9)
  mul_(%v, 3.0) writes s2 loc("demo.py":6:5)
  mul(-inf, %v) -> %v writes s2 no_grad
  %y.1 = add(%y, -0.0) : f32[4, 3] in s3 loc("a b\\"c.py":1:1) no_grad
  %r = sum(%y.1) {axes = [0, 1]} : f32[] in s4
  return %r, 0.5:f64
  alias {results = 1, write_backs = [(0, 1)], aliases = [(0, 1, permute(1, 0))], notes = ["in place"]}
}
"""  # noqa: E501

CORPUS = [
    TRACED,
    "graph @empty() -> () stage=functional {\n  return\n}\n",
    'graph @"a b"(%x: bool[]) -> (bool[]) stage=functional {\n  return %x\n}\n',
    "graph @<lambda>(%x: bool[]) -> (bool[]) stage=functional {\n  return true:bool\n}\n",
    """\
graph @g[m, n: 1..](%x: f64[n, 2*m + 1]) -> (f64[n - 1, 2*m + 1]) stage=functional {
  %y = as_strided(%x) {view = [1:n, 0:2*m + 1]} : f64[n - 1, 2*m + 1]
  return %y
}
""",
    """\
graph @h(%u: f64[6]) -> (f64[6], i64[3, 2]) stage=functional {
  %k = full() {shape = [3, 2], value = -7:i64} : i64[3, 2]
  %w = add_slices(0.0, %u) {view = [4::-2] expand(3), shape = [6]} : f64[6]
  %w.1 = copy_slices(%u, nan) {view = unfold(0, 2, 3) [newaxis, 0:2, 1], shape = [6]} : f64[6]
  return %w.1, %k
}
""",
]


@pytest.mark.parametrize("text", CORPUS)
def test_text_parses_and_prints_back(text: str) -> None:
    graph = parse_graph(text)
    assert print_graph(graph) == text
    assert canonical(parse_graph(canonical(graph))) == canonical(graph)


def test_parsed_graph_has_the_structure_of_the_text() -> None:
    graph = parse_graph(TRACED)
    verify(graph, Stage.TRACED)
    scale, view, twin, write, shifted, _ = graph.nodes
    assert graph.tracked == (True, False)
    assert view.result.storage == scale.result.storage == 2
    assert twin.target is twin.operands[0] is view.result
    assert write.target is view.result and write.operands[0] == Literal(-np.inf, F32)
    assert not write.grad and scale.grad and not shifted.grad
    assert shifted.loc == SourceLoc('a b"c.py', 1, 0, 1)
    assert graph.outputs[1] == Literal(0.5, F64)
    assert graph.alias is not None and graph.alias.aliases[0].view == View((Permute((1, 0)),))


def test_several_results_and_regions() -> None:
    text = """\
graph @f(%x: f64[4] in s0) -> (f64[2]) stage=traced {
  %a, %b = mul(%x, 2.0) : f64[2], f64[2] in s0, s0 loc("d.py":1:2) {
    graph @body(%a: f64[]) -> (f64[]) stage=functional {
      %b = add(%a, 1.0) : f64[]
      return %b
    }
  }
  return %b
}
"""
    graph = parse_graph(text)
    assert print_graph(graph) == text
    assert graph.nodes[0].regions[0].nodes[0].op is add


def test_names_are_hints_made_unique() -> None:
    b = GraphBuilder("f")
    x = b.input(TensorType((2,), F64), "self.w")
    y = add(
        b,
        add(
            b,
            x,
            1.0,
        ),
        2.0,
    )
    z = b.emit(mul, (y, y), hint="2nd")
    text = print_graph(b.finish([z]))
    assert "%self_w: f64[2]" in text
    assert "%add.1 = add(%add, 2.0)" in text and "%_2nd = mul(%add.1, %add.1)" in text


def test_places_can_be_left_out() -> None:
    assert "loc(" not in print_graph(parse_graph(TRACED), loc=False)


def test_canonical_ignores_names_and_places_and_nothing_else() -> None:
    graph = parse_graph(TRACED)
    renamed = TRACED.replace("%y", "%other").replace("demo.py", "x.py").replace("@f(", "@g(")
    renumbered = renamed.replace(" s2", " s9")
    assert canonical(parse_graph(renumbered)) == canonical(graph)
    for old, new in (
        ("3.0", "3.5"),
        (" no_grad", ""),
        ("[1, 0:3]", "[2, 0:3]"),
        ("s3", "s0"),
        (" tracked", ""),
        ("axes = [0, 1]", "axes = [1, 0]"),
        ("-0.0", "0.0"),
    ):
        assert canonical(parse_graph(TRACED.replace(old, new))) != canonical(graph), old


def test_one_symbol_with_two_ranges_does_not_print() -> None:
    b = GraphBuilder("f")
    b.input(TensorType((dims.symbol("n", 1),), F64), "x")
    b.input(TensorType((dims.symbol("n", 2),), F64), "y")
    with pytest.raises(VerifyError, match="symbol n has two ranges"):
        print_graph(b.finish([]))


# ------------------------------------------------------------------------------------ errors


# "@!" marks the place that the error must point at.
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sum(%y.1)", "sum(@!%z)", "%z is not defined here"),
        ("= mul(%x", "= @!nul(%x", "unknown op 'nul'"),
        ("f32[4, 3] in s2 loc", "@!f99[4, 3] in s2 loc", "unknown dtype 'f99'"),
        ("axes = [0, 1]", "@!axis = [0, 1]", "unexpected attribute 'axis'"),
        ("{axes = [0, 1]} ", "{}@! ", "expected the attribute 'axes'"),
        ("axes = [0, 1]", "axes = [0, @!0.5]", "expected an integer"),
        ("mul_(%v, 3.0) writes s2", "mul_(%v, 3.0) writes @!s3", "the target lies in s2"),
        ("mul_(%v, 3.0) writes s2 ", "mul_(%v, 3.0) @!", "expected 'writes'"),
        ("-> %v writes", "@!writes", "a write needs its target"),
        ("%y.1 = add(%y", "@!%y = add(%y", "%y is defined twice"),
        ("(f32[], f64[])", "@!(f32[])", "the graph returns f32[], f64[]"),
        ("stage=traced", "stage=@!late", "expected one of traced, functional"),
        ("[1, 0:3]", "[1, 0:@!4:3]", "the step does not divide stop - start"),
        ("[1, 0:3]", "[@!n, 0:3]", "unknown size symbol n"),
        ("0.5:f64", "@!0.5", "a literal needs a dtype here"),
        ("mul(%x, 2.0)", "mul(%x, @!300:u8)", "300 is not a value of u8"),
    ],
)
def test_parse_errors_point_at_their_place(old: str, new: str, message: str) -> None:
    assert old in TRACED
    marked = TRACED.replace(old, new, 1)
    before, _, after = marked.partition("@!")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    with pytest.raises(ParseError) as e:
        parse_graph(before + after)
    head, quoted, caret = str(e.value).split("\n")[:3]
    assert head.startswith(f"line {line}, column {column}: {message}"), str(e.value)
    assert quoted.endswith((before + after).split("\n")[line - 1])
    assert caret.index("^") == len(f"{line:>5} | ") + column - 1


def test_text_after_the_graph_is_refused() -> None:
    with pytest.raises(ParseError, match="end of the text"):
        parse_graph(TRACED + "}")


def test_long_graphs_print_and_parse() -> None:
    assert print_graph(parse_graph(print_graph(long_graph()))) == print_graph(long_graph())


def long_graph() -> Graph:
    b = GraphBuilder("long")
    x = b.input(TensorType((8,), F64), "x")
    for k in range(2000):
        x = copy_slices(b, x, float(k), view=View((Index((Pick(k % 8),)),)), shape=(8,))
    return b.finish([x])


def test_text_is_parsed_in_a_process_that_has_compiled_nothing():
    code = (
        "from tracegrad.graph.text import parse_graph\n"
        "parse_graph('graph @f(%x: f64[2]) -> (f64[2]) stage=functional {\\n"
        "  %y = sin(%x) : f64[2]\\n  return %y\\n  alias {results = 1}\\n}\\n')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
