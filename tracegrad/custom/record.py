"""Records a function with its own derivative as one `custom` node.

The value is traced into a region and each rule into another.  What the value computed and a rule
reads (a *slot*) becomes an operand, a result or an extra result of the node.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad.errors import GradientWarning, UnsupportedError
from tracegrad.graph.ir import Graph
from tracegrad.ops.custom import CustomAttrs, RegionRule, custom
from tracegrad.trace.enter import Traced, trace_call
from tracegrad.trace.leaves import Kind, Leaf, flatten
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import current_trace, is_tracking
from tracegrad.trace.signature import CallSignature
from tracegrad.trace.tracer import Trace
from tracegrad.types import TensorType


def call_of(name: str, leaves: Sequence[Leaf]) -> CallSignature:
    """The signature of a call with one positional argument a leaf."""
    _, tree = flatten(((0,) * len(leaves), {}))
    args = tree.child(0).children()
    spans = tuple((k, range(k, k + 1)) for k in range(len(leaves)))
    return CallSignature(name, (), tree, tuple(leaves), spans, tuple(args), ())


def leaf_of(x: Tracer, name: str) -> Leaf:
    """`x` as an argument of a region."""
    kind = Kind.WEAK if x.weak else Kind.SCALAR if x.scalar else Kind.ARRAY
    strides: Any = x.layout.stride
    return Leaf(name, name, kind, TensorType(x.sizes, x.element_type), strides, not x.readonly)


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that rules read.

    `source`: operand k, result ~k, or None for contents known while tracing (`array`).
    """

    leaf: Leaf
    source: int | None
    array: np.ndarray | None = None


@dataclass(eq=False)
class Value:
    """What tracing the value gave: tensors of the region's trace, in the order of its outputs.

    `results` are what the function returns; `more` further tensors that the caller wants out
    (final contents, bases); `kept` what the rules read and neither operands nor results are.
    """

    arguments: tuple[Tracer, ...]
    results: list[Tracer] = field(default_factory=list)
    more: list[Tracer] = field(default_factory=list)
    kept: list[Tracer] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)  # by id: `found` keeps them alive
    found: list[tuple[Tracer, int | None]] = field(default_factory=list)

    def slot(self, x: Tracer) -> int:
        """The number of the slot that carries `x` to the rules; to be called once `results` and
        `more` are complete."""
        at = self.slots.get(id(x))
        if at is None:
            at = self.slots[id(x)] = len(self.found)
            self.found.append((x, self._source(x)))
        return at

    def _source(self, x: Tracer) -> int | None:
        if x.concrete is not None:
            return None
        for k, r in enumerate(self.results):
            if x is r or (
                _is_whole(x)
                and _is_whole(r)
                and x.memory is r.memory
                and not self._is_argument(x.memory)
            ):
                return ~k
        for k, a in enumerate(self.arguments):
            if x.memory is a.memory and _is_whole(x) and not a.memory.written:
                return k
        self.kept.append(x)
        return ~(len(self.results) + len(self.more) + len(self.kept) - 1)

    def _is_argument(self, memory: Memory) -> bool:
        return any(memory is a.memory for a in self.arguments)

    def outputs(self) -> list[Tracer]:
        return [*self.results, *self.more, *self.kept]


def _is_whole(x: Tracer) -> bool:
    return not x.alias.view and x.sizes == x.memory.shape


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """The traced value: its region, and what it was applied to in the enclosing trace."""

    outer: Trace
    name: str
    traced: Traced
    value: Value
    operands: tuple[Tracer, ...]  # arguments, then captured storages
    slots: tuple[Slot, ...]

    @property
    def arguments(self) -> tuple[Tracer, ...]:
        return self.operands[: len(self.value.arguments)]


def trace_value(
    outer: Trace,
    name: str,
    operands: Sequence[Tracer],
    run: Callable[[tuple[Tracer, ...]], Value],
    *,
    grad: bool,
) -> Forward:
    """Trace `run`, which gets the operands as tensors of a trace of its own; `grad` is the
    gradient mode inside."""
    made: list[Value] = []

    def body(*tensors: Tracer) -> list[Tracer]:
        made.append(run(tensors))
        return made[0].outputs()

    leaves = [leaf_of(x, f"x{k}") for k, x in enumerate(operands)]
    traced = trace_call(body, call_of(name, leaves), face=outer.face, parent=outer, grad=grad)
    outer.place()
    (value,) = made
    captured = [outer.base_of(c.outer) for c in traced.captures]
    if is_tracking() and any(c.tracked for c in traced.captures):
        _warn_outside(outer, name)
    slots = tuple(
        Slot(leaf_of(x, f"saved{k}"), source, None if source is not None else np.array(x.concrete))
        for k, (x, source) in enumerate(value.found)
    )
    return Forward(outer, name, traced, value, (*operands, *captured), slots)


