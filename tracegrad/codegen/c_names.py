"""Identifiers that C, C++ and libm leave free."""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline
int long register restrict return short signed sizeof static struct switch typedef union unsigned
void volatile while bool true false int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t
uint64_t ptrdiff_t size_t main class new delete this template operator private public
"""
LIBM = """
acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb ldexp
log log10 log1p log2 logb modf scalbn cbrt fabs hypot pow sqrt erf erfc lgamma tgamma ceil floor
nearbyint rint round trunc fmod remainder remquo copysign nan nextafter fdim fmax fmin fma
index rindex bcopy bzero bcmp ffs basename step advance drem finite significand scalb exp10 pow10
signbit isnan isinf isfinite j0 j1 jn y0 y1 yn gamma abs labs div memcpy memset malloc realloc free
"""
OTHERS = "NAN INFINITY HUGE_VAL NULL errno linux unix ws bufs status"
_LIBM = re.findall(r"\w+", LIBM)
RESERVED = frozenset(re.findall(r"\w+", KEYWORDS + OTHERS) + _LIBM + [f"{name}f" for name in _LIBM])


class CNames:
    """C identifiers for IR names, unique within a scope and never a word of C or libm."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self.of: dict[str, str] = {}
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        stem = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
        if stem[0].isdigit():
            stem = f"v{stem}"
        if stem in RESERVED or stem.startswith(("tg_", "TG_", "__")):
            stem = f"v_{stem.lstrip('_')}"
        name, n = stem, self._next.get(stem, 1)
        while name in self.taken:
            name, n = f"{stem}_{n}", n + 1
        self._next[stem] = n
        self.taken.add(name)
        return name

    def __getitem__(self, name: str) -> str:
        found = self.of.get(name)
        if found is None:
            found = self.of[name] = self.fresh(name)
        return found
