"""The interpreter of one kernel: statements over NumPy arrays.

Loops that may run in any order (PARALLEL, VECTOR, the domain of a Reduce) become array axes:
a loop entered while others are open puts its axis in front, so that older values broadcast.
SERIAL and UNROLL loops run in Python.  Domains beyond `CHUNK` elements are cut into pieces.
Every index is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad.dims import Dim, Symbol, evaluate
from tracegrad.dtypes import DType
from tracegrad.errors import VerifyError
from tracegrad.loops.combine import UFUNCS, identity
from tracegrad.loops.ir import (
    Accumulator,
    Alloc,
    Apply,
    Cast,
    Check,
    Const,
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

CHUNK = 1 << 17


@dataclass(slots=True)
class Memory:
    """A buffer; local ones have `lanes` copies, element e of a lane at ``e*lanes + lane``."""

    array: np.ndarray
    size: int
    lanes: int = 1
    lane: Any = 0


class Stopped(Exception):
    def __init__(self, code: int, value: int) -> None:
        self.code = code
        self.value = value


class _Integers(Mapping[str, Any]):
    """The environment as index expressions see it: everything int64."""

    def __init__(self, env: Mapping[str, Any]) -> None:
        self.env = env

    def __getitem__(self, name: str) -> Any:
        value = self.env[name]
        if isinstance(value, np.ndarray) and value.ndim:
            return value.astype(np.int64, copy=False)
        return int(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.env)

    def __len__(self) -> int:
        return len(self.env)


class Machine:
    """The state of one run: scalars by name, buffers, the open array axes and their mask.

    `axes` lists extents, innermost first (that is the NumPy shape of a full value); `mask` is
    None or says which lanes are live.
    """

    def __init__(self, kernel: Kernel, memory: dict[str, Memory]) -> None:
        self.kernel = kernel
        self.memory = memory
        self.env: dict[str, Any] = {}
        self.integers = _Integers(self.env)
        self.axes: tuple[int, ...] = ()
        self.mask: Any = None

    # -- expressions

    def dim(self, d: Dim) -> Any:
        return evaluate(d, self.integers)

    def value(self, e: Expr) -> Any:
        match e:
            case Const(value, dtype):
                return dtype.np.type(value)
            case Var(name, dtype):
                return _cast(self.env[name], dtype)
            case Index(dim):
                return np.asarray(self.dim(dim), np.int64)[()]
            case Load(buffer, index):
                memory, at = self.address(buffer, index)
                if memory.array.size == 0:
                    return memory.array.dtype.type(0)
                return memory.array[at]
            case Apply(fn, args, dtype):
                return _cast(fn.numpy(*(self.value(a) for a in args)), dtype)
            case Select(cond, then, other):
                picked = np.where(self.value(cond), self.value(then), self.value(other))
                return _cast(picked, e.dtype)
            case Cast(value, dtype):
                return _cast(self.value(value), dtype)
        raise VerifyError(f"not a loop expression: {e!r}")

    def address(self, buffer: str, index: Dim) -> tuple[Memory, Any]:
        """The buffer and checked positions in its array; dead lanes get position 0."""
        memory = self.memory[buffer]
        at = self.dim(index)
        bad = (at < 0) | (at >= memory.size)
        if np.any(bad):
            live = bad if self.mask is None else bad & self.mask
            if np.any(live):
                wrong = np.broadcast_to(at, np.shape(live))[live] if np.ndim(live) else at
                raise VerifyError(
                    f"{self.kernel.name}: index {np.ravel(wrong)[0]} of {buffer} "
                    f"is outside 0..{memory.size - 1}"
                )
            at = np.where(bad, 0, at)
        return memory, at if memory.lanes == 1 else at * memory.lanes + memory.lane

    def lanes_of(self, *values: Any) -> list[np.ndarray]:
        """Values of the live lanes, flat and in the order of the loops."""
        shape = np.broadcast_shapes(self.axes, *(np.shape(v) for v in values))
        flat = [np.broadcast_to(v, shape).T.reshape(-1) for v in values]
        if self.mask is None:
            return flat
        live = np.broadcast_to(self.mask, shape).T.reshape(-1)
        return [f[live] for f in flat]

    # -- statements

    def block(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.step(stmt)

    def step(self, stmt: Stmt) -> None:
        match stmt:
            case Let(name, value):
                self.env[name] = self.value(value)
            case Store(buffer, index, value):
                self.store(buffer, index, self.value(value))
            case Update():
                self.update(stmt)
            case For():
                self.loop(stmt)
            case If():
                self.branch(stmt)
            case Alloc(name, dtype, size):
                self.alloc(name, dtype, size)
            case Reduce():
                self.reduce(stmt)
            case Check():
                self.check(stmt)
            case Gemm():
                self.gemm(stmt)
            case _:
                raise VerifyError(f"not a loop statement: {stmt!r}")

    def store(self, buffer: str, index: Dim, value: Any) -> None:
        memory, at = self.address(buffer, index)
        if not self.axes:
            if self.mask is None or self.mask:
                memory.array[at] = value
            return
        where, values = self.lanes_of(at, value)
        memory.array[where] = values

    def update(self, stmt: Update) -> None:
        value = self.value(stmt.value)
        memory, at = self.address(stmt.buffer, stmt.index)
        where, values = self.lanes_of(at, value)
        UFUNCS[stmt.combine].at(memory.array, where, values)

    def branch(self, stmt: If) -> None:
        cond = self.value(stmt.cond)
        outer = self.mask
        if not np.ndim(cond):
            self.block(stmt.then if cond else stmt.other)
            return
        for live, body in ((cond, stmt.then), (np.logical_not(cond), stmt.other)):
            self.mask = live if outer is None else outer & live
            if body and np.any(self.mask):
                self.block(body)
        self.mask = outer

    def check(self, stmt: Check) -> None:
        cond, value = self.lanes_of(self.value(stmt.cond), self.value(stmt.value))
        if not cond.all():
            raise Stopped(stmt.code, int(value[np.argmin(cond)]))

    def alloc(self, name: str, dtype: DType, size: Dim) -> None:
        n = int(self.dim(size))
        lanes = int(np.prod(self.axes, dtype=np.int64))
        lane = np.arange(lanes).reshape(self.axes) if self.axes else 0
        raw = np.full(n * lanes * dtype.nbytes, 0xFF, np.uint8)
        self.memory[name] = Memory(raw.view(dtype.np), n, lanes, lane)

    # -- loops

    def loop(self, stmt: For) -> None:
        if stmt.tag in (LoopTag.PARALLEL, LoopTag.VECTOR):
            for _ in self.spread(((stmt.var, stmt.extent),)):
                self.block(stmt.body)
            return
        extent = self.extent(stmt.extent)
        outer = self.mask
        for i in range(int(np.max(extent, initial=0))):
            self.env[stmt.var.name] = i
            if np.ndim(extent):
                live = i < extent
                self.mask = live if outer is None else outer & live
            self.block(stmt.body)
        self.mask = outer

    def extent(self, size: Dim) -> Any:
        """Iterations of a loop, one number or one a lane; dead lanes have none."""
        n = self.dim(size)
        return np.where(self.mask, n, 0) if np.ndim(n) and self.mask is not None else n

    def spread(self, loops: Sequence[tuple[Symbol, Dim]]) -> Iterator[None]:
        """Open an axis for each loop, in pieces; the caller runs the body at each step.

        Extents that depend on open axes leave the lanes beyond them dead.
        """
        if not loops:
            yield
            return
        (var, size), rest = loops[0], loops[1:]
        extent = self.extent(size)
        longest = int(np.max(extent, initial=0))
        axes, mask = self.axes, self.mask
        step = max(1, CHUNK // max(1, int(np.prod(axes, dtype=np.int64))))
        for first in range(0, longest, step):
            count = min(step, longest - first)
            self.axes = (count, *axes)
            index = np.arange(first, first + count).reshape(count, *(1,) * len(axes))
            self.env[var.name] = index
            if np.ndim(extent):
                live = index < extent
                self.mask = live if mask is None else mask & live
            yield from self.spread(rest)
            self.axes, self.mask = axes, mask

    def reduce(self, stmt: Reduce) -> None:
        depth = len(self.axes)
        partials: list[list[np.ndarray]] = [[] for _ in stmt.accs]
        outer_axes, outer_mask = self.axes, self.mask
        for _ in self.spread(stmt.loops):
            self.block(stmt.body)
            shape = self.axes
            for acc, found in zip(stmt.accs, partials, strict=True):
                value = np.broadcast_to(self.value(acc.value), shape)
                if self.mask is not None:
                    value = np.where(self.mask, value, identity(acc.combine, acc.dtype))
                inner = shape[: len(shape) - depth]
                front = np.ascontiguousarray(
                    value.reshape(-1, *outer_axes)
                    .reshape(int(np.prod(inner, dtype=np.int64)), -1)
                    .T
                )
                total = UFUNCS[acc.combine].reduce(front, axis=-1, dtype=acc.dtype.np)
                found.append(total.reshape(outer_axes))
        self.axes, self.mask = outer_axes, outer_mask
        for acc, found in zip(stmt.accs, partials, strict=True):
            self.env[acc.name] = self.joined(acc, found)

    def joined(self, acc: Accumulator, partials: list[np.ndarray]) -> Any:
        """The pieces of a reduction combined with its start."""
        init = self.value(acc.init)
        if not partials:
            return init
        ufunc = UFUNCS[acc.combine]
        total = ufunc.reduce(np.stack(partials, -1), axis=-1, dtype=acc.dtype.np)
        return ufunc(init, total)

    def gemm(self, stmt: Gemm) -> None:
        m, n, k = (int(self.dim(d)) for d in (stmt.m, stmt.n, stmt.k))
        places = [
            self.matrices(op, rows, cols)
            for op, rows, cols in ((stmt.a, m, k), (stmt.b, k, n), (stmt.c, m, n))
        ]
        (a, a_at), (b, b_at), (c, c_at) = places
        for ia, ib, ic in zip(a_at, b_at, c_at, strict=True):
            product = np.matmul(a.array[ia], b.array[ib], dtype=stmt.dtype.np)
            c.array[ic] = c.array[ic] + product if stmt.accumulate else product

    def matrices(self, op: Operand, rows: int, cols: int) -> tuple[Memory, list[np.ndarray]]:
        """The positions of a matrix operand, one array[rows, cols] for each live lane."""
        memory = self.memory[op.buffer]
        offset, row, col, lane = self.lanes_of(
            self.dim(op.offset), self.dim(op.row), self.dim(op.col), memory.lane
        )
        i, j = np.arange(rows)[:, None], np.arange(cols)
        found = []
        for at, r, c, own in zip(offset, row, col, lane, strict=True):
            index = at + i * r + j * c
            if index.size and (index.min() < 0 or index.max() >= memory.size):
                raise VerifyError(
                    f"{self.kernel.name}: matrix in {op.buffer} leaves 0..{memory.size - 1}"
                )
            found.append(index * memory.lanes + own)
        return memory, found


def _cast(value: Any, dtype: DType) -> Any:
    if getattr(value, "dtype", None) == dtype.np:
        return value
    return np.asarray(value).astype(dtype.np)[()]
