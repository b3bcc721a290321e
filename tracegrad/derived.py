"""`Derived`: a functional graph as a program over arrays, with its pullback as another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tracegrad.autodiff.expand import expand_transforms
from tracegrad.autodiff.vjp import vjp_graph
from tracegrad.graph.array_views import apply_view
from tracegrad.graph.ir import AliasReport, Graph, Value
from tracegrad.graph.storage import AsComplex, AsReal, View
from tracegrad.options import Options
from tracegrad.pipeline import Lowering
from tracegrad.types import TensorType

_PARTS, _COMPLEX = View((AsReal(),)), View((AsComplex(),))


@dataclass(frozen=True, eq=False)
class Derived:
    """`graph` works on real numbers; complex `inputs` and `outputs` enter it as pairs."""

    name: str
    graph: Graph
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    options: Options
    _pullbacks: dict[tuple[tuple[int, ...], tuple[int, ...]], Derived] = field(default_factory=dict)

    @cached_property
    def _lowering(self) -> _Functional:
        names = tuple(f"out{k}" for k in range(len(self.outputs)))
        return _Functional(self.graph, self.options, lambda graph: (graph, names))

    @cached_property
    def reads(self) -> frozenset[int]:
        graph = self._lowering.optimized
        used: set[object] = {x for x in graph.outputs if isinstance(x, Value)}
        for node in graph.nodes:
            used.update(node.values())
        return frozenset(k for k, x in enumerate(graph.inputs) if x in used)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [
            np.array(apply_view(_PARTS, x)) if t.dtype.is_complex else x
            for x, t in zip(arrays, self.inputs, strict=True)
        ]
        found = self._lowering.executable(*given)
        slots = self._lowering.plan.outputs
        return [
            apply_view(_COMPLEX, found[s.index]) if t.dtype.is_complex else found[s.index]
            for s, t in zip(slots, self.outputs, strict=True)
        ]

    def pullback(self, wrt: tuple[int, ...], live: tuple[int, ...]) -> Derived:
        key = (wrt, live)
        made = self._pullbacks.get(key)
        if made is None:
            made = self._pullbacks[key] = self._pullback(wrt, live)
        return made

    def _pullback(self, wrt: tuple[int, ...], live: tuple[int, ...]) -> Derived:
        kept = tuple(self.graph.outputs[k] for k in live)
        primal = replace(self.graph, outputs=kept, alias=AliasReport(len(kept)))
        joint = vjp_graph(primal, wrt, name=f"{self.graph.name}_vjp")
        graph = replace(joint, outputs=joint.outputs[len(kept) :], alias=AliasReport(len(wrt)))
        return Derived(
            f"{self.name}Backward",
            graph,
            (*self.inputs, *(self.outputs[k] for k in live)),
            tuple(self.inputs[k] for k in wrt),
            self.options,
        )


class _Functional(Lowering):
    """A lowering that starts from a functional graph."""

    @cached_property
    def functional(self) -> Graph:
        return self.traced


def derived(
    name: str,
    functional: Graph,
    inputs: tuple[TensorType, ...],
    outputs: tuple[TensorType, ...],
    options: Options,
) -> Derived:
    """All outputs of a functional graph, final contents of arguments among them, as results."""
    graph = expand_transforms(functional)
    graph = replace(graph, alias=AliasReport(len(graph.outputs)))
    return Derived(name, graph, inputs, outputs, options)