def _warn_outside(outer: Trace, name: str) -> None:
    loc = outer.place()
    at = f"\n{loc.quote()}" if loc is not None else ""
    warnings.warn(
        GradientWarning(
            f"{name} reads a tensor that requires a gradient and is not one of its inputs: no "
            f"gradient flows to it. Pass it as an argument.{at}"
        ),
        stacklevel=2,
    )


@dataclass(frozen=True, slots=True, eq=False)
class RuleRegion:
    rule: RegionRule
    graph: Graph
    captured: tuple[Tracer, ...]


def trace_rule(
    forward: Forward,
    kind: str,
    given: Sequence[int],
    run: Callable[[list[Tracer], dict[int, Tracer]], dict[int, Tracer]],
) -> RuleRegion:
    """Trace a rule of `kind` (``vjp`` or ``jvp``).

    ``run(slots, moved)`` gets the value of each slot, and the cotangent of each result
    (tangent of each operand) in `given`; it returns cotangents by operand (tangents by result).
    """
    outer = forward.outer
    carried = [s for s in forward.slots if s.source is not None]
    like = forward.value.results if kind == "vjp" else forward.arguments
    leaves = [s.leaf for s in carried]
    leaves += [
        Leaf(
            f"{kind}{k}",
            f"{'ct' if kind == 'vjp' else 't'}{k}",
            leaf_of(like[k], "").kind,
            TensorType(like[k].sizes, like[k].element_type),
        )
        for k in given
    ]
    gives: list[int] = []

    def body(*tensors: Tracer) -> list[Tracer]:
        values = iter(tensors)
        slots = []
        for s in forward.slots:
            slots.append(next(values) if s.array is None else _constant(s))
        found = run(slots, dict(zip(given, values, strict=True)))
        gives.extend(found)
        return list(found.values())

    traced = trace_call(
        body, call_of(f"{forward.name}.{kind}", leaves), face=outer.face, parent=outer, grad=True
    )
    outer.place()
    for node in traced.graph.nodes:
        if node.target is not None and any(
            node.target.storage == v.storage for v in traced.graph.inputs[len(leaves) :]
        ):
            raise UnsupportedError(
                f"the rule of {forward.name} writes an array outside it",
                kind="custom_rule",
                loc=node.loc,
                remedy="Return the value instead.",
            )
    rule = RegionRule(
        kind,
        tuple(s.source for s in carried if s.source is not None),
        tuple(given),
        (),
        tuple(gives),
    )
    return RuleRegion(rule, traced.graph, tuple(outer.base_of(c.outer) for c in traced.captures))


def _constant(slot: Slot) -> Tracer:
    trace = current_trace()
    assert trace is not None and slot.array is not None
    kind = slot.leaf.kind
    return trace.concrete(slot.array, scalar=kind is not Kind.ARRAY, weak=kind is Kind.WEAK)


def emit(forward: Forward, rules: Sequence[RuleRegion], *, through: bool) -> list[Tracer]:
    """The node in the enclosing trace; one tensor an output of the value's region.

    `through`: kept values are differentiated as what they are.
    """
    operands = list(forward.operands)
    inputs = len(operands)
    joined = []
    for r in rules:
        at = tuple(range(len(operands), len(operands) + len(r.captured)))
        operands += r.captured
        joined.append(RegionRule(r.rule.kind, r.rule.saved, r.rule.given, at, r.rule.gives))
    outputs = forward.value.outputs()
    attrs = CustomAttrs(
        forward.name,
        tuple(TensorType(x.shape, x.type.dtype) for x in forward.traced.graph.outputs),
        inputs,
        tuple(joined),
        len(forward.value.kept),
        through,
    )
    hints = [forward.name] * len(outputs)
    made = forward.outer.apply_region(
        custom, operands, attrs, (forward.traced.graph, *(r.graph for r in rules)), hints
    )
    for new, old in zip(made, outputs, strict=True):
        new.scalar, new.weak = old.scalar, old.weak
    return list(made)
