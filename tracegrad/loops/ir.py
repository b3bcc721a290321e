"""The loop IR: kernels of scalar statements over flat buffers.  The whole grammar is this file.

    Kernel  = name, params, indices, body
    Stmt    = For | Let | Store | Update | If | Alloc | Reduce | Check | Gemm
    Expr    = Const | Var | Index | Load | Apply | Select | Cast        each with its dtype

Buffers are flat runs of elements; every index is a `Dim` over loop variables and over integers
bound by `Let` (a `Symbol` of the same name).  Names of loop variables, lets, accumulators and
local buffers are unique within a kernel.  Nothing here knows of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tracegrad.dims import Dim, Symbol
from tracegrad.dtypes import BOOL, I64, DType
from tracegrad.source import SourceLoc


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A scalar function, declared by the op that owns it.

    `c` is its C spelling: ``"{0} + {1}"`` with `precedence` set for infix and prefix operators,
    otherwise a call such as ``"sin{f}({0})"``.  Placeholders: ``{0} {1} ..`` arguments, ``{f}``
    libm's suffix (``f`` for f32), ``{t}`` the dtype name of the first argument (``f64``).
    `helpers` names the helper functions (codegen/templates/helpers.h.j2) that the spelling
    calls, also with ``{t}``.  `numpy` computes the same on NumPy scalars and arrays.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    c: str
    precedence: int | None = None
    helpers: tuple[str, ...] = ()


class LoopTag(Enum):
    """How the iterations of a `For` may run."""

    SERIAL = "serial"  # in order
    PARALLEL = "parallel"  # in any order, no iteration reads what another writes
    VECTOR = "vector"  # as PARALLEL, and worth a SIMD loop
    UNROLL = "unroll"  # in order, repeated in the text


class Combine(Enum):
    """Associative combinations for `Reduce` and `Update`."""

    ADD = "add"
    MUL = "mul"
    MAX = "max"  # NaN wins
    MIN = "min"  # NaN wins
    AND = "and"
    OR = "or"


# ------------------------------------------------------------------------------ expressions


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal; `value` is a Python bool, int or float.

    Equal when the same text: 0.0 and -0.0 differ, NaN equals NaN (kernels are shared by
    equality).
    """

    value: bool | int | float
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const)
            and self.dtype is other.dtype
            and repr(self.value) == repr(other.value)
        )

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype.name))


@dataclass(frozen=True, slots=True)
class Var:
    """A scalar bound by `Let`, by a `Reduce` or by a loop (then i64)."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """The value of an index expression, as i64."""

    dim: Dim
    dtype: DType = I64


@dataclass(frozen=True, slots=True)
class Load:
    """``buffer[index]``, index in elements."""

    buffer: str
    index: Dim
    dtype: DType


@dataclass(frozen=True, slots=True)
class Apply:
    fn: Intrinsic
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Select:
    """``then if cond else other``; both sides are evaluated, neither may trap."""

    cond: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion as NumPy's astype; float to integer is defined for every value."""

    value: Expr
    dtype: DType


Expr = Const | Var | Index | Load | Apply | Select | Cast


# ------------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class For:
    """``for var in 0..extent-1``; `var` is a Symbol whose range is that."""

    var: Symbol
    extent: Dim
    tag: LoopTag
    body: tuple[Stmt, ...]
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expr
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``."""

    buffer: str
    index: Dim
    value: Expr
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Update:
    """``buffer[index] = combine(buffer[index], value)``.

    Inside PARALLEL loops several iterations may update one element; they are then combined in
    some order (printers must make that safe, or make the loop serial).
    """

    buffer: str
    index: Dim
    combine: Combine
    value: Expr
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Alloc:
    """A local buffer of `size` elements, uninitialised, alive to the end of the block."""

    name: str
    dtype: DType
    size: Dim
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One result of a `Reduce`; `init` is the value of an empty reduction."""

    name: str
    combine: Combine
    init: Expr
    value: Expr  # evaluated at the end of each iteration's body

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """Accumulate over a rectangular domain, in any association; binds the accumulators' names.

    `loops` are (variable, extent) pairs, outermost first.  `body` runs before `value` of each
    accumulator is evaluated; it may hold Lets and Stores, which behave as in a PARALLEL loop.
    """

    accs: tuple[Accumulator, ...]
    loops: tuple[tuple[Symbol, Dim], ...]
    body: tuple[Stmt, ...] = ()
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """Leave the kernel with status `code` (> 0) unless `cond` holds.

    `value` is the offending integer, reported to Python beside the code.
    """

    cond: Expr
    code: int
    value: Expr
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix inside a flat buffer: element (i, j) is at ``offset + i*row + j*col``."""

    buffer: str
    offset: Dim
    row: Dim
    col: Dim


@dataclass(frozen=True, slots=True)
class Gemm:
    """``c[m, n] = a[m, k] @ b[k, n]`` (`accumulate` adds to c); c overlaps neither operand."""

    m: Dim
    n: Dim
    k: Dim
    a: Operand
    b: Operand
    c: Operand
    dtype: DType
    accumulate: bool = False
    loc: SourceLoc | None = field(default=None, compare=False)


Stmt = For | Let | Store | Update | If | Alloc | Reduce | Check | Gemm


# ---------------------------------------------------------------------------------- kernels


class Access(Enum):
    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Param:
    """A flat buffer of `size` elements that the caller passes."""

    name: str
    dtype: DType
    size: Dim
    access: Access


@dataclass(frozen=True, slots=True)
class Kernel:
    """One loop nest or a short sequence of them; becomes one C function.

    `indices` are integers that each launch passes by value after the buffers.  The body uses
    them as it uses loop variables; their ranges must hold for every launch.
    """

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    indices: tuple[Symbol, ...] = field(default=(), kw_only=True)
    loc: SourceLoc | None = field(default=None, compare=False)


TRUE = Const(True, BOOL)
