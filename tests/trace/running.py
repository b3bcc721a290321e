"""Traces a function by hand and runs the graph with real aliasing, beside plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.aliasing.interpret import evaluate_traced
from tracegrad.graph.ir import Graph
from tracegrad.trace.array import Array
from tracegrad.trace.modes import STATE
from tracegrad.trace.tensor import Tensor
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.types import TensorType


class Traced:
    """The graph of ``f(*args)``, and how its leaves go back into what `f` returned."""

    def __init__(self, f: Callable[..., Any], args: tuple[Any, ...], face: type = Array) -> None:
        self.trace = Trace("f", face)
        self.trace.lookup_array = lambda a: self.trace.concrete(a)
        tracers = [self._argument(a, k) for k, a in enumerate(args)]
        STATE.traces.append(self.trace)
        try:
            self.result = f(*tracers)
            leaves = list(_leaves(self.result))
            self.leaves = [
                x if isinstance(x, Tracer) else self.trace.concrete(np.asarray(x)) for x in leaves
            ]
            values = [self.trace.operand(self.trace.lift(x)) for x in self.leaves]
        finally:
            STATE.traces.pop()
        self.graph: Graph = self.trace.finish(values)

    def _argument(self, a: Any, k: int) -> Any:
        if not isinstance(a, (np.ndarray, np.generic, float)) or isinstance(a, bool):
            return a
        data = np.asarray(a)
        layout = tuple(s // data.itemsize for s in data.strides)
        return self.trace.argument(
            TensorType(data.shape, dtypes.of(data.dtype)),
            f"a{k}",
            tracked=True,
            layout=layout,
            scalar=not isinstance(a, np.ndarray),
            weak=type(a) is float,
        )

    def run(self, args: tuple[Any, ...]) -> list[np.ndarray]:
        given = [
            np.asarray(a) if not isinstance(a, np.ndarray) else a
            for a in args
            if isinstance(a, (np.ndarray, np.generic, float)) and not isinstance(a, bool)
        ]
        return evaluate_traced(self.graph, given)


def _leaves(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        for y in x:
            yield from _leaves(y)
    elif x is not None:
        yield x


def check(f: Callable[..., Any], *args: Any, exact: bool = False) -> Traced:
    """`f` traced on the Array face gives NumPy's values, dtypes, shapes, scalars and writes."""
    mine = tuple(a.copy("K") if isinstance(a, np.ndarray) else a for a in args)
    theirs = tuple(a.copy("K") if isinstance(a, np.ndarray) else a for a in args)
    traced = Traced(f, mine)
    got = traced.run(mine)
    with np.errstate(all="ignore"):
        want = list(_leaves(f(*theirs)))
    assert len(got) == len(want)
    for g, w, leaf in zip(got, want, traced.leaves, strict=True):
        same(g, w, exact)
        if isinstance(leaf, Array) and isinstance(w, (np.ndarray, np.generic)):
            assert leaf.scalar == isinstance(w, np.generic), f"scalar: {leaf!r} for {w!r}"
    for g, w in zip(mine, theirs, strict=True):
        if isinstance(w, np.ndarray):
            same(g, w, exact)
    return traced


def same(got: Any, want: Any, exact: bool = False) -> None:
    w = np.asarray(want)
    assert got.shape == w.shape, f"shape {got.shape}, not {w.shape}"
    assert got.dtype == w.dtype, f"dtype {got.dtype}, not {w.dtype}"
    if exact or w.dtype.kind != "f":
        np.testing.assert_array_equal(got, w)
    else:
        np.testing.assert_allclose(
            got, w, rtol=1e-6 if w.dtype == np.float32 else 1e-12, atol=1e-12
        )


def trace_only(f: Callable[..., Any], *args: Any, face: type = Array) -> Traced:
    return Traced(f, args, face)


__all__ = ["Array", "Tensor", "Traced", "check", "same", "trace_only"]
