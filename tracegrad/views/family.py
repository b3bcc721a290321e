"""What both the tracer and the aliasing pass know of aliases: storages, families, versions, kinds.

Follows PyTorch's autograd as the views specification pins it down: every alias belongs to a
*gradient family* (a base and its tracked views; `detach` starts another one) of one storage; a
storage has one version counter; an alias remembers how it was made and the version at which its
gradient history was last computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tracegrad.dtypes import DType
from tracegrad.graph.storage import Step, View
from tracegrad.source import SourceLoc
from tracegrad.types import Shape


class CreationKind(Enum):
    """How a view was made; everything but DEFAULT restricts writes through it."""

    DEFAULT = "default"
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    MULTI_OUTPUT = "multi_output"
    CUSTOM = "custom_function"


def combine(parent: CreationKind, step: CreationKind) -> CreationKind:
    """Kind of a view made by a step of kind `step` on a view of kind `parent`: the step's own
    kind wins, a DEFAULT step inherits, an INFERENCE parent yields only to CUSTOM."""
    if parent is CreationKind.INFERENCE and step is not CreationKind.CUSTOM:
        return parent
    return parent if step is CreationKind.DEFAULT else step


@dataclass(slots=True, eq=False)
class Storage:
    """A flat run of elements with the dense row-major geometry of `shape`.

    `inference`: made in inference mode, so it has no version and its tensors no gradient.
    """

    shape: Shape
    dtype: DType
    version: int = 0
    written: bool = False
    inference: bool = False


@dataclass(slots=True, eq=False)
class Family:
    """Aliases that share one gradient history; `tracked`: the base requires a gradient, and
    `leaf`: because it was asked for (``requires_grad_``), not because it was computed.
    `written`: a write has become part of the history; `viewed`: it has views."""

    tracked: bool = False
    leaf: bool = False
    written: bool = False
    viewed: bool = False


@dataclass(slots=True, eq=False)
class Alias:
    """One tensor over a storage.

    `view` leads from the storage to the tensor.  `is_view` is false for bases and for what
    `detach` returns.  `fresh_at` is the version at which the history was last computed.
    `own` is true when the alias had a gradient history of its own when it was made.  `leaf`: a
    gradient was asked for this very tensor.  `ruled`: its history is a custom function's, not
    its base's.  `cut`: it or a view on the way to it was made with gradients off, so that no
    gradient flows back through it.
    """

    storage: Storage
    family: Family
    view: View = field(default_factory=View)
    is_view: bool = False
    kind: CreationKind = CreationKind.DEFAULT
    fresh_at: int = 0
    own: bool = False
    op_name: str = ""
    output_nr: int = 0
    made: SourceLoc | None = None
    leaf: bool = False
    ruled: bool = False
    cut: bool = False

    @property
    def requires_grad(self) -> bool:
        return self.family.tracked or self.own

    @property
    def dtype(self) -> DType:
        """The element type that the tensor has (its storage may have another)."""
        return self.view.dtype(self.storage.dtype) if self.view.steps else self.storage.dtype

    @property
    def precedes_leaf(self) -> bool:
        """Whether the base was made a leaf after this view of it had been taken."""
        return (
            self.is_view
            and self.family.leaf
            and not self.family.written
            and not self.own
            and not self.cut
            and self.kind is CreationKind.DEFAULT
        )

    @property
    def is_stale(self) -> bool:
        return self.is_view and self.fresh_at != self.storage.version


def fresh(
    shape: Shape,
    dtype: DType,
    tracked: bool,
    loc: SourceLoc | None = None,
    storage: Storage | None = None,
) -> Alias:
    """The base of a new storage (or of `storage`)."""
    store = storage or Storage(shape, dtype)
    return Alias(store, Family(tracked), own=tracked, made=loc)


def view_of(
    parent: Alias,
    steps: tuple[Step, ...],
    *,
    grad: bool,
    multi_output: bool = False,
    op_name: str = "view",
    output_nr: int = 0,
    loc: SourceLoc | None = None,
    inference: bool = False,
) -> Alias:
    """A tracked view of `parent` made with gradients on or off, or in inference mode; what is
    made of an inference tensor is none."""
    step = (
        CreationKind.INFERENCE
        if inference
        else CreationKind.NO_GRAD
        if not grad
        else CreationKind.MULTI_OUTPUT
        if multi_output
        else CreationKind.DEFAULT
    )
    return Alias(
        parent.storage,
        parent.family,
        parent.view.then(*steps, base=parent.storage.shape),
        not parent.storage.inference,
        combine(parent.kind, step),
        parent.storage.version,
        grad and parent.requires_grad,
        op_name,
        output_nr,
        loc,
        ruled=parent.ruled and grad and not inference,
        cut=parent.cut or inference or not grad,
    )


def returned_view(
    parent: Alias,
    steps: tuple[Step, ...],
    *,
    tracked: bool,
    multi_output: bool,
    op_name: str,
    output_nr: int,
    loc: SourceLoc | None,
) -> Alias:
    """A view of `parent` that a custom function returned (the only one, or one of several)."""
    step = CreationKind.MULTI_OUTPUT if multi_output else CreationKind.CUSTOM
    return Alias(
        parent.storage,
        parent.family,
        parent.view.then(*steps, base=parent.storage.shape),
        not parent.storage.inference,
        combine(parent.kind, step),
        parent.storage.version,
        tracked,
        op_name,
        output_nr,
        loc,
        ruled=True,
    )


def detached(parent: Alias, loc: SourceLoc | None = None) -> Alias:
    """The same elements as a new, untracked family."""
    return Alias(
        parent.storage,
        Family(False),
        parent.view,
        False,
        CreationKind.DEFAULT,
        parent.storage.version,
        False,
        "detach",
        0,
        loc,
    )


def record_write(alias: Alias, tracked: bool) -> None:
    """Bookkeeping after a write through `alias`: one version more, and history if tracked."""
    alias.storage.version += 1
    alias.storage.written = True
    if tracked:
        alias.family.tracked = alias.family.written = True
        alias.own = True
        alias.fresh_at = alias.storage.version
