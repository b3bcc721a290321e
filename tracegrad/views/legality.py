"""PyTorch's refusals about views and writes, one predicate a rule.

Called by the tracer at the user's line, and by functionalisation for graphs read from text.
"""

from __future__ import annotations

from tracegrad.errors import ViewMutationError
from tracegrad.graph.storage import Bitcast, overlaps_itself
from tracegrad.source import SourceLoc
from tracegrad.views.family import Alias, CreationKind
from tracegrad.views.geometry import are_disjoint

_EXPLAIN = {
    CreationKind.NO_GRAD: (
        "The view was made inside no_grad, so it is ambiguous whether the write should be part "
        "of the gradient. Make the view and write it on the same side: both inside no_grad, or "
        "both outside."
    ),
    CreationKind.INFERENCE: (
        "The view was made in inference mode, so the write cannot be part of a gradient. Make "
        "the view outside inference mode, or write it inside."
    ),
    CreationKind.MULTI_OUTPUT: (
        "The view is one of several that one call returned (split, chunk, unbind); such views "
        "may not be written. Take it with a slice, x[a:b], instead."
    ),
    CreationKind.CUSTOM: (
        "The view came out of a custom Function, whose own derivative would be bypassed. Write "
        "a clone() of it, or return a non-view from the Function."
    ),
}


_LEAF = (
    "Write under tg.no_grad() to change its value without history, or write a computed "
    "copy: x = x * 1.0 or x.clone()."
)
_INFERENCE = "Use a clone() of it made outside inference mode."


def check_write(
    alias: Alias, tracked: bool, grad: bool, loc: SourceLoc | None, exact: bool = False
) -> None:
    """Raise unless `alias` may be written.

    `tracked`: the written tensor or an operand requires a gradient.  With gradients off, or
    nothing tracked, every kind of view may be written.  `exact` accepts multi-output views.
    """
    if (
        grad
        and tracked
        and alias.dtype.is_inexact
        and any(isinstance(s, Bitcast) for s in alias.view.steps)
    ):
        raise ViewMutationError(
            f"a value that requires a gradient is written through a view of other bytes as "
            f"{alias.dtype.np}, which has no gradient",
            kind="bitcast_inplace",
            loc=loc,
            op_name=alias.op_name,
            notes=(("the view was made here:", alias.made),),
            remedy="Write the array itself (for complex ones its real and imag), or write the "
            "value's detach().",
        )
    if not (grad and tracked and alias.is_view) or _allowed(alias, exact):
        return
    raise _error(alias, "is being modified in place", loc, direct=True)


def check_leaf(alias: Alias, tracked: bool, grad: bool, loc: SourceLoc | None) -> None:
    """Raise if `alias` is a leaf whose gradient was asked for, or a view of one: a tracked write
    would make it a computed value.  Comes after `check_write`."""
    if not (grad and tracked and alias.requires_grad):
        return
    if alias.is_view and (alias.leaf or alias.family.leaf):
        raise ViewMutationError(
            "a view of a leaf that requires a gradient is being written in place",
            kind="view_of_leaf_inplace",
            loc=loc,
            op_name=alias.op_name,
            notes=(("the view was made here:", alias.made),),
            remedy=_LEAF,
        )
    if alias.leaf:
        raise ViewMutationError(
            "a leaf that requires a gradient is being written in place",
            kind="leaf_inplace",
            loc=loc,
            remedy=_LEAF,
        )


def check_inference_write(alias: Alias, inference: bool, loc: SourceLoc | None) -> None:
    """Raise if an inference tensor is written outside inference mode."""
    if alias.storage.inference and not inference:
        raise ViewMutationError(
            "an inference tensor is being written in place outside inference mode",
            kind="inference_tensor_inplace",
            loc=loc,
            remedy=_INFERENCE,
        )


