"""Expressions of the C family: what C and CUDA print alike.

Precedences are C's: 16 primary, 14 prefix, 13 ``* /``, 12 ``+ -``, 10 ``<``, 9 ``==``, 3 ``?:``.
Integer arithmetic wraps: signed ``+ - *`` are done in the unsigned type, since overflow of the
signed one is undefined (C99 6.5 paragraph 5); types narrower than int are cut back after it.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tracegrad.codegen.c_names import CNames
from tracegrad.dims import Dim, FloorDiv, Monomial, Symbol, bounds
from tracegrad.dtypes import BOOL, F32, F64, DType
from tracegrad.errors import VerifyError
from tracegrad.loops.ir import (
    Apply,
    Cast,
    Combine,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Var,
)

PRIMARY, PREFIX, TIMES, PLUS, TERNARY, ARGUMENT, LOWEST = 16, 14, 13, 12, 3, 2, 0

_CALL = re.compile(r"[\w{}]+\((\{\d\}(, )?)*\)")
_BINARY = re.compile(r"\{0\} (\S+) \{1\}")
_PREFIX = re.compile(r"([-~!+])\{0\}")


class CExpressions:
    """Prints expressions; collects in `functions` the library functions they call.

    `narrow` holds the scalars whose type is not that of indices, which need a cast inside one.
    """

    def __init__(self, names: CNames) -> None:
        self.names = names
        self.functions: set[str] = set()
        self.narrow: set[str] = set()
        self.counters: set[str] = set()

    def call(self, function: str, *args: str) -> str:
        """A call of a library function."""
        self.functions.add(function)
        return f"tg_{function}({', '.join(args)})"

    # -- scalars

    def expr(self, e: Expr, least: int = LOWEST) -> str:
        """`e`, in parentheses if it binds less tightly than `least`."""
        text, precedence = self.typed(e)
        return f"({text})" if precedence < least else text

    def typed(self, e: Expr) -> tuple[str, int]:
        """Text and precedence."""
        match e:
            case Const(value, dtype):
                return literal(value, dtype)
            case Var(name):
                if name in self.counters:
                    return f"(int64_t){self.names[name]}", PREFIX
                return self.names[name], PRIMARY
            case Index(dim):
                return f"(int64_t){self.index(dim, PREFIX)}", PREFIX
            case Load(buffer, index):
                return f"{self.names[buffer]}[{self.index(index)}]", PRIMARY
            case Apply():
                return self.apply(e)
            case Select(cond, then, other):
                return self.select(cond, then, other)
            case Cast(value, dtype):
                return self.cast(value, dtype)
        raise VerifyError(f"not an expression: {e!r}")

    def apply(self, e: Apply) -> tuple[str, int]:
        fn, dtype = e.fn, e.dtype
        first = e.args[0].dtype if e.args else dtype
        words = {"f": "f" if first is F32 else "", "t": first.name, "T": dtype.c, "r": dtype.name}
        for helper in fn.helpers:
            self.functions.add(helper.format(**words))
        if fn.precedence is None:
            is_call = _CALL.fullmatch(fn.c) is not None
            args = [self.expr(a, ARGUMENT if is_call else PRIMARY) for a in e.args]
            text = fn.c.format(*args, **words)
            return (text if is_call else f"({text})"), PRIMARY
        return self.operator(e, fn.precedence, words)

    def operator(self, e: Apply, precedence: int, words: dict[str, str]) -> tuple[str, int]:
        fn, dtype = e.fn, e.dtype
        binary, prefix = _BINARY.fullmatch(fn.c), _PREFIX.fullmatch(fn.c)
        if dtype.is_integer and (binary or prefix):
            sign = (binary or prefix).group(1)  # type: ignore[union-attr]
            if sign in ("+", "-", "*"):
                return self.wrapping(sign, e.args, dtype)
        least = [precedence + 1 if prefix or k else precedence for k in range(len(e.args))]
        text = fn.c.format(*(self.expr(a, p) for a, p in zip(e.args, least, strict=True)), **words)
        if dtype.is_integer and dtype.bits < 32:
            return f"({dtype.c})({text})", PREFIX
        return text, precedence

    def wrapping(self, sign: str, args: tuple[Expr, ...], dtype: DType) -> tuple[str, int]:
        """Integer ``+ - *`` modulo 2**bits."""
        if dtype.kind == "u" and dtype.bits >= 32:
            texts = [self.expr(a, PREFIX) for a in args]
        else:
            unsigned = f"uint{max(32, dtype.bits)}_t"
            texts = [f"({unsigned}){self.expr(a, PREFIX)}" for a in args]
        text = f" {sign} ".join(texts) if len(texts) == 2 else f"0u - {texts[0]}"
        return f"({dtype.c})({text})", PREFIX

    def select(self, cond: Expr, then: Expr, other: Expr) -> tuple[str, int]:
        """A ternary of plain values, else a call: both sides computed, so that loops vectorise."""
        if all(isinstance(e, (Const, Var)) for e in (then, other)):
            texts = (
                self.expr(cond, TERNARY + 1),
                self.expr(then, TERNARY + 1),
                self.expr(other, TERNARY),
            )
            return f"{texts[0]} ? {texts[1]} : {texts[2]}", TERNARY
        args = (self.expr(e, ARGUMENT) for e in (cond, then, other))
        return self.call(f"select_{then.dtype.name}", *args), PRIMARY

    def cast(self, value: Expr, dtype: DType) -> tuple[str, int]:
        source = value.dtype
        if source is dtype:
            return self.typed(value)
        if dtype.is_bool:
            return f"(uint8_t)({self.expr(value, 10)} != 0)", PREFIX
        if source.is_float and dtype.is_integer:
            return self.call(f"to_{dtype.name}_{source.name}", self.expr(value, ARGUMENT)), PRIMARY
        if isinstance(value, Index):
            return f"({dtype.c}){self.index(value.dim, PREFIX)}", PREFIX
        return f"({dtype.c}){self.expr(value, PREFIX)}", PREFIX

    def combine(self, combine: Combine, dtype: DType, a: str, b: str) -> str:
        """``a (+) b``; the texts bind at least as `tightness` says."""
        if combine is Combine.ADD and dtype.is_float:
            return f"{a} + {b}"
        if combine is Combine.MUL and dtype.is_float:
            return f"{a} * {b}"
        return self.call(f"join_{combine.value}_{dtype.name}", a, b)

    # -- indices

    def index(self, d: Dim, least: int = LOWEST) -> str:
        """An index expression in ptrdiff_t arithmetic."""
        text, precedence = self.dim(d)
        return f"({text})" if precedence < least else text

    def dim(self, d: Dim) -> tuple[str, int]:
        if isinstance(d, int):
            return integer(d), PRIMARY if d >= 0 else PREFIX
        terms = sorted(d.terms, key=lambda term: term[1] < 0)
        parts = [self.term(m, abs(c)) for m, c in terms]
        text, precedence = parts[0]
        if terms[0][1] < 0:
            text, precedence = f"-{text}", PREFIX if precedence > PREFIX else precedence
        if len(parts) == 1:
            return text, precedence
        for (_, c), (part, _) in zip(terms[1:], parts[1:], strict=True):
            text += f"{' - ' if c < 0 else ' + '}{part}"
        return text, PLUS

    def term(self, monomial: Monomial, size: int) -> tuple[str, int]:
        factors = [integer(size)] if size != 1 or not monomial else []
        factors += [self.atom(a, alone=not factors and len(monomial) == 1) for a in monomial]
        return " * ".join(factors), TIMES if len(factors) > 1 or "/" in factors[0] else PRIMARY

    def atom(self, atom: Symbol | FloorDiv | object, alone: bool) -> str:
        if isinstance(atom, Symbol):
            cast = "(ptrdiff_t)" if atom.name in self.narrow else ""
            return f"{cast}{self.names[atom.name]}"
        division = isinstance(atom, FloorDiv)
        lo, _ = bounds(atom.e)  # type: ignore[attr-defined]
        e, k = atom.e, integer(atom.k)  # type: ignore[attr-defined]
        if lo is None or lo < 0:
            return self.call("floordiv" if division else "mod", self.index(e), k)
        text = f"{self.index(e, PREFIX)} {'/' if division else '%'} {k}"
        return text if alone and division else f"({text})"


def integer(value: int) -> str:
    return str(value) if abs(value) < 2**31 else f"INT64_C({value})"


def literal(value: bool | int | float, dtype: DType) -> tuple[str, int]:
    """A constant and its precedence."""
    if dtype is BOOL:
        return ("1" if value else "0"), PRIMARY
    if dtype.is_integer:
        return _int_literal(int(value), dtype)
    x = float(dtype.np.type(value))
    if math.isnan(x):
        return ("(double)NAN" if dtype is F64 else "NAN"), PREFIX
    if math.isinf(x):
        word = "HUGE_VAL" if dtype is F64 else "INFINITY"
        return (word, PRIMARY) if x > 0 else (f"-{word}", PREFIX)
    text = repr(x) if dtype is F64 else f"{np.float32(x)!s}f"
    return text, PREFIX if text.startswith("-") else PRIMARY


def _int_literal(value: int, dtype: DType) -> tuple[str, int]:
    if value == -(2 ** (dtype.bits - 1)):
        return f"INT{dtype.bits}_MIN", PRIMARY
    if dtype.kind == "u":
        return (f"UINT64_C({value})" if dtype.bits == 64 else f"{value}u"), PRIMARY
    if abs(value) >= 2**31:
        return f"INT64_C({value})", PRIMARY
    return str(value), PRIMARY if value >= 0 else PREFIX


def pointer(dtype: DType, name: str, *, const: bool, restrict: bool = False) -> str:
    """A parameter or variable declaration such as ``const double *restrict x``."""
    return f"{'const ' if const else ''}{dtype.c} *{'restrict ' if restrict else ''}{name}"


def tightness(combine: Combine, dtype: DType) -> int:
    """The precedence an operand needs in `CExpressions.combine`."""
    if not dtype.is_float or combine not in (Combine.ADD, Combine.MUL):
        return ARGUMENT
    return TIMES if combine is Combine.ADD else PREFIX
