"""The results of a `Function` in the enclosing trace: writes of inputs, views, fresh tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.custom.outcome import Outcome
from tracegrad.custom.record import Forward
from tracegrad.errors import UnsupportedError, ViewMutationError
from tracegrad.graph.storage import Geometry, Step, View
from tracegrad.ops.custom import ReturnedAttrs, custom_view
from tracegrad.ops.handles import copy
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import is_tracking, no_grad
from tracegrad.trace.tracer import Trace
from tracegrad.views import family, legality
from tracegrad.views.geometry import are_disjoint


def deliver(
    forward: Forward, outcome: Outcome, made: Sequence[Tracer], given: Sequence[Any]
) -> Any:
    """What `apply` returns; `made` are the node's results and `given` the caller's tensors."""
    outer, value = forward.outer, outcome.value
    _check_apart(forward, outcome, given)
    for k, at in outcome.dirty.items():
        _write_dirty(forward, outcome, forward.arguments[at], made[k])
    with no_grad():
        for at, k in outcome.hidden.items():
            outer.write(forward.arguments[at], copy, (made[k],))
        for memory, k in outcome.hidden_outside.items():
            outer.write(outer.base_of(memory), copy, (made[k],))
    out = []
    for place, plain in zip(outcome.places, outcome.plain, strict=True):
        if place is None:
            out.append(plain)
        elif place in outcome.dirty:
            out.append(given[outcome.dirty[place]])
        else:
            out.append(_result(forward, outcome, made, place, value.results[place]))
    return tuple(out) if outcome.several else out[0]


def _result(
    forward: Forward, outcome: Outcome, made: Sequence[Tracer], k: int, inner: Tracer
) -> Tracer:
    """Result k, which `inner` is in the trace of the forward."""
    outer, new = forward.outer, made[k]
    if k in outcome.aliases:
        base = forward.arguments[outcome.aliases[k]]
    elif k in outcome.bases:
        base = made[outcome.bases[k]]
        _lay_out(base, inner.memory.layout)
    else:
        if not inner.alias.view:
            _lay_out(new, inner.memory.layout)
        return outer.detach(new) if k in outcome.constant else new
    if base.scalar:
        return new
    steps = inner.alias.view.steps
    layout = Geometry(
        base.layout.offset + inner.layout.offset, inner.layout.size, inner.layout.stride
    )
    view = _returned_view(outer, base, new, steps, layout, outcome, k)
    return outer.detach(view) if k in outcome.constant else view


def _lay_out(x: Tracer, strides: tuple[int, ...]) -> None:
    """Give a fresh tensor NumPy's layout of what it stands for."""
    x.memory.layout = strides
    x.layout = Geometry(0, x.sizes, strides)


def _returned_view(
    outer: Trace,
    base: Tracer,
    result: Tracer,
    steps: tuple[Step, ...],
    layout: Geometry,
    outcome: Outcome,
    k: int,
) -> Tracer:
    loc = outer.place()
    base = outer.lift(base)
    if base.concrete is not None:
        outer._promote(base.memory)
    several = len(outcome.places) > 1
    alias = family.returned_view(
        base.alias,
        steps,
        tracked=is_tracking() and result.alias.requires_grad,
        multi_output=several,
        op_name=outcome.name,
        output_nr=k,
        loc=loc,
    )
    attrs = ReturnedAttrs(View(steps), outcome.name, k, several)
    value = outer.builder.alias(
        custom_view, outer.handle(base), attrs, others=(outer.handle(result),)
    )
    return outer.face(outer, alias, layout, value, None, readonly=base.readonly)


def _write_dirty(forward: Forward, outcome: Outcome, target: Tracer, result: Tracer) -> None:
    outer = forward.outer
    target = outer.lift(target)
    tracked = result.alias.requires_grad or target.alias.requires_grad
    loc = outer.place()
    legality.check_write(target.alias, tracked, is_tracking(), loc, outer.exact_views)
    if target.alias.is_view and len(outcome.places) > 1:
        raise ViewMutationError(
            f"{outcome.name} writes a view in place and returns more than one result",
            kind="dirty_view_multi_out",
            loc=loc,
            op_name=outcome.name,
            remedy="Pass the base, or a clone() of the view.",
        )
    outer.write(target, copy, (result,))
    # PyTorch counts two: the write in forward, and the one that attaches the history.
    target.memory.version += 1
    target.alias.fresh_at = target.memory.version


def _check_apart(forward: Forward, outcome: Outcome, given: Sequence[Any]) -> None:
    """Refuse what the region, in which every input owns its memory, cannot express."""
    written = {*outcome.dirty.values(), *outcome.hidden}
    for k in sorted(written):
        x = forward.arguments[k]
        if isinstance(given[k], np.ndarray):
            raise UnsupportedError(
                f"{outcome.name}.forward writes an ndarray from outside the traced function",
                kind="custom_write",
                loc=forward.outer.place(),
                remedy="Pass it as an argument of the traced function.",
            )
        for j, y in enumerate(forward.operands):
            if j == k or x.memory is not y.memory:
                continue
            if not are_disjoint(x.alias.view, y.alias.view, x.memory.shape):
                raise UnsupportedError(
                    f"{outcome.name}.forward writes input {k}, which shares memory with another "
                    "of its inputs",
                    kind="custom_write",
                    loc=forward.outer.place(),
                    remedy="Pass a clone() of one of them.",
                )
