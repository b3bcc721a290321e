"""Derivative rules as small programs: an op's declared derivative, built once and replayed.

A rule is built as a functional graph from the op's `Partials`, `Linear` or `Rules`, so eager mode
declares no derivative of its own.  Replayed through `compute` it gives arrays; replayed through
the eager recorder it gives tensors that can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Node, Operand, Value
from tracegrad.graph.op import Attrs, Linear, NoGradient, OpDef, Partials, Rules
from tracegrad.ops.create import full
from tracegrad.ops.pairs_derivative import is_by_pairs, pull_pairs
from tracegrad.types import TensorType

# Runs one op: ``(op, operands, attrs) -> result or tuple``; operands are literals or what the
# caller computes with.
Apply = Callable[[OpDef, Sequence[Any], Attrs], Any]

Slot = int
Ref = Slot | Literal


@dataclass(frozen=True, slots=True)
class Step:
    """One op; its results go to slots `first`, `first` + 1, ... (`count` of them)."""

    op: OpDef
    attrs: Attrs
    operands: tuple[Ref, ...]
    first: Slot
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Steps over numbered slots; `inputs` are the slots filled on entry."""

    inputs: tuple[Slot, ...]
    steps: tuple[Step, ...]
    results: tuple[Ref | None, ...]

    def run(self, apply: Apply, values: Sequence[Any]) -> list[Any]:
        """One value a result: of `values`, of a step, a literal, or None."""
        env: dict[Slot, Any] = dict(zip(self.inputs, values, strict=True))
        for step in self.steps:
            given = [x if isinstance(x, Literal) else env[x] for x in step.operands]
            out = apply(step.op, given, step.attrs)
            if step.count == 1 and not isinstance(out, tuple):
                env[step.first] = out
            else:
                env.update(enumerate(out, step.first))
        return [x if x is None or isinstance(x, Literal) else env[x] for x in self.results]


def program_of(b: GraphBuilder, results: Sequence[Operand | None]) -> Program:
    """The nodes of `b` that `results` need; of its inputs those that are read."""
    live = {r for r in results if isinstance(r, Value)}
    kept: list[Node] = []
    for node in reversed(b.nodes):
        if live.intersection(node.results):
            kept.append(node)
            live.update(node.values())
    slots: dict[Value, Slot] = {v: k for k, v in enumerate(b.inputs)}
    steps = []
    for node in reversed(kept):
        first = len(slots)
        slots.update((r, first + k) for k, r in enumerate(node.results))
        operands = tuple(x if isinstance(x, Literal) else slots[x] for x in node.operands)
        steps.append(Step(node.op, node.attrs, operands, first, len(node.results)))
    inputs = tuple(k for k, v in enumerate(b.inputs) if v in live)
    ends = tuple(slots[r] if isinstance(r, Value) else r for r in results)
    return Program(inputs, tuple(steps), ends)


def compute(op: OpDef, operands: Sequence[Any], attrs: Attrs) -> Any:
    """`op` on arrays and literals by its reference; results share no memory with operands."""
    xs = [x.dtype.np.type(x.value) if isinstance(x, Literal) else x for x in operands]
    with np.errstate(all="ignore"):
        out = op.reference(attrs, *xs)
    if isinstance(out, (tuple, list)):
        return tuple(_own(np.asarray(o), xs) for o in out)
    return _own(np.asarray(out), xs)


def _own(out: np.ndarray, xs: Sequence[Any]) -> np.ndarray:
    if not out.flags.writeable or any(
        isinstance(x, np.ndarray) and np.may_share_memory(out, x) for x in xs
    ):
        return np.array(out)
    return out


# ----------------------------------------------------------------------------- derivatives


class Origin(Enum):
    """Where a rule's input comes from."""

    GRADIENT = "gradient"
    RESULT = "result"
    OPERAND = "operand"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A derivative: `reads` say, for each input of `program`, what it is and its number.

    `program` has one result an operand of the op: its gradient, or None.
    """

    program: Program
    reads: tuple[tuple[Origin, int], ...]


Shape = TensorType | Literal


def rule_of(
    op: OpDef,
    attrs: Attrs,
    operands: tuple[Shape, ...],
    results: tuple[TensorType, ...],
    wanted: tuple[bool, ...],
) -> Rule:
    """The rule of `op` for operands of these types (or literals); `wanted` are those whose
    gradient is needed."""
    try:
        return _cached(op, attrs, operands, results, wanted)
    except TypeError:  # attributes that hold arrays do not hash
        return _build(op, attrs, operands, results, wanted)


def _build(
    op: OpDef,
    attrs: Attrs,
    operands: tuple[Shape, ...],
    results: tuple[TensorType, ...],
    wanted: tuple[bool, ...],
) -> Rule:
    b = GraphBuilder(f"{op.name}.vjp")
    cts = [b.input(t, f"ct{k}") for k, t in enumerate(results)]
    outs = [b.input(t, f"out{k}") for k, t in enumerate(results)]
    xs = [x if isinstance(x, Literal) else b.input(x, f"x{k}") for k, x in enumerate(operands)]
    found = _derive(b, op, attrs, cts, outs, xs, wanted)
    grads = [
        _dense(b, g, x) if keep and g is not None else None
        for g, x, keep in zip(found, xs, wanted, strict=True)
    ]
    origin: dict[Value, tuple[Origin, int]] = {}
    for kind, values in ((Origin.GRADIENT, cts), (Origin.RESULT, outs), (Origin.OPERAND, xs)):
        origin.update((v, (kind, k)) for k, v in enumerate(values) if isinstance(v, Value))
    program = program_of(b, grads)
    return Rule(program, tuple(origin[b.inputs[k]] for k in program.inputs))


def _derive(
    b: GraphBuilder,
    op: OpDef,
    attrs: Attrs,
    cts: list[Value],
    outs: list[Value],
    xs: list[Operand],
    wanted: tuple[bool, ...],
) -> Sequence[Operand | None]:
    d = op.derivative
    if isinstance(d, NoGradient):
        return (None,) * len(xs)
    if is_by_pairs(op, attrs, [x.type for x in (*cts, *xs)]):
        return pull_pairs(b, op, attrs, cts[0], xs)
    if isinstance(d, Linear):
        return d.transpose(b, attrs, cts[0], tuple(xs))
    if isinstance(d, Rules):
        return d.vjp(b, attrs, tuple(cts), tuple(outs), tuple(xs))
    assert isinstance(d, Partials)
    out: list[Operand | None] = []
    for partial, x, keep in zip(d.of, xs, wanted, strict=True):
        if not keep:
            out.append(None)
        elif partial is None:  # piecewise constant: the gradient is zero, not absent
            out.append(Literal(0, x.type.dtype))
        else:
            out.append(partial(b, cts[0], outs[0], *xs))
    return out


def _dense(b: GraphBuilder, g: Operand, like: Operand) -> Value:
    if isinstance(g, Value):
        return g
    return full(b, shape=like.type.shape, value=g)  # type: ignore[no-any-return]


_cached = lru_cache(maxsize=4096)(_build)
