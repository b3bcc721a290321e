"""C functions that intrinsics call, one `define` each.

Rules: C99, no undefined behaviour for any argument, no libm call where a vector loop should
form, selects as ``c ? a : b`` of values already computed (never `||` in a condition), callees
through `needs`.  `max`, `min`, casts and the reductions are used by the printer itself.
"""

from __future__ import annotations

from tracegrad import dtypes
from tracegrad.codegen import c_elementary, c_floats, c_integers  # noqa: F401  (they fill the table)
from tracegrad.codegen.c_library import define
from tracegrad.dtypes import FLOATS, INTEGERS

# Two separate selects: gcc vectorises them at every level, other forms of the test not.
define(
    "max",
    FLOATS,
    """
static inline $T tg_max_$t($T a, $T b) {
  const $T m = a > b ? a : b;
  return a == a ? m : a;
}
""",
)
define(
    "min",
    FLOATS,
    """
static inline $T tg_min_$t($T a, $T b) {
  const $T m = a < b ? a : b;
  return a == a ? m : a;
}
""",
)
define(
    "max",
    (*INTEGERS, dtypes.BOOL),
    """
static inline $T tg_max_$t($T a, $T b) { return a > b ? a : b; }
""",
)
define(
    "min",
    (*INTEGERS, dtypes.BOOL),
    """
static inline $T tg_min_$t($T a, $T b) { return a < b ? a : b; }
""",
)

# The bits of a float as an unsigned integer, and back.
define(
    "bits",
    FLOATS,
    """
static inline uint${B}_t tg_bits_$t($T x) {
  uint${B}_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
""",
)
define(
    "from_bits",
    FLOATS,
    """
static inline $T tg_from_bits_$t(uint${B}_t u) {
  $T x;
  memcpy(&x, &u, sizeof x);
  return x;
}
""",
)

# exp = 2^k * e^r with |r| <= ln(2)/2: k by rounding in the low bits of a large float, e^r by its
# Taylor series, 2^k as two factors so that subnormal results come out.  Within 1.1 ULP.
define(
    "exp",
    (dtypes.F64,),
    """
static inline double tg_exp_f64(double x) {
  const double M = 0x1.8p52;
  const double k = (x * 1.4426950408889634 + M) - M;
  const double r = (x - k * 0x1.62e42fefa3800p-1) - k * 0x1.ef35793c76730p-45;
  double p = 1 / 6227020800.0;
  p = p * r + 1 / 479001600.0;
  p = p * r + 1 / 39916800.0;
  p = p * r + 1 / 3628800.0;
  p = p * r + 1 / 362880.0;
  p = p * r + 1 / 40320.0;
  p = p * r + 1 / 5040.0;
  p = p * r + 1 / 720.0;
  p = p * r + 1 / 120.0;
  p = p * r + 1 / 24.0;
  p = p * r + 1 / 6.0;
  p = p * r + 0.5;
  p = (p * r * r + r) + 1.0;
  const double h = k * 0.5 + M, k1 = h - M;
  const uint64_t e1 = (tg_bits_f64(h) + 1023) << 52;
  const uint64_t e2 = (tg_bits_f64((k - k1) + M) + 1023) << 52;
  double y = p * tg_from_bits_f64(e1) * tg_from_bits_f64(e2);
  y = x > 709.782712893384 ? (double)INFINITY : y;
  y = x < -745.1332191019412 ? 0.0 : y;
  return y;
}
""",
    needs=("bits_f64", "from_bits_f64"),
)
define(
    "exp",
    (dtypes.F32,),
    """
static inline float tg_exp_f32(float x) {
  const float M = 0x1.8p23f;
  const float k = (x * 1.44269504f + M) - M;
  const float r = (x - k * 0x1.63p-1f) - k * -0x1.bd0106p-13f;
  float p = 1 / 5040.0f;
  p = p * r + 1 / 720.0f;
  p = p * r + 1 / 120.0f;
  p = p * r + 1 / 24.0f;
  p = p * r + 1 / 6.0f;
  p = p * r + 0.5f;
  p = (p * r * r + r) + 1.0f;
  const float h = k * 0.5f + M, k1 = h - M;
  const uint32_t e1 = (tg_bits_f32(h) + 127) << 23;
  const uint32_t e2 = (tg_bits_f32((k - k1) + M) + 127) << 23;
  float y = p * tg_from_bits_f32(e1) * tg_from_bits_f32(e2);
  y = x > 88.7228394f ? INFINITY : y;
  y = x < -103.972084f ? 0.0f : y;
  return y;
}
""",
    needs=("bits_f32", "from_bits_f32"),
)
