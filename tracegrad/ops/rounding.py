"""Rounding to whole numbers, or to decimals; the derivative is zero, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.errors import DTypeError
from tracegrad.graph.ir import Operand
from tracegrad.graph.op import Attrs, Decompose, OpDef, Partials, Sample, Trait, declare
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.pointwise import FLAT, IDENTITY, call, pointwise
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def _rounding(name: str, numpy: tuple[Callable[..., Any], ...], methods: tuple[str, ...]) -> OpDef:
    return pointwise(
        name,
        Intrinsic(name, 1, numpy[0], f"{name}{{f}}({{0}})"),
        FLAT,
        by_kind=dict.fromkeys("iub", IDENTITY),
        accepts=dtypes.ALL,
        traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
        numpy=numpy,
        methods=methods,
        inplace=True,
        tg=name,
    )


floor = _rounding("floor", (np.floor,), ("floor",))
ceil = _rounding("ceil", (np.ceil,), ("ceil",))
trunc = _rounding("trunc", (np.trunc, np.fix), ("trunc", "fix"))

rint = pointwise(
    "rint",
    Intrinsic("rint", 1, np.rint, "rint{f}({0})"),
    FLAT,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.rint,),
    methods=("rint",),
    inplace=True,
    doc="To the nearest whole number, halves to even.",
)


fraction = pointwise(
    "fraction",
    call("fraction", 1, lambda x: np.modf(x)[0]),
    (lambda b, t, out, x: t,),
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    doc="What `trunc` drops, with the sign of x; 0 of infinities.",
)


@dataclass(frozen=True, slots=True)
class RoundAttrs(Attrs):
    """`decimals` digits are kept after the point, or ``-decimals`` before it made zero."""

    decimals: int = 0


def _infer_round(attrs: RoundAttrs, x: TensorType) -> TensorType:
    if not x.dtype.is_float and (x.dtype.is_bool or attrs.decimals < 0):
        raise DTypeError(
            f"round: not defined for {x.dtype} with decimals={attrs.decimals}",
            remedy="Convert to float first, for example with x.astype(np.float64).",
        )
    return x


def _build_round(b: GraphBuilder, attrs: RoundAttrs, x: Operand) -> Operand:
    from tracegrad.ops.arithmetic import div, mul, positive

    if not x.dtype.is_float:
        return positive(b, x)  # type: ignore[no-any-return]
    scale = 10.0 ** abs(attrs.decimals)
    if attrs.decimals > 0:
        return div(b, rint(b, mul(b, x, scale)), scale)  # type: ignore[no-any-return]
    if attrs.decimals < 0:
        return mul(b, rint(b, div(b, x, scale)), scale)  # type: ignore[no-any-return]
    return rint(b, x)  # type: ignore[no-any-return]


def _round_samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.uniform(-30, 30, (3, 4))
    return [Sample((x,), RoundAttrs(n)) for n in (0, 1, -1)] + [
        Sample((x.astype(np.float32),), RoundAttrs(2)),
        Sample((x.astype(np.int16),), RoundAttrs(1)),
    ]


round_ = declare(
    name="round",
    attrs=RoundAttrs,
    infer=_infer_round,
    reference=lambda a, x: np.asarray(np.round(x, a.decimals)),
    derivative=Partials(FLAT),
    lowering=Decompose(_build_round),
    samples=_round_samples,
    numpy=(np.round, np.around),
    methods=("round",),
    inplace=True,
    tg="round",
    doc="To `decimals` digits, halves to even, by scaling as NumPy does.",
)
