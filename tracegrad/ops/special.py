"""Error functions and activations, which NumPy lacks; `ldexp`, whose operands differ in dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.dtypes import FLOATS, I32, I64
from tracegrad.errors import DTypeError
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import OpDef, Partial, Partials, Point, Sample, Trait, declare
from tracegrad.loops.ir import Apply, Intrinsic
from tracegrad.ops.arithmetic import add, mul, neg, sub
from tracegrad.ops.compare import le
from tracegrad.ops.pointwise import (
    INTEGER_RESULT,
    POSITIVE,
    REALS,
    Domain,
    call,
    common_shape,
    composite,
    pointwise,
    random_array,
)
from tracegrad.ops.select import dropped
from tracegrad.ops.transcendental import exp, libm, tanh
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def _each(f: Callable[[float], float]) -> Callable[[Any], np.ndarray]:
    """A function of Python floats applied to each element, in the operand's dtype."""

    def apply(x: Any) -> np.ndarray:
        x = np.asarray(x)
        out = np.fromiter(map(f, x.ravel().tolist()), np.float64, x.size)
        return out.reshape(x.shape).astype(x.dtype)

    return apply


def _activation(
    name: str,
    intrinsic: Intrinsic,
    partial: Partial,
    domain: Domain = REALS,
    zero: bool = False,
    inplace: bool = True,
    doc: str = "",
) -> OpDef:
    return pointwise(
        name,
        intrinsic,
        (partial,),
        domain=domain,
        traits=(Trait.ZERO_PRESERVING,) if zero else (),
        methods=(name,),
        inplace=inplace,
        tg=name,
        doc=doc,
    )


# -------------------------------------------------------------------------- error functions


def _bell(b: GraphBuilder, x: Operand) -> Operand:
    """``2/sqrt(pi) exp(-x*x)``, the slope of erf."""
    return mul(b, exp(b, neg(b, mul(b, x, x))), 2.0 / math.sqrt(math.pi))  # type: ignore[no-any-return]


erf = _activation(
    "erf",
    libm("erf", 1, _each(math.erf)),
    lambda b, t, out, x: mul(b, t, _bell(b, x)),
    zero=True,
)
erfc = _activation(
    "erfc",
    libm("erfc", 1, _each(math.erfc)),
    lambda b, t, out, x: neg(b, mul(b, t, _bell(b, x))),
)

# ------------------------------------------------------------------------------ activations


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), e) / (1 + e)


def _sigmoid_slope(b: GraphBuilder, s: Operand) -> Operand:
    return mul(b, s, sub(b, Literal(1, s.dtype), s))  # type: ignore[no-any-return]


sigmoid = _activation(
    "sigmoid",
    call("sigmoid", 1, _sigmoid),
    lambda b, t, out, x: mul(b, t, _sigmoid_slope(b, out)),
    doc="1 / (1 + exp(-x)), without overflow.",
)

softplus = _activation(
    "softplus",
    call("softplus", 1, lambda x: np.where(x > 0, x, x.dtype.type(0)) + np.log1p(np.exp(-abs(x)))),
    lambda b, t, out, x: mul(b, t, sigmoid(b, x)),
    inplace=False,
    doc="log(1 + exp(x)), without overflow and exact for all x (no threshold).",
)

relu = _activation(
    "relu",
    call("relu", 1, lambda x: np.where(x < 0, x.dtype.type(0), x)),
    lambda b, t, out, x: dropped(b, le(b, x, 0), t),
    zero=True,
    doc="max(x, 0); NaN stays NaN.",
)


def _silu_slope(b: GraphBuilder, t: Operand, out: Operand, x: Operand) -> Operand:
    s = sigmoid(b, x)
    return mul(b, t, add(b, s, mul(b, x, _sigmoid_slope(b, s))))  # type: ignore[no-any-return]


silu = _activation(
    "silu",
    call("silu", 1, lambda x: x * _sigmoid(x)),
    _silu_slope,
    zero=True,
    inplace=False,
    doc="x * sigmoid(x).",
)


def _normal_cdf_twice(x: Any) -> Any:
    return _each(math.erfc)(-x * x.dtype.type(math.sqrt(0.5)))


