"""Number theory of integers, and integer powers with exponents known only at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import BOOL, DType
from tracegrad.errors import RuntimeValueError
from tracegrad.graph.op import Attrs, Nest, NoGradient, OpDef, Sample, Trait, declare
from tracegrad.loops.ir import Apply, Const, LoopTag
from tracegrad.ops.compare import ge
from tracegrad.ops.pointwise import (
    INTEGER_RESULT,
    call,
    common_dtype,
    common_shape,
    pointwise,
    random_array,
)
from tracegrad.ops.transcendental import power
from tracegrad.types import TensorType


def _divisors(name: str, numpy: Callable[..., Any]) -> OpDef:
    return pointwise(
        name,
        call(name, 2, numpy),
        INTEGER_RESULT,
        accepts=dtypes.INTEGERS,
        traits=(Trait.COMMUTATIVE,),
        numpy=(numpy,),
        methods=(name,),
        inplace=True,
        tg=name,
    )


gcd = _divisors("gcd", np.gcd)
lcm = _divisors("lcm", np.lcm)

# --------------------------------------------------------------------------- integer_power

SIGNED = tuple(d for d in dtypes.INTEGERS if d.kind == "i")
NEGATIVE = "Integers to negative integer powers are not allowed."


def _infer(attrs: object, x: TensorType, y: TensorType) -> TensorType:
    dtype = common_dtype("integer_power", (x, y), SIGNED)
    return TensorType(common_shape("integer_power", (x, y)), dtype)


def _reference(attrs: object, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if np.any(np.asarray(y) < 0):
        raise RuntimeValueError(NEGATIVE)
    return power.reference(attrs, x, y)  # type: ignore[no-any-return]


def _emit(lb: Any, attrs: object, outs: Any, x: Any, y: Any) -> None:
    assert power.intrinsic is not None and ge.intrinsic is not None
    dtype: DType = outs[0].type.dtype
    with lb.loops(outs[0].type.shape, LoopTag.SERIAL) as at:
        exponent = lb.let(y(at), "exponent")
        lb.check(Apply(ge.intrinsic, (exponent, Const(0, dtype)), BOOL), exponent, NEGATIVE)
        outs[0].store(at, Apply(power.intrinsic, (x(at), exponent), dtype))


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((random_array(rng, shape, d), random_array(rng, shape, d, (0, 2))), Attrs())
        for d in SIGNED
        for shape in ((3, 4), (), (0, 2))
    ]


integer_power = declare(
    name="integer_power",
    infer=_infer,
    reference=_reference,
    derivative=NoGradient(INTEGER_RESULT),
    lowering=Nest(_emit),
    traits=frozenset({Trait.CHECKED}),
    samples=_samples,
    doc="`power` of signed integers; a negative exponent stops the call with ValueError.",
)
