"""`GraphBuilder`: the one mutable object of the tensor IR.  Infers types as nodes are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, TracegradError
from tracegrad.graph.ir import (
    AliasReport,
    Graph,
    Literal,
    Node,
    Operand,
    Stage,
    Value,
)
from tracegrad.graph.op import Attrs, OpDef, Point
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType


class GraphBuilder:
    """Collects nodes of one graph; used by the tracer and by every pass, then finished once.

    `loc` and `grad` are stamped on the nodes made; set them with `at` (passes give a derived
    node the place of its cause).
    """

    def __init__(self, name: str, stage: Stage = Stage.FUNCTIONAL) -> None:
        self.name = name
        self.stage = stage
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.tracked: list[bool] = []
        self.loc: SourceLoc | None = None
        self.grad = True
        self.inference = False
        self.storages = 0

    def input(
        self, type: TensorType, hint: str, *, tracked: bool = False, loc: SourceLoc | None = None
    ) -> Value:
        value = Value(type, hint, self._storage(), loc)
        self.inputs.append(value)
        self.tracked.append(tracked)
        return value

    def emit(
        self,
        op: OpDef,
        operands: Sequence[Operand | bool | int | float],
        attrs: Attrs | None = None,
        *,
        hint: str = "",
        regions: tuple[Graph, ...] = (),
        target: Value | None = None,
        hints: Sequence[str] = (),
    ) -> Any:
        """Add a node; returns its result, a tuple of several, or None when it has a target.

        `hints` name several results one by one.
        """
        xs: tuple[Operand, ...] = tuple(operands)  # type: ignore[arg-type]
        for x in xs:
            if not isinstance(x, (Value, Literal)):
                xs = literals(xs)
                break
        if attrs is None:
            attrs = op.attrs()
        if (
            target is None
            and xs
            and self.stage is Stage.FUNCTIONAL
            and isinstance(op.lowering, Point)
            and op.lowering.folds
            and all(isinstance(x, Literal) for x in xs)
        ):
            return fold(op, attrs, xs)  # type: ignore[arg-type]
        if op.pairs is None and not regions:
            check_real(op, xs, self.loc)
        try:
            types = op.infer(attrs, *[x.type for x in xs])
        except TracegradError as e:
            raise e.at(self.loc) from None
        if target is not None:
            assert isinstance(types, TensorType), "a node with a target has one value"
            assert types == target.type, f"{op.name}: writes {types} through {target.type}"
            self.nodes.append(
                Node(op, xs, attrs, (), regions, target, self.grad, self.loc, self.inference)
            )
            return None
        if isinstance(types, TensorType):
            name = hint or (hints[0] if hints else op.name)
            value = Value(types, name, self._storage(), self.loc)
            self.nodes.append(
                Node(op, xs, attrs, (value,), regions, None, self.grad, self.loc, self.inference)
            )
            return value
        names = hints or (hint or op.name,) * len(types)
        values = tuple(
            Value(t, name, self._storage(), self.loc) for t, name in zip(types, names, strict=True)
        )
        self.nodes.append(
            Node(op, xs, attrs, values, regions, None, self.grad, self.loc, self.inference)
        )
        return values

    def alias(
        self, op: OpDef, base: Value, attrs: Attrs, hint: str = "", others: tuple[Value, ...] = ()
    ) -> Value:
        """Add a node whose result is a handle into the storage of `base` (traced stage);
        `others` are further operands."""
        xs = (base, *others)
        type_ = op.infer(attrs, *[x.type for x in xs])
        assert isinstance(type_, TensorType)
        value = Value(type_, hint or base.hint, base.storage, self.loc)
        self.nodes.append(
            Node(op, xs, attrs, (value,), (), None, self.grad, self.loc, self.inference)
        )
        return value

    def append(self, node: Node) -> None:
        """Add a finished node (passes that keep nodes as they are)."""
        self.nodes.append(node)

    @contextmanager
    def at(self, loc: SourceLoc | None) -> Iterator[None]:
        """Nodes made inside have place `loc`."""
        before, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = before

    def finish(self, outputs: Sequence[Operand], alias: AliasReport | None = None) -> Graph:
        return Graph(
            self.name,
            self.stage,
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(outputs),
            tuple(self.tracked),
            alias,
        )

    def _storage(self) -> int | None:
        if self.stage is Stage.FUNCTIONAL:
            return None
        self.storages += 1
        return self.storages - 1


def check_real(op: OpDef, xs: Sequence[Operand], loc: SourceLoc | None) -> None:
    """Raise DTypeError if an operand is complex."""
    for x in xs:
        if x.type.dtype.kind == "c":
            raise refused(op, x.type.dtype).at(loc)


def refused(op: OpDef, dtype: DType) -> DTypeError:
    """The error for an op that complex numbers do not have."""
    return DTypeError(f"{op.name}: not defined for {dtype.np}", remedy="Work on x.real and x.imag.")


def fold(op: OpDef, attrs: Attrs, xs: Sequence[Literal]) -> Literal:
    """A pointwise op on literals is a literal (each may stand for a whole constant tensor)."""
    out = np.asarray(op.reference(attrs, *[np.asarray(x.value, x.dtype.np) for x in xs]))
    return Literal(out.item(), dtypes.of(out.dtype))


def literals(operands: Sequence[Operand | bool | int | float]) -> tuple[Operand, ...]:
    """Operands with Python numbers made `Literal`s of the first tensor operand's dtype."""
    typed = [x for x in operands if isinstance(x, (Value, Literal))]
    if not typed:
        raise DTypeError("an op needs at least one typed operand")
    dtype = typed[0].dtype
    return tuple(x if isinstance(x, (Value, Literal)) else Literal(x, dtype) for x in operands)
