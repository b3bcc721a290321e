"""Graphs for other tools: networkx, Graphviz, JSON.

JSON schema, version 1 (``"format": "tracegrad.graph"``); keys are only ever added within a
version::

    {"format": "tracegrad.graph", "version": 1, "name": "f", "stage": "functional",
     "inputs":  [{"id": "%x", "type": "f64[3]", "storage": 0 | null, "tracked": true}],
     "nodes":   [{"op": "mul", "operands": [OPERAND], "attrs": {"name": "text"},
                  "results": [{"id": "%y", "type": "f64[3]", "storage": null}],
                  "target": "%y" | null, "grad": true, ["inference": true,]
                  "loc": {"file": "a.py", "line": 1, "col": 1} | null,
                  "regions": [graph without format and version]}],
     "outputs": [OPERAND],
     "alias":   {"name": "text"} | null}
    OPERAND = {"value": "%x"} or {"literal": "2.0:f64"}

Ids and attribute values are those of the text form (`graph.text`); ids are local to a graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.graph.attr_text import field_texts, format_fields, format_literal
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.text import value_names

if TYPE_CHECKING:
    import networkx

_VERSION = 1
# Fill colours of storages and of op classes; light enough for black text.
_PALETTE = ("#cfe8fc", "#d8f3dc", "#fde2c4", "#e9d8fd", "#fff3b0", "#f8d7da", "#d1f2eb", "#e2e3e5")


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """Nodes ``0..n-1`` are the graph's nodes in order, ``("input", k)`` and ``("output", k)`` its
    ends; an edge is one use of a value, with ``name``, ``type`` and ``operand`` (the position).
    Node data: ``label``, ``op``, ``node`` (the `Node`; absent for ends).  Regions stay inside
    their node.  Writes through a target are edges from the handle's maker with ``operand`` -1.
    """
    import networkx as nx

    out = nx.MultiDiGraph(name=graph.name)
    names = value_names(graph)
    maker: dict[Value, Any] = {}
    for k, value in enumerate(graph.inputs):
        maker[value] = ("input", k)
        out.add_node(("input", k), label=names[value], op="input")
    for k, node in enumerate(graph.nodes):
        out.add_node(k, label=_label(node), op=node.op.name, node=node)
        for result in node.results:
            maker[result] = k

    def use(x: Operand | None, to: Any, position: int) -> None:
        if isinstance(x, Value):
            out.add_edge(maker[x], to, name=names[x], type=repr(x.type), operand=position)

    for k, node in enumerate(graph.nodes):
        for position, x in enumerate(node.operands):
            use(x, k, position)
        use(node.target, k, -1)
    for k, x in enumerate(graph.outputs):
        label = names[x] if isinstance(x, Value) else format_literal(x)
        out.add_node(("output", k), label=f"output {k}: {label}", op="output")
        use(x, ("output", k), 0)
    return out


def _label(node: Node) -> str:
    """The op with its literal operands and attributes."""
    literals = ", ".join(format_literal(x) for x in node.operands if not isinstance(x, Value))
    lines = [node.op.name + (f"({literals})" if literals else "")]
    attrs = format_fields(node.attrs)
    if attrs:
        lines.append(attrs)
    return "\n".join(lines)


def to_dot(graph: Graph) -> str:
    """Graphviz text: nodes are labelled boxes, values are edges.  In the traced stage the nodes
    that make or write one storage share a cluster and a colour; regions are nested clusters."""
    lines = [
        f"digraph {json.dumps(graph.name)} {{",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=monospace];',
        "  edge [fontname=monospace, fontsize=10];",
    ]
    _dot_body(graph, "n", "  ", lines)
    return "\n".join([*lines, "}"]) + "\n"


def _dot_body(graph: Graph, prefix: str, indent: str, lines: list[str]) -> None:
    names = value_names(graph)
    maker: dict[Value, str] = {}
    clusters: dict[int | None, list[str]] = {}
    for k, value in enumerate(graph.inputs):
        maker[value] = f"{prefix}_in{k}"
        text = f"{names[value]}: {value.type}"
        clusters.setdefault(value.storage, []).append(
            _dot_node(maker[value], text, value.storage, "ellipse")
        )
    for k, node in enumerate(graph.nodes):
        me = f"{prefix}_{k}"
        maker.update(dict.fromkeys(node.results, me))
        written = node.target or (node.results[0] if node.results else None)
        storage = None if written is None else written.storage
        clusters.setdefault(storage, []).append(_dot_node(me, _label(node), storage, "box"))
        for r, region in enumerate(node.regions):
            inner = [f"subgraph cluster_{me}_{r} {{", f"  label={json.dumps(region.name)};"]
            _dot_body(region, f"{me}_{r}", "  ", inner)
            clusters.setdefault(None, []).append("\n".join([*inner, "}"]))
    for storage, members in clusters.items():
        if storage is None:
            lines += [indent + part for m in members for part in m.splitlines()]
        else:
            lines.append(f"{indent}subgraph cluster_{prefix}_s{storage} {{")
            lines.append(f'{indent}  label="s{storage}"; color=gray;')
            lines += [f"{indent}  {m}" for m in members]
            lines.append(indent + "}")
    _dot_edges(graph, prefix, names, maker, lambda text: lines.append(indent + text))


def _dot_node(me: str, label: str, storage: int | None, shape: str) -> str:
    fill = "" if storage is None else f', fillcolor="{_PALETTE[storage % len(_PALETTE)]}"'
    return f"{me} [label={json.dumps(label)}, shape={shape}{fill}];"


def _dot_edges(
    graph: Graph,
    prefix: str,
    names: dict[Value, str],
    maker: dict[Value, str],
    add: Callable[[str], None],
) -> None:
    def edge(x: Value, to: str, style: str = "") -> None:
        add(f"{maker[x]} -> {to} [label={json.dumps(f'{names[x]}: {x.type}')}{style}];")

    for k, node in enumerate(graph.nodes):
        for x in node.operands:
            if isinstance(x, Value):
                edge(x, f"{prefix}_{k}")
        if node.target is not None:
            edge(node.target, f"{prefix}_{k}", ", style=dashed")
    for k, x in enumerate(graph.outputs):
        text = f"return {names[x] if isinstance(x, Value) else format_literal(x)}"
        add(_dot_node(f"{prefix}_out{k}", text, None, "ellipse"))
        if isinstance(x, Value):
            edge(x, f"{prefix}_out{k}")


def to_json(graph: Graph, *, indent: int | None = None) -> str:
    """The graph as JSON, in the schema of this module; the same graph gives the same text."""
    head = {"format": "tracegrad.graph", "version": _VERSION}
    return json.dumps({**head, **_json_graph(graph)}, indent=indent)


def _json_graph(graph: Graph) -> dict[str, Any]:
    names = value_names(graph)
    tracked = graph.tracked or (False,) * len(graph.inputs)

    def value(v: Value) -> dict[str, Any]:
        return {"id": names[v], "type": repr(v.type), "storage": v.storage}

    def operand(x: Operand) -> dict[str, str]:
        return {"value": names[x]} if isinstance(x, Value) else {"literal": format_literal(x)}

    def node(n: Node) -> dict[str, Any]:
        loc = n.loc
        return {
            "op": n.op.name,
            "operands": [operand(x) for x in n.operands],
            "attrs": field_texts(n.attrs),
            "results": [value(r) for r in n.results],
            "target": None if n.target is None else names[n.target],
            "grad": n.grad,
            **({"inference": True} if n.inference else {}),
            "loc": None
            if loc is None
            else {"file": loc.file, "line": loc.line, "col": loc.col + 1},
            "regions": [_json_graph(g) for g in n.regions],
        }

    return {
        "name": graph.name,
        "stage": graph.stage.value,
        "inputs": [{**value(v), "tracked": t} for v, t in zip(graph.inputs, tracked, strict=True)],
        "nodes": [node(n) for n in graph.nodes],
        "outputs": [operand(x) for x in graph.outputs],
        "alias": None if graph.alias is None else field_texts(graph.alias),
    }
