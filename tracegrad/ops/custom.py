"""Functions with a derivative of the user's own: one node, its value and its rules as regions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracegrad.errors import GradientWarning
from tracegrad.graph.op import (
    Attrs,
    ByRegions,
    Linear,
    Point,
    Rules,
    Special,
    Trait,
    declare,
)
from tracegrad.ops.handles import HandleAttrs
from tracegrad.ops.views import transpose_view
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder
    from tracegrad.graph.ir import Operand


@dataclass(frozen=True, slots=True)
class RegionRule:
    """How one rule's region is connected to its `custom` node.

    `kind` is ``vjp`` or ``jvp``.  The region's inputs are, in this order, the values `saved`
    (operand k, or result ~k where negative), what is `given` (``vjp``: the cotangents of these
    results; ``jvp``: the tangents of these operands), and the operands `captured`.  Its outputs
    are cotangents of the operands (``vjp``), or tangents of the results (``jvp``), that `gives`
    names; the others are zero.
    """

    kind: str
    saved: tuple[int, ...]
    given: tuple[int, ...]
    captured: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CustomAttrs(Attrs):
    """`name` is the user's; region 0 is the value, a function of the first `inputs` operands;
    region k + 1 belongs to ``rules[k]``.

    The last `residuals` results are values kept for the rules.  With `through` they are
    differentiated as what they are; otherwise they are constants (PyTorch's meaning).
    """

    name: str
    results: tuple[TensorType, ...]
    inputs: int
    rules: tuple[RegionRule, ...]
    residuals: int = 0
    through: bool = False


def _reference(attrs: CustomAttrs, *xs: Any, regions: Any) -> tuple[Any, ...]:
    return tuple(regions[0](*xs[: attrs.inputs])[: len(attrs.results)])


custom = declare(
    name="custom",
    attrs=CustomAttrs,
    infer=lambda a, *xs: a.results,
    reference=_reference,
    derivative=ByRegions("the user's rules"),
    lowering=Special("replaced by region 0 once derivatives are taken (autodiff.custom)"),
    samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="A function whose derivative the user wrote.",
)


# ---------------------------------------------------------------------------- kept values


@dataclass(frozen=True, slots=True)
class SavedAttrs(Attrs):
    """`name`: the function whose forward kept the value."""

    name: str


def _warn(b: GraphBuilder, attrs: SavedAttrs) -> None:
    at = f"\n{b.loc.quote()}" if b.loc is not None else ""
    warnings.warn(
        GradientWarning(
            f"a second derivative of {attrs.name} meets a value that its forward computed and "
            "kept: it counts as a constant. Keep inputs or results, and compute it in backward."
            + at
        ),
        stacklevel=2,
    )


def _saved_vjp(
    b: GraphBuilder, attrs: SavedAttrs, cts: Any, outs: Any, xs: Any
) -> tuple[Operand | None, ...]:
    _warn(b, attrs)
    return (None,) * len(xs)


def _saved_jvp(
    b: GraphBuilder, attrs: SavedAttrs, ts: Any, outs: Any, xs: Any
) -> tuple[Operand | None, ...]:
    _warn(b, attrs)
    return (None,)


saved = declare(
    name="saved",
    attrs=SavedAttrs,
    infer=lambda a, x, *sources: x,
    reference=lambda a, x, *sources: x,
    derivative=Rules(_saved_vjp, _saved_jvp),
    lowering=Point(lambda lb, a, out, index, x, *sources: x(index), folds=False, same_index=False),
    samples=lambda rng: [],
    traits=frozenset({Trait.CHEAP, Trait.HIDES}),
    doc="Operand 0, kept by a custom function of the other operands: a constant of derivatives, "
    "with a warning when one is asked for.",
)


# ------------------------------------------------------------------------- results that alias


@dataclass(frozen=True, slots=True)
class ReturnedAttrs(HandleAttrs):
    """`several`: the function returned more than one result."""

    several: bool = False


custom_view = declare(
    name="custom_view",
    attrs=ReturnedAttrs,
    infer=lambda a, base, result: result,
    reference=lambda a, base, result: result,
    derivative=Linear(lambda b, a, ct, xs: (transpose_view(b, a.view, ct, xs[0].shape), ct)),
    lowering=Special("an alias; functionalisation reads the result while it is current"),
    traits=frozenset({Trait.VIEW, Trait.TRACED_ONLY}),
    samples=lambda rng: [],
    doc="A handle into the storage of operand 0 whose history is operand 1, a result of a custom "
    "function: what such a function returns when it returns a view.",
)
