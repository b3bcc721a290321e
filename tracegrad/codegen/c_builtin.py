"""C functions that the printer itself calls: selects, casts, combinations, reductions, gemm."""

from __future__ import annotations

from tracegrad import dtypes
from tracegrad.codegen.c_library import define
from tracegrad.dtypes import BOOL, FLOATS, INTEGERS
from tracegrad.loops.ir import Combine

LANES = 64
BLOCK = 4096

define(
    "floordiv",
    (),
    """
static inline ptrdiff_t tg_floordiv(ptrdiff_t a, ptrdiff_t k) {
  return a / k - (a % k < 0);
}
""",
)
define(
    "mod",
    (),
    """
static inline ptrdiff_t tg_mod(ptrdiff_t a, ptrdiff_t k) {
  const ptrdiff_t r = a % k;
  return r < 0 ? r + k : r;
}
""",
)
define(
    "select",
    dtypes.ALL,
    """
static inline $T tg_select_$t(uint8_t cond, $T a, $T b) { return cond ? a : b; }
""",
)

# Float to integer: out of range and NaN give the lowest value, as x86 does (C leaves it open).
for _source in FLOATS:
    for _bits, _half in ((32, "0x1p31"), (64, "0x1p63")):
        define(
            f"to_i{_bits}",
            (_source,),
            """
static inline int${W}_t tg_to_i${W}_$t($T x) {
  const $T in = x >= -$H && x < $H ? x : 0;
  return x >= -$H && x < $H ? (int${W}_t)in : INT${W}_MIN;
}
""",
            W=str(_bits),
            H=_half + ("f" if _source.bits == 32 else ""),
        )
    for _name, _wide in (
        ("i8", "i32"),
        ("i16", "i32"),
        ("u8", "i32"),
        ("u16", "i32"),
        ("u32", "i64"),
    ):
        define(
            f"to_{_name}",
            (_source,),
            """
static inline $R tg_to_${r}_$t($T x) { return ($R)tg_to_${w}_$t(x); }
""",
            needs=("to_${w}_$t",),
            r=_name,
            w=_wide,
            R=dtypes.parse(_name).c,
        )
    define(
        "to_u64",
        (_source,),
        """
static inline uint64_t tg_to_u64_$t($T x) {
  const uint64_t low = (uint64_t)tg_to_i64_$t(x);
  const uint64_t high = (uint64_t)tg_to_i64_$t(x - 0x1p63$L) ^ ((uint64_t)1 << 63);
  return x >= 0x1p63$L ? high : low;
}
""",
        needs=("to_i64_$t",),
    )

# Combinations as functions, for `Update`, integer reductions and the folds below.
for _combine, _sign in ((Combine.ADD, "+"), (Combine.MUL, "*")):
    define(
        f"join_{_combine.value}",
        FLOATS,
        """
static inline $T tg_join_${c}_$t($T a, $T b) { return a $o b; }
""",
        c=_combine.value,
        o=_sign,
    )
    for _dtype in INTEGERS:
        define(
            f"join_{_combine.value}",
            (_dtype,),
            """
static inline $T tg_join_${c}_$t($T a, $T b) { return ($T)(($W)a $o ($W)b); }
""",
            c=_combine.value,
            o=_sign,
            W=f"uint{max(32, _dtype.bits)}_t",
        )
for _combine in (Combine.MAX, Combine.MIN):
    define(
        f"join_{_combine.value}",
        dtypes.ALL,
        """
static inline $T tg_join_${c}_$t($T a, $T b) { return tg_${c}_$t(a, b); }
""",
        needs=("${c}_$t",),
        c=_combine.value,
    )
for _combine, _sign in ((Combine.AND, "&"), (Combine.OR, "|")):
    define(
        f"join_{_combine.value}",
        (*INTEGERS, BOOL),
        """
static inline $T tg_join_${c}_$t($T a, $T b) { return ($T)(a $o b); }
""",
        c=_combine.value,
        o=_sign,
    )
define(
    "join_add",
    (BOOL,),
    """
static inline uint8_t tg_join_add_bool(uint8_t a, uint8_t b) { return a | b; }
""",
)
define(
    "join_mul",
    (BOOL,),
    """
static inline uint8_t tg_join_mul_bool(uint8_t a, uint8_t b) { return a & b; }
""",
)

# The lanes of a block, halved until one is left; then blocks joined as a binary counter does:
# `part` holds totals of falling powers of two, so that the association is that of a tree.
for _combine in Combine:
    _types = (*INTEGERS, BOOL) if _combine in (Combine.AND, Combine.OR) else dtypes.ALL
    define(
        f"fold_{_combine.value}",
        _types,
        """
static inline $T tg_fold_${c}_$t($T *a) {
  for (int w = $N / 2; w > 0; w /= 2)
    for (int j = 0; j < w; ++j) a[j] = tg_join_${c}_$t(a[j], a[j + w]);
  return a[0];
}
""",
        needs=("join_${c}_$t",),
        c=_combine.value,
        N=str(LANES),
    )
