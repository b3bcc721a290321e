"""The backward pass: nodes in the order of their making, newest first.

A node's operands were made before it, so its number alone is a topological order.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import source
from tracegrad.eager import hooks
from tracegrad.eager.history import AccumulateGrad, Algebra, Edge, Node, Saved
from tracegrad.eager.program import compute
from tracegrad.eager.recorder import EAGER
from tracegrad.errors import ArgumentError, AutogradError, ShapeError, TracegradError
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.ops.arithmetic import add
from tracegrad.trace import segments
from tracegrad.trace.modes import STATE, current_trace

if TYPE_CHECKING:
    from tracegrad.eager.tensor import EagerTensor


class Arrays:
    """Gradients are ndarrays that nobody writes."""

    @staticmethod
    def apply(op: OpDef, operands: Sequence[Any], attrs: Attrs) -> Any:
        return compute(op, operands, attrs)

    @staticmethod
    def saved(s: Saved, edge: Edge | None) -> Any:
        return s.array

    @staticmethod
    def tensor(value: Any) -> EagerTensor:
        x = EAGER.base(value)
        x.readonly = True
        return x

    @staticmethod
    def value(tensor: Any) -> Any:
        return tensor.array


class Tensors:
    """Gradients are tensors with a history of their own (``create_graph``)."""

    apply = staticmethod(EAGER.apply_plain)
    saved = staticmethod(EAGER.connected)

    @staticmethod
    def tensor(value: Any) -> Any:
        return value

    @staticmethod
    def value(tensor: Any) -> Any:
        return tensor


class Pass:
    """One backward pass from `roots`.

    With `targets` only nodes on the way to them run, and `found` collects their gradients
    instead of ``.grad``.
    """

    def __init__(self, algebra: Algebra, keep: bool, targets: Sequence[Edge] | None) -> None:
        self.algebra = algebra
        self.keep = keep
        self.targets = targets
        self.found: dict[tuple[Node, int], Any] = {}
        self._wanted: dict[Node, list[int]] = {}
        for node, nr in targets or ():
            self._wanted.setdefault(node, []).append(nr)
        self._pending: dict[Node, list[Any]] = {}
        self._heap: list[tuple[int, Node]] = []

    def send(self, edge: Edge, value: Any) -> None:
        """Add `value` to the gradient of a result."""
        node, nr = edge
        cts = self._pending.get(node)
        if cts is None:
            cts = self._pending[node] = [None] * len(node.outputs)
            heappush(self._heap, (-node.sequence, node))
        before = cts[nr]
        cts[nr] = value if before is None else self.algebra.apply(
            add, (before, value), add.attrs())  # fmt: skip

    def run(self) -> None:
        needed = None if self.targets is None else self._needed()
        while self._heap:
            _, node = heappop(self._heap)
            cts = self._pending.pop(node)
            if needed is not None and node not in needed:
                continue
            hooks.run(node, cts, self.algebra)
            for nr in self._wanted.get(node, ()):
                if cts[nr] is not None:
                    self.found[node, nr] = cts[nr]
            if needed is not None and (
                isinstance(node, AccumulateGrad)
                or not any(e is not None and e.node in needed for e in node.edges)
            ):
                continue
            grads = node.run(self.algebra, cts)
            if not self.keep:
                node.release()
            for edge, g in zip(node.edges, grads, strict=True):
                if edge is not None and g is not None:
                    self.send(edge, g)

    def _needed(self) -> set[Node]:
        """The nodes from which a target is reached."""
        seen = {node for _, node in self._heap}
        stack = list(seen)
        while stack:
            for edge in stack.pop().edges:
                if edge is not None and edge.node not in seen:
                    seen.add(edge.node)
                    stack.append(edge.node)
        needed: set[Node] = set()
        for node in sorted(seen, key=lambda n: n.sequence):
            if node in self._wanted or any(e is not None and e.node in needed for e in node.edges):
                needed.add(node)
        return needed


def _seed(x: EagerTensor, gradient: Any, algebra: Algebra) -> Any:
    """The gradient that a pass starts with at `x`."""
    if gradient is None:
        if x.numel() != 1:
            raise AutogradError(
                f"a gradient can be left out for scalars only, not for shape {x.shape}",
                kind="gradient_shape",
                loc=source.here(),
                remedy="Pass gradient=, or reduce the output with sum().",
            )
        if x.element_type.is_complex:
            raise AutogradError(
                f"a gradient can be left out for real scalars only, not for {x.element_type.np}",
                kind="gradient_shape",
                loc=source.here(),
                remedy="Pass gradient=, or take a real part or abs().",
            )
        ones = np.ones(x.shape, x.element_type.np)
        return algebra.value(EAGER.base(ones))
    from tracegrad.eager.tensor import as_tensor

    g = as_tensor(gradient)
    if g.shape != x.shape:
        raise ShapeError(
            f"the gradient has shape {g.shape}, the output {x.shape}", loc=source.here()
        )
    if g.element_type is not x.element_type:
        g = g.to(x.element_type.np)
    return algebra.value(g)


def _start(outputs: Sequence[Any], gradients: Sequence[Any], run: Pass) -> None:
    for x, g in zip(outputs, gradients, strict=True):
        if not x.requires_grad:
            raise AutogradError(
                "a tensor that does not require a gradient and has no grad_fn has no backward",
                kind="no_grad_fn",
                loc=source.here(),
                remedy="Make a leaf with tg.tensor(..., requires_grad=True).",
            )
        edge = EAGER.edge(x)
        value = _seed(x, g, run.algebra)
        if edge is not None:
            run.send(edge, value)


def _execute(
    outputs: Sequence[Any],
    gradients: Sequence[Any],
    keep: bool | None,
    create_graph: bool,
    targets: Sequence[Edge] | None,
) -> Pass:
    algebra: Algebra = Tensors() if create_graph else Arrays()  # type: ignore[assignment]
    run = Pass(algebra, create_graph if keep is None else keep, targets)
    _start(outputs, gradients, run)
    before = STATE.grad
    STATE.grad = create_graph
    try:
        run.run()
    except TracegradError as e:
        raise e.at(source.here()) from None
    finally:
        STATE.grad = before
    return run


def backward(
    tensors: Any,
    gradients: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of the sum of `tensors` to ``.grad`` of the leaves (or of `inputs`).

    Raises kinds no_grad_fn, gradient_shape, saved_modified, backward_twice.
    """
    outputs = _several(tensors)
    if current_trace() is not None:
        given = (None,) * len(outputs) if gradients is None else _several(gradients)
        wanted = None if inputs is None else _several(inputs)
        segments.backward(_traced(outputs), given, create_graph, wanted)
        return
    seeds = (None,) * len(outputs) if gradients is None else _several(gradients)
    if inputs is None:
        _execute(outputs, seeds, retain_graph, create_graph, None)
        return
    wanted = _several(inputs)
    if not wanted:
        raise ArgumentError("inputs of backward cannot be empty", loc=source.here())
    targets = [_target(x) for x in wanted]
    run = _execute(outputs, seeds, retain_graph, create_graph, targets)
    for x, edge in dict(zip(wanted, targets, strict=True)).items():
        if tuple(edge) in run.found:
            x.accumulate(run.algebra, run.found[tuple(edge)])  # type: ignore[index]


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`, one tensor each; ``.grad``
    is not touched.

    Raises kind unused_input for an input that the outputs do not depend on, unless
    `allow_unused` (then None) or `materialize_grads` (then zeros).
    """
    ends, starts = _several(outputs), _several(inputs)
    seeds = (None,) * len(ends) if grad_outputs is None else _several(grad_outputs)
    if current_trace() is not None:
        made = segments.grad(_traced(ends), seeds, create_graph, _traced(starts))
        return tuple(_complete(g, k, starts[k], allow_unused, materialize_grads)
                     for k, g in enumerate(made))  # fmt: skip
    targets = [_target(x) for x in starts]
    run = _execute(ends, seeds, retain_graph, create_graph, targets)
    found = []
    for k, (x, edge) in enumerate(zip(starts, targets, strict=True)):
        value = run.found.get((edge.node, edge.nr))
        g = None if value is None else run.algebra.tensor(value)
        if g is not None and not g.requires_grad:
            g = EAGER.concrete(g.array)
        found.append(_complete(g, k, x, allow_unused, materialize_grads))
    return tuple(found)


def _complete(g: Any, k: int, x: Any, allow_unused: Any, materialize: bool) -> Any:
    """The gradient of input `k`, or what stands for one that there is not."""
    if g is not None:
        return g
    if materialize:
        return (current_trace() or EAGER).concrete(np.zeros(x.shape, x.element_type.np))
    if allow_unused:
        return None
    raise AutogradError(
        f"input {k} was not used to compute the outputs", kind="unused_input",
        loc=source.here(), remedy="Pass allow_unused=True to get None for it.",
    )  # fmt: skip


def _traced(xs: Sequence[Any]) -> list[Any]:
    """Tensors of the current trace; raises for others."""
    trace = current_trace()
    assert trace is not None
    for x in xs:
        trace.lift(x)
    return list(xs)


def _several(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _target(x: Any) -> Edge:
    edge = EAGER.edge(x) if x.requires_grad else None
    if edge is None:
        raise AutogradError(
            "a gradient is asked for a tensor that does not require one", kind="no_grad_fn",
            loc=source.here(), remedy="Call x.requires_grad_() before using it.",
        )  # fmt: skip
    return edge


__all__ = ["backward", "grad"]
