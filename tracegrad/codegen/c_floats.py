"""C functions of the float ops other than the elementary functions of `c_functions`."""

from __future__ import annotations

from tracegrad.codegen.c_library import define
from tracegrad.dtypes import F32, F64, FLOATS, U32, U64

for _bits, _float in ((U32, F32), (U64, F64)):
    define(
        "from_bits",
        (_bits,),
        """
static inline $R tg_from_bits_$t($T bits) {
  union { $T bits; $R x; } in = {bits};
  return in.x;
}
""",
        R=_float.c,
    )
define(
    "reciprocal",
    FLOATS,
    """
static inline $T tg_reciprocal_$t($T x) { return 1 / x; }
""",
)
define(
    "rsqrt",
    FLOATS,
    """
static inline $T tg_rsqrt_$t($T x) { return 1 / sqrt$f(x); }
""",
)
define(
    "sign",
    FLOATS,
    """
static inline $T tg_sign_$t($T x) {
  const $T s = ($T)((x > 0) - (x < 0));
  return x == x ? s : x;
}
""",
)
define(
    "signbit",
    FLOATS,
    """
static inline uint8_t tg_signbit_$t($T x) { return (uint8_t)(tg_bits_$t(x) >> ($B - 1)); }
""",
    needs=("bits_$t",),
)
define(
    "isnan",
    FLOATS,
    """
static inline uint8_t tg_isnan_$t($T x) { return x != x; }
""",
)
define(
    "isinf",
    FLOATS,
    """
static inline uint8_t tg_isinf_$t($T x) { return fabs$f(x) == ($T)INFINITY; }
""",
)
define(
    "isfinite",
    FLOATS,
    """
static inline uint8_t tg_isfinite_$t($T x) { return fabs$f(x) < ($T)INFINITY; }
""",
)
define(
    "fmax",
    FLOATS,
    """
static inline $T tg_fmax_$t($T a, $T b) {
  const $T m = a > b ? a : b;
  return b == b ? m : a;
}
""",
)
define(
    "fmin",
    FLOATS,
    """
static inline $T tg_fmin_$t($T a, $T b) {
  const $T m = a < b ? a : b;
  return b == b ? m : a;
}
""",
)
define(
    "heaviside",
    FLOATS,
    """
static inline $T tg_heaviside_$t($T x, $T at_zero) {
  const $T step = x > 0 ? ($T)1 : x == 0 ? at_zero : ($T)0;
  return x == x ? step : x;
}
""",
)

# As NumPy: fmod is exact, then moved to the side of the divisor's sign.
define(
    "fmod",
    FLOATS,
    """
static inline $T tg_fmod_$t($T a, $T b) { return fmod$f(a, b); }
""",
)
define(
    "remainder",
    FLOATS,
    """
static inline $T tg_remainder_$t($T a, $T b) {
  const $T m = fmod$f(a, b);
  const $T moved = (b < 0) != (m < 0) ? m + b : m;
  const $T r = m != 0 ? moved : copysign$f(0, b);
  return b == 0 ? m : r;
}
""",
)
define(
    "floor_divide",
    FLOATS,
    """
static inline $T tg_floor_divide_$t($T a, $T b) {
  const $T m = fmod$f(a, b), q = a / b;
  const $T whole = (a - m) / b;
  const $T down = (m != 0) & ((b < 0) != (m < 0)) ? whole - 1 : whole;
  const $T f = floor$f(down);
  const $T near = down - f > ($T)0.5 ? f + 1 : f;
  const $T r = down != 0 ? near : copysign$f(0, q);
  return b == 0 ? q : r;
}
""",
)

define(
    "fraction",
    FLOATS,
    """
static inline $T tg_fraction_$t($T x) {
  const $T r = x - trunc$f(x);
  return copysign$f(fabs$f(x) == ($T)INFINITY ? 0 : r, x);
}
""",
)
define(
    "frexp_mantissa",
    FLOATS,
    """
static inline $T tg_frexp_mantissa_$t($T x) {
  int e;
  return frexp$f(x, &e);
}
""",
)
define(
    "frexp_exponent",
    FLOATS,
    """
static inline int32_t tg_frexp_exponent_$t($T x) {
  int e = 0;
  (void)frexp$f(x, &e);
  return fabs$f(x) < ($T)INFINITY ? e : 0;
}
""",
)
define(
    "ldexp",
    FLOATS,
    """
static inline $T tg_ldexp_$t($T x, int64_t n) {
  return ldexp$f(x, (int)(n > 5000 ? 5000 : n < -5000 ? -5000 : n));
}
""",
)
define(
    "logaddexp",
    FLOATS,
    """
static inline $T tg_logaddexp_$t($T x, $T y) {
  const $T d = x - y, high = d > 0 ? x : y;
  const $T apart = high + tg_log1p_$t(tg_exp_$t(-fabs$f(d)));
  const $T r = d == d ? apart : d;
  return x == y ? x + ($T)0.69314718055994530942 : r;
}
""",
    needs=("exp_$t", "log1p_$t"),
)
define(
    "logaddexp2",
    FLOATS,
    """
static inline $T tg_logaddexp2_$t($T x, $T y) {
  const $T d = x - y, high = d > 0 ? x : y;
  const $T apart = high + ($T)1.44269504088896340736 * tg_log1p_$t(exp2$f(-fabs$f(d)));
  const $T r = d == d ? apart : d;
  return x == y ? x + 1 : r;
}
""",
    needs=("log1p_$t",),
)

# ------------------------------------------------------------------------------ activations

define(
    "sigmoid",
    FLOATS,
    """
static inline $T tg_sigmoid_$t($T x) {
  const $T e = tg_exp_$t(-fabs$f(x));
  return (x >= 0 ? 1 : e) / (1 + e);
}
""",
    needs=("exp_$t",),
)
define(
    "softplus",
    FLOATS,
    """
static inline $T tg_softplus_$t($T x) {
  return (x > 0 ? x : 0) + tg_log1p_$t(tg_exp_$t(-fabs$f(x)));
}
""",
    needs=("exp_$t", "log1p_$t"),
)
define(
    "relu",
    FLOATS,
    """
static inline $T tg_relu_$t($T x) { return x < 0 ? 0 : x; }
""",
)
define(
    "silu",
    FLOATS,
    """
static inline $T tg_silu_$t($T x) { return x * tg_sigmoid_$t(x); }
""",
    needs=("sigmoid_$t",),
)
define(
    "gelu",
    FLOATS,
    """
static inline $T tg_gelu_$t($T x) {
  return x * ($T)0.5 * erfc$f(-x * ($T)0.70710678118654752440);
}
""",
)
