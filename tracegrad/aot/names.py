"""Which names an exported function may have."""

from __future__ import annotations

import re

from tracegrad.errors import ExportError

_C = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while alignas alignof bool complex imaginary noreturn static_assert thread_local true false
nullptr typeof constexpr asm
"""
_CXX = """
and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl
concept consteval constinit const_cast decltype delete dynamic_cast explicit export friend mutable
namespace new noexcept not not_eq operator or or_eq private protected public reinterpret_cast
requires static_cast template this throw try typeid typename using virtual wchar_t xor xor_eq
"""
_LIBRARY = """
main abort exit malloc free calloc realloc abs labs llabs div memcpy memmove memset memcmp strlen
printf puts acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp
ilogb ldexp log log10 log1p log2 logb modf scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma
tgamma ceil floor nearbyint rint lrint llrint round lround llround trunc fmod remainder remquo
copysign nan nextafter nexttoward fdim fmax fmin fma isnan isinf isfinite isnormal signbit j0 j1 jn
y0 y1 yn gamma time clock rand index signal errno unix linux
"""
_TAKEN = dict.fromkeys(_C.split(), "a word of C")
_TAKEN |= dict.fromkeys(_CXX.split(), "a word of C++")
_TAKEN |= dict.fromkeys(_LIBRARY.split(), "a name of the C library")
_TAKEN |= {f"{word}f": "a name of the C library" for word in _LIBRARY.split()}
# File names made from it would meet those that every folder has.
_TAKEN |= dict.fromkeys(("example_main", "example"), "the name of another file in the folder")
_LONGEST = 63  # significant characters of an internal identifier, C99 5.2.4.1


def check_name(name: str) -> str:
    """`name`, if a function, a header and macros can be named by it.

    Raises:
        ExportError: not an ASCII identifier, too long, reserved, or a word of C, C++ or libc.
    """
    remedy = "Use letters, digits and single underscores, starting with a letter."
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ExportError(f"name {name!r} is not a C identifier", remedy=remedy)
    if len(name) > _LONGEST:
        raise ExportError(f"name {name!r} is longer than {_LONGEST} characters", remedy=remedy)
    if "__" in name or name.lower().startswith("tg_"):
        raise ExportError(f"name {name!r} is reserved", remedy=remedy)
    if name in _TAKEN:
        raise ExportError(
            f"name {name!r} cannot be used: it is {_TAKEN[name]}", remedy="Choose another name."
        )
    return name
