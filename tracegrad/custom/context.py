"""The `ctx` of a `Function`: what forward leaves for backward."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any


@dataclass(slots=True)
class Notes:
    """What a forward told its context."""

    needs: tuple[bool, ...] = ()
    saved: tuple[Any, ...] = ()
    for_jvp: tuple[Any, ...] | None = None
    dirty: tuple[Any, ...] = ()
    constant: tuple[Any, ...] = ()
    materialize: bool = True


class Context:
    """Passed to `Function.forward` and `Function.backward`; other attributes are the user's own
    and reach backward as they are."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self._notes = Notes(needs)

    # -- in forward

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, which finds them in `saved_tensors`.

        Inputs and results keep their history for second derivatives; what forward computed
        besides is a constant there.
        """
        self._notes.saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """As `save_for_backward`, for `jvp`."""
        self._notes.for_jvp = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Say that forward wrote these inputs; each must be returned."""
        self._notes.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these results have no gradient."""
        self._notes.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether results without a gradient give backward zeros (the default) or None."""
        self._notes.materialize = bool(value)

    # -- in backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept."""
        return self._notes.saved

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """For each input of forward, whether backward's gradient of it may be used.  Inside a
        trace that is not known, so every float tensor counts."""
        return self._notes.needs

    # -- for the recorder

    def attributes(self) -> dict[str, Any]:
        """The user's own attributes."""
        return {k: v for k, v in vars(self).items() if k != "_notes"}

    def with_values(self, saved: tuple[Any, ...], attributes: dict[str, Any]) -> Context:
        """The context as a rule sees it, with the tensors of the rule's own trace."""
        new = copy.copy(self)
        vars(new).clear()
        vars(new).update(attributes, _notes=replace(self._notes, saved=saved))
        return new
