"""PyTorch's refusals about views and writes, one predicate a rule.

Called by the tracer at the user's line, and by functionalisation for graphs read from text.
"""

from __future__ import annotations

from tracegrad.errors import ViewMutationError
from tracegrad.graph.storage import overlaps_itself
from tracegrad.source import SourceLoc
from tracegrad.views.family import Alias, CreationKind

_EXPLAIN = {
    CreationKind.NO_GRAD:
        "The view was made inside no_grad, so it is ambiguous whether the write should be part "
        "of the gradient. Make the view and write it on the same side: both inside no_grad, or "
        "both outside.",
    CreationKind.INFERENCE:
        "The view was made in inference mode, so the write cannot be part of a gradient. Make "
        "the view outside inference mode, or write it inside.",
    CreationKind.MULTI_OUTPUT:
        "The view is one of several that one call returned (split, chunk, unbind); such views "
        "may not be written. Take it with a slice, x[a:b], instead.",
    CreationKind.CUSTOM:
        "The view came out of a custom Function, whose own derivative would be bypassed. Write "
        "a clone() of it, or return a non-view from the Function.",
}


def check_write(alias: Alias, tracked: bool, grad: bool, loc: SourceLoc | None,
                exact: bool = False) -> None:
    """Raise unless `alias` may be written.

    `tracked`: the written tensor or an operand requires a gradient.  With gradients off, or
    nothing tracked, every kind of view may be written.  `exact` accepts multi-output views.
    """
    if not (grad and tracked and alias.is_view) or _allowed(alias, exact):
        return
    raise _error(alias, "is being modified in place", loc, direct=True)


def check_use(alias: Alias, grad: bool, loc: SourceLoc | None, exact: bool = False) -> None:
    """Raise if `alias` is a restricted view whose base, sibling or self was written since."""
    if not (grad and alias.is_stale and alias.requires_grad) or _allowed(alias, exact):
        return
    raise _error(alias, "is used after it, its base or another view of its base was modified "
                        "in place", loc, direct=False)


def check_overlap(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if two elements of `alias` are one element of memory, so a write is ambiguous."""
    geometry = alias.view.geometry(alias.storage.shape)
    if geometry is not None and overlaps_itself(geometry):
        raise ViewMutationError(
            "cannot write to a tensor in which more than one element refers to a single memory "
            "location",
            kind="overlap", loc=loc, op_name=alias.op_name,
            remedy="Write a copy of it (x.copy() or x.clone()), or write its base.")


def check_detach_inplace(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if ``detach_()`` is asked of a view."""
    if alias.is_view:
        raise ViewMutationError(
            "cannot detach a view in place", kind="detach_view", loc=loc,
            remedy="Use x.detach(), or detach the base.")


def _allowed(alias: Alias, exact: bool) -> bool:
    return alias.kind is CreationKind.DEFAULT or (
        exact and alias.kind is CreationKind.MULTI_OUTPUT)


def _error(alias: Alias, what: str, loc: SourceLoc | None, direct: bool) -> ViewMutationError:
    if alias.own:
        head = f"output {alias.output_nr} of {alias.op_name} is a view and {what}"
    else:
        mode = "inference mode" if alias.kind is CreationKind.INFERENCE else "no_grad"
        head = f"a view that was created in {mode} {what}"
    return ViewMutationError(
        head, kind=f"{alias.kind.value}_view_inplace", direct=direct, op_name=alias.op_name,
        output_nr=alias.output_nr, loc=loc, notes=(("the view was made here:", alias.made),),
        remedy=_EXPLAIN[alias.kind])
