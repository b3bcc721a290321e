"""Addition, multiplication and their kin; division in NumPy's five forms.

On bool, addition is `or` and multiplication is `and`, as NumPy has it.
Integer arithmetic wraps; integer division by zero gives 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad import dtypes
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import OpDef, Trait
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.compare import AND, OR, eq, ge, logical_and, signbit
from tracegrad.ops.pairs import Pair, each_part, elementwise
from tracegrad.ops.pointwise import (
    FLAT,
    IDENTITY,
    NUMBERS,
    PARTS,
    POSITIVE,
    REALS,
    call,
    composite,
    pointwise,
)
from tracegrad.ops.rounding import floor, trunc
from tracegrad.ops.select import dropped, kept, where

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder

NONZERO = (REALS, POSITIVE)


def _mul_pairs(b: GraphBuilder, x: Pair, y: Pair) -> Pair:
    return Pair(
        sub(b, mul(b, x.re, y.re), mul(b, x.im, y.im)),
        add(b, mul(b, x.re, y.im), mul(b, x.im, y.re)),
    )


def _div_pairs(b: GraphBuilder, x: Pair, y: Pair) -> Pair:
    """NumPy's (Smith's) division: by the larger part of `y` first, so that squares cannot
    overflow.  Without branches that divide by zero, so that it can be differentiated."""
    size_re, size_im = absolute(b, y.re), absolute(b, y.im)
    by_re = ge(b, size_re, size_im)
    large, small = where(b, by_re, y.re, y.im), where(b, by_re, y.im, y.re)
    first, second = where(b, by_re, x.re, x.im), where(b, by_re, x.im, x.re)
    ratio = div(b, small, large)
    scale = div(b, Literal(1, large.dtype), add(b, large, mul(b, small, ratio)))
    re = mul(b, add(b, first, mul(b, second, ratio)), scale)
    across = sub(b, second, mul(b, first, ratio))
    im = mul(b, where(b, by_re, across, neg(b, across)), scale)
    zero = logical_and(b, eq(b, size_re, 0), eq(b, size_im, 0))
    return Pair(
        where(b, zero, div(b, x.re, size_re), re), where(b, zero, div(b, x.im, size_re), im)
    )


def _abs_pairs(b: GraphBuilder, x: Pair) -> Operand:
    """The gradient at zero is zero, as PyTorch has it."""
    from tracegrad.ops.transcendental import hypot

    zero = logical_and(b, eq(b, x.re, 0), eq(b, x.im, 0))
    one = Literal(1, x.re.dtype)
    return dropped(b, zero, hypot(b, where(b, zero, one, x.re), x.im))


add = pointwise(
    "add",
    Intrinsic("add", 2, np.add, "{0} + {1}", precedence=12),
    (lambda b, t, out, x, y: t, lambda b, t, out, x, y: t),
    by_kind={"b": OR},
    accepts=dtypes.ALL,
    traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.add,),
    methods=("add",),
    inplace=True,
    tg="add",
    pairs=each_part,
)

mul: OpDef = pointwise(
    "mul",
    Intrinsic("mul", 2, np.multiply, "{0} * {1}", precedence=13),
    (lambda b, t, out, x, y: mul(b, t, y), lambda b, t, out, x, y: mul(b, t, x)),
    by_kind={"b": AND},
    accepts=dtypes.ALL,
    traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.multiply,),
    methods=("mul", "multiply"),
    inplace=True,
    tg="multiply",
    pairs=elementwise(_mul_pairs),
)

sub = pointwise(
    "sub",
    Intrinsic("sub", 2, np.subtract, "{0} - {1}", precedence=12),
    (lambda b, t, out, x, y: t, lambda b, t, out, x, y: neg(b, t)),
    accepts=NUMBERS,
    traits=(Trait.CHEAP,),
    numpy=(np.subtract,),
    methods=("sub", "subtract"),
    inplace=True,
    tg="subtract",
    pairs=each_part,
)

neg: OpDef = pointwise(
    "neg",
    Intrinsic("neg", 1, np.negative, "-{0}", precedence=14),
    (lambda b, t, out, x: neg(b, t),),
    accepts=NUMBERS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.negative,),
    methods=("neg", "negative"),
    inplace=True,
    tg="negative",
    pairs=each_part,
)

positive = pointwise(
    "positive",
    IDENTITY,
    (lambda b, t, out, x: t,),
    accepts=NUMBERS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.positive,),
    methods=("positive",),
    tg="positive",
    pairs=each_part,
    doc="A new array with the same values.",
)

conj = pointwise(
    "conj",
    Intrinsic("conj", 1, np.conjugate, "{0}"),
    (lambda b, t, out, x: t,),
    accepts=NUMBERS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.conjugate,),
    methods=("conj", "conjugate"),
    tg="conjugate",
    pairs=elementwise(lambda b, x: Pair(positive(b, x.re), neg(b, x.im))),
    doc="The complex conjugate; of real numbers a new array with the same values.",
)

square = composite(
    "square",
    np.square,
    lambda b, x: mul(b, x, x),
    (lambda b, t, out, x: mul(b, t, mul(b, x, 2)),),
    accepts=NUMBERS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.square,),
    methods=("square",),
    inplace=True,
    tg="square",
    pairs=elementwise(lambda b, x: _mul_pairs(b, x, x)),
    doc="Traced as mul(x, x).",
)

# ---------------------------------------------------------------------------------- division

div: OpDef = pointwise(
    "div",
    Intrinsic("div", 2, np.true_divide, "{0} / {1}", precedence=13),
    (
        lambda b, t, out, x, y: div(b, t, y),
        lambda b, t, out, x, y: neg(b, mul(b, t, div(b, div(b, x, y), y))),
    ),
    domain=NONZERO,
    traits=(Trait.CHEAP,),
    numpy=(np.true_divide,),
    methods=("div", "divide", "true_divide"),
    inplace=True,
    tg="divide",
    pairs=elementwise(_div_pairs),
    doc="Floats only; integers are cast when traced.",
)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    if np.asarray(x).dtype.kind in "fc":
        return np.reciprocal(x)
    # What NumPy leaves to the machine at 0 is what x86-64 gives.
    lowest = np.iinfo(x.dtype).min if x.dtype in (np.int32, np.int64) else 0
    one = np.where(np.abs(x) == 1, x, x.dtype.type(0))
    return np.where(x == 0, x.dtype.type(lowest), one)


reciprocal = pointwise(
    "reciprocal",
    call("reciprocal", 1, _reciprocal),
    (lambda b, t, out, x: neg(b, mul(b, t, mul(b, out, out))),),
    accepts=NUMBERS,
    domain=POSITIVE,
    traits=(Trait.CHEAP,),
    numpy=(np.reciprocal,),
    methods=("reciprocal",),
    inplace=True,
    tg="reciprocal",
    pairs=elementwise(
        lambda b, x: _div_pairs(b, Pair(Literal(1, x.re.dtype), Literal(0, x.re.dtype)), x)
    ),
)

floor_divide = pointwise(
    "floor_divide",
    call("floor_divide", 2, np.floor_divide),
    FLAT * 2,
    accepts=NUMBERS,
    domain=NONZERO,
    numpy=(np.floor_divide,),
    methods=("floor_divide",),
    inplace=True,
    tg="floor_divide",
)

remainder = pointwise(
    "remainder",
    call("remainder", 2, np.remainder),
    (
        lambda b, t, out, x, y: t,
        lambda b, t, out, x, y: neg(b, mul(b, t, floor(b, div(b, x, y)))),
    ),
    accepts=NUMBERS,
    domain=NONZERO,
    numpy=(np.remainder,),
    methods=("remainder",),
    inplace=True,
    tg="remainder",
    doc="Has the sign of operand 1.",
)

fmod = pointwise(
    "fmod",
    call("fmod", 2, np.fmod),
    (
        lambda b, t, out, x, y: t,
        lambda b, t, out, x, y: neg(b, mul(b, t, trunc(b, div(b, x, y)))),
    ),
    accepts=NUMBERS,
    domain=NONZERO,
    numpy=(np.fmod,),
    methods=("fmod",),
    inplace=True,
    tg="fmod",
    doc="Has the sign of operand 0.",
)

# ------------------------------------------------------------------------------ sign, absolute

absolute = pointwise(
    "abs",
    call("abs", 1, np.absolute),
    (lambda b, t, out, x: mul(b, t, sign(b, x)),),
    by_kind={
        "f": Intrinsic("fabs", 1, np.absolute, "fabs{f}({0})"),
        "u": IDENTITY,
        "b": IDENTITY,
    },
    accepts=dtypes.ALL,
    result=PARTS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.absolute, np.fabs),
    methods=("abs", "absolute"),
    inplace=True,
    tg="abs",
    pairs=elementwise(_abs_pairs),
    doc="The lowest integer of a type is its own absolute value.",
)

sign: OpDef = pointwise(
    "sign",
    call("sign", 1, np.sign),
    FLAT,
    accepts=NUMBERS,
    traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.sign,),
    methods=("sign", "sgn"),
    inplace=True,
    tg="sign",
)

heaviside = pointwise(
    "heaviside",
    call("heaviside", 2, np.heaviside),
    (None, lambda b, t, out, x, at_zero: kept(b, eq(b, x, 0), t)),
    traits=(Trait.CHEAP,),
    numpy=(np.heaviside,),
    methods=("heaviside",),
    inplace=True,
    tg="heaviside",
)


def _copysign_x(b: GraphBuilder, t: Operand, out: Operand, x: Operand, y: Operand) -> Operand:
    flipped = where(b, eq(b, signbit(b, x), signbit(b, y)), t, neg(b, t))
    return dropped(b, eq(b, x, 0), flipped)


copysign = pointwise(
    "copysign",
    Intrinsic("copysign", 2, np.copysign, "copysign{f}({0}, {1})"),
    (_copysign_x, None),
    traits=(Trait.CHEAP,),
    numpy=(np.copysign,),
    methods=("copysign",),
    inplace=True,
    tg="copysign",
)

nextafter = pointwise(
    "nextafter",
    Intrinsic("nextafter", 2, np.nextafter, "nextafter{f}({0}, {1})"),
    (lambda b, t, out, x, y: t, None),
    numpy=(np.nextafter,),
    methods=("nextafter",),
    inplace=True,
    tg="nextafter",
    doc="Operand 0 moved by one unit in the last place; its derivative is that of operand 0.",
)
