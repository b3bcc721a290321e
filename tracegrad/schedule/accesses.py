"""Which elements of which buffers the steps of a program touch, as index expressions.

A set of elements is an index, in elements, over symbols: of loops around the steps, which keep
their names, and of loops inside, which get names of their own; two lists made with different
tags can therefore be compared as two iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tracegrad.dims import Dim, Symbol, add, bounds, mul, of_atom, substitute, symbols
from tracegrad.loops.ir import (
    Alloc,
    Apply,
    Cast,
    Check,
    Combine,
    Const,
    Expr,
    For,
    Gemm,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Operand,
    Reduce,
    Select,
    Stmt,
    Store,
    Update,
    Var,
)
from tracegrad.loops.program import Copy, Grow, HostLoop, Launch, Step, WhileLoop
from tracegrad.source import SourceLoc


class How(Enum):
    READ = "read"
    WRITE = "written"
    ADD = "added to"  # the element is read for this alone


@dataclass(frozen=True, slots=True)
class Touch:
    """Elements `index` of `buffer`; `times` bounds how often one run of the steps does it."""

    buffer: str
    index: Dim
    how: How
    times: int | None
    loc: SourceLoc | None


def touches(steps: Sequence[Step], env: Mapping[str, Dim], tag: str) -> list[Touch]:
    """What `steps` touch, where loops around them have the values `env`; `tag` begins the names
    of the symbols inside, and is no beginning of another name."""
    found: list[Touch] = []
    _steps(steps, dict(env), tag, 1, found)
    return found


def _steps(
    steps: Sequence[Step], env: dict[str, Dim], tag: str, times: int | None, found: list[Touch]
) -> None:
    for k, step in enumerate(steps):
        name = f"{tag}{k}."
        if isinstance(step, Launch):
            found += _Kernel(step, env, name, times).touches
        elif isinstance(step, HostLoop):
            if step.count is not None:
                found.append(Touch(step.count, 0, How.READ, times, step.loc))
            inner, most = _enter(env, name, step.var, step.trips, times)
            _steps(step.body, inner, name, most, found)
        elif isinstance(step, WhileLoop):
            found.append(Touch(step.flag, 0, How.READ, None, step.loc))
            inner, _ = _enter(env, name, step.var, None, None)
            _steps(step.test, inner, f"{name}t.", None, found)
            _steps(step.body, inner, name, None, found)
        elif isinstance(step, (Grow, Copy)):
            continue  # of buffers that each iteration fills anew
        else:
            found.append(Touch(step.selector, 0, How.READ, times, step.loc))
            for j, case in enumerate(step.cases):
                _steps(case, env, f"{name}{j}.", times, found)


def _enter(
    env: dict[str, Dim], tag: str, var: Symbol, extent: Dim | None, times: int | None
) -> tuple[dict[str, Dim], int | None]:
    """The environment of a loop's body, and how often it runs at most."""
    if extent is None:
        hi = substitute(var.hi, env) if var.hi is not None else None
    else:
        hi = add(substitute(extent, env), -1)
    inner = {**env, var.name: of_atom(Symbol(tag + var.name, var.lo, hi))}
    most = None if hi is None else bounds(hi)[1]
    return inner, None if times is None or most is None else times * max(0, most + 1)


