"""Inference tensors in a trace: none may be needed by the backward pass of a tracked operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.trace.memory import Tracer
from tracegrad.views import legality
from tracegrad.views.kept import kept_operands

if TYPE_CHECKING:
    from tracegrad.trace.tracer import Trace


def check_kept(trace: Trace, first: int, operands: Sequence[Any]) -> None:
    """Raise if a node recorded since number `first` keeps one of the inference tensors among
    `operands` for its backward, itself or as the casts and broadcasts of the operation give it.

    Raises:
        ViewMutationError: kind ``inference_tensor_saved``.
    """
    tensors = [x for x in operands if isinstance(x, Tracer)]
    made = {trace.operand(x): x for x in tensors if x.memory.inference}
    made = {v: x for v, x in made.items() if not isinstance(v, Literal)}
    if not made:
        return
    tracked: set[Operand] = {
        trace.operand(x) for x in tensors if x.concrete is None and x.alias.requires_grad
    }
    for node in trace.builder.nodes[first:]:
        at = [k for k, x in enumerate(node.operands) if isinstance(x, Value) and x in tracked]
        if at:
            for k in kept_operands(node, at):
                found = made.get(node.operands[k])
                if found is not None:
                    legality.check_saved(found.alias, node.loc)
            tracked.update(r for r in node.results if r.dtype.is_inexact)
            continue
        source = next((made[x] for x in node.operands if x in made), None)
        if source is not None:
            made.update((r, source) for r in node.results)
