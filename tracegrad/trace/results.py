"""What a traced function gives back: its results, what it prints, gradients of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracegrad.graph.ir import Operand
from tracegrad.trace import segments
from tracegrad.trace.leaves import Kind
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.views.family import CreationKind


@dataclass(frozen=True, slots=True)
class Input:
    """Where an input of the graph, or an argument, comes from; exactly one of the four is set.

    `leaf` indexes the leaves of the call, `array` the captured arrays of `Traced.outside`,
    `outer` the storages of the enclosing trace in `Traced.captures`, `group` the memory that
    several arrays share in `Traced.groups`.
    """

    leaf: int | None = None
    array: int | None = None
    outer: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """How a traced result was made: whether it requires a gradient, and for views of which kind.

    `detached`: it shares memory with its base, and no history.
    """

    tracked: bool
    kind: CreationKind
    is_view: bool
    detached: bool
    output_nr: int


@dataclass(frozen=True, slots=True)
class OutLeaf:
    """One leaf of the result: output `index` of the graph, or a `value` known while tracing.

    `same`: the very array that was passed in, or captured.  `readonly`: NumPy would refuse to
    write it.  `made` is for tensors at the prompt.
    """

    kind: Kind
    index: int | None = None
    value: Any = None
    same: Input | None = None
    readonly: bool = False
    made: Made | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """A ``debug.print``: its values are outputs of the graph behind the results."""

    text: str
    values: tuple[OutLeaf, ...]
    named: tuple[tuple[str, OutLeaf], ...]


@dataclass(frozen=True, slots=True)
class Grad:
    """What the function adds to ``.grad`` of argument `leaf`, or with `replaced` sets it to
    (`out` None: to None)."""

    leaf: int
    out: OutLeaf | None
    replaced: bool


def name_sources(
    outputs: Sequence[OutLeaf],
    returned: Sequence[Tracer | None],
    values: Sequence[Any],
    captured: Sequence[Tracer],
) -> list[OutLeaf]:
    """The outputs, those that are the caller's own arrays marked."""
    of = {id(x): Input(array=k) for k, x in enumerate(captured)}
    of |= {id(x): Input(leaf=k) for k, x in enumerate(values) if isinstance(x, Tracer)}
    return [
        replace(o, same=of.get(id(x)), readonly=x.readonly, made=made_of(x)) if x is not None else o
        for o, x in zip(outputs, returned, strict=True)
    ]


def made_of(x: Tracer) -> Made:
    a = x.alias
    detached = not a.is_view and a.family is not x.memory.family
    return Made(a.requires_grad, a.kind, a.is_view, detached, a.output_nr)


def prints_of(trace: Trace, operands: list[Operand]) -> tuple[Printed, ...]:
    """What `debug.print` recorded, its values appended to `operands`."""

    def leaf(x: Any) -> OutLeaf:
        if not isinstance(x, Tracer):
            return OutLeaf(Kind.STATIC, value=x)
        operands.append(trace.operand(x))
        return OutLeaf(Kind.SCALAR if x.scalar else Kind.ARRAY, len(operands) - 1)

    return tuple(
        Printed(text, tuple(map(leaf, values)), tuple((k, leaf(v)) for k, v in named.items()))
        for text, values, named in trace.prints
    )


def grads_of(trace: Trace, values: Sequence[Any], operands: list[Operand]) -> tuple[Grad, ...]:
    """The gradients of arguments of the prompt, appended to `operands`."""
    found = []
    for k, x in enumerate(values):
        p = segments.point_of(x) if isinstance(x, Tracer) and x.alias.leaf else None
        if p is None or (p.grad is None and not p.replaced):
            continue
        out = None
        if p.grad is not None:
            out = OutLeaf(Kind.ARRAY, len(operands), made=made_of(p.grad))
            operands.append(trace.operand(p.grad))
        found.append(Grad(k, out, p.replaced))
    return tuple(found)
