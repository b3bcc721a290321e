"""Laws between the stages of one program: each stage means what the stage before it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.aliasing.interpret import evaluate_traced
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.text import parse_graph, print_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.verify import verify_program
from tracegrad.pipeline import GRAPH_STAGES, Lowering


class Disagreement(AssertionError):
    """Two ways to run one program differ; `where` says which."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


def same(where: str, got: Any, want: Any, rtol: float = 1e-9) -> None:
    """Shape, dtype and values agree (float32 to six digits)."""
    g, w = np.asarray(got), np.asarray(want)
    if g.dtype != w.dtype:
        raise Disagreement(where, f"dtype {g.dtype}, not {w.dtype}")
    if g.shape != w.shape:
        raise Disagreement(where, f"shape {g.shape}, not {w.shape}")
    if w.dtype.kind != "f":
        fits = np.array_equal(g, w)
    else:
        loose = 2e-4 if w.dtype == np.float32 else rtol
        fits = np.allclose(g, w, rtol=loose, atol=loose, equal_nan=True)
    if not fits:
        raise Disagreement(where, f"values\n{g!r}\nnot\n{w!r}")


def same_all(where: str, got: Sequence[Any], want: Sequence[Any]) -> None:
    if len(got) != len(want):
        raise Disagreement(where, f"{len(got)} values, not {len(want)}")
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        same(f"{where} [{k}]", g, w)


def check_text(graph: Graph, where: str) -> None:
    """The graph is valid, and its text parses back to the same text."""
    verify(graph)
    text = print_graph(graph)
    again = print_graph(parse_graph(text))
    if again != text:
        raise Disagreement(f"text of {where}", f"\n{text}\nbecomes\n{again}")


def check_stages(lowering: Lowering, inputs: Sequence[np.ndarray]) -> None:
    """All laws; `inputs` are the values of the traced graph's inputs, and stay as they are.

    A graph that holds transforms has a meaning from the joint stage on.
    """
    for stage in GRAPH_STAGES:
        check_text(lowering.graph(stage), stage)
    verify_program(lowering.plan.program)
    text = print_program(lowering.plan.program)
    again = print_program(parse_program(text, REGISTRY.intrinsics()))
    if again != text:
        raise Disagreement("text of the program", f"\n{text}\nbecomes\n{again}")
    report = lowering.functional.alias
    assert report is not None
    if not any(n.regions for n in lowering.traced.nodes):
        held = [np.array(x) for x in inputs]
        results = evaluate_traced(lowering.traced, held)
        values = evaluate(lowering.functional, inputs)
        same_all("functional against traced", values[: report.results], results)
        for w in report.write_backs:
            same("write-back of functional against traced", values[w.output], held[w.input])
        same_all("joint against functional", evaluate(lowering.joint, inputs), values)
    same_all(
        "optimized against joint",
        evaluate(lowering.optimized, inputs),
        evaluate(lowering.returned, inputs),
    )
