"""Statements and kernels as C99 for one CPU core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tracegrad.codegen.c_builtin
import tracegrad.codegen.c_functions  # noqa: F401
from tracegrad.codegen.c_family import CExpressions, pointer, tightness
from tracegrad.codegen.c_names import CNames
from tracegrad.codegen.c_reduce import reduce_lines
from tracegrad.dims import Dim, format_dim
from tracegrad.dtypes import I64, DType
from tracegrad.errors import VerifyError
from tracegrad.loops.ir import (
    Access,
    Alloc,
    Check,
    For,
    Gemm,
    If,
    Kernel,
    Let,
    LoopTag,
    Operand,
    Reduce,
    Stmt,
    Store,
    Update,
)
from tracegrad.loops.transform import is_simd, statements, substitute
from tracegrad.loops.unused import used_names
from tracegrad.source import SourceLoc

STACK_LIMIT = 1 << 20
INDENT = "  "


@dataclass(frozen=True, slots=True)
class CKernel:
    """One printed function: its C name, whether it returns a status, its text, what it calls."""

    name: str
    has_status: bool
    text: str
    functions: frozenset[str]


def print_c_kernel(
    kernel: Kernel, name: str, *, restrict: frozenset[str], blas: bool, inline: bool = False
) -> CKernel:
    """`kernel` as a static function called `name`; its indices follow the buffers.

    `restrict` names the params that no other param overlaps; `blas` lets large products go
    through the BLAS pointers; `inline` leaves inlining to the compiler.
    """
    printer = CStatements(CNames({name}), blas)
    params = []
    for p in kernel.params:
        text = pointer(
            p.dtype, printer.names[p.name], const=p.access is Access.IN, restrict=p.name in restrict
        )
        params.append(text)
    unused = []
    used = used_names(kernel)
    for s in kernel.indices:
        printer.exprs.counters.add(s.name)
        params.append(f"ptrdiff_t {printer.names[s.name]}")
        if s.name not in used:
            unused.append(f"{INDENT}(void){printer.names[s.name]};")
    has_status = any(isinstance(s, Check) for s in statements(kernel.body))
    linkage = "static inline" if inline else "static TG_NOINLINE"
    head = f"{linkage} {'int' if has_status else 'void'} {name}("
    lines = [*_wrapped(head, params or ["void"]), *unused, *printer.block(kernel.body, 1)]
    if has_status:
        lines.append(INDENT + "return 0;")
    return CKernel(name, has_status, "\n".join([*lines, "}"]), frozenset(printer.exprs.functions))


def _wrapped(head: str, params: Sequence[str]) -> list[str]:
    """A function header, broken before a parameter where a line would pass 100 columns."""
    lines = [head]
    for k, p in enumerate(params):
        piece = p + (") {" if k == len(params) - 1 else ",")
        if len(lines[-1]) + len(piece) > 99:
            lines.append("    " + piece)
        else:
            lines[-1] += ("" if lines[-1].endswith("(") else " ") + piece
    return lines


def place(loc: SourceLoc) -> str:
    """``heat.py:4  u[1:] += k`` for a comment: base name, line, the line's text if known."""
    text = loc.text.strip()
    shown = f"{os.path.basename(loc.file)}:{loc.line}" + (f"  {text}" if text else "")
    plain = shown.encode("ascii", "replace").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")


class CStatements:
    """Prints statements; `detail` is where checks leave the offending value."""

    def __init__(self, names: CNames, blas: bool) -> None:
        self.names = names
        self.exprs = CExpressions(names)
        self.blas = blas
        self.last_place = ""

    def block(self, body: Sequence[Stmt], depth: int) -> Iterator[str]:
        for stmt in body:
            yield from self.stmt(stmt, depth)

    def comment(self, stmt: Stmt, pad: str) -> Iterator[str]:
        if stmt.loc is not None:
            shown = place(stmt.loc)
            if shown != self.last_place:
                self.last_place = shown
                yield f"{pad}/* {shown} */"

    def stmt(self, s: Stmt, depth: int) -> Iterator[str]:
        pad, x = INDENT * depth, self.exprs
        yield from self.comment(s, pad)
        match s:
            case Let(name, value):
                if value.dtype is not I64:
                    x.narrow.add(name)
                yield f"{pad}const {value.dtype.c} {self.names[name]} = {x.expr(value)};"
            case Store(buffer, index, value):
                yield f"{pad}{self.names[buffer]}[{x.index(index)}] = {x.expr(value)};"
            case Update():
                yield self.update(s, pad)
            case If(cond, then, other):
                yield f"{pad}if ({x.expr(cond)}) {{"
                yield from self.block(then, depth + 1)
                if other:
                    yield f"{pad}}} else {{"
                    yield from self.block(other, depth + 1)
                yield f"{pad}}}"
            case Alloc(name, dtype, size):
                yield f"{pad}{dtype.c} {self.names[name]}[{_stack_size(name, dtype, size)}];"
            case For():
                yield from self.loop(s, depth)
            case Reduce():
                yield from reduce_lines(self, s, depth)
            case Check(cond, code, value):
                yield f"{pad}if (!({x.expr(cond)})) {{"
                yield f"{pad}  {self.names['detail']}[0] = (int64_t)({x.expr(value)});"
                yield f"{pad}  return {code};"
                yield f"{pad}}}"
            case Gemm():
                yield pad + self.gemm(s)

    def update(self, s: Update, pad: str) -> str:
        target = f"{self.names[s.buffer]}[{self.exprs.index(s.index)}]"
        value = self.exprs.expr(s.value, tightness(s.combine, s.value.dtype))
        return f"{pad}{target} = {self.exprs.combine(s.combine, s.value.dtype, target, value)};"

    def loop(self, s: For, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        if s.tag is LoopTag.UNROLL:
            if not isinstance(s.extent, int):
                raise VerifyError(f"unrolled loop over {format_dim(s.extent)}")
            for k in range(s.extent):
                yield f"{pad}{{"
                yield from self.block(substitute(s.body, {s.var.name: k}), depth + 1)
                yield f"{pad}}}"
            return
        if s.tag is LoopTag.VECTOR and is_simd(s.var, s.body):
            yield f"{pad}TG_SIMD"
        yield pad + self.for_head(s.var.name, "0", self.exprs.index(s.extent))
        yield from self.block(s.body, depth + 1)
        yield f"{pad}}}"

    def for_head(self, var: str, first: str, end: str) -> str:
        self.exprs.counters.add(var)
        name = self.names[var]
        return f"for (ptrdiff_t {name} = {first}; {name} < {end}; ++{name}) {{"

    def gemm(self, s: Gemm) -> str:
        x = self.exprs
        kind = "gemm" if self.blas and s.dtype.is_float else "gemm_plain"
        args = [x.index(d) for d in (s.m, s.n, s.k)]
        args += [text for op in (s.a, s.b, s.c) for text in self.operand(op)]
        return x.call(f"{kind}_{s.dtype.name}", *args, "1" if s.accumulate else "0") + ";"

    def operand(self, op: Operand) -> tuple[str, str, str]:
        x, name = self.exprs, self.names[op.buffer]
        base = name if op.offset == 0 else f"{name} + {x.index(op.offset)}"
        return base, x.index(op.row), x.index(op.col)


def _stack_size(name: str, dtype: DType, size: Dim) -> int:
    if not isinstance(size, int) or size * dtype.nbytes > STACK_LIMIT:
        raise VerifyError(
            f"local buffer {name} of {format_dim(size)} elements is too large for the stack"
        )
    return max(1, size)
