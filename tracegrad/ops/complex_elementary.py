"""Elementary functions of complex numbers, on real and imaginary parts (`OpDef.pairs`).

Values as NumPy's for finite operands, to a few units in the last place of the larger part; the
branch cuts are C99's.  No formula divides by zero in a branch that is not taken, so that the
gradients are those of the branch that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracegrad.graph.ir import Literal, Operand
from tracegrad.ops.arithmetic import absolute, add, copysign, div, mul, neg, reciprocal
from tracegrad.ops.compare import eq, gt, isinf, logical_and, signbit
from tracegrad.ops.pairs import Pair
from tracegrad.ops.select import where
from tracegrad.ops.transcendental import (
    arctan2,
    cos,
    cosh,
    exp,
    hypot,
    log,
    sin,
    sinh,
    sqrt,
    tan,
)

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder

# Where tanh is 1 to the last bit, and sinh**2 does not overflow in f32 yet.
_FLAT = 22.0


def _number(like: Operand, x: float) -> Literal:
    return Literal(x, like.type.dtype)


def _is_zero(b: GraphBuilder, z: Pair) -> Operand:
    return logical_and(b, eq(b, z.re, 0), eq(b, z.im, 0))  # type: ignore[no-any-return]


def pairs_sqrt(b: GraphBuilder, z: Pair) -> Pair:
    """The root with a real part that is not negative."""
    zero, one = _is_zero(b, z), _number(z.re, 1)
    left = signbit(b, z.re)
    size_re = where(b, left, neg(b, z.re), z.re)
    size_im = where(b, signbit(b, z.im), neg(b, z.im), z.im)
    safe = where(b, zero, one, size_re)
    # 0.5 before the sum, so that it cannot overflow.
    root = sqrt(b, add(b, mul(b, safe, 0.5), mul(b, hypot(b, safe, z.im), 0.5)))
    twice = mul(b, root, 2.0)
    re = where(b, left, div(b, size_im, twice), root)
    im = where(b, left, where(b, signbit(b, z.im), neg(b, root), root), div(b, z.im, twice))
    return Pair(where(b, zero, _number(z.re, 0), re), where(b, zero, z.im, im))


def pairs_exp(b: GraphBuilder, z: Pair) -> Pair:
    size = exp(b, z.re)
    # exp(inf + 0i) is inf + 0i.
    flat = logical_and(b, eq(b, z.im, 0), isinf(b, size))
    return Pair(
        mul(b, size, cos(b, z.im)),
        mul(b, where(b, flat, _number(z.re, 1), size), sin(b, z.im)),
    )


def pairs_log(b: GraphBuilder, z: Pair) -> Pair:
    return Pair(log(b, hypot(b, z.re, z.im)), arctan2(b, z.im, z.re))


def _scaled_log(b: GraphBuilder, z: Pair, base: float) -> Pair:
    out = pairs_log(b, z)
    return Pair(mul(b, out.re, 1 / math.log(base)), mul(b, out.im, 1 / math.log(base)))


def pairs_log2(b: GraphBuilder, z: Pair) -> Pair:
    return _scaled_log(b, z, 2.0)


def pairs_log10(b: GraphBuilder, z: Pair) -> Pair:
    return _scaled_log(b, z, 10.0)


def pairs_sin(b: GraphBuilder, z: Pair) -> Pair:
    return Pair(mul(b, sin(b, z.re), cosh(b, z.im)), mul(b, cos(b, z.re), sinh(b, z.im)))


def pairs_cos(b: GraphBuilder, z: Pair) -> Pair:
    return Pair(mul(b, cos(b, z.re), cosh(b, z.im)), neg(b, mul(b, sin(b, z.re), sinh(b, z.im))))


def pairs_sinh(b: GraphBuilder, z: Pair) -> Pair:
    return Pair(mul(b, sinh(b, z.re), cos(b, z.im)), mul(b, cosh(b, z.re), sin(b, z.im)))


def pairs_cosh(b: GraphBuilder, z: Pair) -> Pair:
    return Pair(mul(b, cosh(b, z.re), cos(b, z.im)), mul(b, sinh(b, z.re), sin(b, z.im)))


def pairs_tanh(b: GraphBuilder, z: Pair) -> Pair:
    """Kahan's formula, which neither overflows nor cancels."""
    far = gt(b, absolute(b, z.re), _FLAT)
    x = where(b, far, _number(z.re, 1), z.re)
    tangent, sine = tan(b, z.im), sinh(b, x)
    slope = add(b, mul(b, tangent, tangent), 1.0)
    square = mul(b, sine, sine)
    below = add(b, mul(b, slope, square), 1.0)
    re = div(b, mul(b, slope, mul(b, sine, sqrt(b, add(b, square, 1.0)))), below)
    im = div(b, tangent, below)
    tail = exp(b, mul(b, absolute(b, where(b, far, z.re, _number(z.re, 1))), -2.0))
    thin = mul(b, mul(b, sin(b, z.im), cos(b, z.im)), mul(b, tail, 4.0))
    return Pair(where(b, far, copysign(b, _number(z.re, 1), z.re), re), where(b, far, thin, im))


