"""Roots, powers, exponentials, logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import OpDef, Partial, Trait
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.arithmetic import add, div, mul, neg, sub
from tracegrad.ops.compare import eq, ge, logical_and, ne
from tracegrad.ops.pointwise import (
    NUMBERS,
    POSITIVE,
    REALS,
    UNIT,
    Domain,
    call,
    composite,
    pointwise,
)
from tracegrad.ops.select import dropped, kept, where, zero_of

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


def libm(name: str, arity: int, numpy: Callable[..., Any], function: str = "") -> Intrinsic:
    """An intrinsic spelled as a call of the C library's function of that name."""
    args = ", ".join(f"{{{k}}}" for k in range(arity))
    return Intrinsic(name, arity, numpy, f"{function or name}{{f}}({args})")


def _unary(
    name: str,
    intrinsic: Intrinsic,
    partial: Partial,
    domain: Domain = REALS,
    also: tuple[Callable[..., Any], ...] = (),
    methods: tuple[str, ...] = (),
    zero: bool = False,
    on_complex: bool = False,
) -> OpDef:
    """A float function of one operand, public under `name` and NumPy's name."""
    public = intrinsic.numpy.__name__
    more: dict[str, Any] = {"pairs": _complex(name)} if on_complex else {}
    return pointwise(
        name,
        intrinsic,
        (partial,),
        domain=domain,
        traits=(Trait.ZERO_PRESERVING,) if zero else (),
        numpy=(intrinsic.numpy, *also),
        methods=tuple(dict.fromkeys((name, public, *methods))),
        inplace=True,
        tg=public,
        **more,
    )


def _complex(name: str) -> Callable[..., Any]:
    """The function of that name in `ops.complex_elementary`, which is written in these ops."""

    def rule(b: GraphBuilder, op: OpDef, attrs: Any, *xs: Any) -> Any:
        from tracegrad.ops import complex_elementary

        return getattr(complex_elementary, f"pairs_{name}")(b, *xs)

    return rule


# ----------------------------------------------------------------------------- roots, powers

sqrt = _unary(
    "sqrt",
    libm("sqrt", 1, np.sqrt),
    lambda b, t, out, x: div(b, t, mul(b, out, 2.0)),
    POSITIVE,
    zero=True,
    on_complex=True,
)

cbrt = _unary(
    "cbrt",
    libm("cbrt", 1, np.cbrt),
    lambda b, t, out, x: div(b, t, mul(b, mul(b, out, out), 3.0)),
    POSITIVE,
    zero=True,
)


