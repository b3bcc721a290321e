"""Rebuilding loop IR: substitution, renaming, canonical names, collapsed loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tracegrad.dims import (
    Dim,
    FloorDiv,
    Mod,
    Symbol,
    coefficient,
    floordiv,
    mod,
    of_atom,
    symbols,
)
from tracegrad.dims import (
    Expr as DimExpr,
)
from tracegrad.dims import (
    substitute as substitute_dim,
)
from tracegrad.loops.ir import (
    Accumulator,
    Alloc,
    Apply,
    Cast,
    Check,
    Expr,
    For,
    Gemm,
    If,
    Index,
    Kernel,
    Let,
    Load,
    LoopTag,
    Operand,
    Reduce,
    Select,
    Stmt,
    Store,
    Update,
    Var,
)


class Rebuild:
    """Copies kernels, passing every index, name and loop variable through a hook.

    The hooks return their argument; passes override them.
    """

    def dim(self, d: Dim) -> Dim:
        return d

    def name(self, name: str) -> str:
        """A scalar or buffer, where it is defined and where it is used."""
        return name

    def variable(self, var: Symbol) -> Symbol:
        """The variable of a loop or an index of a kernel, where it is defined."""
        return var

    def expr(self, e: Expr) -> Expr:
        match e:
            case Var(name, dtype):
                return Var(self.name(name), dtype)
            case Index(dim):
                return Index(self.dim(dim))
            case Load(buffer, index, dtype):
                return Load(self.name(buffer), self.dim(index), dtype)
            case Apply(fn, args, dtype):
                return Apply(fn, tuple(map(self.expr, args)), dtype)
            case Select(cond, then, other):
                return Select(self.expr(cond), self.expr(then), self.expr(other))
            case Cast(value, dtype):
                return Cast(self.expr(value), dtype)
        return e

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(map(self.stmt, body))

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(var, extent, _, body):
                return replace(
                    s, var=self.variable(var), extent=self.dim(extent), body=self.block(body)
                )
            case Let(name, value):
                return replace(s, name=self.name(name), value=self.expr(value))
            case Store(buffer, index, value) | Update(buffer, index, _, value):
                return replace(
                    s, buffer=self.name(buffer), index=self.dim(index), value=self.expr(value)
                )
            case If(cond, then, other):
                return replace(
                    s, cond=self.expr(cond), then=self.block(then), other=self.block(other)
                )
            case Alloc(name, _, size):
                return replace(s, name=self.name(name), size=self.dim(size))
            case Reduce(accs, loops, body):
                return replace(
                    s,
                    accs=tuple(map(self.accumulator, accs)),
                    body=self.block(body),
                    loops=tuple((self.variable(v), self.dim(n)) for v, n in loops),
                )
            case Check(cond, _, value):
                return replace(s, cond=self.expr(cond), value=self.expr(value))
            case Gemm(m, n, k, a, b, c):
                return replace(
                    s,
                    m=self.dim(m),
                    n=self.dim(n),
                    k=self.dim(k),
                    a=self.operand(a),
                    b=self.operand(b),
                    c=self.operand(c),
                )

    def accumulator(self, acc: Accumulator) -> Accumulator:
        return Accumulator(
            self.name(acc.name), acc.combine, self.expr(acc.init), self.expr(acc.value)
        )

    def operand(self, op: Operand) -> Operand:
        return Operand(
            self.name(op.buffer), self.dim(op.offset), self.dim(op.row), self.dim(op.col)
        )

    def kernel(self, k: Kernel) -> Kernel:
        params = tuple(replace(p, name=self.name(p.name), size=self.dim(p.size)) for p in k.params)
        known = tuple(map(self.variable, k.indices))
        return replace(k, params=params, indices=known, body=self.block(k.body))


class _Substitute(Rebuild):
    def __init__(self, env: Mapping[str, Dim]) -> None:
        self.env = env

    def dim(self, d: Dim) -> Dim:
        return substitute_dim(d, self.env)

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Var) and e.name in self.env:
            return Index(self.env[e.name])
        return Rebuild.expr(self, e)


def substitute(body: Sequence[Stmt], env: Mapping[str, Dim]) -> tuple[Stmt, ...]:
    """`body` with loop variables of outer loops replaced by index expressions, by name."""
    return _Substitute(env).block(body)


class _Rename(Rebuild):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def variable(self, var: Symbol) -> Symbol:
        return Symbol(self.name(var.name), var.lo, var.hi)

    def dim(self, d: Dim) -> Dim:
        found = {s.name: of_atom(self.variable(s)) for s in symbols(d) if s.name in self.names}
        return substitute_dim(d, found) if found else d


def rename(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """`kernel` with params, indices, locals, scalars and loop variables renamed; others stay."""
    return _Rename(names).kernel(kernel)


def definitions(kernel: Kernel) -> Iterator[str]:
    """Every name the kernel defines, in order of appearance."""
    yield from (p.name for p in kernel.params)
    yield from (i.name for i in kernel.indices)
    for s in statements(kernel.body):
        match s:
            case For(var):
                yield var.name
            case Let(name) | Alloc(name):
                yield name
            case Reduce(accs, loops):
                yield from (v.name for v, _ in loops)
                yield from (a.name for a in accs)


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """All statements, outer before inner."""
    for s in body:
        yield s
        match s:
            case For(body=inner) | Reduce(body=inner):
                yield from statements(inner)
            case If(_, then, other):
                yield from statements(then)
                yield from statements(other)


def is_straight(body: Sequence[Stmt]) -> bool:
    """Whether `body` is only scalar bindings, stores and conditions over them."""
    for s in body:
        match s:
            case Let() | Store():
                pass
            case If(_, then, other):
                if not (is_straight(then) and is_straight(other)):
                    return False
            case _:
                return False
    return True


def is_scalar(body: Sequence[Stmt]) -> bool:
    """Whether nothing in `body` repeats or needs memory of its own: a few C statements."""
    return all(isinstance(s, (Let, Store, Update, If, Check)) for s in statements(body))


def is_simd(var: Symbol, body: Sequence[Stmt]) -> bool:
    """Whether a loop over `var` may run as SIMD: straight, and updates at elements of their own.

    Each updated buffer has one index, affine in `var` and in nothing bound inside the body.
    """
    rest: list[Stmt] = []
    indices_of: dict[str, set[Dim]] = {}
    inner = {s.name for s in statements(body) if isinstance(s, Let)}
    for s in statements(body):
        if isinstance(s, Update):
            indices_of.setdefault(s.buffer, set()).add(s.index)
        elif not isinstance(s, If):
            rest.append(s)
    for found in indices_of.values():
        (index, *others) = found
        if others or not coefficient(index, var.name) or inner & {s.name for s in symbols(index)}:
            return False
    return is_straight(rest)


def canonical(kernel: Kernel) -> Kernel:
    """Readable canonical names: each keeps its stem and loses its number (``t_12`` is ``t``)."""
    taken: set[str] = {"detail"}
    following: dict[str, int] = {}
    names = {}
    for old in definitions(kernel):
        if old == "detail":
            continue
        stem = re.sub(r"([._]\d+)+$", "", old) or "t"
        new, n = stem, following.get(stem, 1)
        while new in taken:
            new, n = f"{stem}_{n}", n + 1
        following[stem] = n
        taken.add(new)
        names[old] = new
    return rename(kernel, names)


def structure(kernel: Kernel) -> Kernel:
    """A key: kernels that differ in names alone have equal (and equally hashed) structures."""
    names = {old: f"n{k}" for k, old in enumerate(definitions(kernel)) if old != "detail"}
    return replace(rename(kernel, names), name="")


# ------------------------------------------------------------------------- collapsed loops


class _Indices(Rebuild):
    """Collects every index expression."""

    def __init__(self) -> None:
        self.found: list[Dim] = []

    def dim(self, d: Dim) -> Dim:
        self.found.append(d)
        return d


def indices(body: Sequence[Stmt]) -> list[Dim]:
    """Every index expression in `body`, extents included."""
    seen = _Indices()
    seen.block(body)
    return seen.found


def _has_division(d: Dim, name: str) -> bool:
    return isinstance(d, DimExpr) and any(
        isinstance(atom, (FloorDiv, Mod)) and name in {s.name for s in symbols(of_atom(atom))}
        for monomial, _ in d.terms
        for atom in monomial
    )


def join_loops(
    outer: tuple[Symbol, Dim], inner: tuple[Symbol, Dim], body: Sequence[Stmt]
) -> tuple[tuple[Symbol, Dim], tuple[Stmt, ...]] | None:
    """Two nested loops as one over their product, if no index then needs a division."""
    (v, n), (w, m) = outer, inner
    if not isinstance(n, int) or not isinstance(m, int) or n < 1 or m < 1:
        return None
    joint = Symbol(v.name, 0, n * m - 1)
    f = of_atom(joint)
    new = substitute(body, {v.name: floordiv(f, m), w.name: mod(f, m)})
    if any(_has_division(d, v.name) for d in indices(new)):
        return None
    return (joint, n * m), new


def collapse(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Joins perfectly nested PARALLEL loops, and the loops of a Reduce, where indices allow."""
    return tuple(_collapse_stmt(s) for s in body)


