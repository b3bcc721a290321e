"""Specialisations without passes: traced graphs are run by NumPy's own aliasing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.graph.array_views import apply_view
from tracegrad.graph.ir import Graph, Literal
from tracegrad.ops.handles import HandleAttrs
from tracegrad.trace import enter
from tracegrad.trace.array import Array
from tracegrad.trace.signature import CallSignature, Kind, Signature, restore


class Compiled:
    """What a compiled function does with its specialisations, with graphs run by NumPy."""

    def __init__(self, fn: Any, *, method: bool = False, **options: Any) -> None:
        self.fn = fn
        self.signature = Signature(fn, method=method, **options)
        self.made: dict[Any, list[enter.Traced]] = {}
        self.traces = 0
        self.why: str | None = None

    def trace(self, *args: Any, tracked: tuple[int, ...] = (), **kwargs: Any) -> enter.Traced:
        described = self.signature.describe(args, kwargs)
        return enter.trace_call(self.fn, described, face=Array, tracked=tracked)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key, leaves = self.signature.key(args, kwargs)
        traced, arrays = self._find(key, leaves, args, kwargs)
        values = [leaves[i.leaf] if i.leaf is not None else arrays[i.array] for i in traced.inputs]
        out = run_traced(traced.graph, [np.asarray(v) for v in values])
        return traced.rebuild(
            [
                leaf.value if leaf.kind is Kind.STATIC else restore(out[leaf.index], leaf.kind)
                for leaf in traced.outputs
            ]
        )

    def _find(self, key: Any, leaves: Any, args: Any, kwargs: Any) -> Any:
        for traced in self.made.get(key, ()):
            arrays = traced.outside.enter(leaves)
            if arrays is not None:
                return traced, arrays
            self.why = traced.outside.explain(leaves)
        traced = self.trace(*args, **kwargs)
        self.traces += 1
        self.made.setdefault(key, []).append(traced)
        arrays = traced.outside.enter(leaves)
        assert arrays is not None, traced.outside.explain(leaves)
        return traced, arrays


def describe(fn: Any, *args: Any, **kwargs: Any) -> CallSignature:
    return Signature(fn).describe(args, kwargs)


def run_traced(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Run a traced graph with NumPy's own aliasing; writes reach `inputs`."""
    env: dict[Any, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))

    def value(x: Any) -> np.ndarray:
        return np.asarray(x.value, x.dtype.np) if isinstance(x, Literal) else env[x]

    for node in graph.nodes:
        xs = [value(x) for x in node.operands]
        if isinstance(node.attrs, HandleAttrs):
            env[node.result] = apply_view(node.attrs.view, xs[0])
            continue
        out = node.op.reference(node.attrs, *xs)
        if node.target is not None:
            env[node.target][...] = out
        elif len(node.results) == 1:
            env[node.result] = np.array(out)
        else:
            env.update(zip(node.results, map(np.array, out), strict=True))
    return [value(x) for x in graph.outputs]