def _gelu_slope(b: GraphBuilder, t: Operand, out: Operand, x: Operand) -> Operand:
    cdf = mul(b, erfc(b, mul(b, x, -math.sqrt(0.5))), 0.5)
    pdf = mul(b, exp(b, mul(b, mul(b, x, x), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
    return mul(b, t, add(b, cdf, mul(b, x, pdf)))  # type: ignore[no-any-return]


gelu = _activation(
    "gelu",
    call("gelu", 1, lambda x: x * x.dtype.type(0.5) * _normal_cdf_twice(x)),
    _gelu_slope,
    zero=True,
    inplace=False,
    doc="x times the normal distribution function, by erfc.",
)

_GELU_TANH = math.sqrt(2.0 / math.pi)


def _build_gelu_tanh(b: GraphBuilder, x: Operand) -> Operand:
    cubic = add(b, x, mul(b, mul(b, mul(b, x, x), x), 0.044715))
    bent = tanh(b, mul(b, cubic, _GELU_TANH))
    return mul(b, mul(b, x, 0.5), add(b, bent, 1.0))  # type: ignore[no-any-return]


def _gelu_tanh(x: Any) -> Any:
    one = x.dtype.type
    bent = np.tanh((x + x * x * x * one(0.044715)) * one(_GELU_TANH))
    return x * one(0.5) * (bent + one(1))


def _gelu_tanh_slope(b: GraphBuilder, t: Operand, out: Operand, x: Operand) -> Operand:
    square = mul(b, x, x)
    bent = tanh(b, mul(b, add(b, x, mul(b, mul(b, square, x), 0.044715)), _GELU_TANH))
    inner = mul(b, add(b, mul(b, square, 3 * 0.044715), 1.0), _GELU_TANH)
    steep = mul(b, sub(b, Literal(1, x.dtype), mul(b, bent, bent)), inner)
    slope = mul(b, add(b, add(b, bent, 1.0), mul(b, x, steep)), 0.5)
    return mul(b, t, slope)  # type: ignore[no-any-return]


gelu_tanh = composite(
    "gelu_tanh",
    _gelu_tanh,
    _build_gelu_tanh,
    (_gelu_tanh_slope,),
    traits=(Trait.ZERO_PRESERVING,),
    doc="PyTorch's gelu(approximate='tanh'); traced as its formula.",
)

rsqrt = _activation(
    "rsqrt",
    call("rsqrt", 1, lambda x: x.dtype.type(1) / np.sqrt(x)),
    lambda b, t, out, x: mul(b, mul(b, t, mul(b, mul(b, out, out), out)), -0.5),
    POSITIVE,
    doc="1 / sqrt(x).",
)

# ------------------------------------------------------------------------------------ ldexp


def _infer_ldexp(attrs: object, x: TensorType, n: TensorType) -> TensorType:
    if x.dtype not in FLOATS or n.dtype not in (I32, I64):
        raise DTypeError(f"ldexp: not defined for {x.dtype} and {n.dtype}")
    return TensorType(common_shape("ldexp", (x, n)), x.dtype)


def _ldexp(x: Any, n: Any) -> Any:
    # NumPy's int64 exponents are clipped to C's int; nothing differs beyond 5,000 anyway.
    return np.ldexp(x, np.clip(n, -5000, 5000).astype(np.int32))


_LDEXP = call("ldexp", 2, _ldexp)


def _ldexp_at(
    lb: object, attrs: object, out: TensorType, index: Sequence[object], x: Any, n: Any
) -> Apply:
    return Apply(_LDEXP, (x(index), n(index)), out.dtype)


def _ldexp_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample((random_array(rng, shape, d), random_array(rng, shape, n)))
        for d in FLOATS
        for n in (I32, I64)
        for shape in ((3, 4), (), (0, 2))
    ]


ldexp: OpDef = declare(
    name="ldexp",
    infer=_infer_ldexp,
    reference=lambda a, x, n: np.asarray(_ldexp(x, n)),
    derivative=Partials((lambda b, t, out, x, n: ldexp(b, t, n), None)),
    lowering=Point(_ldexp_at),
    intrinsic=_LDEXP,
    samples=_ldexp_samples,
    numpy=(np.ldexp,),
    methods=("ldexp",),
    inplace=True,
    tg="ldexp",
    doc="Operand 0 (float) times 2 to the power of operand 1 (int32 or int64).",
)

# ------------------------------------------------------------------------------------ frexp


def _mantissa_slope(b: GraphBuilder, t: Operand, out: Operand, x: Operand) -> Operand:
    return ldexp(b, t, neg(b, frexp_exponent(b, x)))  # type: ignore[no-any-return]


def _exponent(x: Any) -> Any:
    return np.where(np.isfinite(x), np.frexp(x)[1], np.int32(0))


frexp_mantissa = pointwise(
    "frexp_mantissa",
    call("frexp_mantissa", 1, lambda x: np.frexp(x)[0]),
    (_mantissa_slope,),
    domain=POSITIVE,
    traits=(Trait.ZERO_PRESERVING,),
    doc="First result of np.frexp: within 1/2..1, times a power of two gives x.",
)

frexp_exponent: OpDef = pointwise(
    "frexp_exponent",
    call("frexp_exponent", 1, _exponent),
    INTEGER_RESULT,
    result=I32,
    doc="Second result of np.frexp, int32; 0 of infinities and NaN.",
)
