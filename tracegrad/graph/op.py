"""`OpDef`: everything about an op, declared once; the registry of all of them.

An op is declared in one file under `tracegrad/ops/` with its shape rule, derivative, NumPy
reference, lowering, traits and samples.  Passes ask for traits and forms, never for names.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.loops.ir import Combine, Expr, Intrinsic
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of the typed attributes of an op: a frozen dataclass of ints, tuples, dtypes, views,
    literals and enums, which text IR prints and parses by its annotations."""


class Trait(Enum):
    COMMUTATIVE = auto()
    CHEAP = auto()  # recomputing costs less than storing
    EXPENSIVE = auto()  # never recomputed, never inlined twice
    VIEW = auto()  # reads its operand through attrs.view, does no arithmetic
    UPDATES_FIRST = auto()  # result is operand 0 with a part replaced; may run in place on it
    READS_ONCE = auto()  # reads each element of its other operands once, in index order
    ZERO_PRESERVING = auto()  # f(0) == 0
    CHECKED = auto()  # may stop the call with an error at run time
    HIDES = auto()  # its derivative is not that of its values, on purpose
    EFFECT = auto()  # kept even when its result is not used (debug.print)
    TRACED_ONLY = auto()  # legal only before functionalisation
    MULTI_OUTPUT_VIEW = auto()  # its results are several views of one operand (split, unbind)


# ------------------------------------------------------------------------------ derivatives

# (builder, t, out, *operands) -> the operand's partial derivative applied to t.  Because the
# Jacobian of an elementwise op is diagonal, one function serves vjp and jvp.
Partial = Callable[..., Operand]