@dataclass(slots=True, eq=False)
class _Kernel:
    """What one launch touches."""

    launch: Launch
    env: dict[str, Dim]
    tag: str
    times: int | None
    touches: list[Touch] = field(default_factory=list)
    buffers: dict[str, str] = field(default_factory=dict)
    bound: dict[str, tuple[Expr, ...]] = field(default_factory=dict)  # lets, accumulators
    loads: dict[str, tuple[Load, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernel: Kernel = self.launch.kernel
        names = (p.name for p in kernel.params)
        self.buffers = dict(zip(names, self.launch.args, strict=True))
        values = (substitute(d, self.env) for d in self.launch.indices)
        self.env = {s.name: d for s, d in zip(kernel.indices, values, strict=True)}
        self.block(kernel.body, self.times)

    def block(self, body: Sequence[Stmt], times: int | None) -> None:
        for s in body:
            self.stmt(s, times)

    def stmt(self, s: Stmt, times: int | None) -> None:
        match s:
            case Let(name, value):
                self.bound[name] = (value,)
                if isinstance(value, Index):
                    self.env[name] = self.dim(value.dim)
            case Store(buffer, index, value):
                self.store(s, buffer, index, value, times)
            case Update(buffer, index, combine, value):
                if combine is Combine.ADD:
                    self.touch(buffer, index, How.ADD, times, s.loc)
                else:
                    self.touch(buffer, index, How.READ, times, s.loc)
                    self.touch(buffer, index, How.WRITE, times, s.loc)
                self.read(value, times, s.loc)
            case If(cond, then, other):
                self.read(cond, times, s.loc)
                self.block(then, times)
                self.block(other, times)
            case For(var, extent, _, body):
                self.env, most = _enter(self.env, self.tag, var, extent, times)
                self.block(body, most)
            case Reduce(accs, loops, body):
                most = times
                for var, extent in loops:
                    self.env, most = _enter(self.env, self.tag, var, extent, most)
                self.block(body, most)
                self.bound.update((a.name, (a.init, a.value)) for a in accs)
            case Check(cond, _, value):
                self.read(cond, times, s.loc)
                self.read(value, times, s.loc)
            case Gemm():
                self.gemm(s, times)
            case Alloc():
                pass  # of this launch alone

    def store(self, s: Store, buffer: str, index: Dim, value: Expr, times: int | None) -> None:
        rest = self.rest_of_sum(value, self.buffers.get(buffer), self.dim(index))
        for e in [value] if rest is None else rest:
            self.read(e, times, s.loc)
        self.touch(buffer, index, How.WRITE if rest is None else How.ADD, times, s.loc)

    def rest_of_sum(self, value: Expr, buffer: str | None, index: Dim) -> list[Expr] | None:
        """The other terms where `value` is a sum with one term that is the element stored."""
        if isinstance(value, Var) and len(self.bound.get(value.name, ())) == 1:
            return self.rest_of_sum(self.bound[value.name][0], buffer, index)
        if isinstance(value, Load):
            same = self.buffers.get(value.buffer) == buffer and self.dim(value.index) == index
            return [] if same and buffer is not None else None
        if isinstance(value, Apply) and value.fn.name == "add" and not value.dtype.is_bool:
            for k, term in enumerate(value.args):
                rest = self.rest_of_sum(term, buffer, index)
                if rest is not None:
                    return [*rest, value.args[1 - k]]
        return None

    def gemm(self, s: Gemm, times: int | None) -> None:
        inner, most = self.env, times
        axes = []
        for name, extent in (("m", s.m), ("n", s.n), ("k", s.k)):
            axes.append(Symbol(f"gemm_{name}", 0))
            inner, most = _enter(inner, self.tag, axes[-1], extent, most)
        before, self.env = self.env, inner
        i, j, k = map(of_atom, axes)
        how = How.ADD if s.accumulate else How.WRITE
        for op, row, col, act in (
            (s.a, i, k, How.READ),
            (s.b, k, j, How.READ),
            (s.c, i, j, how),
        ):
            self.touch(op.buffer, _element(op, row, col), act, most, s.loc)
        self.env = before

    def read(self, e: Expr, times: int | None, loc: SourceLoc | None) -> None:
        for load in self.loads_of(e):
            self.touch(load.buffer, load.index, How.READ, times, loc)

    def loads_of(self, e: Expr) -> tuple[Load, ...]:
        """Every load that `e` is made of, through lets and accumulators too."""
        if isinstance(e, Var):
            if e.name not in self.loads:
                made = self.bound.get(e.name, ())
                self.loads[e.name] = tuple(dict.fromkeys(x for m in made for x in self.loads_of(m)))
            return self.loads[e.name]
        own = (e,) if isinstance(e, Load) else ()
        return (*own, *(x for part in _parts(e) for x in self.loads_of(part)))

    def touch(
        self, buffer: str, index: Dim, how: How, times: int | None, loc: SourceLoc | None
    ) -> None:
        name = self.buffers.get(buffer)
        if name is not None:  # else a local buffer
            if loc is None or self.launch.kernel.loc != self.launch.loc:
                loc = self.launch.loc  # the kernel is shared with another line
            self.touches.append(Touch(name, self.dim(index), how, times, loc))

    def dim(self, d: Dim) -> Dim:
        """`d` over symbols outside this launch; integers read at run time get names of it."""
        for s in sorted(symbols(d), key=lambda s: s.name):
            if s.name not in self.env:
                hi = None if s.hi is None else self.dim(s.hi)
                self.env[s.name] = of_atom(Symbol(self.tag + s.name, s.lo, hi))
        return substitute(d, self.env)


def _element(op: Operand, row: Dim, col: Dim) -> Dim:
    return add(op.offset, add(mul(row, op.row), mul(col, op.col)))


def _parts(e: Expr) -> Iterator[Expr]:
    match e:
        case Apply(_, args):
            yield from args
        case Select(cond, then, other):
            yield from (cond, then, other)
        case Cast(value):
            yield value
        case Const() | Var() | Index() | Load():
            pass
