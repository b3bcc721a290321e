"""A group of nodes -> one kernel of loop IR, by each op's lowering.

Lowering pulls: a nest asks for the value of a node at an index, nodes of the same kernel are
bound to scalars once per index, virtual nodes are recomputed at the index they are read with,
stored values are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tracegrad.dims import Dim, Symbol, largest, of_atom, symbols, widened
from tracegrad.dims import Expr as DimExpr
from tracegrad.dtypes import I64
from tracegrad.graph.ir import Literal, Node, Operand, Value
from tracegrad.graph.op import Nest, Point, Reduction, Trait
from tracegrad.graph.storage import View
from tracegrad.loops.builder import LoopBuilder, flat_index
from tracegrad.loops.grown import is_grown
from tracegrad.loops.ir import (
    Access,
    Apply,
    Cast,
    Combine,
    Const,
    Expr,
    Kernel,
    Load,
    Param,
    Select,
    Stmt,
    Var,
)
from tracegrad.loops.transform import definitions, substitute
from tracegrad.loops.transform import indices as indices_of
from tracegrad.schedule.fuse import Fusion, Group, Role
from tracegrad.types import Shape, TensorType


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel, the values whose buffers its params are, and the messages of its checks.

    A param whose value is None is the check detail.
    """

    kernel: Kernel
    args: tuple[Value | None, ...]
    checks: tuple[str, ...]


class KernelWriter:
    """Writes one kernel.  `inline` are the values computed inside it."""

    def __init__(self, fusion: Fusion, inline: set[Value], indices: tuple[str, ...] = ()) -> None:
        self.fusion = fusion
        self.inline = inline
        self.lb = LoopBuilder()
        for name in indices:
            self.lb.fresh(name)  # names of the loops around the kernel
        self.params: dict[Value, tuple[str, Access]] = {}
        self._memo: dict[tuple[Value, tuple[Dim, ...]], tuple[Expr, list[Stmt]]] = {}

    # -- reading

    def source(self, x: Operand) -> PulledSource:
        return PulledSource(self, x)

    def at(self, x: Operand, index: Sequence[Dim]) -> Expr:
        """The element of `x` at `index`."""
        if isinstance(x, Literal):
            return Const(x.value, x.dtype)
        key = (x, tuple(index))
        found = self._memo.get(key)
        if found is not None and any(found[1] is block for block in self.lb.open_blocks):
            return found[0]
        if not self.is_inline(x):
            return self.load(x, flat_index(x.type.shape, index))
        node = self.fusion.node_of[x]
        before = self.lb.loc
        lowering = node.op.lowering
        assert isinstance(lowering, Point)
        expr = lowering.at(
            self.lb, node.attrs, x.type, tuple(index), *[self.source(o) for o in node.operands]
        )
        self.lb.loc = node.loc
        if isinstance(expr, (Apply, Select, Cast)):
            expr = self.lb.let(expr, x.hint)
        self.lb.loc = before
        self._memo[key] = (expr, self.lb.open_blocks[-1])
        return expr

    def is_inline(self, x: Value) -> bool:
        """Whether `x` is computed here rather than loaded."""
        if x in self.inline:
            return True
        return self.fusion.role.get(x) in (Role.VIRTUAL, Role.ABSORBED)

    def load(self, x: Value, flat: Dim) -> Load:
        return Load(self.param(x, Access.IN), flat, x.dtype)

    def through(self, x: Operand, view: View, index: Sequence[Dim]) -> Expr:
        """The element of the view of `x` at `index`."""
        if isinstance(x, Literal):
            return Const(x.value, x.dtype)
        if self.is_inline(x):
            return self.at(x, view.index(x.type.shape, index))
        return self.load(x, view.flat(x.type.shape, index))

    def param(self, x: Value, access: Access) -> str:
        found = self.params.get(x)
        if found is None:
            name = self.lb.fresh(x.hint)
            self.params[x] = (name, access)
            return name
        name, before = found
        if access is not before:
            self.params[x] = (name, Access.INOUT)
        return name

    # -- the end

    def finish(self, name: str, loc: object = None) -> Lowered:
        params = [Param(n, x.dtype, _room(x), access) for x, (n, access) in self.params.items()]
        args: list[Value | None] = list(self.params)
        if self.lb.checks:
            params.append(Param("detail", I64, 1, Access.OUT))
            args.append(None)
        kernel = Kernel(name, tuple(params), self.lb.finish(), loc=loc)  # type: ignore[arg-type]
        free = free_symbols(kernel)
        if any(isinstance(s.hi, DimExpr) for s in free):
            ranges = {s.name: widened(of_atom(s)) for s in free}
            kernel = replace(kernel, body=substitute(kernel.body, ranges))
            free = free_symbols(kernel)
        kernel = replace(kernel, indices=free)
        return Lowered(kernel, tuple(args), tuple(self.lb.checks))