define(
    "pairs",
    FLOATS,
    """
typedef struct { $T part[64]; uint64_t count; int top; } tg_pairs_$t;
""",
)
for _combine in (Combine.ADD, Combine.MUL):
    define(
        f"push_{_combine.value}",
        FLOATS,
        """
static inline void tg_push_${c}_$t(tg_pairs_$t *s, $T v) {
  for (uint64_t n = ++s->count; !(n & 1); n >>= 1) v = tg_join_${c}_$t(s->part[--s->top], v);
  s->part[s->top++] = v;
}
""",
        needs=("pairs_$t", "join_${c}_$t"),
        c=_combine.value,
    )
    define(
        f"total_{_combine.value}",
        FLOATS,
        """
static inline $T tg_total_${c}_$t(const tg_pairs_$t *s, $T empty) {
  if (s->top == 0) return empty;
  $T v = s->part[s->top - 1];
  for (int k = s->top - 2; k >= 0; --k) v = tg_join_${c}_$t(s->part[k], v);
  return v;
}
""",
        needs=("pairs_$t", "join_${c}_$t"),
        c=_combine.value,
    )

# Matrix products.  Rows of b run innermost, so that the loop over j vectorises.
_GEMM = """
static TG_NOINLINE void tg_gemm_plain_$t(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k,
    const $T *a, ptrdiff_t ar, ptrdiff_t ac, const $T *b, ptrdiff_t br, ptrdiff_t bc,
    $T *c, ptrdiff_t cr, ptrdiff_t cc, int accumulate) {
  for (ptrdiff_t i = 0; i < m; ++i) {
    if (!accumulate)
      for (ptrdiff_t j = 0; j < n; ++j) c[i * cr + j * cc] = 0;
    for (ptrdiff_t p = 0; p < k; ++p) {
      const $T s = a[i * ar + p * ac];
      if (bc == 1 && cc == 1) {
        const $T *row = b + p * br;
        $T *out = c + i * cr;
        TG_SIMD
        for (ptrdiff_t j = 0; j < n; ++j) out[j] = $add;
      } else {
        for (ptrdiff_t j = 0; j < n; ++j) {
          const $T t = b[p * br + j * bc];
          c[i * cr + j * cc] = $gather;
        }
      }
    }
  }
}
"""
define("gemm_plain", FLOATS, _GEMM, add="out[j] + s * row[j]", gather="c[i * cr + j * cc] + s * t")
for _dtype in (*INTEGERS, BOOL):
    _add, _mul = f"tg_join_add_{_dtype.name}", f"tg_join_mul_{_dtype.name}"
    define(
        "gemm_plain",
        (_dtype,),
        _GEMM,
        needs=("join_add_$t", "join_mul_$t"),
        add=f"{_add}(out[j], {_mul}(s, row[j]))",
        gather=f"{_add}(c[i * cr + j * cc], {_mul}(s, t))",
    )

# BLAS by pointers that the loader sets; NULL, small sizes and odd strides use the loops above.
define(
    "blas",
    (),
    """
TG_EXPORT void *tg_blas_dgemm;
TG_EXPORT void *tg_blas_sgemm;
TG_EXPORT int tg_blas_is64;

/* Whether element (i, j) at i*r + j*c fits BLAS; its transposition flag and leading dimension. */
static int tg_blas_layout(ptrdiff_t rows, ptrdiff_t cols, ptrdiff_t r, ptrdiff_t c, int *trans,
    ptrdiff_t *ld) {
  if ((c == 1 || cols == 1) && (rows == 1 || r >= cols)) {
    *trans = 111;
    *ld = rows == 1 ? cols : r;
    return 1;
  }
  if ((r == 1 || rows == 1) && (cols == 1 || c >= rows)) {
    *trans = 112;
    *ld = cols == 1 ? rows : c;
    return 1;
  }
  return 0;
}
""",
)
_BLAS = """
static TG_NOINLINE void tg_gemm_$t(ptrdiff_t m, ptrdiff_t n, ptrdiff_t k,
    const $T *a, ptrdiff_t ar, ptrdiff_t ac, const $T *b, ptrdiff_t br, ptrdiff_t bc,
    $T *c, ptrdiff_t cr, ptrdiff_t cc, int accumulate) {
  typedef void (*wide)(int, int, int, int64_t, int64_t, int64_t, $T, const $T *, int64_t,
      const $T *, int64_t, $T, $T *, int64_t);
  typedef void (*slim)(int, int, int, int32_t, int32_t, int32_t, $T, const $T *, int32_t,
      const $T *, int32_t, $T, $T *, int32_t);
  int ta, tb, tc;
  ptrdiff_t la, lb, lc;
  const int fits = tg_blas_$g != NULL && m > 0 && n > 0 && k > 0
      && (double)m * (double)n * (double)k > 4096.0
      && tg_blas_layout(m, k, ar, ac, &ta, &la) && tg_blas_layout(k, n, br, bc, &tb, &lb)
      && tg_blas_layout(m, n, cr, cc, &tc, &lc);
  if (fits && tc == 112) {
    tg_gemm_$t(n, m, k, b, bc, br, a, ac, ar, c, cc, cr, accumulate);
    return;
  }
  const $T beta = accumulate ? 1 : 0;
  if (fits && tg_blas_is64)
    ((wide)tg_blas_$g)(101, ta, tb, m, n, k, 1, a, la, b, lb, beta, c, lc);
  else if (fits && m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX && la <= INT32_MAX
           && lb <= INT32_MAX && lc <= INT32_MAX)
    ((slim)tg_blas_$g)(101, ta, tb, (int32_t)m, (int32_t)n, (int32_t)k, 1, a, (int32_t)la, b,
        (int32_t)lb, beta, c, (int32_t)lc);
  else
    tg_gemm_plain_$t(m, n, k, a, ar, ac, b, br, bc, c, cr, cc, accumulate);
}
"""
for _dtype, _name in ((dtypes.F32, "sgemm"), (dtypes.F64, "dgemm")):
    define("gemm", (_dtype,), _BLAS, needs=("blas", "gemm_plain_$t"), g=_name)