def _collapse_stmt(s: Stmt) -> Stmt:
    match s:
        case For(var, extent, tag, body):
            inner = collapse(body)
            match inner:
                case (For(w, m, LoopTag.PARALLEL, rest),) if tag is LoopTag.PARALLEL:
                    joined = join_loops((var, extent), (w, m), rest)
                    if joined:
                        (v, n), rest = joined
                        return For(v, n, tag, rest, s.loc)
            return replace(s, body=inner)
        case If(_, then, other):
            return replace(s, then=collapse(then), other=collapse(other))
        case Reduce():
            return _collapse_reduce(s)
    return s


def _collapse_reduce(s: Reduce) -> Reduce:
    """Joins neighbouring loops of a Reduce from the inside out."""
    s = replace(s, body=collapse(s.body))
    k = len(s.loops) - 2
    while k >= 0:
        values = tuple(Let(a.name, a.value) for a in s.accs)
        joined = join_loops(s.loops[k], s.loops[k + 1], (*s.body, *values))
        if joined and not _extents_use(s.loops, s.loops[k][0]):
            loop, new = joined
            body, lets = new[: len(s.body)], new[len(s.body) :]
            accs = tuple(
                replace(a, value=let.value)
                for a, let in zip(s.accs, lets, strict=True)
                if isinstance(let, Let)
            )
            s = replace(s, accs=accs, body=body, loops=(*s.loops[:k], loop, *s.loops[k + 2 :]))
        k -= 1
    return s


def _extents_use(loops: Sequence[tuple[Symbol, Dim]], var: Symbol) -> bool:
    return any(var in symbols(n) for _, n in loops)
