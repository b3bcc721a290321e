"""Reductions over the rows of a matrix: many columns at once, row by row.

``for i in columns: reduce over rows of x[width*row + i]`` walks down one column after another.
Turned, tiles of neighbouring columns are accumulated in a local row, so that memory is read in
order and the loop over columns is a SIMD loop.  Rows are gathered in groups of `ROWS`, whose
totals are then joined: the error grows with the square root of what a plain sum has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tracegrad.dims import (
    Dim,
    Symbol,
    add,
    bounds,
    coefficient,
    counter,
    floordiv,
    largest,
    mod,
    mul,
    of_atom,
    symbols,
)
from tracegrad.dims import substitute as substitute_dim
from tracegrad.loops.combine import identity
from tracegrad.loops.ir import (
    Accumulator,
    Alloc,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    LoopTag,
    Reduce,
    Stmt,
    Store,
    Update,
    Var,
)
from tracegrad.loops.transform import (
    Rebuild,
    definitions,
    is_straight,
    substitute,
)

TILE = 256
ROWS = 64
FEWEST = 8


def turn_columns(kernel: Kernel) -> Kernel:
    """`kernel` with its column reductions turned; others are left as they are."""
    turner = _Turner(set(definitions(kernel)))
    return replace(kernel, body=turner.block(kernel.body))


@dataclass(frozen=True, slots=True)
class _Columns:
    """``for var in extent: before; sums; after``."""

    var: Symbol
    extent: Dim
    before: tuple[Stmt, ...]
    sums: Reduce
    after: tuple[Stmt, ...]


def match_columns(s: Stmt) -> _Columns | None:
    """The parts of a loop that is worth turning."""
    match s:
        case For(var, extent, LoopTag.PARALLEL, body) if _most(extent) >= FEWEST:
            places = [k for k, inner in enumerate(body) if isinstance(inner, Reduce)]
            if len(places) != 1:
                return None
            k = places[0]
            sums = body[k]
            assert isinstance(sums, Reduce), "found above"
            before, after = body[:k], body[k + 1 :]
            found = _Columns(var, extent, before, sums, after)
            return found if _is_worthwhile(found) else None
    return None


def _most(extent: Dim) -> int:
    hi = bounds(extent)[1]
    return 0 if hi is None else hi


def _is_worthwhile(c: _Columns) -> bool:
    lets_only = all(isinstance(s, Let) for s in (*c.before, *c.sums.body))
    sizes_known = all(_most(n) > 0 for _, n in c.sums.loops)
    starts_plain = all(isinstance(a.init, Const) for a in c.sums.accs)
    if not (lets_only and sizes_known and starts_plain and c.sums.loops and is_straight(c.after)):
        return False
    loads = _Loads()
    loads.block(c.sums.body)
    for acc in c.sums.accs:
        loads.expr(acc.value)
    row = c.sums.loops[-1][0].name
    across = [coefficient(d, c.var.name) for d in loads.found]
    down = [coefficient(d, row) for d in loads.found]
    if any(a not in (0, 1) for a in across):
        return False
    return any(a == 1 and d not in (0, 1) for a, d in zip(across, down, strict=True))


class _Loads(Rebuild):
    """Collects the indices of loads."""

    def __init__(self) -> None:
        self.found: list[Dim] = []

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Load):
            self.found.append(e.index)
        return Rebuild.expr(self, e)


class _Renamed(Rebuild):
    """A copy of statements whose bindings have new names; `loaded` scalars come from memory."""

    def __init__(self, fresh: Callable[[str], str], loaded: dict[str, Expr]) -> None:
        self.fresh = fresh
        self.names: dict[str, str] = {}
        self.loaded = loaded

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def dim(self, d: Dim) -> Dim:
        env = {
            s.name: of_atom(Symbol(self.names[s.name], s.lo, s.hi))
            for s in symbols(d)
            if s.name in self.names
        }
        return substitute_dim(d, env) if env else d

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Var) and e.name in self.loaded:
            return self.loaded[e.name]
        return Rebuild.expr(self, e)

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Let):
            value = self.expr(s.value)
            self.names[s.name] = self.fresh(s.name)
            return Let(self.names[s.name], value, s.loc)
        return Rebuild.stmt(self, s)


class _Turner:
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        name, n = stem, self.next.get(stem, 1)
        while name in self.taken:
            name, n = f"{stem}_{n}", n + 1
        self.next[stem] = n
        self.taken.add(name)
        return name

    def block(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in self.stmt(s))

    def stmt(self, s: Stmt) -> tuple[Stmt, ...]:
        columns = match_columns(s)
        if columns is not None:
            return self.tiles(columns)
        match s:
            case For(body=body):
                return (replace(s, body=self.block(body)),)
            case If(_, then, other):
                return (replace(s, then=self.block(then), other=self.block(other)),)
        return (s,)

    def tiles(self, c: _Columns) -> tuple[Stmt, ...]:
        """Full tiles in a loop, then a narrower one for the rest."""
        out: list[Stmt] = []
        full, rest = floordiv(c.extent, TILE), mod(c.extent, TILE)
        if full == 1:
            out += self.tile(c, 0, TILE)
        elif full != 0:
            var = counter(self.fresh(f"{c.var.name}_tile"), full)
            body = tuple(self.tile(c, mul(of_atom(var), TILE), TILE))
            out.append(For(var, full, LoopTag.PARALLEL, body, c.sums.loc))
        if rest != 0:
            out += self.tile(c, mul(full, TILE), rest)
        return tuple(out)

    def tile(self, c: _Columns, start: Dim, width: Dim) -> list[Stmt]:
        """Columns ``start .. start+width-1``."""
        accs, loc = c.sums.accs, c.sums.loc
        totals = [self.fresh(f"{a.name}_row") for a in accs]
        room = largest(width)
        out: list[Stmt] = [Alloc(t, a.dtype, room, loc) for t, a in zip(totals, accs, strict=True)]
        out.append(self.fill(c, width, totals, [a.init for a in accs]))
        rows = c.sums.loops[-1][1]
        outer = [(Symbol(self.fresh(v.name), v.lo, v.hi), n) for v, n in c.sums.loops[:-1]]
        env: dict[str, Dim] = {
            old.name: of_atom(new) for (old, _), (new, _) in zip(c.sums.loops, outer, strict=False)
        }
        inner = self.groups(c, start, width, totals, rows, env)
        for var, extent in reversed(outer):
            inner = [For(var, extent, LoopTag.SERIAL, tuple(inner), loc)]
        out += inner

        def finish(j: Dim) -> tuple[Stmt, ...]:
            loaded: dict[str, Expr] = {
                a.name: Load(t, j, a.dtype) for a, t in zip(accs, totals, strict=True)
            }
            body = substitute((*c.before, *c.after), {c.var.name: add(start, j)})
            return _Renamed(self.fresh, loaded).block(body)

        out.append(self.columns(c, width, finish))
        return out

    def columns(self, c: _Columns, width: Dim, body: Callable[[Dim], Sequence[Stmt]]) -> For:
        """A loop over the columns of a tile."""
        var = counter(self.fresh(c.var.name), width)
        return For(var, width, LoopTag.PARALLEL, tuple(body(of_atom(var))), c.sums.loc)

    def fill(self, c: _Columns, width: Dim, rows: list[str], values: Sequence[Expr]) -> For:
        loc = c.sums.loc
        return self.columns(
            c, width, lambda j: [Store(r, j, v, loc) for r, v in zip(rows, values, strict=True)]
        )

    def groups(
        self,
        c: _Columns,
        start: Dim,
        width: Dim,
        totals: list[str],
        rows: Dim,
        env: dict[str, Dim],
    ) -> list[Stmt]:
        """All rows: straight into the totals if few, else in groups of `ROWS`."""
        if _most(rows) <= ROWS:
            return [self.rows(c, start, width, totals, 0, rows, env)]
        full, rest = floordiv(rows, ROWS), mod(rows, ROWS)
        var = counter(self.fresh("group"), full)
        body = self.group(c, start, width, totals, mul(of_atom(var), ROWS), ROWS, env)
        out: list[Stmt] = [For(var, full, LoopTag.SERIAL, tuple(body), c.sums.loc)]
        if rest != 0:
            out += self.group(c, start, width, totals, mul(full, ROWS), rest, env)
        return out

    def group(
        self,
        c: _Columns,
        start: Dim,
        width: Dim,
        totals: list[str],
        first: Dim,
        count: Dim,
        env: dict[str, Dim],
    ) -> list[Stmt]:
        """`count` rows into local rows of their own, which are then joined to the totals."""
        accs, loc = c.sums.accs, c.sums.loc
        parts = [self.fresh(f"{a.name}_part") for a in accs]
        neutral = [Const(identity(a.combine, a.dtype).item(), a.dtype) for a in accs]

        def join(j: Dim) -> list[Stmt]:
            return [
                Update(t, j, a.combine, Load(p, j, a.dtype), loc)
                for t, p, a in zip(totals, parts, accs, strict=True)
            ]

        return [
            *(Alloc(p, a.dtype, largest(width), loc) for p, a in zip(parts, accs, strict=True)),
            self.fill(c, width, parts, neutral),
            self.rows(c, start, width, parts, first, count, env),
            self.columns(c, width, join),
        ]

    def rows(
        self,
        c: _Columns,
        start: Dim,
        width: Dim,
        targets: list[str],
        first: Dim,
        count: Dim,
        env: dict[str, Dim],
    ) -> For:
        """`count` rows from `first`, each added to the local rows `targets`."""
        old = c.sums.loops[-1][0]
        var = counter(self.fresh(old.name), count)

        def row(j: Dim) -> Sequence[Stmt]:
            body: list[Stmt] = [*c.before, *c.sums.body]
            body += [_update(t, j, a) for t, a in zip(targets, c.sums.accs, strict=True)]
            # j is new, so substituting the column variable leaves it alone.
            found = {**env, old.name: add(first, of_atom(var)), c.var.name: add(start, j)}
            return _Renamed(self.fresh, {}).block(substitute(body, found))

        body = (self.columns(c, width, row),)
        return For(var, count, LoopTag.SERIAL, body, c.sums.loc)


def _update(target: str, j: Dim, acc: Accumulator) -> Update:
    return Update(target, j, acc.combine, acc.value)
