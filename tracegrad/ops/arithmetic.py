"""Addition, multiplication and their kin."""

from __future__ import annotations

import numpy as np

from tracegrad import dtypes
from tracegrad.graph.op import Trait
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.pointwise import pointwise

NUMBERS = dtypes.INTEGERS + dtypes.FLOATS

add = pointwise(
    "add", Intrinsic("add", 2, np.add, "{0} + {1}", precedence=12),
    (lambda b, t, out, x, y: t,
     lambda b, t, out, x, y: t),
    accepts=NUMBERS, traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.add,), methods=("add",), inplace=True, tg="add")

mul = pointwise(
    "mul", Intrinsic("mul", 2, np.multiply, "{0} * {1}", precedence=13),
    (lambda b, t, out, x, y: mul(b, t, y),
     lambda b, t, out, x, y: mul(b, t, x)),
    accepts=NUMBERS, traits=(Trait.COMMUTATIVE, Trait.CHEAP),
    numpy=(np.multiply,), methods=("mul", "multiply"), inplace=True, tg="multiply")

sub = pointwise(
    "sub", Intrinsic("sub", 2, np.subtract, "{0} - {1}", precedence=12),
    (lambda b, t, out, x, y: t,
     lambda b, t, out, x, y: neg(b, t)),
    accepts=NUMBERS, traits=(Trait.CHEAP,),
    numpy=(np.subtract,), methods=("sub", "subtract"), inplace=True, tg="subtract")

neg = pointwise(
    "neg", Intrinsic("neg", 1, np.negative, "-{0}", precedence=14),
    (lambda b, t, out, x: neg(b, t),),
    accepts=NUMBERS, traits=(Trait.CHEAP, Trait.ZERO_PRESERVING),
    numpy=(np.negative,), methods=("neg", "negative"), inplace=True, tg="negative")
