"""`Dim`: an integer, or an integer polynomial over named symbols, in normal form.

Sizes, offsets, strides and indices are Dims everywhere.  Atoms of a polynomial are symbols (size
parameters, loop indices, integers read at run time) and ``floordiv(e, k)``, ``mod(e, k)`` of a
polynomial by a positive constant, both rounding towards minus infinity as Python does.
Expressions that are constant are plain ints.  Questions answer True, False or None (unknown).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named integer within ``lo..hi``, both inclusive; None is unbounded.

    `hi` may depend on other symbols, as the index of a triangular loop does.
    """

    name: str
    lo: int | None = None
    hi: Dim | None = None

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``e // k`` for a constant ``k > 0``."""

    e: Expr
    k: int

    def __repr__(self) -> str:
        return f"floordiv({self.e}, {self.k})"


@dataclass(frozen=True, slots=True)
class Mod:
    """``e % k`` for a constant ``k > 0``, in ``0..k-1``."""

    e: Expr
    k: int

    def __repr__(self) -> str:
        return f"mod({self.e}, {self.k})"


Atom = Symbol | FloorDiv | Mod
Monomial = tuple[Atom, ...]  # sorted by repr, with repetition for powers


@dataclass(frozen=True, slots=True)
class Expr:
    """A sum of integer multiples of monomials; `terms` is sorted and has no zero coefficient."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return mul(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return add(self, mul(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return add(mul(self, -1), other)

    def __mul__(self, other: Dim) -> Dim:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, k: int) -> Dim:
        return floordiv(self, k)

    def __mod__(self, k: int) -> Dim:
        return mod(self, k)

    def __repr__(self) -> str:
        return format_dim(self)


Dim = int | Expr
Interval = tuple[int | None, int | None]  # both ends inclusive; None is unbounded

_COUNTED = 256  # values of an index that are tried one by one


def symbol(name: str, lo: int | None = None, hi: Dim | None = None) -> Expr:
    """The polynomial that is one symbol."""
    return of_atom(Symbol(name, lo, hi))


def of_atom(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _terms(d: Dim) -> Iterable[tuple[Monomial, int]]:
    if isinstance(d, Expr):
        return d.terms
    return (((), d),) if d else ()


def _build(acc: Mapping[Monomial, int]) -> Dim:
    """Normal form of a sum; folds ``k*floordiv(e, k) + mod(e, k)`` back to ``e``."""
    live = {m: c for m, c in acc.items() if c}
    for m, c in live.items():
        for atom in m:
            if isinstance(atom, Mod):
                rest = list(m)
                rest.remove(atom)
                partner = _monomial((*rest, FloorDiv(atom.e, atom.k)))
                if live.get(partner) == c * atom.k:
                    del live[m], live[partner]
                    whole = mul(atom.e, _build({_monomial(tuple(rest)): c}))
                    return add(whole, _build(live))
    if not live:
        return 0
    if len(live) == 1 and () in live:
        return live[()]
    return Expr(tuple(sorted(live.items(), key=_order)))


def _order(term: tuple[Monomial, int]) -> tuple[int, str]:
    monomial = term[0]
    return (-len(monomial), " ".join(map(repr, monomial)))


def _monomial(atoms: tuple[Atom, ...]) -> Monomial:
    return atoms if len(atoms) < 2 else tuple(sorted(atoms, key=repr))


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    acc = dict(_terms(a))
    for m, c in _terms(b):
        acc[m] = acc.get(m, 0) + c
    return _build(acc)


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    acc: dict[Monomial, int] = {}
    for m, c in _terms(a):
        for n, d in _terms(b):
            key = _monomial(m + n)
            acc[key] = acc.get(key, 0) + c * d
    return _build(acc)


def _split(e: Dim, k: int) -> tuple[Dim, Dim]:
    """``(q, r)`` with ``e == k*q + r``, every coefficient of r in ``0..k-1``."""
    q: dict[Monomial, int] = {}
    r: dict[Monomial, int] = {}
    for m, c in _terms(e):
        q[m], r[m] = divmod(c, k)
    return _build(q), _build(r)


def floordiv(e: Dim, k: int) -> Dim:
    """``e // k``, rounding down; ``k > 0``."""
    if isinstance(e, int):
        return e // k
    if k == 1:
        return e
    whole = _quotient(e, k)
    if whole is not None:
        return whole
    q, r = _split(e, k)
    if isinstance(r, int):
        return add(q, r // k)
    whole = _quotient(r, k)
    return add(q, of_atom(FloorDiv(r, k)) if whole is None else whole)


def _quotient(e: Expr, k: int) -> int | None:
    """``e // k`` where it is the same for all values of the symbols."""
    lo, hi = bounds(e)
    return lo // k if lo is not None and hi is not None and lo // k == hi // k else None


def mod(e: Dim, k: int) -> Dim:
    """``e % k`` in ``0..k-1``; ``k > 0``."""
    if isinstance(e, int):
        return e % k
    if k == 1:
        return 0
    _, r = _split(e, k)
    if isinstance(r, int):
        return r % k
    for d in (e, r):
        whole = _quotient(d, k)
        if whole is not None:
            return add(d, -k * whole)
    return of_atom(Mod(r, k))


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = mul(total, d)
    return total


def _atom_bounds(atom: Atom) -> Interval:
    if isinstance(atom, Symbol):
        return span_of(atom)
    lo, hi = bounds(atom.e)
    if isinstance(atom, Mod):
        most = atom.k - 1
        return 0, min(hi, most) if hi is not None and lo is not None and lo >= 0 else most
    return (None if lo is None else lo // atom.k, None if hi is None else hi // atom.k)


def span_of(s: Symbol) -> Interval:
    """The least and the greatest value that a symbol can have."""
    return s.lo, bounds(s.hi)[1] if isinstance(s.hi, Expr) else s.hi


def counter(name: str, extent: Dim) -> Symbol:
    """A symbol that counts ``0..extent-1``, its range given as numbers."""
    most = bounds(extent)[1]
    return Symbol(name, 0, None if most is None else most - 1)


def widened(d: Dim) -> Dim:
    """`d` with the ranges of its symbols given as numbers."""
    ranged = {s.name: of_atom(Symbol(s.name, *span_of(s))) for s in symbols(d)}
    return substitute(d, ranged) if ranged else d


def _times(a: Interval, b: Interval) -> Interval:
    if None not in a and None not in b:
        ends = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(ends), max(ends)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None
    return None, None


def bounds(d: Dim) -> Interval:
    """An interval that holds every value of `d` over its symbols' ranges."""
    if isinstance(d, int):
        return d, d
    inner = _innermost(d)
    if inner is not None:
        times, rest = _linear(d, inner)
        up = None if times is None else is_at_most(0, times)
        if times is not None and (up or is_at_most(times, 0)):
            ends = (inner.lo, inner.hi) if up else (inner.hi, inner.lo)
            found = [None if at is None else bounds(add(rest, mul(times, at))) for at in ends]
            return found[0] and found[0][0], found[1] and found[1][1]
    return _interval(d)


def _innermost(d: Expr) -> Symbol | None:
    """A symbol of `d` whose range depends on others and which no other's range depends on."""
    dependent = [
        atom
        for monomial, _ in d.terms
        for atom in monomial
        if isinstance(atom, Symbol) and isinstance(atom.hi, Expr)
    ]
    outer = {s.name for atom in dependent for s in symbols(atom.hi)}  # type: ignore[arg-type]
    return next((s for s in dependent if s.name not in outer), None)


def _linear(d: Expr, s: Symbol) -> tuple[Dim | None, Dim]:
    """``d == times * s + rest`` with `times` and `rest` free of `s`; `times` is None if not so."""
    times: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in d.terms:
        found = sum(atom == s for atom in monomial)
        others = tuple(atom for atom in monomial if atom != s)
        if found > 1 or any(s in symbols(of_atom(atom)) for atom in others):
            return None, d
        (times if found else rest)[others] = c
    return _build(times), _build(rest)


def _interval(d: Expr) -> Interval:
    """Bounds by interval arithmetic, term by term; exact with divisions of one short index."""
    free = symbols(d)
    if len(free) == 1 and any(not isinstance(a, Symbol) for m, _ in d.terms for a in m):
        (s,) = free
        if s.lo is not None and isinstance(s.hi, int) and 0 <= s.hi - s.lo < _COUNTED:
            every = [evaluate(d, {s.name: k}) for k in range(s.lo, s.hi + 1)]
            return min(every), max(every)
    lo: int | None = 0
    hi: int | None = 0
    for m, c in d.terms:
        span: Interval = (1, 1)
        for atom in m:
            span = _times(span, _atom_bounds(atom))
        a, b = span if c > 0 else (span[1], span[0])
        lo = None if lo is None or a is None else lo + c * a
        hi = None if hi is None or b is None else hi + c * b
    return lo, hi


def largest(d: Dim) -> int:
    """The size of what has room for `d` elements in every case.  Raises ValueError if unbounded."""
    if (hi := bounds(d)[1]) is None:
        raise ValueError(f"{d} has no upper bound")
    return max(0, hi)


def is_equal(a: Dim, b: Dim) -> bool | None:
    """Whether ``a == b`` for all values of the symbols; None when it depends or is unknown."""
    difference = add(a, mul(b, -1))
    if isinstance(difference, int):
        return difference == 0
    lo, hi = bounds(difference)
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return False
    return None


def is_at_most(a: Dim, b: Dim) -> bool | None:
    """Whether ``a <= b`` for all values of the symbols; None when it depends or is unknown."""
    lo, hi = bounds(add(b, mul(a, -1)))
    return True if lo is not None and lo >= 0 else False if hi is not None and hi < 0 else None


def is_divisible(d: Dim, k: int) -> bool | None:
    """Whether ``k`` divides ``d`` for all values of the symbols."""
    _, r = _split(d, k)
    return r == 0 if isinstance(r, int) else None


def substitute(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """`d` with symbols replaced by name, in the ranges of other symbols too."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for m, c in d.terms:
        term: Dim = c
        for atom in m:
            if isinstance(atom, Symbol):
                factor = env[atom.name] if atom.name in env else of_atom(atom)
                if isinstance(atom.hi, Expr) and atom.name not in env:
                    factor = symbol(atom.name, atom.lo, substitute(atom.hi, env))
            elif isinstance(atom, FloorDiv):
                factor = floordiv(substitute(atom.e, env), atom.k)
            else:
                factor = mod(substitute(atom.e, env), atom.k)
            term = mul(term, factor)
        total = add(total, term)
    return total


def evaluate(d: Dim, env: Mapping[str, Any]) -> Any:
    """The value of `d` with symbols bound by name to ints or integer arrays."""
    if isinstance(d, int):
        return d
    total: Any = 0
    for m, c in d.terms:
        term: Any = c
        for atom in m:
            if isinstance(atom, Symbol):
                term = term * env[atom.name]
            elif isinstance(atom, FloorDiv):
                term = term * (evaluate(atom.e, env) // atom.k)
            else:
                term = term * (evaluate(atom.e, env) % atom.k)
        total = total + term
    return total


def symbols(d: Dim) -> frozenset[Symbol]:
    """The symbols that occur in `d`."""
    if isinstance(d, int):
        return frozenset()
    found: set[Symbol] = set()
    for atom in (atom for m, _ in d.terms for atom in m):
        found |= {atom} if isinstance(atom, Symbol) else symbols(atom.e)
    return frozenset(found)


def coefficient(d: Dim, name: str) -> int | None:
    """The constant coefficient of a symbol in `d`; None when `d` is not affine in it."""
    if isinstance(d, int):
        return 0
    total = 0
    for m, c in d.terms:
        if any(name in {s.name for s in symbols(of_atom(a))} for a in m):
            if len(m) != 1 or not isinstance(m[0], Symbol):
                return None
            total += c
    return total


def format_dim(d: Dim) -> str:
    """Text such as ``3*i0 + i1 - 1``; `loops.dim_text` parses it."""
    if isinstance(d, int):
        return str(d)
    out = ""
    for m, c in d.terms:
        body = "*".join(map(repr, m))
        size = abs(c)
        text = str(size) if not m else (body if size == 1 else f"{size}*{body}")
        if not out:
            out = text if c > 0 else "-" + text
        else:
            out += (" + " if c > 0 else " - ") + text
    return out