def check_saved(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if an inference tensor would have to be kept for the backward pass."""
    if alias.storage.inference:
        raise ViewMutationError(
            "an inference tensor cannot be kept for the backward pass",
            kind="inference_tensor_saved",
            loc=loc,
            remedy=_INFERENCE,
        )


def check_version(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if the version of an inference tensor is asked for: it has none."""
    if alias.storage.inference:
        raise ViewMutationError(
            "inference tensors do not have a version",
            kind="inference_tensor_version",
            loc=loc,
            remedy=_INFERENCE,
        )


def check_requires_grad(
    alias: Alias, value: bool, is_leaf: bool, inference: bool, loc: SourceLoc | None
) -> None:
    """Raise if ``requires_grad_(value)`` is not allowed on this tensor."""
    if value and not alias.dtype.is_inexact:
        raise ViewMutationError(
            f"only tensors of a floating point dtype can require gradients, not {alias.dtype.np}",
            kind="requires_grad_dtype",
            loc=loc,
        )
    if value and alias.storage.inference and not inference:
        raise ViewMutationError(
            "requires_grad cannot be set on an inference tensor outside inference mode",
            kind="inference_requires_grad",
            loc=loc,
            remedy=_INFERENCE,
        )
    if not value and not is_leaf:
        raise ViewMutationError(
            "requires_grad can be switched off on leaves only",
            kind="requires_grad_nonleaf",
            loc=loc,
            remedy="Use x.detach() for a tensor without history.",
        )


def check_use(alias: Alias, grad: bool, loc: SourceLoc | None, exact: bool = False) -> None:
    """Raise if `alias` is a restricted view whose base, sibling or self was written since."""
    if not (grad and alias.is_stale and alias.requires_grad) or _allowed(alias, exact):
        return
    raise _error(
        alias,
        "is used after it, its base or another view of its base was modified in place",
        loc,
        direct=False,
    )


def check_overlap(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if two elements of `alias` are one element of memory, so a write is ambiguous."""
    geometry = alias.view.geometry(alias.storage.shape)
    if geometry is not None and overlaps_itself(geometry):
        raise ViewMutationError(
            "cannot write to a tensor in which more than one element refers to a single memory "
            "location",
            kind="overlap",
            loc=loc,
            op_name=alias.op_name,
            remedy="Write a copy of it (x.copy() or x.clone()), or write its base.",
        )


def check_operand(target: Alias, operand: Alias, loc: SourceLoc | None) -> None:
    """Raise if `operand` shares some elements with the written `target`, in other places
    (PyTorch refuses that; reading everything before writing gives it a meaning)."""
    if (
        operand.storage is not target.storage
        or operand.view == target.view
        or are_disjoint(operand.view, target.view, target.storage.shape)
    ):
        return
    raise ViewMutationError(
        "some elements of an operand and of the written tensor refer to a single memory location",
        kind="overlap",
        loc=loc,
        op_name=target.op_name,
        remedy="Use a clone() of the operand, or leave strict=True out.",
    )


def check_detach_inplace(alias: Alias, loc: SourceLoc | None) -> None:
    """Raise if ``detach_()`` is asked of a view."""
    if alias.is_view:
        raise ViewMutationError(
            "cannot detach a view in place",
            kind="detach_view",
            loc=loc,
            remedy="Use x.detach(), or detach the base.",
        )


def _allowed(alias: Alias, exact: bool) -> bool:
    return alias.kind is CreationKind.DEFAULT or (
        exact and alias.kind is CreationKind.MULTI_OUTPUT and not alias.ruled
    )


def _error(alias: Alias, what: str, loc: SourceLoc | None, direct: bool) -> ViewMutationError:
    if alias.own:
        head = f"output {alias.output_nr} of {alias.op_name} is a view and {what}"
    else:
        mode = "inference mode" if alias.kind is CreationKind.INFERENCE else "no_grad"
        head = f"a view that was created in {mode} {what}"
    return ViewMutationError(
        head,
        kind=f"{alias.kind.value}_view_inplace",
        direct=direct,
        op_name=alias.op_name,
        output_nr=alias.output_nr,
        loc=loc,
        notes=(("the view was made here:", alias.made),),
        remedy=_EXPLAIN[alias.kind],
    )