@dataclass(frozen=True, slots=True)
class PulledSource:
    """An operand of an op being lowered (the `Source` protocol)."""

    writer: KernelWriter
    operand: Operand

    @property
    def type(self) -> TensorType:
        return self.operand.type

    @property
    def buffer(self) -> str:
        """The dense buffer that holds the operand."""
        assert isinstance(self.operand, Value) and not self.writer.is_inline(self.operand)
        return self.writer.param(self.operand, Access.IN)

    def __call__(self, index: Sequence[Dim]) -> Expr:
        return self.writer.at(self.operand, index)

    def through(self, view: View, index: Sequence[Dim]) -> Expr:
        return self.writer.through(self.operand, view, index)


@dataclass(frozen=True, slots=True)
class ResultTarget:
    """A result that a `Nest` writes."""

    writer: KernelWriter
    value: Value
    access: Access

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def buffer(self) -> str:
        return self.writer.param(self.value, self.access)

    def store(self, index: Sequence[Dim], value: Expr) -> None:
        self.store_flat(flat_index(self.type.shape, index), value)

    def store_flat(self, flat: Dim, value: Expr) -> None:
        self.writer.lb.store(self.buffer, flat, value)

    def load(self, index: Sequence[Dim]) -> Load:
        return self.load_flat(flat_index(self.type.shape, index))

    def load_flat(self, flat: Dim) -> Load:
        return Load(self.writer.param(self.value, Access.INOUT), flat, self.value.dtype)

    def update(self, index: Sequence[Dim], combine: Combine, value: Expr) -> None:
        self.update_flat(flat_index(self.type.shape, index), combine, value)

    def update_flat(self, flat: Dim, combine: Combine, value: Expr) -> None:
        name = self.writer.param(self.value, Access.INOUT)
        self.writer.lb.update(name, flat, combine, value)


def lower_group(
    fusion: Fusion,
    group: Group,
    stored: Callable[[Value], bool],
    name: str,
    indices: tuple[str, ...] = (),
) -> list[Lowered]:
    """The kernels of one group: one, or more where reductions need their own loops.

    `stored(v)`: the value needs a buffer, being read by another kernel or returned.
    """
    first = group.nodes[0]
    if isinstance(first.op.lowering, Nest):
        return [_lower_nest(fusion, first, name, indices)]
    reductions = [n for n in group.nodes if isinstance(n.op.lowering, Reduction)]
    points = [n for n in group.nodes if not isinstance(n.op.lowering, Reduction)]
    merged = _merged(group.space, reductions)
    apart = [n for n in reductions if n not in merged]
    feeds = {x for n in apart for x in n.operands if isinstance(x, Value)}
    here = {n.result for n in points}
    out = []
    if points or merged:
        out.append(
            _lower_space(
                fusion,
                group.space,
                points,
                merged,
                lambda v: stored(v) or (v in feeds and v in here),
                name,
                indices,
            )
        )
    for k, node in enumerate(apart):
        out.append(_lower_space(fusion, group.space, [], [node], stored, f"{name}_r{k}", indices))
    return out


def _merged(space: Shape, reductions: list[Node]) -> list[Node]:
    """The reductions that share the nest of their group: over one set of trailing axes."""
    trailing = [
        n for n in reductions if _axes(n) == tuple(range(len(space)))[len(space) - len(_axes(n)) :]
    ]
    if not trailing:
        return []
    return [n for n in trailing if _axes(n) == _axes(trailing[0])]


def _axes(reduction: Node) -> tuple[int, ...]:
    return reduction.attrs.axes  # type: ignore[attr-defined, no-any-return]


