"""Reads the text form of loop IR (see `loops.text` for the grammar)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tracegrad import dtypes
from tracegrad.dims import Dim, Symbol, counter, format_dim, of_atom
from tracegrad.dims import Expr as DimExpr
from tracegrad.dtypes import BOOL, F64, I64, DType
from tracegrad.errors import DTypeError
from tracegrad.loops.dim_text import parse_dim
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import (
    Access,
    Accumulator,
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
    Intrinsic,
    Kernel,
    Let,
    Load,
    LoopTag,
    Operand,
    Param,
    Reduce,
    Select,
    Stmt,
    Store,
    Update,
    Var,
)
from tracegrad.loops.scan import Scanner

TAGS = {t.value: t for t in LoopTag}
SIZES: dict[str, DimExpr] = {format_dim(GROWN): GROWN}  # names that stand everywhere
NUMBER = r"-?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?)"


def parse_kernel(text: str, intrinsics: Mapping[str, Intrinsic]) -> Kernel:
    """The kernel that `print_kernel` printed; `intrinsics` are found by name.

    Raises ParseError with line and column.
    """
    reader = KernelReader(text, intrinsics)
    kernel = reader.kernel()
    reader.end()
    return kernel


class KernelReader(Scanner):
    """Reads statements; `scalars`, `buffers` and `symbols` are what is in scope."""

    def __init__(self, text: str, intrinsics: Mapping[str, Intrinsic]) -> None:
        super().__init__(text)
        self.intrinsics = intrinsics
        self.scalars: dict[str, DType] = {}
        self.buffers: dict[str, DType] = {}
        self.symbols: dict[str, DimExpr] = dict(SIZES)

    # -- pieces

    def dtype(self) -> DType:
        word = self.name()
        try:
            return dtypes.parse(word)
        except DTypeError as e:
            raise self.fail(str(e)) from None

    def dim(self, stops: str) -> Dim:
        text = self.raw_until(stops)
        try:
            return parse_dim(text, self.symbols)
        except KeyError as e:
            raise self.fail(f"{e.args[0]} is not in scope in {text!r}") from None
        except ValueError as e:
            raise self.fail(str(e)) from None

    def bracketed(self) -> Dim:
        self.expect("[")
        d = self.dim("]")
        self.expect("]")
        return d

    def range(self, name: str) -> Symbol | None:
        found = self.match(r"\[(-?\d+)?\.\.(-?\d+)?\]")
        if not found:
            return None
        lo, hi = (None if g is None else int(g) for g in found.groups()[1:])
        return Symbol(name, lo, hi)

    # -- expressions

    def expr(self) -> Expr:
        if self.skip("%"):
            name = self.name()
            if name not in self.scalars:
                raise self.fail(f"%{name} is not in scope")
            return Var(name, self.scalars[name])
        found = self.match(NUMBER + r"(?![\w.])|true\b|false\b")
        if found:
            return self.const(found.group(1))
        own = self.skip("@")
        word = self.name()
        if word == "load" and not own:
            buffer = self.local()
            return Load(buffer, self.bracketed(), self.buffer_dtype(buffer))
        self.expect("(")
        if word == "index" and not own:
            e: Expr = Index(self.dim(")"))
            self.expect(")")
            return e
        args = self.args()
        if own or word not in ("select", "cast"):
            return self.apply(word, args)
        if word == "select" and len(args) == 3:
            return Select(*args)
        if word == "cast" and len(args) == 1:
            self.expect(":")
            return Cast(args[0], self.dtype())
        raise self.fail(f"{word} does not take {len(args)} arguments")

    def args(self) -> tuple[Expr, ...]:
        args: list[Expr] = []
        while not self.skip(")"):
            if args:
                self.expect(",")
            args.append(self.expr())
        return tuple(args)

    def apply(self, word: str, args: tuple[Expr, ...]) -> Expr:
        fn = self.intrinsics.get(word)
        if fn is None:
            raise self.fail(f"unknown function {word}")
        if self.skip(":"):
            return Apply(fn, args, self.dtype())
        if not args:
            raise self.fail(f"{word}() needs its dtype")
        return Apply(fn, args, args[0].dtype)

    def const(self, text: str) -> Const:
        value: bool | int | float
        if text in ("true", "false"):
            value, plain = text == "true", BOOL
        elif re.fullmatch(r"-?\d+", text):
            value, plain = int(text), I64
        else:
            value, plain = float(text), F64
        return Const(value, self.dtype() if self.skip(":") else plain)

    def buffer_dtype(self, name: str) -> DType:
        if name not in self.buffers:
            raise self.fail(f"buffer %{name} is not in scope")
        return self.buffers[name]

    # -- statements

    def block(self) -> tuple[Stmt, ...]:
        """Statements between braces, in a scope of their own."""
        outer = dict(self.scalars), dict(self.buffers), dict(self.symbols)
        body = self.open_block()
        self.scalars, self.buffers, self.symbols = outer
        return body

    def open_block(self) -> tuple[Stmt, ...]:
        self.expect("{")
        body: list[Stmt] = []
        while not self.skip("}"):
            body.append(self.stmt())
        return tuple(body)

    def stmt(self) -> Stmt:
        word = self.name()
        readers: dict[str, Callable[[], Stmt]] = {
            "let": self.let,
            "store": self.store,
            "update": self.update,
            "for": self.loop,
            "alloc": self.alloc,
            "if": self.branch,
            "reduce": self.reduce,
            "check": self.check,
            "gemm": self.gemm,
        }
        read = readers.get(word)
        if read is None:
            raise self.fail(f"unknown statement {word}")
        return read()

    def let(self) -> Let:
        name = self.local()
        self.expect(":")
        dtype = self.dtype()
        shown = self.range(name)
        self.expect("=")
        value = self.expr()
        if value.dtype is not dtype:
            raise self.fail(f"%{name} is {dtype}, its value {value.dtype}")
        self.scalars[name] = dtype
        self.symbols[name] = of_atom(shown or Symbol(name))
        return Let(name, value, self.loc())

    def store(self) -> Store:
        buffer = self.local()
        self.buffer_dtype(buffer)
        index = self.bracketed()
        self.expect("=")
        return Store(buffer, index, self.expr(), self.loc())

    def update(self) -> Update:
        buffer = self.local()
        self.buffer_dtype(buffer)
        return Update(buffer, self.bracketed(), self.combine(), self.expr(), self.loc())

    def combine(self) -> Combine:
        word = self.name()
        try:
            return Combine(word)
        except ValueError:
            raise self.fail(f"unknown combination {word}") from None

    def alloc(self) -> Alloc:
        name = self.local()
        self.expect(":")
        dtype = self.dtype()
        self.buffers[name] = dtype
        return Alloc(name, dtype, self.bracketed(), self.loc())

    def header(self, stops: str) -> tuple[Symbol, Dim]:
        """``name [lo..hi] in extent``; brings the variable into scope."""
        name = self.name()
        shown = self.range(name)
        self.expect("in")
        extent = self.dim(stops)
        var = shown or counter(name, extent)
        self.symbols[name] = of_atom(var)
        self.scalars[name] = I64
        return var, extent

    def loop(self) -> For:
        outer = dict(self.scalars), dict(self.symbols)
        var, extent = self.header(",")
        self.expect(",")
        word = self.name()
        if word not in TAGS:
            raise self.fail(f"unknown loop tag {word}")
        loc = self.loc()
        body = self.block()
        self.scalars, self.symbols = outer
        return For(var, extent, TAGS[word], body, loc)

    def branch(self) -> If:
        cond = self.expr()
        loc = self.loc()
        then = self.block()
        other = self.block() if self.skip("else") else ()
        return If(cond, then, other, loc)

    def reduce(self) -> Reduce:
        outer = dict(self.scalars), dict(self.buffers), dict(self.symbols)
        loops: list[tuple[Symbol, Dim]] = []
        self.expect("over")
        while not self.match(r"(?=\{)"):
            if loops:
                self.expect(",")
            loops.append(self.header(",{"))
        body = self.open_block()
        self.expect("yield")
        accs = [self.accumulator()]
        while self.skip(","):
            accs.append(self.accumulator())
        self.scalars, self.buffers, self.symbols = outer
        for acc in accs:
            self.scalars[acc.name] = acc.dtype
            self.symbols[acc.name] = of_atom(Symbol(acc.name))
        return Reduce(tuple(accs), tuple(loops), body, self.loc())

    def accumulator(self) -> Accumulator:
        name = self.local()
        self.expect(":")
        dtype = self.dtype()
        self.expect("=")
        combine = self.combine()
        self.expect("from")
        init = self.expr()
        self.expect("of")
        value = self.expr()
        if value.dtype is not dtype:
            raise self.fail(f"%{name} is {dtype}, its value {value.dtype}")
        return Accumulator(name, combine, init, value)

    def check(self) -> Check:
        cond = self.expr()
        self.expect("else")
        code = self.integer()
        self.expect("with")
        return Check(cond, code, self.expr(), self.loc())

    def gemm(self) -> Gemm:
        dtype = self.dtype()
        self.expect("(")
        m = self.dim(",")
        self.expect(",")
        n = self.dim(",")
        self.expect(",")
        k = self.dim(")")
        self.expect(")")
        c = self.operand()
        accumulate = self.skip("+=")
        if not accumulate:
            self.expect("=")
        a = self.operand()
        self.expect("@")
        return Gemm(m, n, k, a, self.operand(), c, dtype, accumulate, self.loc())

    def operand(self) -> Operand:
        buffer = self.local()
        self.buffer_dtype(buffer)
        self.expect("[")
        offset = self.dim(";")
        self.expect(";")
        row = self.dim(";")
        self.expect(";")
        col = self.dim("]")
        self.expect("]")
        return Operand(buffer, offset, row, col)

    # -- kernels

    def kernel(self) -> Kernel:
        self.scalars, self.buffers, self.symbols = {}, {}, dict(SIZES)
        self.expect("kernel")
        self.expect("@")
        name = self.name()
        self.expect("(")
        params: list[Param] = []
        while not self.skip(")"):
            if params:
                self.expect(",")
            access = Access(self.take("inout|in|out", "in, out or inout"))
            local = self.local()
            self.expect(":")
            dtype = self.dtype()
            self.buffers[local] = dtype
            params.append(Param(local, dtype, self.bracketed(), access))
        indices = self.kernel_indices()
        loc = self.loc()
        body = self.block()
        self.scalars, self.buffers, self.symbols = {}, {}, dict(SIZES)
        return Kernel(name, tuple(params), body, indices=indices, loc=loc)

    def kernel_indices(self) -> tuple[Symbol, ...]:
        """``[i [0..3], j]`` or nothing; brings them into scope."""
        found: list[Symbol] = []
        if self.skip("["):
            while not self.skip("]"):
                if found:
                    self.expect(",")
                name = self.name()
                found.append(self.range(name) or Symbol(name))
        for s in found:
            self.symbols[s.name] = of_atom(s)
            self.scalars[s.name] = I64
        return tuple(found)
