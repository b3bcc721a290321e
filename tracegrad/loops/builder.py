"""`LoopBuilder`: what op lowerings write loop IR with.  Names are made unique here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tracegrad.dims import Dim, add, counter, of_atom
from tracegrad.dims import Expr as DimExpr
from tracegrad.dtypes import DType
from tracegrad.errors import UnsupportedError
from tracegrad.loops.ir import (
    Accumulator,
    Alloc,
    Check,
    Combine,
    Const,
    Expr,
    For,
    Gemm,
    If,
    Index,
    Let,
    Load,
    LoopTag,
    Operand,
    Reduce,
    Stmt,
    Store,
    Update,
    Var,
)
from tracegrad.source import SourceLoc


class LoopBuilder:
    """Builds the body of one kernel.  `loc` is stamped on every statement made."""

    def __init__(self) -> None:
        self._blocks: list[list[Stmt]] = [[]]
        self._used: dict[str, int] = {}
        self.loc: SourceLoc | None = None
        self.checks: list[str] = []

    # -- names and expressions

    def fresh(self, hint: str) -> str:
        """A name not used before in this kernel, made from `hint`."""
        n = self._used.get(hint)
        if n is None:
            self._used[hint] = 1
            return hint
        while True:
            name = f"{hint}_{n}"
            n += 1
            if name not in self._used:
                self._used[hint] = n
                self._used[name] = 1
                return name

    def let(self, value: Expr, hint: str = "t") -> Expr:
        """Bind `value` to a new scalar; constants and variables are returned as they are."""
        if isinstance(value, (Const, Var)):
            return value
        name = self.fresh(hint)
        self._add(Let(name, value, self.loc))
        return Var(name, value.dtype)

    def index_of(self, value: Expr, extent: Dim, hint: str = "j") -> DimExpr | int:
        """`value` (an integer known to lie in ``0..extent-1``) as an index expression."""
        if isinstance(value, Const):
            return int(value.value)
        if isinstance(value, Index):
            return value.dim  # type: ignore[return-value]
        name = self.fresh(hint)
        self._add(Let(name, value, self.loc))
        return of_atom(counter(name, extent))

    # -- statements

    def store(self, buffer: str, index: Dim, value: Expr) -> None:
        self._add(Store(buffer, index, value, self.loc))

    def update(self, buffer: str, index: Dim, combine: Combine, value: Expr) -> None:
        self._add(Update(buffer, index, combine, value, self.loc))

    def alloc(self, dtype: DType, size: Dim, hint: str = "local") -> str:
        """A local buffer; returns its name."""
        name = self.fresh(hint)
        self._add(Alloc(name, dtype, size, self.loc))
        return name

    def load(self, buffer: str, index: Dim, dtype: DType) -> Load:
        return Load(buffer, index, dtype)

    def check(self, cond: Expr, value: Expr, message: str) -> None:
        """Stop with a status unless `cond`; `message` is what Python raises (see `Check`)."""
        self.checks.append(message)
        self._add(Check(cond, len(self.checks), value, self.loc))

    def gemm(
        self,
        m: Dim,
        n: Dim,
        k: Dim,
        a: Operand,
        b: Operand,
        c: Operand,
        dtype: DType,
        accumulate: bool = False,
    ) -> None:
        self._add(Gemm(m, n, k, a, b, c, dtype, accumulate, self.loc))

    # -- blocks

    @contextmanager
    def loop(self, extent: Dim, tag: LoopTag = LoopTag.SERIAL, hint: str = "i") -> Iterator[Dim]:
        """A loop over ``0..extent-1``; yields its index."""
        name = self.fresh(hint)
        var = counter(name, extent)
        self._blocks.append([])
        yield of_atom(var)
        body = tuple(self._blocks.pop())
        self._add(For(var, extent, tag, body, self.loc))

    @contextmanager
    def loops(
        self, extents: Sequence[Dim], tag: LoopTag = LoopTag.PARALLEL
    ) -> Iterator[tuple[Dim, ...]]:
        """A nest over all of `extents`; yields the indices, outermost first."""
        if not extents:
            yield ()
            return
        with self.loop(extents[0], tag) as i, self.loops(extents[1:], tag) as rest:
            yield (i, *rest)

    @contextmanager
    def when(self, cond: Expr) -> Iterator[None]:
        """Statements inside run only when `cond` holds."""
        self._blocks.append([])
        yield
        body = tuple(self._blocks.pop())
        self._add(If(cond, body, (), self.loc))

    @contextmanager
    def reduce(self, extents: Sequence[Dim], hint: str = "acc") -> Iterator[ReduceScope]:
        """Accumulate over a domain.

        ``with b.reduce(extents) as r: v = r.accumulate(ADD, init, f(r.index))``; after the
        block `v` (a Var) holds the result.
        """
        pairs = []
        for extent in extents:
            pairs.append((counter(self.fresh("r"), extent), extent))
        self._blocks.append([])
        scope = ReduceScope(self, tuple(of_atom(v) for v, _ in pairs), hint)
        yield scope
        body = tuple(self._blocks.pop())
        self._add(Reduce(tuple(scope.accs), tuple(pairs), body, self.loc))

    @property
    def open_blocks(self) -> list[list[Stmt]]:
        """The blocks being written, outermost first; what is bound in them is in scope."""
        return self._blocks

    def finish(self) -> tuple[Stmt, ...]:
        assert len(self._blocks) == 1, "a block is still open"
        return tuple(self._blocks[0])

    def _add(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)


class ReduceScope:
    """The inside of a `LoopBuilder.reduce` block: its indices and accumulators."""

    def __init__(self, builder: LoopBuilder, index: tuple[Dim, ...], hint: str) -> None:
        self.builder = builder
        self.index = index
        self.accs: list[Accumulator] = []
        self._hint = hint

    def accumulate(self, combine: Combine, init: Expr, value: Expr) -> Var:
        name = self.builder.fresh(self._hint)
        self.accs.append(Accumulator(name, combine, init, value))
        return Var(name, value.dtype)


def flat_index(shape: Sequence[Dim], index: Sequence[Dim]) -> Dim:
    """Row-major position of a multi-index, in elements."""
    total: Dim = 0
    for size, i in zip(shape, index, strict=True):
        total = add(total * size, i)
    return total


def unflatten(shape: Sequence[Dim], flat: Dim) -> tuple[Dim, ...]:
    """Row-major multi-index of a flat position; every size but the first is a positive int.

    Raises:
        UnsupportedError: a size is an expression.
    """
    index: list[Dim] = []
    rest = flat
    for size in reversed(shape[1:]):
        if not isinstance(size, int):
            raise UnsupportedError(
                "a reshape of an array whose trailing sizes are known only when it runs"
            )
        index.append(rest % size if size > 0 else 0)
        rest = rest // size if size > 0 else 0
    if shape:
        index.append(rest)
    return tuple(reversed(index))