def _power_x(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
    if isinstance(y, Literal):
        if y.value == 0:
            return zero_of(t)
        if y.value == 1:
            return t
        below = x if y.value == 2 else power(b, x, Literal(y.value - 1, y.dtype))
        return mul(b, t, mul(b, below, y))  # type: ignore[no-any-return]
    slope = mul(b, y, power(b, x, sub(b, y, 1.0)))
    # Both factors are masked: the slope is infinite or NaN where x and y are zero.
    used = ne(b, y, 0)
    return mul(b, kept(b, used, t), kept(b, used, slope))  # type: ignore[no-any-return]


def _power_y(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
    flat = logical_and(b, eq(b, x, 0), ge(b, y, 0))
    slope = mul(b, out, log(b, where(b, flat, Literal(1, x.dtype), x)))
    return mul(b, dropped(b, flat, t), slope)  # type: ignore[no-any-return]


power = pointwise(
    "power",
    call("power", 2, np.power),
    (_power_x, _power_y),
    by_kind={"f": libm("pow", 2, np.power)},
    accepts=NUMBERS,
    domain=(POSITIVE, (0.2, 2.5)),
    numpy=(np.power,),
    methods=("pow", "power"),
    inplace=True,
    tg="power",
    pairs=_complex("power"),
    doc="Integer exponents are known not to be negative.",
)

# --------------------------------------------------------------------- exponentials, logarithms

exp = _unary("exp", call("exp", 1, np.exp), lambda b, t, out, x: mul(b, t, out), on_complex=True)

exp2 = _unary(
    "exp2",
    libm("exp2", 1, np.exp2),
    lambda b, t, out, x: mul(b, t, mul(b, out, math.log(2))),
)

expm1 = _unary(
    "expm1",
    call("expm1", 1, np.expm1),
    lambda b, t, out, x: mul(b, t, add(b, out, 1.0)),
    zero=True,
)

log = _unary(
    "log", call("log", 1, np.log), lambda b, t, out, x: div(b, t, x), POSITIVE, on_complex=True
)

log2 = _unary(
    "log2",
    libm("log2", 1, np.log2),
    lambda b, t, out, x: div(b, t, mul(b, x, math.log(2))),
    POSITIVE,
    on_complex=True,
)

log10 = _unary(
    "log10",
    libm("log10", 1, np.log10),
    lambda b, t, out, x: div(b, t, mul(b, x, math.log(10))),
    POSITIVE,
    on_complex=True,
)

log1p = _unary(
    "log1p",
    call("log1p", 1, np.log1p),
    lambda b, t, out, x: div(b, t, add(b, x, 1.0)),
    POSITIVE,
    zero=True,
)


def _share(exponential: Callable[[], OpDef], swap: bool) -> Partial:
    """Partial of logaddexp: the share of an operand; 1/2 where they are equal, infinite too."""

    def partial(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
        behind = sub(b, x, y) if swap else sub(b, y, x)
        apart = dropped(b, eq(b, x, y), behind)
        return div(b, t, add(b, exponential()(b, apart), 1.0))  # type: ignore[no-any-return]

    return partial


logaddexp = pointwise(
    "logaddexp",
    call("logaddexp", 2, np.logaddexp),
    (_share(lambda: exp, False), _share(lambda: exp, True)),
    traits=(Trait.COMMUTATIVE,),
    numpy=(np.logaddexp,),
    methods=("logaddexp",),
    tg="logaddexp",
)

logaddexp2 = pointwise(
    "logaddexp2",
    call("logaddexp2", 2, np.logaddexp2),
    (_share(lambda: exp2, False), _share(lambda: exp2, True)),
    traits=(Trait.COMMUTATIVE,),
    numpy=(np.logaddexp2,),
    methods=("logaddexp2",),
    tg="logaddexp2",
)

# ----------------------------------------------------------------------------- trigonometry

sin = _unary(
    "sin",
    libm("sin", 1, np.sin),
    lambda b, t, out, x: mul(b, t, cos(b, x)),
    zero=True,
    on_complex=True,
)

cos: OpDef = _unary(
    "cos",
    libm("cos", 1, np.cos),
    lambda b, t, out, x: neg(b, mul(b, t, sin(b, x))),
    on_complex=True,
)

tan = _unary(
    "tan",
    libm("tan", 1, np.tan),
    lambda b, t, out, x: mul(b, t, add(b, mul(b, out, out), 1.0)),
    (-1.2, 1.2),
    zero=True,
    on_complex=True,
)


def _one_minus_square(b: GraphBuilder, x: Operand) -> Operand:
    """``1 - x*x``, as (1 - x)(1 + x), which stays accurate near 1."""
    one = Literal(1, x.dtype)
    return mul(b, sub(b, one, x), add(b, one, x))  # type: ignore[no-any-return]


arcsin = _unary(
    "asin",
    libm("asin", 1, np.arcsin),
    lambda b, t, out, x: div(b, t, sqrt(b, _one_minus_square(b, x))),
    UNIT,
    zero=True,
)

arccos = _unary(
    "acos",
    libm("acos", 1, np.arccos),
    lambda b, t, out, x: neg(b, div(b, t, sqrt(b, _one_minus_square(b, x)))),
    UNIT,
)

arctan = _unary(
    "atan",
    libm("atan", 1, np.arctan),
    lambda b, t, out, x: div(b, t, add(b, mul(b, x, x), 1.0)),
    zero=True,
)


def _atan2(first: bool) -> Partial:
    """Partial of atan2(y, x): the other operand over y*y + x*x; 0 at the origin."""

    def partial(b: GraphBuilder, t: Operand, out: Operand, y: Operand, x: Operand) -> Operand:
        norm = add(b, mul(b, x, x), mul(b, y, y))
        origin = eq(b, norm, 0)
        safe = where(b, origin, Literal(1, norm.dtype), norm)
        slope = div(b, x if first else neg(b, y), safe)
        return mul(b, dropped(b, origin, t), slope)  # type: ignore[no-any-return]

    return partial


arctan2 = pointwise(
    "atan2",
    libm("atan2", 2, np.arctan2),
    (_atan2(True), _atan2(False)),
    domain=(REALS, POSITIVE),
    numpy=(np.arctan2,),
    methods=("atan2", "arctan2"),
    inplace=True,
    tg="arctan2",
)

hypot = pointwise(
    "hypot",
    libm("hypot", 2, np.hypot),
    (
        lambda b, t, out, x, y: mul(b, t, div(b, x, out)),
        lambda b, t, out, x, y: mul(b, t, div(b, y, out)),
    ),
    domain=(POSITIVE, REALS),
    traits=(Trait.COMMUTATIVE,),
    numpy=(np.hypot,),
    methods=("hypot",),
    inplace=True,
    tg="hypot",
)


def _scaled(name: str, numpy: tuple[Callable[..., Any], ...], factor: float) -> OpDef:
    return composite(
        name,
        numpy[0],
        lambda b, x: mul(b, x, factor),
        (lambda b, t, out, x: mul(b, t, factor),),
        traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
        numpy=numpy,
        methods=(name,),
        inplace=True,
        tg=name,
        doc="Traced as a multiplication.",
    )


rad2deg = _scaled("rad2deg", (np.rad2deg, np.degrees), 180.0 / math.pi)
deg2rad = _scaled("deg2rad", (np.deg2rad, np.radians), math.pi / 180.0)

# ------------------------------------------------------------------------ hyperbolic functions

sinh = _unary(
    "sinh",
    libm("sinh", 1, np.sinh),
    lambda b, t, out, x: mul(b, t, cosh(b, x)),
    zero=True,
    on_complex=True,
)

cosh: OpDef = _unary(
    "cosh",
    libm("cosh", 1, np.cosh),
    lambda b, t, out, x: mul(b, t, sinh(b, x)),
    on_complex=True,
)

tanh = _unary(
    "tanh",
    call("tanh", 1, np.tanh),
    lambda b, t, out, x: mul(b, t, _one_minus_square(b, out)),
    zero=True,
    on_complex=True,
)

arcsinh = _unary(
    "asinh",
    libm("asinh", 1, np.arcsinh),
    lambda b, t, out, x: div(b, t, hypot(b, x, Literal(1, x.dtype))),
    zero=True,
)

arccosh = _unary(
    "acosh",
    libm("acosh", 1, np.arccosh),
    lambda b, t, out, x: div(b, t, mul(b, sqrt(b, sub(b, x, 1.0)), sqrt(b, add(b, x, 1.0)))),
    (1.2, 4.0),
)

arctanh = _unary(
    "atanh",
    libm("atanh", 1, np.arctanh),
    lambda b, t, out, x: div(b, t, _one_minus_square(b, x)),
    UNIT,
    zero=True,
)
