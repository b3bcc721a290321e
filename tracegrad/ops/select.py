"""Choice between values: `where`, maximum and minimum, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import BOOL
from tracegrad.errors import DTypeError
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import Partial, Partials, Point, Sample, Trait, declare
from tracegrad.loops.ir import Select
from tracegrad.ops.compare import AND, OR, eq, ge, gt, isnan, le, logical_and, logical_or, lt
from tracegrad.ops.pairs import each_part
from tracegrad.ops.pointwise import call, common_dtype, common_shape, pointwise, random_array
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def zero_of(x: Operand) -> Literal:
    """Zero of the dtype of `x`."""
    return Literal(0, x.dtype)


def kept(b: GraphBuilder, cond: Operand, t: Operand) -> Operand:
    """`t` where `cond` holds, zero elsewhere (zero even where `t` is infinite or NaN)."""
    return where(b, cond, t, zero_of(t))  # type: ignore[no-any-return]


def dropped(b: GraphBuilder, cond: Operand, t: Operand) -> Operand:
    """Zero where `cond` holds, `t` elsewhere."""
    return where(b, cond, zero_of(t), t)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------ where


def _infer_where(attrs: object, cond: TensorType, x: TensorType, y: TensorType) -> TensorType:
    if cond.dtype is not BOOL:
        raise DTypeError(f"where: the condition must be bool, not {cond.dtype}")
    dtype = common_dtype("where", (x, y), dtypes.ALL + dtypes.COMPLEX)
    return TensorType(common_shape("where", (cond, x, y)), dtype)


def _where_at(
    lb: object, attrs: object, out: TensorType, index: Sequence[object], cond: Any, x: Any, y: Any
) -> Select:
    return Select(cond(index), x(index), y(index))


def _where_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((random_array(rng, shape, BOOL), *(random_array(rng, shape, d) for _ in "xy")))
        for d in dtypes.ALL
        for shape in ((3, 4), (), (0, 2))
    ]


where = declare(
    name="where",
    infer=_infer_where,
    reference=lambda a, cond, x, y: np.asarray(np.where(cond, x, y)),
    derivative=Partials(
        (
            None,
            lambda b, t, out, cond, x, y: kept(b, cond, t),
            lambda b, t, out, cond, x, y: dropped(b, cond, t),
        )
    ),
    lowering=Point(_where_at),
    traits=frozenset({Trait.CHEAP}),
    samples=_where_samples,
    pairs=each_part,
    numpy=(np.where,),
    tg="where",
    doc="Operand 1 where operand 0 (bool) holds, operand 2 elsewhere.",
)


# ------------------------------------------------------------------------- maximum, minimum


def _halved(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
    """Half of `t` where the two operands tie."""
    from tracegrad.ops.arithmetic import mul

    return where(b, eq(b, x, y), mul(b, t, 0.5), t)  # type: ignore[no-any-return]


maximum = pointwise(
    "maximum",
    call("max", 2, np.maximum),
    (
        lambda b, t, out, x, y: dropped(b, lt(b, x, y), _halved(b, t, out, x, y)),
        lambda b, t, out, x, y: dropped(b, gt(b, x, y), _halved(b, t, out, x, y)),
    ),
    by_kind={"b": OR},
    accepts=dtypes.ALL,
    traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.maximum,),
    methods=("maximum",),
    tg="maximum",
    doc="The larger; NaN where either is NaN.",
)

minimum = pointwise(
    "minimum",
    call("min", 2, np.minimum),
    (
        lambda b, t, out, x, y: dropped(b, gt(b, x, y), _halved(b, t, out, x, y)),
        lambda b, t, out, x, y: dropped(b, lt(b, x, y), _halved(b, t, out, x, y)),
    ),
    by_kind={"b": AND},
    accepts=dtypes.ALL,
    traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.minimum,),
    methods=("minimum",),
    tg="minimum",
    doc="The smaller; NaN where either is NaN.",
)


def _first_wins(compare: Any, keeps: bool) -> Partial:
    """Partial of fmax/fmin: operand 0 takes all where it compares so or operand 1 is NaN."""

    def partial(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
        first = logical_or(b, compare(b, x, y), isnan(b, y))
        return kept(b, first, t) if keeps else dropped(b, first, t)

    return partial


fmax = pointwise(
    "fmax",
    call("fmax", 2, np.fmax),
    (_first_wins(ge, True), _first_wins(ge, False)),
    by_kind={"b": OR},
    accepts=dtypes.ALL,
    traits=(Trait.CHEAP,),
    numpy=(np.fmax,),
    methods=("fmax",),
    tg="fmax",
    doc="The larger; a NaN loses against a number.",
)

fmin = pointwise(
    "fmin",
    call("fmin", 2, np.fmin),
    (_first_wins(le, True), _first_wins(le, False)),
    by_kind={"b": AND},
    accepts=dtypes.ALL,
    traits=(Trait.CHEAP,),
    numpy=(np.fmin,),
    methods=("fmin",),
    tg="fmin",
    doc="The smaller; a NaN loses against a number.",
)


# ----------------------------------------------------------------------------------- limits

clamp_min = pointwise(
    "clamp_min",
    call("clamp_min", 2, np.maximum),
    (
        lambda b, t, out, x, lo: kept(b, ge(b, x, lo), t),
        lambda b, t, out, x, lo: kept(b, lt(b, x, lo), t),
    ),
    by_kind={"b": OR},
    accepts=dtypes.ALL,
    traits=(Trait.CHEAP,),
    methods=("clamp_min",),
    inplace=True,
    doc="As maximum, but operand 0 takes the whole gradient at a tie.",
)

clamp_max = pointwise(
    "clamp_max",
    call("clamp_max", 2, np.minimum),
    (
        lambda b, t, out, x, hi: kept(b, le(b, x, hi), t),
        lambda b, t, out, x, hi: kept(b, gt(b, x, hi), t),
    ),
    by_kind={"b": AND},
    accepts=dtypes.ALL,
    traits=(Trait.CHEAP,),
    methods=("clamp_max",),
    inplace=True,
    doc="As minimum, but operand 0 takes the whole gradient at a tie.",
)


def _clip(x: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, lo), hi)


clip = pointwise(
    "clip",
    call("clip", 3, _clip),
    (
        lambda b, t, out, x, lo, hi: kept(b, logical_and(b, ge(b, x, lo), le(b, x, hi)), t),
        lambda b, t, out, x, lo, hi: kept(b, logical_and(b, lt(b, x, lo), lt(b, lo, hi)), t),
        lambda b, t, out, x, lo, hi: kept(b, logical_or(b, gt(b, x, hi), lt(b, hi, lo)), t),
    ),
    accepts=dtypes.ALL,
    domain=((-2.5, 2.5), (-1.5, -0.5), (0.5, 1.5)),
    traits=(Trait.CHEAP,),
    doc="min(max(x, lo), hi); operand 2 wins where lo > hi. Both limits given.",
)
