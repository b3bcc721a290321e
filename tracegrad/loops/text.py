"""Loop IR as text.  `print_kernel`, `print_program`; `parse_kernel`, `parse_program` read it back.

    kernel @k(in %x: f64[12], out %r: f64[4]) {
      for i0 in 4, parallel {
        reduce over r in 3 {
          let %y: f64 = mul(load %x[3*i0 + r], 2.0)
        } yield %acc: f64 = add from 0.0 of %y
        store %r[i0] = %acc loc("demo.py":7:12)
      }
    }

A kernel's indices follow its params, ``kernel @k(in %x: f64[12])[i [0..3], j] {``, their values
follow the arguments of a launch.  Steps of a program are launches and loops around them:

    for i in 4, reverse {
      launch @k(%in0)[i, 2*i + 1] checks 2
    }

Scalars and buffers have a ``%``, integers inside index expressions do not.  Constants other than
f64, i64 and bool carry their dtype (``2.0:f32``), calls do when it is not that of the first
argument.  A `Let` that is used as an index shows its range: ``let %j: i64 [0..3] = ..``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tracegrad.dims import Dim, Symbol, counter, format_dim, symbols
from tracegrad.dtypes import BOOL, F64, I64
from tracegrad.loops.ir import (
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
    Operand,
    Reduce,
    Select,
    Stmt,
    Store,
    Update,
    Var,
)
from tracegrad.loops.parse import parse_kernel
from tracegrad.loops.parse_program import parse_program
from tracegrad.loops.program import (
    Buffer,
    Copy,
    Grow,
    HostLoop,
    Launch,
    Program,
    Step,
    WhileLoop,
    Workers,
)
from tracegrad.loops.transform import indices
from tracegrad.source import SourceLoc

RESERVED = ("select", "load", "index", "cast")
SHORT_DATA = 32


def print_kernel(kernel: Kernel, *, locs: bool = True) -> str:
    """The text of a kernel, ending in a newline; `locs` adds the places in the user's source."""
    return "\n".join(_Printer(kernel, locs).lines()) + "\n"


def print_expr(e: Expr) -> str:
    match e:
        case Const():
            return _const(e)
        case Var(name):
            return f"%{name}"
        case Index(dim):
            return f"index({format_dim(dim)})"
        case Load(buffer, index):
            return f"load %{buffer}[{format_dim(index)}]"
        case Select(cond, then, other):
            return f"select({print_expr(cond)}, {print_expr(then)}, {print_expr(other)})"
        case Cast(value, dtype):
            return f"cast({print_expr(value)}):{dtype}"
        case Apply(fn, args, dtype):
            name = f"@{fn.name}" if fn.name in RESERVED else fn.name
            suffix = "" if args and args[0].dtype is dtype else f":{dtype}"
            return f"{name}({', '.join(map(print_expr, args))}){suffix}"
    raise TypeError(f"not an expression: {e!r}")


def _const(c: Const) -> str:
    value = c.value
    text = ("true" if value else "false") if isinstance(value, bool) else repr(value)
    plain = (
        (isinstance(value, bool) and c.dtype is BOOL)
        or (isinstance(value, float) and c.dtype is F64)
        or (type(value) is int and c.dtype is I64)
    )
    return text if plain else f"{text}:{c.dtype}"


def print_loc(loc: SourceLoc) -> str:
    return f"loc({json.dumps(loc.file)}:{loc.line}:{loc.col + 1})"


def _range(s: Symbol) -> str:
    lo = "" if s.lo is None else s.lo
    hi = "" if s.hi is None else s.hi
    return f" [{lo}..{hi}]"


def _loop(var: Symbol, extent: Dim) -> str:
    shown = "" if var == counter(var.name, extent) else _range(var)
    return f"{var.name}{shown} in {format_dim(extent)}"


class _Printer:
    def __init__(self, kernel: Kernel, locs: bool) -> None:
        self.kernel = kernel
        self.locs = locs
        self.ranges = {s.name: s for d in indices(kernel.body) for s in symbols(d)}

    def lines(self) -> Iterator[str]:
        k = self.kernel
        params = ", ".join(
            f"{p.access.value} %{p.name}: {p.dtype}[{format_dim(p.size)}]" for p in k.params
        )
        known = ", ".join(
            f"{s.name}{_range(s) if (s.lo, s.hi) != (None, None) else ''}" for s in k.indices
        )
        yield f"kernel @{k.name}({params}){f'[{known}]' if known else ''}{self.at(k)} {{"
        yield from self.block(k.body)
        yield "}"

    def at(self, node: Stmt | Kernel) -> str:
        return f" {print_loc(node.loc)}" if self.locs and node.loc else ""

    def block(self, body: Iterable[Stmt]) -> Iterator[str]:
        for stmt in body:
            for line in self.stmt(stmt):
                yield "  " + line

    def stmt(self, s: Stmt) -> Iterator[str]:
        at = self.at(s)
        match s:
            case Let(name, value):
                shown = _range(self.ranges[name]) if name in self.ranges else ""
                yield f"let %{name}: {value.dtype}{shown} = {print_expr(value)}{at}"
            case Store(buffer, index, value):
                yield f"store %{buffer}[{format_dim(index)}] = {print_expr(value)}{at}"
            case Update(buffer, index, combine, value):
                yield (
                    f"update %{buffer}[{format_dim(index)}] {combine.value} {print_expr(value)}{at}"
                )
            case Alloc(name, dtype, size):
                yield f"alloc %{name}: {dtype}[{format_dim(size)}]{at}"
            case Check(cond, code, value):
                yield f"check {print_expr(cond)} else {code} with {print_expr(value)}{at}"
            case Gemm():
                yield self.gemm(s) + at
            case For(var, extent, tag, body):
                yield f"for {_loop(var, extent)}, {tag.value}{at} {{"
                yield from self.block(body)
                yield "}"
            case If(cond, then, other):
                yield f"if {print_expr(cond)}{at} {{"
                yield from self.block(then)
                if other:
                    yield "} else {"
                    yield from self.block(other)
                yield "}"
            case Reduce(accs, loops, body):
                over = ", ".join(_loop(v, n) for v, n in loops)
                yield f"reduce over {over}{' ' if over else ''}{{"
                yield from self.block(body)
                yields = ", ".join(
                    f"%{a.name}: {a.dtype} = {a.combine.value} from {print_expr(a.init)} of "
                    f"{print_expr(a.value)}"
                    for a in accs
                )
                yield f"}} yield {yields}{at}"

    def gemm(self, s: Gemm) -> str:
        sizes = ", ".join(map(format_dim, (s.m, s.n, s.k)))
        sign = "+=" if s.accumulate else "="
        return f"gemm {s.dtype} ({sizes}) {_operand(s.c)} {sign} {_operand(s.a)} @ {_operand(s.b)}"


