"""The handles of tracers in a graph, and how contents known while tracing enter it."""

from __future__ import annotations

import numpy as np

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs
from tracegrad.graph.storage import View
from tracegrad.ops.handles import HandleAttrs, detach, view
from tracegrad.trace import known
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import STATE
from tracegrad.trace.nesting import Nesting
from tracegrad.trace.windows import refresh
from tracegrad.views import family
from tracegrad.views.family import CreationKind


class Handles(Nesting):
    """The part of `Trace` that says what a node reads for a tracer."""

    builder: GraphBuilder
    _snapshots: dict[tuple[Memory, int, View], Value]
    # The whole storage as members of a family that detach started see it.
    _roots: dict[family.Family, Value]

    def operand(self, x: Tracer | Literal) -> Operand:
        """What a node reads for `x`: a literal, a handle, or a snapshot of known contents."""
        if isinstance(x, Literal):
            return x
        array = x.concrete
        if array is None:
            return self.handle(x)
        if array.ndim == 0:
            return Literal(array.item(), x.element_type)
        key = (x.memory, x.memory.version, x.alias.view)
        found = self._snapshots.get(key)
        if found is None:
            found = self._snapshots[key] = self._enter(x.memory, array)
        return found

    def handle(self, x: Tracer) -> Value:
        """The handle of `x` in this trace's graph."""
        if x.memory.window is not None:
            refresh(self, x.memory)
        if x._value is None:
            root = self._root(x)
            if not x.alias.view and not x.alias.is_view:
                x._value = root
            else:
                b = self.builder
                before = b.grad, b.inference
                b.inference = x.alias.kind is CreationKind.INFERENCE
                b.grad = not x.alias.cut
                attrs = HandleAttrs(x.alias.view, x.alias.op_name, -1)
                x._value = b.alias(view, root, attrs)
                b.grad, b.inference = before
        return x._value

    def _root(self, x: Tracer) -> Value:
        """The handle of the whole storage of `x` in the gradient family of `x`."""
        memory, of = x.memory, x.alias.family
        assert memory.base is not None
        if of is memory.family:
            return memory.base
        found = self._roots.get(of)
        if found is None:
            found = self._roots[of] = self.builder.alias(detach, memory.base, Attrs())
        return found

    def _promote(self, memory: Memory) -> None:
        """Move known contents into the graph, since a traced value is about to enter them."""
        assert memory.array is not None
        trace = memory.trace
        assert isinstance(trace, Handles), "what runs at the prompt has no graph"
        memory.base = trace._enter(memory, memory.array)
        memory.array = None

    def _enter(self, memory: Memory, array: np.ndarray) -> Value:
        """Known contents of a storage as a value; made where the storage was, not here."""
        b = self.builder
        before, b.grad, b.inference = (b.grad, b.inference), True, memory.inference
        value = known.value_of(b, array)
        b.grad, b.inference = before
        return value

    def _note_inference(self, memory: Memory) -> None:
        """Mark a storage that is made now."""
        if STATE.inference:
            memory.inference = self._has_inference = True
