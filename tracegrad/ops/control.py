"""Ops that hold a region: transforms of a traced function (loops and branches come later)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracegrad.errors import VerifyError
from tracegrad.graph.op import Attrs, NoGradient, Special, Trait, declare
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True)
class TransformAttrs(Attrs):
    """A derivative of the region.

    `kind` is ``vjp``, ``jvp``, or ``call`` for the region alone; `wrt` the inputs of the region it is taken of.  With `seeds`,
    the cotangent of those outputs is 1 and of the others 0 (a gradient); without, the operands
    behind the region's inputs are the cotangents of its inexact outputs (``vjp``), or the
    tangents of the inputs `wrt` (``jvp``).  `results`: the types of the region's outputs, of the
    derivatives, and of the final contents of the inputs that the region writes.
    """

    kind: str
    wrt: tuple[int, ...]
    seeds: tuple[int, ...]
    results: tuple[TensorType, ...]


def _reference(attrs: TransformAttrs, *xs: Any, regions: Any = ()) -> Any:
    raise VerifyError("a transform has no value of its own; run expand_transforms first")


transform = declare(
    name="transform", attrs=TransformAttrs, infer=lambda a, *xs: a.results,
    reference=_reference, derivative=NoGradient("it is expanded before differentiation"),
    lowering=Special("expanded by autodiff.expand"), samples=lambda rng: [],
    traits=frozenset({Trait.EXPENSIVE}),
    doc="A derivative of the function in the region, taken where the node stands.")
