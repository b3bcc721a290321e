"""C functions of the integer ops, and of bool where it goes with them.

Arithmetic that may overflow goes through unsigned types, so that it wraps without being
undefined; `$W` is an unsigned type that C does not promote to int.
"""

from __future__ import annotations

from tracegrad import dtypes
from tracegrad.codegen.c_library import define
from tracegrad.dtypes import BOOL, INTEGERS, DType

SIGNED = tuple(d for d in INTEGERS if d.kind == "i")
UNSIGNED = tuple(d for d in INTEGERS if d.kind == "u")


def _wide(dtype: DType) -> str:
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def _magnitude(dtype: DType, x: str) -> str:
    wide = _wide(dtype)
    # Compilers warn of a test for below zero on an unsigned type.
    return f"{x} < 0 ? ({wide})0 - ({wide}){x} : ({wide}){x}" if dtype.kind == "i" else x


def _define(name: str, types: tuple[DType, ...], text: str, needs: tuple[str, ...] = ()) -> None:
    """`define` with ``$W``; ``$MIN``, the lowest value of a signed type; and ``${abs_a}``,
    ``${abs_b}``, ``${abs_x}``, the absolute value of an argument as a `$W`."""
    for d in types:
        low = f"INT{d.bits}_MIN" if d.kind == "i" else "0"
        sizes = {f"abs_{x}": _magnitude(d, x) for x in "abx"}
        define(name, (d,), text, needs=needs, W=_wide(d), MIN=low, **sizes)


_define(
    "abs",
    SIGNED,
    """
static inline $T tg_abs_$t($T x) { return ($T)(x < 0 ? ($W)0 - ($W)x : ($W)x); }
""",
)
_define(
    "sign",
    SIGNED,
    """
static inline $T tg_sign_$t($T x) { return ($T)((x > 0) - (x < 0)); }
""",
)
_define(
    "sign",
    UNSIGNED,
    """
static inline $T tg_sign_$t($T x) { return ($T)(x > 0); }
""",
)

# The divisor is replaced before dividing: zero and MIN / -1 would trap.
_define(
    "floor_divide",
    SIGNED,
    """
static inline $T tg_floor_divide_$t($T a, $T b) {
  const $T d = ($T)(b == 0 || b == -1 ? 1 : b);
  const $T q = ($T)(a / d), r = ($T)(a % d);
  const $T down = ($T)(q - (r != 0 && (r < 0) != (d < 0)));
  return b == 0 ? 0 : b == -1 ? ($T)(($W)0 - ($W)a) : down;
}
""",
)
_define(
    "remainder",
    SIGNED,
    """
static inline $T tg_remainder_$t($T a, $T b) {
  const $T d = ($T)(b == 0 || b == -1 ? 1 : b);
  const $T r = ($T)(a % d);
  return ($T)(r != 0 && (r < 0) != (d < 0) ? r + d : r);
}
""",
)
_define(
    "fmod",
    SIGNED,
    """
static inline $T tg_fmod_$t($T a, $T b) {
  const $T d = ($T)(b == 0 || b == -1 ? 1 : b);
  return ($T)(a % d);
}
""",
)
_define(
    "floor_divide",
    UNSIGNED,
    """
static inline $T tg_floor_divide_$t($T a, $T b) { return ($T)(b == 0 ? 0 : a / (b == 0 ? 1 : b)); }
""",
)
for _name in ("remainder", "fmod"):
    _define(
        _name,
        UNSIGNED,
        f"""
static inline $T tg_{_name}_$t($T a, $T b) {{ return ($T)(b == 0 ? 0 : a % (b == 0 ? 1 : b)); }}
""",
    )

_define(
    "reciprocal",
    (dtypes.I32, dtypes.I64),
    """
static inline $T tg_reciprocal_$t($T x) {
  return x == 0 ? $MIN : x == 1 || x == -1 ? x : 0;
}
""",
)
_define(
    "reciprocal",
    (dtypes.I8, dtypes.I16),
    """
static inline $T tg_reciprocal_$t($T x) { return ($T)(x == 1 || x == -1 ? x : 0); }
""",
)
_define(
    "reciprocal",
    UNSIGNED,
    """
static inline $T tg_reciprocal_$t($T x) { return ($T)(x == 1); }
""",
)

_define(
    "power",
    INTEGERS,
    """
static inline $T tg_power_$t($T a, $T b) {
  $W r = 1, x = ($W)a;
  for (; b > 0; b = ($T)(b / 2)) {
    if (b & 1) r *= x;
    x *= x;
  }
  return ($T)r;
}
""",
)

_define(
    "gcd",
    INTEGERS,
    """
static inline $T tg_gcd_$t($T a, $T b) {
  $W x = ${abs_a}, y = ${abs_b};
  while (y != 0) {
    const $W r = x % y;
    x = y;
    y = r;
  }
  return ($T)x;
}
""",
)
_define(
    "lcm",
    INTEGERS,
    """
static inline $T tg_lcm_$t($T a, $T b) {
  const $W x = ${abs_a}, y = ${abs_b};
  $W g = x, s = y;
  while (s != 0) {
    const $W r = g % s;
    g = s;
    s = r;
  }
  return ($T)(g == 0 ? 0 : x / g * y);
}
""",
)

# A count below 0 is huge as unsigned, so one comparison finds every count out of range.
_define(
    "left_shift",
    INTEGERS,
    """
static inline $T tg_left_shift_$t($T a, $T b) {
  const $W n = ($W)b;
  return ($T)(n < $B ? ($W)a << (n & ($B - 1)) : 0);
}
""",
)
_define(
    "right_shift",
    UNSIGNED,
    """
static inline $T tg_right_shift_$t($T a, $T b) {
  const $W n = ($W)b;
  return ($T)(n < $B ? a >> (n & ($B - 1)) : 0);
}
""",
)
_define(
    "right_shift",
    SIGNED,
    """
static inline $T tg_right_shift_$t($T a, $T b) {
  const $W n = ($W)b;
  return ($T)(a >> (n < $B ? n : $B - 1));
}
""",
)
_define(
    "bitwise_count",
    INTEGERS,
    """
static inline uint8_t tg_bitwise_count_$t($T x) {
  uint64_t u = ($U)(${abs_x});
  u -= u >> 1 & 0x5555555555555555u;
  u = (u & 0x3333333333333333u) + (u >> 2 & 0x3333333333333333u);
  u = (u + (u >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return (uint8_t)(u * 0x0101010101010101u >> 56);
}
""",
)

EXACT = (*INTEGERS, BOOL)
for _name, _sign in (("fmax", ">"), ("fmin", "<")):
    define(
        _name,
        EXACT,
        f"""
static inline $T tg_{_name}_$t($T a, $T b) {{ return a {_sign} b ? a : b; }}
""",
    )
for _name, _callee in (("clamp_min", "max"), ("clamp_max", "min")):
    define(
        _name,
        dtypes.ALL,
        f"""
static inline $T tg_{_name}_$t($T x, $T limit) {{ return tg_{_callee}_$t(x, limit); }}
""",
        needs=(f"{_callee}_$t",),
    )
define(
    "clip",
    dtypes.ALL,
    """
static inline $T tg_clip_$t($T x, $T lo, $T hi) { return tg_min_$t(tg_max_$t(x, lo), hi); }
""",
    needs=("max_$t", "min_$t"),
)

for _name, _answer in (("isnan", 0), ("isinf", 0), ("isfinite", 1)):
    define(
        _name,
        EXACT,
        f"""
static inline uint8_t tg_{_name}_$t($T x) {{ return (void)x, {_answer}; }}
""",
    )
