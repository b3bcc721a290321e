"""`EagerTrace`: the recorder of the prompt.  Computes at once; keeps nodes for what is tracked.

It offers the interface of `trace.tracer.Trace` and inherits the same tracking; what it adds is
the history: which node made a tensor, and how that changes when memory is written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.eager.arrays import laid_out, strides_of
from tracegrad.eager.history import (
    AccumulateGrad,
    CopySlices,
    Edge,
    Node,
    Saved,
    ViewsNode,
    node_name,
    op_node,
    view_node,
)
from tracegrad.eager.keeping import keep_operands, keep_results
from tracegrad.eager.program import compute, program_of
from tracegrad.errors import TracegradError, UnsupportedError
from tracegrad.graph.array_views import apply_view
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Operand
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.graph.storage import Conj, Geometry, Step, Strided, View, dense_strides
from tracegrad.ops.handles import copy
from tracegrad.trace import known
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import STATE, set_prompt
from tracegrad.trace.tracking import Recorder
from tracegrad.types import TensorType
from tracegrad.views import family, legality
from tracegrad.views.family import Alias, CreationKind, Family

if TYPE_CHECKING:
    from tracegrad.eager.tensor import EagerTensor


class EagerTrace(Recorder):
    """Runs operations on `EagerTensor`s; there is one, `EAGER`."""

    eager = True
    face: type[EagerTensor]

    def __init__(self) -> None:
        self.lookup_array = self.concrete
        self._several: weakref.ref[ViewsNode] | None = None

    # -- making tensors

    def place(self) -> source.SourceLoc | None:
        return source.here()

    def lift(self, x: Tracer) -> Tracer:
        if x.trace is not self:
            raise known.leaked(x)
        return x

    def concrete(
        self, array: np.ndarray | float | int, *, scalar: bool = False, weak: bool = False
    ) -> EagerTensor:
        return self.base(np.array(array, copy=True, order="K"), scalar=scalar, weak=weak)

    def base(self, array: np.ndarray, *, scalar: bool = False, weak: bool = False) -> EagerTensor:
        """A new tensor over the memory of `array` itself."""
        dtype = dtypes.of(array.dtype)
        strides = strides_of(array)
        memory = Memory(
            array.shape, dtype, inference=STATE.inference, trace=self, array=array, layout=strides
        )
        alias = family.fresh(array.shape, dtype, False, None, memory)
        memory.family = alias.family
        layout = Geometry(0, array.shape, strides)
        readonly = not array.flags.writeable
        return self.face(
            self, alias, layout, None, array, scalar=scalar, weak=weak, readonly=readonly
        )

    def embed(self, x: Tracer) -> Tracer:
        return x

    def computed(
        self, array: np.ndarray, node: Node | None, nr: int = 0, **flags: bool
    ) -> EagerTensor:
        """A fresh result; `node` made it."""
        x = self.base(array, **flags)
        if node is not None:
            x.alias.family.tracked = x.alias.own = True
            x.set_node(node, nr)
        return x

    # -- operations

    def apply(
        self,
        op: OpDef,
        operands: Sequence[Tracer | Literal],
        attrs: Attrs | None = None,
        *,
        hint: str = "",
        layout: tuple[int, ...] | None = None,
        scalar: bool = False,
        weak: bool = False,
    ) -> Any:
        attrs = op.attrs() if attrs is None else attrs
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        types, outs = self._infer(op, xs, attrs)
        node = None
        if self._use(op, xs) and any(t.dtype.is_inexact for t in outs):
            node = op_node(op, attrs, types, outs, self._edges(xs), self.place())
            keep_operands(node, xs)
        made = compute(op, [_contents(x) for x in xs], attrs)
        if not isinstance(made, tuple):
            out = self.computed(laid_out(made, layout), node, scalar=scalar, weak=weak)
            if node is not None:
                keep_results(node, (out,))
            return out
        results = tuple(
            self.computed(laid_out(m, None), node if t.dtype.is_inexact else None, k)
            for k, (m, t) in enumerate(zip(made, outs, strict=True))
        )
        if node is not None:
            keep_results(node, results)
        return results

    def compose(
        self,
        build: Callable[..., Operand],
        operands: Sequence[Tracer | Literal],
        *,
        hint: str = "",
        scalar: bool = False,
        weak: bool = False,
    ) -> Tracer:
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        b = GraphBuilder("prompt")
        given = [x if isinstance(x, Literal) else b.input(_type(x), "x") for x in xs]
        program = program_of(b, (build(b, *given),))
        tensors = [x for x in xs if isinstance(x, Tracer)]
        (out,) = program.run(self.apply_plain, [tensors[k] for k in program.inputs])
        if isinstance(out, Literal):
            return self.concrete(np.asarray(out.value, out.dtype.np), scalar=scalar, weak=weak)
        if any(out is x for x in xs):
            out = self.apply(copy, (out,))
        out.scalar, out.weak = scalar, weak
        return out  # type: ignore[no-any-return]

    def apply_plain(self, op: OpDef, operands: Sequence[Any], attrs: Attrs) -> Any:
        """`apply` as programs call it."""
        return self.apply(op, operands, attrs)

    def _infer(
        self, op: OpDef, xs: Sequence[Tracer | Literal], attrs: Attrs
    ) -> tuple[tuple[TensorType | Literal, ...], tuple[TensorType, ...]]:
        """Operand types (literals as they are) and result types."""
        types = tuple(x if isinstance(x, Literal) else _type(x) for x in xs)
        try:
            out = op.infer(attrs, *[t.type if isinstance(t, Literal) else t for t in types])
        except TracegradError as e:
            raise e.at(self.place()) from None
        return types, (out,) if isinstance(out, TensorType) else tuple(out)

    # -- views

    def _view(
        self,
        x: Tracer,
        alias: Alias,
        layout: Geometry,
        steps: tuple[Step, ...],
        output: int,
        readonly: bool,
    ) -> Tracer:
        parent: EagerTensor = x  # type: ignore[assignment]
        step = View(steps)
        array = apply_view(step, parent.array)
        out = self.face(self, alias, layout, None, array, readonly=readonly)
        if parent.lens is not None or any(isinstance(s, Conj) for s in steps):
            source, before = parent.lens or (parent, View())
            out.lens = (source, before.then(*steps, base=source.shape))
        if not alias.is_view:
            return out
        out.root = parent if parent.root is None else parent.root
        out.within = parent.within.then(*steps, base=out.root.shape)
        edge = self.edge(parent) if alias.own else None
        alias.own = edge is not None
        if edge is None:
            return out
        if output >= 0:
            out.set_node(*self._one_of_several(parent, alias, step, edge, output, _type(out)))
            return out
        name = node_name(alias.op_name)
        out.set_node(view_node(name, step, _type(parent), edge, _type(out), alias.made), 0)
        return out

    def _one_of_several(
        self, x: EagerTensor, alias: Alias, step: View, edge: Edge, output: int, out: TensorType
    ) -> tuple[ViewsNode, int]:
        """The node that the views of one `split` or `unbind` share, and the next result of it."""
        node = self._several() if self._several is not None and output else None
        if node is None or node.edges[0] != edge or len(node.parts) != output:
            node = ViewsNode(node_name(alias.op_name), edge, _type(x), alias.made)
            self._several = weakref.ref(node)
        return node, node.add(step, out)

    def _strided(self, x: Tracer, alias: Alias, layout: Geometry) -> Tracer:
        parent: EagerTensor = x  # type: ignore[assignment]
        assert x.memory.array is not None
        array = apply_view(alias.view, x.memory.array)
        out = self.face(self, alias, layout, None, array, readonly=x.readonly)
        if not alias.is_view:
            return out
        root = out.root = parent if parent.root is None else parent.root
        out.within = self._within(root, layout)
        # Elements outside of `x` have a gradient too, so the base is what it is a view of.
        tracked = alias.own
        edge = self.edge(root) if tracked and x.alias.kind in _BASE_KINDS else None
        alias.own = edge is not None
        if edge is not None:
            name = "AsStridedBackward0"
            node = view_node(name, out.within, _type(root), edge, _type(out), alias.made)
            out.set_node(node, 0)
        elif tracked and self.edge(parent) is not None:
            raise UnsupportedError(
                "as_strided of a view with a gradient of its own is not supported",
                loc=self.place(),
                remedy="Use slices, or as_strided of a clone() of it.",
            )
        return out

    def _within(self, root: EagerTensor, layout: Geometry) -> View:
        """A geometry over the storage as a view of `root`."""
        if not root.alias.view:
            return View().then(
                Strided(layout.size, layout.stride, layout.offset),  # type: ignore[arg-type]
                base=root.shape,
            )
        own = root.alias.view.geometry(root.memory.shape)
        if own is None or own.stride != dense_strides(root.shape):
            raise UnsupportedError(
                "as_strided of a detached part whose elements are not adjacent is not supported",
                loc=self.place(),
                remedy="Use a clone() of it.",
            )
        step = Strided(layout.size, layout.stride, layout.offset - own.offset)  # type: ignore
        size = int(np.prod(root.shape))
        last = step.offset + sum((n - 1) * s for n, s in zip(step.size, step.stride, strict=True))
        if 0 not in step.size and (step.offset < 0 or last >= size):
            raise UnsupportedError(
                "as_strided beyond a detached part is not supported",
                loc=self.place(),
                remedy="Take it from the whole tensor before detach().",
            )
        return View((step,))

    def _detached(self, x: Tracer, alias: Alias) -> Tracer:
        parent: EagerTensor = x  # type: ignore[assignment]
        return self.face(self, alias, x.layout, None, parent.array, readonly=x.readonly)

    def detach_in_place(self, x: Tracer) -> None:
        tensor: EagerTensor = x  # type: ignore[assignment]
        tensor.set_node(None, 0)
        alias = x.alias
        alias.own = alias.leaf = alias.family.tracked = alias.family.leaf = False

    # -- writes

    def _write(
        self,
        target: Tracer,
        op: OpDef,
        xs: Sequence[Tracer | Literal],
        attrs: Attrs,
        tracked: bool,
    ) -> None:
        written: EagerTensor = target  # type: ignore[assignment]
        types, outs = self._infer(op, xs, attrs)
        tracked = tracked and target.element_type.is_inexact
        node = None
        if tracked:
            node = op_node(op, attrs, types, outs, self._edges(xs), self.place())
            keep_operands(node, xs, written)
        value = compute(op, [_contents(x) for x in xs], attrs)
        written.store(value)
        family.record_write(target.alias, tracked)
        target.memory.written_at = self.place()
        if node is not None:
            keep_results(node, (written,))
            if written.root is None:
                written.set_node(node, 0)
            else:
                own = tuple(k for k, x in enumerate(xs) if x is target)
                self.rebase_view(written, node, own)

    def rebase_view(self, x: EagerTensor, fn: Node, own: tuple[int, ...]) -> None:
        """A write through a view: `fn` becomes part of the history of its base.  `own` numbers
        the edges of `fn` that are the view itself."""
        root = x.root
        assert root is not None
        root.set_node(CopySlices(self.edge(root), _type(root), x.within, fn, own), 0)
        root.alias.own = True
        x.alias.fresh_at = -1
        if x.retained:
            self._refresh(x)

    # -- history

    def _edges(self, xs: Sequence[Tracer | Literal]) -> tuple[Edge | None, ...]:
        return tuple(
            self.edge(x) if isinstance(x, Tracer) and x.element_type.is_inexact else None
            for x in xs
        )

    def edge(self, x: Any) -> Edge | None:
        """Where the gradient of `x` goes: its up-to-date node, or the accumulator of a leaf."""
        self._refresh(x)
        if x.node is not None:
            return Edge(x.node, x.nr)
        if x.alias.leaf:
            return Edge(self.accumulator(x), 0)
        return None

    def accumulator(self, x: EagerTensor) -> AccumulateGrad:
        found = x.accumulator() if x.accumulator is not None else None
        if found is None:
            found = AccumulateGrad(x)
            x.accumulator = weakref.ref(found)
        return found

    def _refresh(self, x: Any) -> None:
        """Give a view whose family was written since a history that starts at its base."""
        a: Alias = x.alias
        if not a.is_view or (x.node is None and not a.family.tracked):
            return
        if not a.is_stale:
            if x.node is not None or a.leaf or a.kind is not CreationKind.DEFAULT:
                return
        else:
            legality.check_use(a, True, self.place())
            if a.kind is not CreationKind.DEFAULT:
                return
            a.fresh_at = a.storage.version
        if not a.family.tracked:
            x.set_node(None, 0)
            a.own = False
            return
        edge = self.edge(x.root)
        x.set_node(
            view_node("AsStridedBackward0", x.within, _type(x.root), edge, _type(x), self.place()),
            0,
        )
        a.own, a.leaf = True, False

    def connected(self, s: Saved, edge: Edge | None) -> EagerTensor:
        """A kept value as a tensor whose history is that of `edge`."""
        alias = Alias(
            s.memory, Family(edge is not None), s.view, fresh_at=s.version, own=edge is not None
        )
        x = self.face(self, alias, s.layout, None, s.array, readonly=True)
        if edge is not None:
            x.set_node(edge.node, edge.nr)
        return x


_BASE_KINDS = frozenset({CreationKind.DEFAULT, CreationKind.MULTI_OUTPUT})


def _type(x: Tracer) -> TensorType:
    return TensorType(x.sizes, x.element_type)


def _contents(x: Any) -> Any:
    return x if isinstance(x, Literal) else x.array


EAGER = EagerTrace()
set_prompt(EAGER)
