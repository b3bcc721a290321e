"""What a forward did: results that are inputs, views or fresh; inputs written; values kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optree

from tracegrad import source
from tracegrad.custom.context import Context
from tracegrad.custom.record import Value
from tracegrad.errors import UnsupportedError, ViewMutationError
from tracegrad.trace.leaves import NAMESPACE
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.substitute_table import known_array
from tracegrad.trace.tracer import Trace


@dataclass(eq=False)
class Outcome:
    """Results of a forward, in terms of its region.

    `places`: per returned thing its number among `value.results`, or None for what is not a
    tensor (`plain`).  `dirty`, `aliases`: result -> argument that it is, or is a view of.
    `bases`: result that views a temporary -> output that is the temporary.  `hidden`: argument
    -> output that is what it holds at the end, written without being marked.
    """

    name: str
    value: Value
    several: bool
    places: list[int | None] = field(default_factory=list)
    plain: list[Any] = field(default_factory=list)
    dirty: dict[int, int] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    hidden: dict[int, int] = field(default_factory=dict)
    hidden_outside: dict[Memory, int] = field(default_factory=dict)
    constant: set[int] = field(default_factory=set)
    saved: list[int | None] = field(default_factory=list)
    for_jvp: list[int | None] | None = None
    attributes: list[Any] = field(default_factory=list)
    tree: Any = None

    def context(self, ctx: Context, slots: list[Tracer], for_jvp: bool = False) -> Context:
        """The context of a rule, from the slots' values."""
        saved = self.for_jvp if for_jvp and self.for_jvp is not None else self.saved
        leaves = [slots[x.slot] if isinstance(x, _At) else x for x in self.attributes]
        return ctx.with_values(
            tuple(None if k is None else slots[k] for k in saved), self.tree.unflatten(leaves)
        )


@dataclass(frozen=True, slots=True)
class _At:
    slot: int


def settle(name: str, ctx: Context, tensors: tuple[Tracer, ...], result: Any) -> Outcome:
    """Sort out the result of a forward, inside its trace.

    Raises:
        ViewMutationError: kind ``dirty_not_returned``.
    """
    trace = current_trace()
    assert trace is not None
    trace.place()
    several = isinstance(result, (tuple, list))
    out = Outcome(name, Value(tensors), several)
    for x in result if several else (result,):
        x = known_array(x) if isinstance(x, np.ndarray) else x
        if not isinstance(x, Tracer):
            out.places.append(None)
            out.plain.append(x)
            continue
        out.places.append(len(out.value.results))
        out.plain.append(None)
        out.value.results.append(trace.lift(x))
    arguments = {x.memory: k for k, x in enumerate(tensors)}
    _classify(out, ctx, trace, tensors, arguments)
    _check_dirty(out, ctx)
    _finals(out, trace, tensors)
    _keep(out, ctx, trace)
    return out


def _classify(
    out: Outcome,
    ctx: Context,
    trace: Trace,
    tensors: tuple[Tracer, ...],
    arguments: dict[Memory, int],
) -> None:
    outside = {c.inner for c in trace.captures.values()}
    fresh = {
        x.memory: k
        for k, x in enumerate(out.value.results)
        if not x.alias.view and not x.alias.is_view and x.memory not in arguments
    }
    for k, x in enumerate(out.value.results):
        at = arguments.get(x.memory)
        if any(x is d for d in ctx._notes.constant):
            out.constant.add(k)
        if at is not None:
            is_input = x is tensors[at]
            marked = is_input and any(x is d for d in ctx._notes.dirty)
            (out.dirty if marked else out.aliases)[k] = at
        elif x.memory in outside:
            raise UnsupportedError(
                f"{out.name}.forward returns a tensor that is not one of its inputs, nor made in "
                "it",
                kind="custom_result",
                loc=source.here(),
                remedy="Return a clone() of it.",
            )
        elif fresh.get(x.memory) != k and not x.scalar:
            if x.memory not in fresh:
                fresh[x.memory] = len(out.value.results) + len(out.value.more)
                out.value.more.append(trace.base_of(x.memory))
            out.bases[k] = fresh[x.memory]


def _check_dirty(out: Outcome, ctx: Context) -> None:
    returned = [out.value.results[k] for k in out.dirty]
    for d in ctx._notes.dirty:
        if not any(d is r for r in returned) and not any(d is r for r in out.value.results):
            raise ViewMutationError(
                f"{out.name}.forward marks an input dirty and does not return it",
                kind="dirty_not_returned",
                loc=source.here(),
                op_name=out.name,
                remedy="Return the very tensor that was written.",
            )


def _finals(out: Outcome, trace: Trace, tensors: tuple[Tracer, ...]) -> None:
    """Contents at the end of what was written without being marked dirty."""
    marked = set(out.dirty.values())
    for k, x in enumerate(tensors):
        if x.memory.written and k not in marked:
            out.hidden[k] = len(out.value.results) + len(out.value.more)
            out.value.more.append(trace.base_of(x.memory))
    for capture in trace.captures.values():
        if capture.inner.written:
            out.hidden_outside[capture.outer] = len(out.value.results) + len(out.value.more)
            out.value.more.append(trace.base_of(capture.inner))


def _keep(out: Outcome, ctx: Context, trace: Trace) -> None:
    def slot(x: Any) -> int:
        x = trace.lift(known_array(x) if isinstance(x, np.ndarray) else x)
        return out.value.slot(x)

    notes = ctx._notes
    out.saved = [None if x is None else slot(x) for x in notes.saved]
    if notes.for_jvp is not None:
        out.for_jvp = [None if x is None else slot(x) for x in notes.for_jvp]
    attributes: Any = ctx.attributes()
    leaves, out.tree = optree.tree_flatten(attributes, none_is_leaf=True, namespace=NAMESPACE)
    out.attributes = [
        _At(slot(x)) if isinstance(x, Tracer) and x.trace is trace else x for x in leaves
    ]
