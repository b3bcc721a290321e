"""Derivatives inside a trace: the function becomes a region of a `transform` node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracegrad.graph.ir import Graph
from tracegrad.ops.control import TransformAttrs, transform
from tracegrad.ops.views import copy
from tracegrad.trace.enter import OutLeaf, Traced, trace_call
from tracegrad.trace.signature import CallSignature, Kind, Signature
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A traced function and what it is applied to in the enclosing trace.

    `operands` are values of the moment it was entered: later writes do not reach them.
    """

    outer: Trace
    traced: Traced
    operands: tuple[Tracer, ...]
    arguments: tuple[Tracer | None, ...]  # per region input: the caller's handle, if a leaf
    wrt: tuple[int, ...]  # region inputs
    written: tuple[int, ...]  # region inputs

    @property
    def graph(self) -> Graph:
        return self.traced.graph

    def output_types(self) -> list[TensorType]:
        return [TensorType(x.shape, x.type.dtype) for x in self.graph.outputs]


@dataclass(frozen=True, slots=True)
class Applied:
    """The results of a transform node: outputs of the function and derivatives."""

    outputs: tuple[Tracer, ...]
    derivatives: tuple[Tracer, ...]


def enter_region(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 signature: Signature, leaves_of: Callable[[CallSignature], Sequence[int]],
                 outer: Trace) -> Region:
    """Trace `fn` inside `outer`; `leaves_of` names the leaves to differentiate.

    The function is differentiated whatever the surrounding gradient mode.
    """
    outer.place()
    call = signature.describe(args, kwargs)
    leaves = signature.key(args, kwargs)[1]
    wrt_leaves = list(leaves_of(call))
    traced = trace_call(fn, call, face=outer.face, tracked=wrt_leaves, parent=outer)
    outer.place()
    operands: list[Tracer] = []
    arguments: list[Tracer | None] = []
    at: dict[int, int] = {}
    for k, source in enumerate(traced.inputs):
        if source.leaf is not None:
            at[source.leaf] = k
            given = as_tracer(outer, leaves[source.leaf])
            arguments.append(given)
        else:
            assert source.outer is not None
            given = outer.base_of(traced.captures[source.outer].outer)
            arguments.append(None)
        operands.append(given)
    targets = {n.target.storage for n in traced.graph.nodes if n.target is not None}
    written = tuple(k for k, v in enumerate(traced.graph.inputs) if v.storage in targets)
    return Region(outer, traced, tuple(operands), tuple(arguments),
                  tuple(at[k] for k in wrt_leaves), written)


def freeze(region: Region) -> Region:
    """The region with operands that later writes in the enclosing trace cannot reach."""
    outer = region.outer
    return replace(region, operands=tuple(
        x if x.concrete is not None or x.scalar else outer.apply(copy, (x,))
        for x in region.operands))


def apply(region: Region, kind: str, *, seeds: tuple[int, ...] = (),
          extra: Sequence[Tracer] = (), writes: bool = True) -> Applied:
    """Emit the transform node; `extra` are its cotangents (vjp) or tangents (jvp).

    `writes`: the function's writes reach the enclosing trace's arrays (once, not again when a
    pullback is called).
    """
    outer, graph = region.outer, region.graph
    outputs = region.output_types()
    if kind == "vjp":
        derived = [graph.inputs[k].type for k in region.wrt]
    elif kind == "jvp":
        derived = [t for t in outputs if t.dtype.is_inexact]
    elif kind != "call":
        derived = [TensorType((*t.shape, *graph.inputs[k].type.shape), t.dtype)
                   for t in outputs if t.dtype.is_inexact for k in region.wrt]
    else:
        derived = []
    finals = [graph.inputs[k].type for k in region.written]
    attrs = TransformAttrs(kind, region.wrt if kind != "call" else (), seeds,
                           (*outputs, *derived, *finals))
    results = outer.apply_region(transform, [*region.operands, *extra], attrs, (graph,),
                                 _names(region, kind, len(derived)))
    n, m = len(outputs), len(derived)
    if writes:
        for k, final in zip(region.written, results[n + m:], strict=True):
            given = region.arguments[k]
            target = given if given is not None else region.operands[k]
            outer.write(target, copy, (final,))
    shaped = list(results[:n])
    for leaf in region.traced.outputs:
        if leaf.index is not None:
            as_kind(shaped[leaf.index], leaf.kind)
    if writes:
        for p in region.traced.prints:
            outer.prints.append((p.text, tuple(_shown(shaped, o) for o in p.values),
                                 {k: _shown(shaped, o) for k, o in p.named}))
    return Applied(tuple(shaped), tuple(results[n:n + m]))


def _shown(outputs: Sequence[Tracer], o: OutLeaf) -> Any:
    return outputs[o.index] if o.index is not None else o.value


def _names(region: Region, kind: str, derived: int) -> list[str]:
    """Names of the results: the outputs', ``d_x`` for a derivative, the inputs' for writes."""
    graph = region.graph
    outputs = [getattr(x, "hint", "value") for x in graph.outputs]
    if len(outputs) == 1:
        outputs = ["value"]
    moved = [f"d_{graph.inputs[k].hint}" for k in region.wrt]
    if kind == "jvp":
        moved = [f"d_{name}" for name in outputs]
    elif kind != "vjp":
        moved = [f"d_{name}_{graph.inputs[k].hint}" for name in outputs for k in region.wrt]
    moved = moved[:derived]
    return outputs + moved + [graph.inputs[k].hint for k in region.written]


def result_of(region: Region, outputs: Sequence[Tracer]) -> Any:
    """The function's result in its own structure."""
    return region.traced.rebuild([
        outputs[o.index] if o.index is not None else o.value for o in region.traced.outputs])


def as_tracer(trace: Trace, x: Any) -> Tracer:
    """An argument of a transform called inside a trace as a tracer: numbers become constants."""
    if isinstance(x, Tracer):
        return trace.lift(x)
    weak = type(x) is float
    found = trace.lookup_array(x) if trace.lookup_array is not None and hasattr(x, "ndim") \
        and x.ndim else None
    if found is not None:
        return trace.lift(found)
    return trace.concrete(x, scalar=weak or not hasattr(x, "ndim") or x.ndim == 0, weak=weak)


def as_kind(x: Tracer, kind: Kind) -> Tracer:
    """Mark a fresh tracer as the scalar that the leaf was."""
    if kind is not Kind.ARRAY and x.trace.face.numpy_scalars:  # type: ignore[attr-defined]
        x.scalar = True
        x.weak = kind is Kind.WEAK
    return x


def like_leaf(x: Tracer, region: Region, k: int) -> Tracer:
    """A gradient in the form of the leaf that region input `k` is."""
    leaf = region.traced.inputs[k].leaf
    assert leaf is not None
    return as_kind(x, region.traced.signature.leaves[leaf].kind) if x.shape == () else x
