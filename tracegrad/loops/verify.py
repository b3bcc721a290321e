"""`verify_kernel`, `verify_program`: the invariants of loop IR; tests check after each pass."""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.dims import Dim, Symbol, bounds, span_of, symbols
from tracegrad.dtypes import BOOL, I64, DType
from tracegrad.errors import VerifyError
from tracegrad.loops.grown import is_grown
from tracegrad.loops.ir import (
    Access,
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
from tracegrad.loops.program import Buffer, Place, Program
from tracegrad.loops.transform import statements
from tracegrad.loops.verify_steps import verify_steps

ARENA_ALIGN = 64


def verify_kernel(kernel: Kernel) -> None:
    """Scoping, unique names, dtypes, use of params, and indices that are certainly outside.

    Raises VerifyError with the kernel's name and the guilty statement.
    """
    _Verifier(kernel).run()


class _Verifier:
    """`scalars` and `buffers` hold what is in scope; `used` every name ever defined."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.scalars: dict[str, DType] = {}
        self.ranges: dict[str, Symbol] = {}
        self.counters: set[str] = set()
        self.buffers: dict[str, tuple[DType, Dim]] = {}
        self.access = {p.name: p.access for p in kernel.params}
        self.written: set[str] = set()
        self.used: set[str] = set()
        self.guarded = 0
        self.current: object = kernel.name

    def fail(self, why: str) -> VerifyError:
        loc = getattr(self.current, "loc", None)
        return VerifyError(f"kernel {self.kernel.name}: {why}\n  in {self.current!r}", loc=loc)

    def run(self) -> None:
        for p in self.kernel.params:
            self.define(p.name)
            self.buffers[p.name] = (p.dtype, p.size)
            if not is_grown(p.size):
                self.index(p.size)
        for s in self.kernel.indices:
            self.define(s.name)
            self.scalars[s.name] = I64
            self.ranges[s.name] = s
            # An empty range is that of a loop that never runs: no access can be wrong.
            lo, hi = span_of(s)
            self.guarded += lo is not None and hi is not None and lo > hi
        self.block(self.kernel.body)
        if self.has_checks():
            last = self.kernel.params[-1] if self.kernel.params else None
            if last is None or last.name != "detail" or last.dtype is not I64:
                raise self.fail("checks need a last param detail: i64[1]")

    def has_checks(self) -> bool:
        return any(isinstance(s, Check) for s in statements(self.kernel.body))

    def define(self, name: str) -> None:
        if not all(part.isidentifier() for part in name.split(".")):
            raise self.fail(f"{name!r} is not a name")
        if name in self.used:
            raise self.fail(f"{name} is defined twice")
        self.used.add(name)

    # -- indices

    def index(self, d: Dim) -> None:
        for s in symbols(d):
            if s.name not in self.scalars:
                raise self.fail(f"index {d} uses {s.name}, which is not in scope")
            if not self.scalars[s.name].is_integer:
                raise self.fail(f"index {d} uses {s.name}, which is no integer")
            if self.ranges.setdefault(s.name, s) != s:
                raise self.fail(f"{s.name} is used with two different ranges")

    def element(self, buffer: str, index: Dim) -> DType:
        """Check one access; returns the dtype of the buffer."""
        if buffer not in self.buffers:
            raise self.fail(f"buffer {buffer} is not in scope")
        self.index(index)
        dtype, size = self.buffers[buffer]
        lo, hi = bounds(index)
        if not isinstance(size, int) or self.guarded:
            return dtype
        exact = self.is_attained(index)
        below = (hi is not None and hi < 0) or (exact and lo is not None and lo < 0)
        above = (lo is not None and lo >= size) or (exact and hi is not None and hi >= size)
        if below or above:
            raise self.fail(f"index {index} of {buffer} is outside 0..{size - 1}")
        return dtype

    def is_attained(self, d: Dim) -> bool:
        """Whether both bounds of `d` occur: it is affine in counters of loops that run."""
        return isinstance(d, int) or all(
            len(m) == 0 or (len(m) == 1 and isinstance(m[0], Symbol) and m[0].name in self.counters)
            for m, _ in d.terms
        )

    # -- expressions

    def expr(self, e: Expr) -> DType:
        match e:
            case Const(value, dtype):
                self.constant(value, dtype)
            case Var(name, dtype):
                if self.scalars.get(name) is not dtype:
                    raise self.fail(f"{name}: {dtype} is not in scope with that dtype")
            case Index(dim, dtype):
                self.index(dim)
                if dtype is not I64:
                    raise self.fail("an Index is i64")
            case Load(buffer, index, dtype):
                if self.element(buffer, index) is not dtype:
                    raise self.fail(f"load of {buffer} as {dtype}")
                self.read(buffer)
            case Apply(fn, args):
                for a in args:
                    self.expr(a)
                if len(args) != fn.arity:
                    raise self.fail(f"{fn.name} takes {fn.arity} arguments, not {len(args)}")
            case Select(cond, then, other):
                if self.expr(cond) is not BOOL or self.expr(then) is not self.expr(other):
                    raise self.fail("select needs a bool and two values of one dtype")
            case Cast(value):
                self.expr(value)
            case _:
                raise self.fail(f"not an expression: {e!r}")
        return e.dtype

    def constant(self, value: bool | int | float, dtype: DType) -> None:
        kinds = (bool,) if dtype.is_bool else (int,) if dtype.is_integer else (int, float)
        if not isinstance(value, kinds):
            raise self.fail(f"{value!r} is no constant of {dtype}")
        if dtype.is_integer:
            span = (
                (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
                if dtype.kind == "i"
                else (0, (1 << dtype.bits) - 1)
            )
            if not span[0] <= value <= span[1]:
                raise self.fail(f"{value} does not fit {dtype}")

    def read(self, buffer: str) -> None:
        if self.access.get(buffer) is Access.OUT and buffer not in self.written:
            raise self.fail(f"{buffer} is an out param and read before any write")

    def write(self, buffer: str) -> None:
        if self.access.get(buffer) is Access.IN:
            raise self.fail(f"{buffer} is an in param and written")
        self.written.add(buffer)

    # -- statements

    def block(self, body: Sequence[Stmt]) -> None:
        outer = (dict(self.scalars), dict(self.buffers), self.current)
        for stmt in body:
            self.current = stmt
            self.stmt(stmt)
        self.scalars, self.buffers, self.current = outer

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Let(name, value):
                dtype = self.expr(value)
                self.define(name)
                self.scalars[name] = dtype
            case Store(buffer, index, value) | Update(buffer, index, _, value):
                if self.expr(value) is not self.element(buffer, index):
                    raise self.fail(f"{value.dtype} stored into {buffer}")
                if isinstance(stmt, Update):
                    self.read(buffer)
                self.write(buffer)
            case If(cond, then, other):
                if self.expr(cond) is not BOOL:
                    raise self.fail("the condition is not bool")
                self.guarded += 1
                self.block(then)
                self.block(other)
                self.guarded -= 1
            case Alloc(name, dtype, size):
                self.index(size)
                self.define(name)
                self.buffers[name] = (dtype, size)
            case For():
                self.loop(stmt)
            case Reduce():
                self.reduce(stmt)
            case Check(cond, code, value):
                if self.expr(cond) is not BOOL or not self.expr(value).is_integer or code < 1:
                    raise self.fail("a check has a bool, an integer and a positive code")
            case Gemm():
                self.gemm(stmt)
            case _:
                raise self.fail("not a statement")

    def counter(self, var: Symbol, extent: Dim) -> None:
        """Bring a loop variable into scope."""
        self.index(extent)
        self.define(var.name)
        if isinstance(extent, int) and (var.lo, var.hi) != (0, extent - 1):
            raise self.fail(f"{var.name} has range {var.lo}..{var.hi}, extent {extent}")
        self.scalars[var.name] = I64
        self.ranges[var.name] = var
        if isinstance(extent, int) and extent > 0:
            self.counters.add(var.name)
        else:
            self.guarded += 1

    def loop(self, stmt: For) -> None:
        if stmt.tag is LoopTag.UNROLL and not isinstance(stmt.extent, int):
            raise self.fail("an unrolled loop needs a known extent")
        outer = self.guarded
        self.counter(stmt.var, stmt.extent)
        self.block(stmt.body)
        del self.scalars[stmt.var.name]
        self.guarded = outer

    def reduce(self, stmt: Reduce) -> None:
        for acc in stmt.accs:
            self.expr(acc.init)
        outer = self.guarded
        inside, buffers = dict(self.scalars), dict(self.buffers)
        for var, extent in stmt.loops:
            self.counter(var, extent)
        for inner in stmt.body:
            self.current = inner
            self.stmt(inner)
        self.current = stmt
        for acc in stmt.accs:
            if self.expr(acc.value) is not acc.init.dtype:
                raise self.fail(f"{acc.name} starts as {acc.init.dtype}, adds {acc.value.dtype}")
        self.scalars, self.buffers, self.guarded = inside, buffers, outer
        for acc in stmt.accs:
            self.define(acc.name)
            self.scalars[acc.name] = acc.dtype

    def gemm(self, stmt: Gemm) -> None:
        for d in (stmt.m, stmt.n, stmt.k):
            self.index(d)
        shapes = ((stmt.a, stmt.m, stmt.k), (stmt.b, stmt.k, stmt.n), (stmt.c, stmt.m, stmt.n))
        for op, rows, cols in shapes:
            self.operand(op, rows, cols, stmt.dtype)
        if stmt.c.buffer in (stmt.a.buffer, stmt.b.buffer):
            raise self.fail("the result of a gemm is one of its operands")
        self.read(stmt.a.buffer)
        self.read(stmt.b.buffer)
        if stmt.accumulate:
            self.read(stmt.c.buffer)
        self.write(stmt.c.buffer)

    def operand(self, op: Operand, rows: Dim, cols: Dim, dtype: DType) -> None:
        for d in (op.row, op.col):
            self.index(d)
        if rows == 0 or cols == 0:
            self.index(op.offset)
        elif (
            self.element(op.buffer, op.offset + (rows - 1) * op.row + (cols - 1) * op.col)
            is not dtype
        ):
            raise self.fail(f"gemm of {dtype} reads {op.buffer}")


# ---------------------------------------------------------------------------------- programs


def verify_program(program: Program) -> None:
    """Each kernel, and that launches, buffers, arena and checks fit together."""
    buffers = {b.name: b for b in program.buffers}
    if len(buffers) != len(program.buffers):
        raise VerifyError(f"program {program.name}: two buffers have one name")
    for b in program.buffers:
        _verify_buffer(program, b)
    for kernel in program.kernels():
        verify_kernel(kernel)
    verify_steps(program, buffers)


def _verify_buffer(program: Program, b: Buffer) -> None:
    where = f"program {program.name}: buffer {b.name}"
    if b.place is Place.ARENA:
        if not isinstance(b.size, int) or b.offset % ARENA_ALIGN or b.offset < 0:
            raise VerifyError(f"{where} needs a known size and an aligned offset")
        if b.offset + b.size * b.dtype.nbytes > program.arena_nbytes:
            raise VerifyError(f"{where} leaves the arena of {program.arena_nbytes} bytes")
    if is_grown(b.size) is not (b.place is Place.GROWING):
        raise VerifyError(f"{where} has size {b.size} and is {b.place.value}")
    if b.place is Place.CONSTANT and (
        b.data is None or b.data.size != b.size or b.data.dtype != b.dtype.np
    ):
        raise VerifyError(f"{where} has no data of its size and dtype")