def _lower_space(
    fusion: Fusion,
    space: Shape,
    points: list[Node],
    reductions: list[Node],
    stored: Callable[[Value], bool],
    name: str,
    indices: tuple[str, ...],
) -> Lowered:
    """Pointwise nodes and reductions over the same axes in one nest over `space`."""
    w = KernelWriter(fusion, {n.result for n in points}, indices)
    axes = _axes(reductions[0]) if reductions else ()
    kept = [k for k in range(len(space)) if k not in axes]
    w.lb.loc = (points or reductions)[0].loc

    def body(index: tuple[Dim, ...]) -> None:
        # All elements are read before one is written: a result may share a buffer with a carry.
        kept = [node for node in points if stored(node.result)]
        values = {}
        for node in points:
            w.lb.loc = node.loc
            value = w.at(node.result, index)
            if isinstance(value, Load) and len(kept) > 1:
                value = w.lb.let(value, node.result.hint)
            values[node.result] = value
        for node in kept:
            w.lb.loc = node.loc
            target = w.param(node.result, Access.OUT)
            w.lb.store(target, flat_index(space, index), values[node.result])

    with w.lb.loops([space[k] for k in kept]) as outer:
        if not reductions:
            body(outer)
        else:
            with w.lb.reduce([space[k] for k in axes]) as r:
                index = _interleave(kept, outer, axes, r.index)
                body(index)
                accs = [_accumulate(w, r, node, index) for node in reductions]
            for node, acc in zip(reductions, accs, strict=True):
                w.lb.loc = node.loc
                target = w.param(node.result, Access.OUT)
                w.lb.store(target, flat_index(node.result.shape, outer), acc)
    return w.finish(name, (points or reductions)[0].loc)


def _accumulate(
    w: KernelWriter,
    scope,
    node: Node,  # type: ignore[no-untyped-def]
    index: tuple[Dim, ...],
) -> Var:
    lowering = node.op.lowering
    assert isinstance(lowering, Reduction)
    dtype = node.result.dtype
    w.lb.loc = node.loc
    return scope.accumulate(  # type: ignore[no-any-return]
        lowering.combine, Const(lowering.init(dtype), dtype), w.at(node.operands[0], index)
    )


def _interleave(
    kept: list[int], outer: tuple[Dim, ...], axes: tuple[int, ...], inner: tuple[Dim, ...]
) -> tuple[Dim, ...]:
    index: list[Dim] = [0] * (len(kept) + len(axes))
    for k, i in zip((*kept, *axes), (*outer, *inner), strict=True):
        index[k] = i
    return tuple(index)


def _lower_nest(fusion: Fusion, node: Node, name: str, indices: tuple[str, ...]) -> Lowered:
    w = KernelWriter(fusion, set(), indices)
    w.lb.loc = node.loc
    lowering = node.op.lowering
    assert isinstance(lowering, Nest)
    updates = node.op.has(Trait.UPDATES_FIRST)
    targets = [ResultTarget(w, r, Access.INOUT if updates else Access.OUT) for r in node.results]
    lowering.emit(w.lb, node.attrs, targets, *[w.source(x) for x in node.operands])
    return w.finish(name, node.loc)


def lower_copy(
    fusion: Fusion, source: Operand, target: Value, name: str, indices: tuple[str, ...] = ()
) -> Lowered:
    """A kernel that stores `source` (of the shape of `target`, or a literal) into `target`."""
    w = KernelWriter(fusion, set(), indices)
    w.lb.loc = target.loc
    shape = target.type.shape
    with w.lb.loops(shape) as index:
        value = w.at(source, index)
        w.lb.store(w.param(target, Access.OUT), flat_index(shape, index), value)
    return w.finish(name, target.loc)


def free_symbols(kernel: Kernel) -> tuple[Symbol, ...]:
    """The loop indices that a kernel uses and does not define, by name."""
    own = set(definitions(kernel))
    found = {s for d in indices_of(kernel.body) for s in symbols(d) if s.name not in own}
    return tuple(sorted(found, key=lambda s: s.name))


def _room(x: Value) -> Dim:
    """Elements of the buffer of `x`."""
    return x.type.size if is_grown(x.type.size) else largest(x.type.size)
