"""Bits of integers; on bool the logical functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import U8
from tracegrad.graph.op import OpDef, Trait
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.compare import AND, NOT, OR, XOR
from tracegrad.ops.pointwise import INTEGER_RESULT, REALS, call, pointwise

BITS = (dtypes.BOOL, *dtypes.INTEGERS)


def _bits(
    name: str, numpy: Callable[..., Any], symbol: str, precedence: int, on_bool: Intrinsic
) -> OpDef:
    return pointwise(
        name,
        Intrinsic(name, 2, numpy, f"{{0}} {symbol} {{1}}", precedence=precedence),
        INTEGER_RESULT,
        by_kind={"b": on_bool},
        accepts=BITS,
        traits=(Trait.CHEAP, Trait.COMMUTATIVE),
        numpy=(numpy,),
        methods=(name,),
        inplace=True,
        tg=name,
    )


bitwise_and = _bits("bitwise_and", np.bitwise_and, "&", 8, AND)
bitwise_xor = _bits("bitwise_xor", np.bitwise_xor, "^", 7, XOR)
bitwise_or = _bits("bitwise_or", np.bitwise_or, "|", 6, OR)

invert = pointwise(
    "invert",
    Intrinsic("invert", 1, np.invert, "~{0}", precedence=14),
    INTEGER_RESULT,
    by_kind={"b": NOT},
    accepts=BITS,
    traits=(Trait.CHEAP,),
    numpy=(np.invert,),
    methods=("invert", "bitwise_not"),
    tg="bitwise_not",
)


def _shift(name: str, numpy: Callable[..., Any], method: str) -> OpDef:
    return pointwise(
        name,
        call(name, 2, numpy),
        INTEGER_RESULT,
        accepts=dtypes.INTEGERS,
        domain=(REALS, (0.0, 2.0)),
        traits=(Trait.CHEAP,),
        numpy=(numpy,),
        methods=(name, method),
        tg=name,
        doc="Shifts by less than 0 or by the width and more shift everything out.",
    )


left_shift = _shift("left_shift", np.left_shift, "bitwise_left_shift")
right_shift = _shift("right_shift", np.right_shift, "bitwise_right_shift")

bitwise_count = pointwise(
    "bitwise_count",
    call("bitwise_count", 1, np.bitwise_count),
    INTEGER_RESULT,
    accepts=dtypes.INTEGERS,
    result=U8,
    numpy=(np.bitwise_count,),
    methods=("bitwise_count",),
    doc="Number of set bits of the absolute value.",
)
