"""Runs a traced graph with real aliasing: the meaning that functionalisation must keep.

A value is a handle: the flat elements of its storage, and the positions in them that it reads.
Nothing depends on memory layout, so that a view is a view whatever NumPy's strides would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad.errors import ValueArgumentError
from tracegrad.graph.array_views import apply_view, write_view
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.storage import Retype, View
from tracegrad.ops.views import ViewAttrs


@dataclass(frozen=True, slots=True, eq=False)
class Handle:
    """`positions` has the tensor's shape and holds indices into the storage's `flat` elements."""

    flat: np.ndarray
    positions: np.ndarray

    def read(self) -> np.ndarray:
        return np.asarray(self.flat[self.positions])

    def write(self, value: np.ndarray) -> None:
        self.flat[self.positions] = value


@dataclass(frozen=True, slots=True, eq=False)
class Retyped:
    """A view through steps that change the element type."""

    base: Handle | Retyped
    view: View

    def read(self) -> np.ndarray:
        return np.array(apply_view(self.view, np.array(self.base.read(), order="C")))

    def write(self, value: np.ndarray) -> None:
        whole = np.array(self.base.read(), order="C")
        write_view(self.view, whole, value)
        self.base.write(whole)


def _fresh(array: np.ndarray) -> Handle:
    data = np.array(array, order="C")
    return Handle(data.reshape(-1), np.arange(data.size).reshape(data.shape))


def evaluate_traced(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a traced graph; `inputs` that the graph writes are written in place.

    Inputs must not share memory with each other.  Raises ValueArgumentError when they do not
    fit the graph, and what CHECKED ops raise (then no input has been written).
    """
    if len(inputs) != len(graph.inputs):
        raise ValueArgumentError(
            f"graph {graph.name} takes {len(graph.inputs)} inputs, not {len(inputs)}"
        )
    env: dict[Value, Handle | Retyped] = {}
    for value, array in zip(graph.inputs, inputs, strict=True):
        if array.dtype != value.dtype.np or array.shape != value.shape:
            raise ValueArgumentError(
                f"input {value.hint} of graph {graph.name} is {value.type}, "
                f"not {array.dtype}{list(array.shape)}"
            )
        env[value] = _fresh(array)
    for node in graph.nodes:
        _run(node, env)
    out = [np.array(_read(x, env)) for x in graph.outputs]
    for value, array in zip(graph.inputs, inputs, strict=True):
        if array.flags.writeable:
            array[...] = env[value].read()
    return out


def _read(x: Operand, env: Mapping[Value, Handle | Retyped]) -> Any:
    return x.dtype.np.type(x.value) if isinstance(x, Literal) else env[x].read()


def _run(node: Node, env: dict[Value, Handle | Retyped]) -> None:
    if node.op.has(Trait.TRACED_ONLY):
        operand = node.operands[0]
        assert isinstance(operand, Value)
        base = env[operand]
        view = node.attrs.view if isinstance(node.attrs, ViewAttrs) else View()
        if isinstance(base, Retyped) or any(isinstance(s, Retype) for s in view.steps):
            env[node.result] = Retyped(base, view)
            return
        positions = base.positions
        if isinstance(node.attrs, ViewAttrs):
            positions = apply_view(node.attrs.view, positions)
        env[node.result] = Handle(base.flat, positions)
        return
    keywords: dict[str, Any] = {}
    if node.regions:
        keywords["regions"] = tuple(_region(g) for g in node.regions)
    with np.errstate(all="ignore"):
        out = node.op.reference(node.attrs, *[_read(x, env) for x in node.operands], **keywords)
    if node.target is not None:
        env[node.target].write(out)
        return
    results = out if isinstance(out, (tuple, list)) else (out,)
    for value, result in zip(node.results, results, strict=len(node.results) > 0):
        env[value] = _fresh(np.asarray(result))


def _region(graph: Graph) -> Any:
    if graph.stage is Stage.FUNCTIONAL:
        from tracegrad.graph.evaluate import evaluate

        return lambda *arrays: evaluate(graph, arrays)
    return lambda *arrays: evaluate_traced(graph, [np.array(a) for a in arrays])
