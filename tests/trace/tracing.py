"""A small face and a runner of traced graphs, so that capture and substitution are tested alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.graph.ir import Graph, Literal
from tracegrad.ops.views import HandleAttrs, apply_view
from tracegrad.trace import enter, inplace
from tracegrad.trace.elementwise import apply_op
from tracegrad.trace.indexing import get
from tracegrad.trace.promote import as_arg, trace_of, ufunc_ops
from tracegrad.trace.signature import CallSignature, Kind, Signature, restore
from tracegrad.trace.tracer import Tracer


class Face(Tracer):
    """Arithmetic, indexing and assignment; NumPy's ufuncs."""

    __slots__ = ()
    numpy_scalars = True

    def __array_ufunc__(self, ufunc: Any, method: str, *xs: Any, **kw: Any) -> Tracer:
        trace = trace_of(self, *xs)
        return apply_op(trace, ufunc_ops()[ufunc], [as_arg(trace, x) for x in xs])

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("a traced value has no array")

    def __bool__(self) -> bool:
        raise TypeError("a traced value has no truth")

    def __getitem__(self, key: Any) -> Tracer:
        return get(trace_of(self), self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        inplace.setitem(trace_of(self), self, key, value)


def _binary(ufunc: np.ufunc) -> Any:
    return (lambda self, x: ufunc(self, x)), (lambda self, x: ufunc(x, self))


for _name, _ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply),
                      ("truediv", np.divide), ("pow", np.power)):
    _forward, _backward = _binary(_ufunc)
    setattr(Face, f"__{_name}__", _forward)
    setattr(Face, f"__r{_name}__", _backward)
for _name, _ufunc in (("lt", np.less), ("gt", np.greater)):
    setattr(Face, f"__{_name}__", _binary(_ufunc)[0])


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
        return enter.trace_call(self.fn, described, face=Face, tracked=tracked)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key, leaves = self.signature.key(args, kwargs)
        traced, arrays = self._find(key, leaves, args, kwargs)
        values = [leaves[i.leaf] if i.leaf is not None else arrays[i.array]
                  for i in traced.inputs]
        out = run_traced(traced.graph, [np.asarray(v) for v in values])
        return traced.rebuild([
            leaf.value if leaf.kind is Kind.STATIC else restore(out[leaf.index], leaf.kind)
            for leaf in traced.outputs])

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