def pairs_tan(b: GraphBuilder, z: Pair) -> Pair:
    """``-i tanh(i z)``."""
    out = pairs_tanh(b, Pair(neg(b, z.im), z.re))
    return Pair(out.im, neg(b, out.re))


def pairs_power(b: GraphBuilder, x: Pair, y: Pair) -> Pair:
    """Small whole constant exponents by multiplications, as NumPy; else ``exp(y log(x))``."""
    n = _whole(y)
    if n is not None:
        return _whole_power(b, x, n)
    zero, one = _is_zero(b, x), _number(x.re, 1)
    logarithm = pairs_log(b, Pair(where(b, zero, one, x.re), x.im))
    out = pairs_exp(b, mul.pairs(b, mul, mul.attrs(), y, logarithm))  # type: ignore[misc]
    no_power = _is_zero(b, y)
    nothing = where(b, gt(b, y.re, 0), _number(x.re, 0), _number(x.re, math.nan))
    re = where(b, zero, nothing, out.re)
    im = where(b, zero, nothing, out.im)
    return Pair(where(b, no_power, one, re), where(b, no_power, _number(x.re, 0), im))


def _whole(y: Pair) -> int | None:
    if not (isinstance(y.re, Literal) and isinstance(y.im, Literal)) or y.im.value != 0:
        return None
    value = float(y.re.value)  # type: ignore[arg-type]
    return int(value) if value.is_integer() and abs(value) < 100 else None


def _whole_power(b: GraphBuilder, x: Pair, n: int) -> Pair:
    def times(p: Pair, q: Pair) -> Pair:
        return mul.pairs(b, mul, mul.attrs(), p, q)  # type: ignore[misc, no-any-return]

    out: Pair | None = None
    square, left = x, abs(n)
    while left:
        if left & 1:
            out = square if out is None else times(out, square)
        left >>= 1
        if left:
            square = times(square, square)
    if out is None:
        return Pair(_number(x.re, 1), _number(x.re, 0))
    if n < 0:
        return reciprocal.pairs(b, reciprocal, reciprocal.attrs(), out)  # type: ignore
    return out


def product(b: GraphBuilder, z: Pair, shape: Any, axes: tuple[int, ...]) -> Pair:
    """The product over `axes` (dropped), as a tree of products of halves."""
    from tracegrad.dims import product as sizes
    from tracegrad.graph.storage import Index, Permute, Reshape, Span
    from tracegrad.ops.views import as_view

    kept = tuple(k for k in range(len(shape)) if k not in axes)
    rest = tuple(shape[k] for k in kept)
    n: Any = sizes(shape[k] for k in axes)
    steps = (Permute((*kept, *axes)), Reshape((*rest, n)))
    out = Pair(as_view(b, z.re, *steps), as_view(b, z.im, *steps))
    if not n:
        return Pair(_number(z.re, 1), _number(z.re, 0))

    def cut(p: Pair, start: int, size: int) -> Pair:
        step = Index((*(Span(0, m) for m in rest), Span(start, size)))
        return Pair(as_view(b, p.re, step), as_view(b, p.im, step))

    while n > 1:
        half = n // 2
        lower = mul.pairs(  # type: ignore[misc]
            b, mul, mul.attrs(), cut(out, 0, half), cut(out, half, half)
        )
        if n % 2:
            last = cut(out, n - 1, 1)
            first = mul.pairs(b, mul, mul.attrs(), cut(lower, 0, 1), last)  # type: ignore
            lower = first if half == 1 else _stack(b, first, cut(lower, 1, half - 1), rest)
        out, n = lower, half
    return Pair(as_view(b, out.re, Reshape(rest)), as_view(b, out.im, Reshape(rest)))


def _stack(b: GraphBuilder, first: Pair, others: Pair, rest: Any) -> Pair:
    from tracegrad.ops.shape import concatenate

    axis = len(rest)
    return Pair(
        concatenate(b, (first.re, others.re), axis), concatenate(b, (first.im, others.im), axis)
    )
