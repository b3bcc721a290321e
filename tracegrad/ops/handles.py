"""Handles of the traced stage, copies, and identities that steer a gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracegrad.graph.op import Attrs, Linear, Point, Rules, Sample, Special, Trait, declare
from tracegrad.ops.pairs import as_whole
from tracegrad.ops.views import ViewAttrs, infer_view, take, transpose_view


@dataclass(frozen=True, slots=True)
class HandleAttrs(ViewAttrs):
    """`origin` names the call that made the view; `output` is its number among the several
    views of a multi-output call, -1 for the single result of an ordinary one."""

    origin: str = "view"
    output: int = -1


view = declare(
    name="view",
    attrs=HandleAttrs,
    infer=infer_view,
    reference=take,
    derivative=Linear(lambda b, a, ct, xs: (transpose_view(b, a.view, ct, xs[0].shape),)),
    lowering=Special("an alias; functionalisation makes it as_strided"),
    traits=frozenset({Trait.VIEW, Trait.TRACED_ONLY}),
    samples=lambda rng: [],
    doc="A handle into the storage of operand 0.",
)

detach = declare(
    name="detach",
    infer=lambda a, x: x,
    reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Special("an alias; functionalisation makes it stop_gradient"),
    traits=frozenset({Trait.TRACED_ONLY}),
    samples=lambda rng: [],
    doc="A handle into the storage of operand 0 that starts another gradient family.",
)


@dataclass(frozen=True, slots=True)
class PointAttrs(Attrs):
    """`cut`: no gradient flows on to where the value came from, as of a leaf."""

    cut: bool


point = declare(
    name="point",
    attrs=PointAttrs,
    infer=lambda a, x: x,
    reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Special("an identity that functionalisation puts on the path of a gradient"),
    traits=frozenset({Trait.TRACED_ONLY}),
    samples=lambda rng: [],
    doc="From here on the gradient of operand 0 passes here, where `gradients` can ask for it.",
)


copy = declare(
    name="copy",
    infer=lambda a, x: x,
    reference=lambda a, x: np.array(x, order="C"),
    derivative=Linear(lambda b, a, ct, xs: (ct,)),
    lowering=Point(lambda lb, a, out, index, x: x(index)),
    traits=frozenset({Trait.CHEAP}),
    pairs=as_whole,
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)),))],
    doc="The elements of operand 0 in a storage of their own; with a target, assignment.",
)

stop_gradient = declare(
    name="stop_gradient",
    infer=lambda a, x: x,
    reference=lambda a, x: x,
    derivative=Rules(lambda b, a, cts, outs, xs: (None,), lambda b, a, ts, outs, xs: (None,)),
    lowering=Point(lambda lb, a, out, index, x: x(index)),
    traits=frozenset({Trait.CHEAP, Trait.HIDES}),
    pairs=as_whole,
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)),))],
    doc="Operand 0 with no gradient.",
)

graft = declare(
    name="graft",
    infer=lambda a, value, path: value,
    reference=lambda a, value, path: value,
    derivative=Rules(
        lambda b, a, cts, outs, xs: (None, cts[0]), lambda b, a, ts, outs, xs: (ts[1],)
    ),
    lowering=Point(lambda lb, a, out, index, value, path: value(index)),
    traits=frozenset({Trait.CHEAP, Trait.HIDES}),
    pairs=as_whole,
    samples=lambda rng: [Sample((rng.standard_normal((2, 3)), rng.standard_normal((2, 3))))],
    doc="The value of operand 0; the gradient goes to operand 1 only.",
)
