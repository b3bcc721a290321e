"""The nodes of the eager gradient graph.

A node is held by the tensors it made and by the nodes after it, by nothing else: reference
counting frees it.  An `Edge` names one result of a node; a leaf's results go to the
`AccumulateGrad` that adds into ``.grad``.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tracegrad.eager.program import Apply, Origin, Rule, rule_of
from tracegrad.errors import AutogradError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.graph.storage import Geometry, View
from tracegrad.ops.views import SlicesAttrs, ViewAttrs, as_strided, copy_slices
from tracegrad.source import SourceLoc
from tracegrad.trace.memory import Memory
from tracegrad.types import TensorType

_numbers = itertools.count()


class Edge(NamedTuple):
    """Result `nr` of `node`."""

    node: Node
    nr: int


class Algebra(Protocol):
    """What gradients are made of in one backward pass: arrays, or tensors (``create_graph``)."""

    apply: Apply

    def saved(self, s: Saved, edge: Edge | None) -> Any:
        """A kept value, connected to where it came from."""

    def tensor(self, value: Any) -> Any:
        """`value` as a tensor, for hooks and ``.grad``."""

    def value(self, tensor: Any) -> Any:
        """The reverse of `tensor`."""


class Saved:
    """A value kept for backward: by reference and with the version it had, or as a copy."""

    __slots__ = ("array", "layout", "memory", "version", "view")

    def __init__(
        self, array: np.ndarray, memory: Memory, version: int, view: View, layout: Geometry
    ) -> None:
        self.array = array
        self.memory = memory
        self.version = version
        self.view = view
        self.layout = layout

    def check(self, node: Node) -> None:
        """Raise saved_modified if the memory was written since."""
        if self.memory.version != self.version:
            shape = ", ".join(map(str, self.array.shape))
            raise AutogradError(
                f"a value of shape [{shape}] needed for the gradient of {node.name()} has been "
                f"modified in place: it is at version {self.memory.version}, expected version "
                f"{self.version}",
                kind="saved_modified",
                loc=node.loc,
                notes=(("it was written here:", self.memory.written_at),),
                remedy="Write a clone() of it, or keep the value with clone() before the write.",
            )


def saved_value(x: Any) -> Saved:
    """The contents of a tensor as they are now, by reference."""
    return Saved(x.array, x.memory, x.memory.version, x.alias.view, x.layout)


class Node:
    """One step of the history; `edges` say where the gradient of each operand goes."""

    __slots__ = (
        "__weakref__", "_name", "edges", "hooks", "loc", "outputs", "retains", "sequence",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        edges: tuple[Edge | None, ...],
        outputs: tuple[TensorType, ...],
        loc: SourceLoc | None,
    ) -> None:
        self._name = name
        self.edges = edges
        self.outputs = outputs
        self.loc = loc
        self.sequence = next(_numbers)
        self.hooks: dict[int, dict[int, Callable[..., Any]]] | None = None
        self.retains: dict[int, weakref.ref[Any]] | None = None

    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"<{self._name}>"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """``(node, number of its result)`` for each operand; ``(None, 0)`` without gradient."""
        return tuple((None, 0) if e is None else (e.node, e.nr) for e in self.edges)

    def run(self, algebra: Algebra, cts: Sequence[Any]) -> Sequence[Any]:
        """One gradient (or None) for each edge; `cts` are those of the results."""
        return self.run_as(algebra, cts, lambda nr: Edge(self, nr))

    def run_as(
        self, algebra: Algebra, cts: Sequence[Any], own: Callable[[int], Edge]
    ) -> Sequence[Any]:
        """As `run`; `own` says where a kept result belongs."""
        raise AssertionError(f"{self._name} has no rule")

    def release(self) -> None:
        """Drop what is kept for backward."""

    def hooks_of(self, nr: int) -> dict[int, Callable[..., Any]]:
        if self.hooks is None:
            self.hooks = {}
        return self.hooks.setdefault(nr, {})


class OpNode(Node):
    """An op by its declared derivative; `kept` are the values that the rule reads."""

    __slots__ = ("kept", "op", "released", "rule")

    def __init__(
        self,
        name: str,
        edges: tuple[Edge | None, ...],
        outputs: tuple[TensorType, ...],
        loc: SourceLoc | None,
        op: OpDef,
        rule: Rule,
    ) -> None:
        super().__init__(name, edges, outputs, loc)
        self.op = op
        self.rule = rule
        self.kept: dict[tuple[Origin, int], Saved] = {}
        self.released = False

    def run_as(
        self, algebra: Algebra, cts: Sequence[Any], own: Callable[[int], Edge]
    ) -> Sequence[Any]:
        if self.released:
            raise backward_twice(self)
        values = []
        for origin, k in self.rule.reads:
            if origin is Origin.GRADIENT:
                values.append(cts[k] if cts[k] is not None else zeros(algebra, self.outputs[k]))
                continue
            saved = self.kept[origin, k]
            saved.check(self)
            edge = own(k) if origin is Origin.RESULT else self.edges[k]
            values.append(algebra.saved(saved, edge))
        return self.rule.program.run(algebra.apply, values)

    def release(self) -> None:
        if self.kept:
            self.kept = {}
            self.released = True


def backward_twice(node: Node) -> AutogradError:
    return AutogradError(
        "trying to run backward through the graph a second time: what it kept was freed by the "
        f"first ({node.name()})",
        kind="backward_twice",
        loc=node.loc,
        remedy="Pass retain_graph=True to the first backward.",
    )


def zeros(algebra: Algebra, type_: TensorType) -> Any:
    from tracegrad.ops.create import full

    return algebra.apply(full, (), full.attrs(type_.shape, Literal(0, type_.dtype)))


def view_node(name: str, view: View, base: TensorType, edge: Edge | None, out: TensorType,
              loc: SourceLoc | None) -> OpNode:  # fmt: skip
    """The node of a view: its rule puts the gradient where the elements were read."""
    attrs = ViewAttrs(view)
    rule = rule_of(as_strided, attrs, (base,), (out,), (edge is not None,))
    return OpNode(name, (edge,), (out,), loc, as_strided, rule)


class ViewsNode(Node):
    """Several views that one call returned (`split`, `unbind`): one result a view."""

    __slots__ = ("input", "parts")

    def __init__(
        self, name: str, edge: Edge | None, type_: TensorType, loc: SourceLoc | None
    ) -> None:
        super().__init__(name, (edge,), (), loc)
        self.input = type_
        self.parts: list[tuple[View, Rule]] = []

    def add(self, view: View, out: TensorType) -> int:
        """One more result; returns its number."""
        rule = rule_of(as_strided, ViewAttrs(view), (self.input,), (out,), (True,))
        self.parts.append((view, rule))
        self.outputs = (*self.outputs, out)
        return len(self.parts) - 1

    def run(self, algebra: Algebra, cts: Sequence[Any]) -> Sequence[Any]:
        from tracegrad.ops.arithmetic import add

        total: Any = None
        for (_, rule), ct in zip(self.parts, cts, strict=True):
            if ct is not None:
                (g,) = rule.program.run(algebra.apply, [ct])
                total = g if total is None else algebra.apply(add, (total, g), add.attrs())
        return (total,)


class CopySlices(Node):
    """A write through a view, seen from the base: ``base' = base with f(view of base, ...)``.

    Edge 0 goes to the base's history before the write, the others are those of the wrapped node
    `fn` that are not the written view itself (`own` numbers those).
    """

    __slots__ = ("fn", "own", "shape", "view")

    def __init__(
        self,
        base: Edge | None,
        base_type: TensorType,
        view: View,
        fn: Node,
        own: tuple[int, ...],
    ) -> None:
        rest = tuple(e for k, e in enumerate(fn.edges) if k not in own)
        super().__init__("CopySlices", (base, *rest), (base_type,), fn.loc)
        self.view = view
        self.shape = base_type.shape
        self.fn: Node | None = fn
        self.own = own

    def run(self, algebra: Algebra, cts: Sequence[Any]) -> Sequence[Any]:
        from tracegrad.ops.arithmetic import add

        if self.fn is None:
            raise backward_twice(self)
        attrs, part = ViewAttrs(self.view), cts[0]
        if self.view:
            part = algebra.apply(as_strided, (part,), attrs)
        grads = self.fn.run_as(algebra, [part], self._result)
        base: Any = None
        if self.edges[0] is not None:
            old: Any = None
            for k in self.own:
                g = grads[k]
                if g is not None:
                    old = g if old is None else algebra.apply(add, (old, g), add.attrs())
            if old is None:
                old = Literal(0, self.fn.outputs[0].dtype)
            slices = SlicesAttrs(self.view, self.shape)
            base = algebra.apply(copy_slices, (cts[0], old), slices)
        return (base, *(g for k, g in enumerate(grads) if k not in self.own))

    def _result(self, nr: int) -> Edge:
        """Where the written contents of the view belong: to the base after the write."""
        assert self.fn is not None
        made = view_node("AsStridedBackward0", self.view, self.outputs[0], Edge(self, 0),
                         self.fn.outputs[0], self.loc)  # fmt: skip
        return Edge(made, nr)

    def release(self) -> None:
        self.fn = None


class AccumulateGrad(Node):
    """Adds into the ``.grad`` of a leaf, which holds it weakly."""

    __slots__ = ("variable",)

    def __init__(self, variable: Any) -> None:
        type_ = TensorType(variable.shape, variable.element_type)
        super().__init__("AccumulateGrad", (), (type_,), None)
        self.variable = variable

    def run(self, algebra: Algebra, cts: Sequence[Any]) -> Sequence[Any]:
        if cts[0] is not None:
            self.variable.accumulate(algebra, cts[0])
        return ()


def op_node(
    op: OpDef,
    attrs: Attrs,
    operands: tuple[TensorType | Literal, ...],
    outputs: tuple[TensorType, ...],
    edges: tuple[Edge | None, ...],
    loc: SourceLoc | None,
) -> OpNode:
    """A node for `op`; the caller fills `kept` with what ``rule.reads`` asks for."""
    wanted = tuple(e is not None for e in edges)
    rule = rule_of(op, attrs, operands, outputs, wanted)
    return OpNode(node_name(op.name), edges, outputs, loc, op, rule)


def node_name(name: str) -> str:
    """``MulBackward0`` of ``mul``."""
    return "".join(p.capitalize() for p in name.split("_")) + "Backward0"
