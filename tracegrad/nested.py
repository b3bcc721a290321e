"""Derivatives inside a trace: the function becomes a region of a `transform` node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracegrad.graph.ir import Graph
from tracegrad.ops.control import TransformAttrs, transform
from tracegrad.ops.handles import copy
from tracegrad.region_memory import (
    Part,
    by_input,
    by_leaf,
    leaves_together,
    parts_of,
    written_inputs,
)
from tracegrad.trace.enter import Traced, trace_call
from tracegrad.trace.index_names import fit_into
from tracegrad.trace.results import OutLeaf
from tracegrad.trace.sharing import Sharing
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
    targets: tuple[Tracer, ...]  # per region input: the enclosing trace's handle
    wrt: tuple[int, ...]  # region inputs
    parts: tuple[Part, ...]  # per differentiated leaf: what it is of `wrt`
    leaves: tuple[int, ...]  # the differentiated leaves
    written: tuple[int, ...]  # region inputs

    @property
    def graph(self) -> Graph:
        return self.traced.graph

    @property
    def bases(self) -> list[Any]:
        """Shapes of the differentiated inputs."""
        return [self.graph.inputs[k].shape for k in self.wrt]

    def used_in(self, trace: Trace) -> Region:
        """The region for use in `trace`, which may be nested in the one that it was entered in:
        its operands become captures there."""
        if trace is self.outer:
            return self
        traced = replace(self.traced, graph=fit_into(self.graph, trace))
        return replace(self, outer=trace, traced=traced)

    def output_types(self) -> list[TensorType]:
        return [TensorType(x.shape, x.type.dtype) for x in self.graph.outputs]

    def leaf_types(self) -> list[TensorType]:
        """Types of the differentiated leaves."""
        found = [self.traced.signature.leaves[k].type for k in self.leaves]
        return [t for t in found if t is not None]

    def by_leaf(self, found: Sequence[Tracer]) -> list[Tracer]:
        """Derivatives by differentiated leaf, in the form of each leaf, from those by `wrt`."""
        made = by_leaf(self.outer, self.parts, found, self.bases)
        kinds = [self.traced.signature.leaves[k].kind for k in self.leaves]
        return [
            as_kind(x, kind) if x.sizes == () else x for x, kind in zip(made, kinds, strict=True)
        ]

    def by_input(self, tangents: Sequence[Tracer]) -> list[Tracer]:
        """Tangents by `wrt` from those by differentiated leaf."""
        return by_input(self.outer, self.parts, tangents, self.bases)


@dataclass(frozen=True, slots=True)
class Applied:
    """The results of a transform node: outputs of the function and derivatives."""

    outputs: tuple[Tracer, ...]
    derivatives: tuple[Tracer, ...]


def enter_region(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature: Signature,
    leaves_of: Callable[[CallSignature], Sequence[int]],
    outer: Trace,
) -> Region:
    """Trace `fn` inside `outer`; `leaves_of` names the leaves to differentiate.

    The function is differentiated whatever the surrounding gradient mode.  Arguments that it
    only reads are apart from each other; a write is seen through all that overlap.
    """
    outer.place()
    call = signature.describe(args, kwargs)
    chosen = tuple(leaves_of(call))
    given = _given(outer, call, signature.key(args, kwargs)[1])
    received: dict[int, Tracer] = {}
    while True:
        traced = trace_call(
            fn,
            call,
            face=outer.face,
            tracked=chosen,
            parent=outer,
            shared=Sharing(received=received),
        )
        outer.place()
        together = leaves_together(traced, given)
        if together.keys() <= received.keys():
            break
        received = {**received, **together}
    targets: list[Tracer] = []
    at: dict[int, int] = {}
    for k, s in enumerate(traced.inputs):
        if s.leaf is not None:
            at[s.leaf] = k
            targets.append(given[s.leaf])
        else:
            assert s.outer is not None
            memory = traced.captures[s.outer].outer
            at.update({leaf: k for leaf, x in received.items() if x.memory is memory})
            targets.append(outer.base_of(memory))
    written = written_inputs(traced)
    wrt, parts = parts_of(chosen, at, received)
    return Region(outer, traced, tuple(targets), tuple(targets), wrt, parts, chosen, written)


def _given(outer: Trace, call: CallSignature, leaves: Sequence[Any]) -> dict[int, Tracer]:
    """The traced leaves as tracers of the enclosing trace; one array passed twice is one."""
    made: dict[int, Tracer] = {}
    out = {}
    for k, leaf in enumerate(call.leaves):
        if leaf.is_traced:
            x = leaves[k]
            out[k] = made[id(x)] if id(x) in made else as_tracer(outer, x)
            if leaf.kind is Kind.ARRAY:
                made[id(x)] = out[k]
    return out


def freeze(region: Region) -> Region:
    """The region with operands that later writes in the enclosing trace cannot reach."""
    outer = region.outer
    return replace(
        region,
        operands=tuple(x if x.scalar else outer.apply(copy, (x,)) for x in region.operands),
    )


def apply(
    region: Region,
    kind: str,
    *,
    seeds: tuple[int, ...] = (),
    extra: Sequence[Tracer] = (),
    writes: bool = True,
) -> Applied:
    """Emit the transform node; `extra` are its cotangents (vjp) or tangents (jvp).

    `writes`: the function's writes reach the enclosing trace's arrays (once, not again when a
    pullback is called).
    """
    outer, graph = region.outer, region.graph
    outputs = region.output_types()
    if kind == "jvp":
        extra = region.by_input(extra)
    if kind == "vjp":
        derived = [graph.inputs[k].type for k in region.wrt]
    elif kind == "jvp":
        derived = [t for t in outputs if t.dtype.is_inexact]
    elif kind != "call":
        derived = [
            TensorType((*t.shape, *graph.inputs[k].type.shape), t.dtype)
            for t in outputs
            if t.dtype.is_inexact
            for k in region.wrt
        ]
    else:
        derived = []
    finals = [graph.inputs[k].type for k in region.written]
    attrs = TransformAttrs(
        kind, region.wrt if kind != "call" else (), seeds, (*outputs, *derived, *finals)
    )
    results = outer.apply_region(
        transform, [*region.operands, *extra], attrs, (graph,), _names(region, kind, len(derived))
    )
    n, m = len(outputs), len(derived)
    if writes:
        for k, final in zip(region.written, results[n + m :], strict=True):
            outer.write(region.targets[k], copy, (final,))
    else:
        for k in region.written:
            memory = region.targets[k].memory
            memory.trace.touched.add(memory)  # type: ignore[attr-defined]
    shaped = list(results[:n])
    for leaf in region.traced.outputs:
        if leaf.index is not None:
            as_kind(shaped[leaf.index], leaf.kind)
    if writes:
        for p in region.traced.prints:
            outer.prints.append(
                (
                    p.text,
                    tuple(_shown(shaped, o) for o in p.values),
                    {k: _shown(shaped, o) for k, o in p.named},
                )
            )
    return Applied(tuple(shaped), tuple(results[n : n + m]))


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
    return region.traced.rebuild(
        [outputs[o.index] if o.index is not None else o.value for o in region.traced.outputs]
    )


def as_tracer(trace: Trace, x: Any) -> Tracer:
    """An argument of a transform called inside a trace as a tracer: numbers become constants."""
    if isinstance(x, Tracer):
        return trace.lift(x)
    weak = type(x) is float
    found = (
        trace.lookup_array(x)
        if trace.lookup_array is not None and hasattr(x, "ndim") and x.ndim
        else None
    )
    if found is not None:
        return trace.lift(found)
    return trace.concrete(x, scalar=weak or not hasattr(x, "ndim") or x.ndim == 0, weak=weak)


def as_kind(x: Tracer, kind: Kind) -> Tracer:
    """Mark a fresh tracer as the scalar that the leaf was."""
    if kind is not Kind.ARRAY and x.trace.face.numpy_scalars:  # type: ignore[attr-defined]
        x.scalar = True
        x.weak = kind is Kind.WEAK
    return x
