"""Graphs for networkx, Graphviz and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import networkx as nx

import tracegrad.ops.reduce
from tracegrad.graph.export import to_dot, to_json, to_networkx
from tracegrad.graph.text import parse_graph

TEXT = """\
graph @f(%x: f32[4, 3] in s0 tracked) -> (f32[], f32[]) stage=traced {
  %y = mul(%x, 2.0) : f32[4, 3] in s1 loc("demo.py":4:9)
  %v = view(%y) {view = [1, 0:3]} : f32[3] in s1 loc("demo.py":5:9)
  mul_(%v, 3.0) writes s1 loc("demo.py":6:5) no_grad
  %r = sum(%y) {axes = [0, 1]} : f32[] in s2 loc("demo.py":7:12)
  return %r, 1.0:f32
}
"""
GRAPH = parse_graph(TEXT)
assert tracegrad.ops.reduce.sum_.name == "sum"


def test_networkx_has_a_node_per_node_and_an_edge_per_use() -> None:
    g = to_networkx(GRAPH)
    assert set(g) == {0, 1, 2, 3, ("input", 0), ("output", 0), ("output", 1)}
    edges = {(a, b, d["name"], d["operand"]) for a, b, d in g.edges(data=True)}
    assert edges == {
        (("input", 0), 0, "%x", 0),
        (0, 1, "%y", 0),
        (1, 2, "%v", 0),
        (1, 2, "%v", -1),
        (0, 3, "%y", 0),
        (3, ("output", 0), "%r", 0),
    }
    assert g.nodes[3]["node"] is GRAPH.nodes[3]
    assert nx.is_directed_acyclic_graph(g)


def test_dot_clusters_storages() -> None:
    dot = to_dot(GRAPH)
    assert dot.count("subgraph cluster_n_s") == 3
    cluster = dot[dot.index("cluster_n_s1") :]
    cluster = cluster[: cluster.index("}\n  ")]
    assert [f"n_{k} [" in cluster for k in range(4)] == [True, True, True, False]
    assert 'n_0 -> n_1 [label="%y: f32[4, 3]"];' in dot
    assert 'label="view\\n{view = [1, 0:3]}"' in dot
    assert "style=dashed" in dot
    assert dot.count("{") == dot.count("}")


def test_json_has_the_documented_schema() -> None:
    data = json.loads(to_json(GRAPH))
    assert (data["format"], data["version"]) == ("tracegrad.graph", 1)
    assert data["inputs"] == [{"id": "%x", "type": "f32[4, 3]", "storage": 0, "tracked": True}]
    assert data["nodes"][1] == {
        "op": "view",
        "operands": [{"value": "%y"}],
        "attrs": {"view": "[1, 0:3]"},
        "results": [{"id": "%v", "type": "f32[3]", "storage": 1}],
        "target": None,
        "grad": True,
        "loc": {"file": "demo.py", "line": 5, "col": 9},
        "regions": [],
    }
    assert data["nodes"][2]["target"] == "%v" and not data["nodes"][2]["grad"]
    assert data["outputs"] == [{"value": "%r"}, {"literal": "1.0:f32"}]
    assert data["alias"] is None
    assert to_json(parse_graph(TEXT)) == to_json(GRAPH)


def test_networkx_is_imported_only_when_asked_for() -> None:
    code = "import sys, tracegrad.graph.export; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
