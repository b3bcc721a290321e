"""Comparisons, logic and classification: results are bool, there is no derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import BOOL
from tracegrad.graph.op import OpDef, Trait
from tracegrad.loops.ir import Intrinsic
from tracegrad.ops.pairs import either_part, elementwise, is_nonzero
from tracegrad.ops.pointwise import INTEGER_RESULT, call, pointwise


def _comparison(
    name: str,
    numpy: Callable[..., Any],
    symbol: str,
    methods: tuple[str, ...],
    traits: tuple[Trait, ...] = (),
    **more: Any,
) -> OpDef:
    precedence = 9 if symbol in ("==", "!=") else 10
    return pointwise(
        name,
        Intrinsic(name, 2, numpy, f"{{0}} {symbol} {{1}}", precedence=precedence),
        INTEGER_RESULT,
        accepts=dtypes.ALL,
        result=BOOL,
        traits=(Trait.CHEAP, *traits),
        numpy=(numpy,),
        methods=methods,
        tg=numpy.__name__,
        **more,
    )


eq: OpDef = _comparison(
    "eq",
    np.equal,
    "==",
    ("eq",),
    (Trait.COMMUTATIVE,),
    pairs=elementwise(lambda b, x, y: logical_and(b, eq(b, x.re, y.re), eq(b, x.im, y.im))),
)
ne: OpDef = _comparison(
    "ne",
    np.not_equal,
    "!=",
    ("ne", "not_equal"),
    (Trait.COMMUTATIVE,),
    pairs=elementwise(lambda b, x, y: logical_or(b, ne(b, x.re, y.re), ne(b, x.im, y.im))),
)
lt = _comparison("lt", np.less, "<", ("lt", "less"))
le = _comparison("le", np.less_equal, "<=", ("le", "less_equal"))
gt = _comparison("gt", np.greater, ">", ("gt", "greater"))
ge = _comparison("ge", np.greater_equal, ">=", ("ge", "greater_equal"))

# The bitwise spelling on 0/1 bytes vectorises; && and || are branches.
AND = Intrinsic("bool_and", 2, np.logical_and, "{0} & {1}", precedence=8)
OR = Intrinsic("bool_or", 2, np.logical_or, "{0} | {1}", precedence=6)
XOR = Intrinsic("bool_xor", 2, np.logical_xor, "{0} ^ {1}", precedence=7)


def _of_truths(b: Any, op: OpDef, attrs: Any, x: Any, y: Any) -> Any:
    return op(b, is_nonzero(b, x), is_nonzero(b, y))


def _truth(name: str, numpy: Callable[..., Any], on_bool: Intrinsic, symbol: str) -> OpDef:
    return pointwise(
        name,
        Intrinsic(name, 2, numpy, f"({{0}} != 0) {symbol} ({{1}} != 0)"),
        INTEGER_RESULT,
        by_kind={"b": on_bool},
        accepts=dtypes.ALL,
        result=BOOL,
        traits=(Trait.CHEAP, Trait.COMMUTATIVE),
        numpy=(numpy,),
        methods=(name,),
        inplace=True,
        tg=name,
        pairs=_of_truths,
    )


logical_and: OpDef = _truth("logical_and", np.logical_and, AND, "&")
logical_or: OpDef = _truth("logical_or", np.logical_or, OR, "|")
logical_xor = _truth("logical_xor", np.logical_xor, XOR, "^")

NOT = Intrinsic("logical_not", 1, np.logical_not, "!{0}", precedence=14)
logical_not: OpDef = pointwise(
    "logical_not",
    NOT,
    INTEGER_RESULT,
    accepts=dtypes.ALL,
    result=BOOL,
    traits=(Trait.CHEAP,),
    numpy=(np.logical_not,),
    methods=("logical_not",),
    inplace=True,
    tg="logical_not",
    pairs=elementwise(lambda b, x: logical_not(b, is_nonzero(b, x))),
)


def _classify(name: str, numpy: Callable[..., Any], pairs: Any = either_part) -> OpDef:
    return pointwise(
        name,
        call(name, 1, numpy),
        INTEGER_RESULT,
        accepts=dtypes.ALL,
        result=BOOL,
        traits=(Trait.CHEAP,),
        numpy=(numpy,),
        methods=(name,),
        tg=name,
        pairs=pairs,
    )


isnan = _classify("isnan", np.isnan)
isinf = _classify("isinf", np.isinf)
isfinite: OpDef = _classify(
    "isfinite",
    np.isfinite,
    elementwise(lambda b, x: logical_and(b, isfinite(b, x.re), isfinite(b, x.im))),
)

signbit = pointwise(
    "signbit",
    call("signbit", 1, np.signbit),
    INTEGER_RESULT,
    result=BOOL,
    traits=(Trait.CHEAP,),
    numpy=(np.signbit,),
    methods=("signbit",),
    tg="signbit",
    doc="Whether the sign bit is set, of zeros and NaN too.",
)