@dataclass(frozen=True, slots=True)
class Partials:
    """Derivative of an elementwise op: one `Partial` an operand, None where there is none.

    Write masks as ``where(mask, t, 0)`` before any product, so that 0*inf cannot arise.
    """

    of: tuple[Partial | None, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """Derivative of an op that is linear in all its float operands jointly.

    ``transpose(b, attrs, ct, xs) -> cotangents``, one an operand (None where there is none);
    `xs` are the operands, used for their types only.  jvp applies the op to the tangents.
    """

    transpose: Callable[..., tuple[Operand | None, ...]]


@dataclass(frozen=True, slots=True)
class Rules:
    """Derivative given both ways.

    ``vjp(b, attrs, cts, outs, xs) -> one cotangent an operand`` (None: zero);
    ``jvp(b, attrs, ts, outs, xs) -> one tangent a result``, where entries of `cts` and `ts`
    are None when zero.
    """

    vjp: Callable[..., tuple[Operand | None, ...]]
    jvp: Callable[..., tuple[Operand | None, ...]]


@dataclass(frozen=True, slots=True)
class NoGradient:
    """No derivative, because of `reason`: integer or boolean results, or no operands."""

    reason: str


@dataclass(frozen=True, slots=True)
class ByRegions:
    """Derivative made of the regions that the node holds (`reason`: how); `autodiff` has a rule
    for each such op."""

    reason: str


Derivative = Partials | Linear | Rules | NoGradient | ByRegions


# --------------------------------------------------------------------------------- lowering


class Source(Protocol):
    """An operand as a lowering sees it: a function from multi-index to scalar expression."""

    type: TensorType

    def __call__(self, index: Sequence[Dim]) -> Expr: ...


@dataclass(frozen=True, slots=True)
class Point:
    """Each element of the result is a scalar expression of its index; fuses with neighbours.

    ``at(lb, attrs, out_type, index, *sources) -> Expr``; `folds`: of literal operands alone the
    result is a literal too, whatever shape they stand for.  `same_index`: each operand is read
    at the result's own index and nowhere else.
    """

    at: Callable[..., Expr]
    folds: bool = True
    same_index: bool = True


@dataclass(frozen=True, slots=True)
class Reduction:
    """``result = combine`` over ``attrs.axes`` (dropped) of operand 0; `init(dtype)` if empty."""

    combine: Combine
    init: Callable[[DType], bool | int | float]


@dataclass(frozen=True, slots=True)
class Nest:
    """Own loops: ``emit(lb, attrs, outs, *sources)``.

    `outs` are `Target`s: ``out.store(index, expr)``, ``out.load(index)``,
    ``out.update(index, combine, expr)``, ``out.type``, ``out.buffer`` (flat, row-major).
    With Trait.UPDATES_FIRST the out buffer already holds operand 0 when `emit` runs, and the
    source of operand 0 must not be read (read ``out.load``).
    `matrix` ops call ``source.buffer`` (the dense buffer of a materialised operand).
    """

    emit: Callable[..., None]


@dataclass(frozen=True, slots=True)
class Decompose:
    """In terms of other ops: ``build(b, attrs, *operands) -> Operand``; expanded when traced."""

    build: Callable[..., Operand]


@dataclass(frozen=True, slots=True)
class Special:
    """Handled by name of a structure, not lowered: traced-only ops, control flow, transforms."""

    reason: str


Lowering = Point | Reduction | Nest | Decompose | Special


# ------------------------------------------------------------------------------------ tests


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands (arrays, or `Literal`s) and attributes for the registry's tests."""

    operands: tuple[np.ndarray | Literal, ...]
    attrs: Attrs = field(default_factory=Attrs)


# ---------------------------------------------------------------------------------- the op


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OpDef:
    """One op.

    name       as printed in text IR
    attrs      its attribute class
    infer      ``(attrs, *operand types) -> TensorType | tuple of them``; raises ShapeError or
               DTypeError without a place (the builder adds it)
    reference  ``(attrs, *arrays) -> array | tuple``: the meaning, in NumPy
    derivative one of the five forms
    lowering   how it becomes loops
    samples    ``(rng) -> iterable of Sample`` for the registry's tests
    pairs      how it works on complex numbers, in terms of ops on their real and imaginary
               parts (`ops.pairs`); None: complex operands are refused
    intrinsic  the scalar function of an elementwise op
    by_kind    the scalar functions that replace it for some kinds of dtype (``b i u f``)
    numpy      NumPy functions that mean this op (dispatch keys), first one canonical
    methods    method names on both faces that mean this op with the array as operand 0;
               an in-place twin ``name_`` is derived where `inplace` holds
    tg         name in the `tg` module, or empty
    """

    name: str
    attrs: type[Any] = Attrs
    infer: Callable[..., TensorType | tuple[TensorType, ...]]
    reference: Callable[..., Any]
    derivative: Derivative
    lowering: Lowering
    traits: frozenset[Trait] = frozenset()
    samples: Callable[[np.random.Generator], Sequence[Sample]]
    pairs: Callable[..., Any] | None = None
    intrinsic: Intrinsic | None = None
    by_kind: Mapping[str, Intrinsic] = field(default_factory=dict)
    numpy: tuple[Callable[..., Any], ...] = ()
    methods: tuple[str, ...] = ()
    inplace: bool = False
    tg: str = ""
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(
        self, b: GraphBuilder, *operands: Operand | bool | int | float, **attrs: Any
    ) -> Any:
        """Emit this op with builder `b`; Python numbers take the dtype of the first operand.

        Returns the single result, or a tuple of several.
        """
        return b.emit(self, operands, self.attrs(**attrs))

    def has(self, trait: Trait) -> bool:
        return trait in self.traits


class Registry:
    """All ops by name; filled while `tracegrad.ops` is imported, at the latest when somebody
    first looks, and fixed afterwards."""

    def __init__(self) -> None:
        self._ops: dict[str, OpDef] = {}
        self._is_full = False

    def _all(self) -> dict[str, OpDef]:
        if not self._is_full:
            importlib.import_module("tracegrad.ops")
            self._is_full = True
        return self._ops

    def add(self, op: OpDef) -> OpDef:
        if op.name in self._ops:
            raise ValueError(f"op {op.name} is declared twice")
        self._ops[op.name] = op
        return op

    def __getitem__(self, name: str) -> OpDef:
        return self._all()[name]

    def __contains__(self, name: str) -> bool:
        return name in self._all()

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._all().values())

    def intrinsics(self) -> dict[str, Intrinsic]:
        """Every scalar function that lowerings use, by name."""
        found: dict[str, Intrinsic] = {}
        for op in self:
            for fn in (op.intrinsic, *op.by_kind.values()):
                if fn is not None and found.setdefault(fn.name, fn) is not fn:
                    raise ValueError(f"two intrinsics are named {fn.name}")
        return found


REGISTRY = Registry()


def declare(**fields: Any) -> OpDef:
    """Make an `OpDef` and add it to the registry."""
    return REGISTRY.add(OpDef(**fields))


__all__ = [
    "Attrs",
    "ByRegions",
    "Decompose",
    "Derivative",
    "Linear",
    "Literal",
    "Lowering",
    "Nest",
    "NoGradient",
    "OpDef",
    "Operand",
    "Partial",
    "Partials",
    "Point",
    "REGISTRY",
    "Reduction",
    "Registry",
    "Rules",
    "Sample",
    "Source",
    "Special",
    "Trait",
    "Value",
    "declare",
]