def _operand(op: Operand) -> str:
    place = "; ".join(map(format_dim, (op.offset, op.row, op.col)))
    return f"%{op.buffer}[{place}]"


# ---------------------------------------------------------------------------------- programs


def print_program(program: Program, *, locs: bool = True) -> str:
    """The text of a program with its kernels, ending in a newline."""
    plain = program.name.replace(".", "_").isidentifier()
    name = program.name if plain else json.dumps(program.name)
    lines = [f"program @{name} arena {program.arena_nbytes} {{"]
    lines += ["  " + _buffer(b) for b in program.buffers]
    for check in program.checks:
        at = f" {print_loc(check.loc)}" if locs and check.loc else ""
        lines.append(f"  check {json.dumps(check.message)}{at}")
    for kernel in program.kernels():
        lines += ["  " + line for line in _Printer(kernel, locs).lines()]
    for step in program.steps:
        lines += ["  " + line for line in _step(step, locs)]
    return "\n".join([*lines, "}"]) + "\n"


def _buffer(b: Buffer) -> str:
    words = [f"buffer %{b.name}: {b.dtype}[{format_dim(b.size)}] {b.place.value} {b.index}"]
    if b.offset:
        words.append(f"offset {b.offset}")
    if b.written:
        words.append("written")
    words.append(f"shape ({', '.join(map(format_dim, b.shape))})")
    if b.hint:
        words.append(f"hint {json.dumps(b.hint)}")
    if b.data is not None:
        words.append(f"data {_data(b.data)}")
    return " ".join(words)


def _data(data: np.ndarray) -> str:
    """Short arrays as numbers, long ones as the hexadecimal digits of their bytes."""
    if data.size <= SHORT_DATA:
        return f"[{', '.join(repr(v) for v in data.reshape(-1).tolist())}]"
    return json.dumps(np.ascontiguousarray(data).tobytes().hex())


def _step(step: Step, locs: bool) -> Iterator[str]:
    if isinstance(step, Launch):
        yield _launch(step, locs)
        return
    at = f" {print_loc(step.loc)}" if locs and step.loc else ""
    if isinstance(step, Grow):
        yield f"grow %{step.buffer} to {format_dim(step.size)}, check {step.check}{at}"
        return
    if isinstance(step, Copy):
        yield f"copy %{step.source} to %{step.target}, check {step.check}{at}"
        return
    if isinstance(step, HostLoop):
        order = "reverse" if step.reverse else "forward"
        count = "" if step.count is None else f", count %{step.count}"
        workers = "" if step.workers is None else f", {_workers(step.workers)}"
        yield f"for {_loop(step.var, step.trips)}, {order}{count}{workers}{at} {{"
        yield from _block(step.body, locs)
    elif isinstance(step, WhileLoop):
        most = "" if step.var.hi is None else f" in {step.var.hi + 1}"
        yield f"while %{step.flag}, {step.var.name}{most}{at} {{"
        yield "  test {"
        yield from ("  " + line for line in _block(step.test, locs))
        yield "  }"
        yield from _block(step.body, locs)
    else:
        yield f"branch %{step.selector}{at} {{"
        for case in step.cases:
            yield "  case {"
            yield from ("  " + line for line in _block(case, locs))
            yield "  }"
    yield "}"


def _workers(w: Workers) -> str:
    words = [f"chunks {w.chunks} threads {w.threads} stride {w.stride}"]
    words.append(f"private ({', '.join(f'%{name}' for name in w.private)})")
    words.append(f"sums ({', '.join(f'%{s} in %{parts}' for s, parts in w.sums)})")
    return " ".join(words)


def _block(steps: Sequence[Step], locs: bool) -> Iterator[str]:
    for step in steps:
        yield from ("  " + line for line in _step(step, locs))


def _launch(step: Launch, locs: bool) -> str:
    args = ", ".join(f"%{a}" for a in step.args)
    known = f"[{', '.join(map(format_dim, step.indices))}]" if step.indices else ""
    base = f" checks {step.check_base}" if step.check_base else ""
    at = f" {print_loc(step.loc)}" if locs and step.loc else ""
    return f"launch @{step.kernel.name}({args}){known}{base}{at}"


__all__ = [
    "parse_kernel",
    "parse_program",
    "print_expr",
    "print_kernel",
    "print_loc",
    "print_program",
]
