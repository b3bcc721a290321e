"""Elementary functions as branch-free C, which every compiler turns into vector loops.

No fma, no tables and no calls, so that results have the same bits on every target.  The
coefficients are Chebyshev fits of the function named beside them, over the interval that the
reduction leaves; bounds in ULP are tested against mpmath.
"""

from __future__ import annotations

from tracegrad.codegen.c_library import define
from tracegrad.dtypes import F32, F64, DType

# (2 artanh(sqrt z) / sqrt z - 2) / z for z in 0..((sqrt 2 - 1) / (sqrt 2 + 1))^2, highest first.
_LOG = {
    F64: """0x1.0c0aff044a970p-3 0x1.0fbde0f4ad17bp-3 0x1.3b1c3c1c81c8fp-3 0x1.745cf8e4bba1bp-3
            0x1.c71c7201a55d7p-3 0x1.2492492476a1ap-2 0x1.9999999999a39p-2 0x1.5555555555555p-1""",
    F32: "0x1.ddd4dap-3 0x1.245c28p-2 0x1.9999ecp-2 0x1.555556p-1",
}
# (e^r - 1 - r) / r^2 for |r| <= ln(2)/2, highest first.
_EXPM1 = {
    F64: """0x1.61bff1c64f494p-33 0x1.1f7f6aa421dd8p-29 0x1.ae642c5c1fa33p-26
            0x1.27e4d3f50d87fp-22 0x1.71de3a5aaefb9p-19 0x1.a01a01a9f72adp-16
            0x1.a01a01a01969bp-13 0x1.6c16c16c15a48p-10 0x1.1111111111111p-7
            0x1.5555555555557p-5 0x1.5555555555555p-3 0x1.0p-1""",
    F32: "0x1.a1256cp-13 0x1.6d43b0p-10 0x1.1110e0p-7 0x1.5554e8p-5 0x1.555556p-3 0x1.0p-1",
}
# ln 2 as a head so short that k times it is exact, and the rest.
_WORDS = {
    F64: {
        "HI": "0x1.62e42fefa3800p-1", "LO": "0x1.ef35793c76730p-45",
        "LOG2E": "1.4426950408889634", "M": "0x1.8p52", "P": "52", "BIAS": "1023",
        "INT": "0x4330000000000000u", "INT_VALUE": "0x1p52", "ONE": "0x3ff0000000000000u",
        "ROOT": "0x3fe6a09e667f3bcdu", "FRACTION": "0x000fffffffffffffu",
        "NORMAL": "0x1p-1022", "UP": "0x1p54", "UP_LOG2": "54",
        "TOP": "709.782712893384", "FLAT": "40.0", "EXACT": "60",
    },
    F32: {
        "HI": "0x1.62e4p-1f", "LO": "0x1.7f7d1cp-20f",
        "LOG2E": "1.44269504f", "M": "0x1.8p23f", "P": "23", "BIAS": "127",
        "INT": "0x4b000000u", "INT_VALUE": "0x1p23f", "ONE": "0x3f800000u",
        "ROOT": "0x3f3504f3u", "FRACTION": "0x007fffffu",
        "NORMAL": "0x1p-126f", "UP": "0x1p25f", "UP_LOG2": "25",
        "TOP": "88.7228394f", "FLAT": "18.0f", "EXACT": "30",
    },
}  # fmt: skip


def _horner(coefficients: str, x: str, suffix: str) -> str:
    """Statements that leave the polynomial's value in ``q``."""
    first, *rest = coefficients.split()
    lines = [f"  $T q = {first}{suffix};"]
    lines += [f"  q = q * {x} + {c}{suffix};" for c in rest]
    return "\n".join(lines)


def _define(name: str, text: str, needs: tuple[str, ...]) -> None:
    for dtype in (F64, F32):
        define(name, (dtype,), text, needs=needs, **_words(dtype))


def _words(dtype: DType) -> dict[str, str]:
    suffix = "f" if dtype is F32 else ""
    kind = dtype.c
    return _WORDS[dtype] | {
        "LOG_Q": _horner(_LOG[dtype], "z", suffix).replace("$T", kind),
        "EXPM1_Q": _horner(_EXPM1[dtype], "r", suffix).replace("$T", kind),
    }


# log(u * 2^e) + c for normal u > 0 and small c.  u = 2^k m with m in sqrt(1/2)..sqrt(2), found
# on the bits; log m = 2 artanh s with s = (m - 1) / (m + 1), summed from the small terms up.
_define("log_sum", """
static inline $T tg_log_sum_$t($T u, $T e, $T c) {
  const $U b = tg_bits_$t(u) - $ROOT + $ONE;
  const $T k = (tg_from_bits_$t((b >> $P) | $INT) - ($INT_VALUE + $BIAS)) + e;
  const $T f = tg_from_bits_$t((b & $FRACTION) + $ROOT) - 1;
  const $T s = f / (2 + f), z = s * s, h = f * f * (($T)0.5);
$LOG_Q
  return k * $HI - ((h - (s * (h + q * z) + (k * $LO + c))) - f);
}
""", ("bits_$t", "from_bits_$t"))  # fmt: skip
_define("log", """
static inline $T tg_log_$t($T x) {
  const int small = x < $NORMAL;
  const $T y = tg_log_sum_$t(small ? x * $UP : x, small ? -$UP_LOG2 : 0, 0);
  const $T edge = x == 0 ? -($T)INFINITY : ($T)NAN;
  const $T r = x > 0 ? y : edge;
  return x == ($T)INFINITY ? x : r;
}
""", ("log_sum_$t",))  # fmt: skip

# 1 + x rounds; what it lost, over it, is the change of its logarithm.
_define("log1p", """
static inline $T tg_log1p_$t($T x) {
  const $T u = 1 + x;
  const $T big = 1 - (u - x), little = x - (u - 1);
  const $T y = tg_log_sum_$t(u, 0, (x >= 1 ? big : little) / u);
  const $T edge = u == 0 ? -($T)INFINITY : ($T)NAN;
  const $T r = u > 0 ? y : edge;
  return (x == 0) | (x == ($T)INFINITY) ? x : r;
}
""", ("log_sum_$t",))  # fmt: skip

# e^x - 1 = 2^k (p + (1 - 2^-k)) with p = e^r - 1; c is what r lost when it was rounded.
_define("expm1", """
static inline $T tg_expm1_$t($T x) {
  const $T k = (x * $LOG2E + $M) - $M;
  const $T head = x - k * $HI, tail = k * $LO;
  const $T r = head - tail, c = (head - r) - tail;
$EXPM1_Q
  const $T p = r + (r * r * q + c);
  const $T less = tg_from_bits_$t(($BIAS - tg_bits_$t(k + $M)) << $P);
  const $T unit = k > $EXACT ? 1 : 1 - less;
  const $T h = k * (($T)0.5) + $M, k1 = h - $M;
  const $U e1 = (tg_bits_$t(h) + $BIAS) << $P;
  const $U e2 = (tg_bits_$t((k - k1) + $M) + $BIAS) << $P;
  $T y = (p + unit) * tg_from_bits_$t(e1) * tg_from_bits_$t(e2);
  y = x > $TOP ? ($T)INFINITY : y;
  y = x < -$FLAT ? -1 : y;
  return x == 0 ? x : y;
}
""", ("bits_$t", "from_bits_$t"))  # fmt: skip
_define("tanh", """
static inline $T tg_tanh_$t($T x) {
  const $T t = tg_expm1_$t(-2 * fabs$f(x));
  return copysign$f(t / (t + 2), x);
}
""", ("expm1_$t",))  # fmt: skip
