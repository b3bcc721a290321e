"""``backward()`` inside a trace: leaves, gradients and hooks while a function is recorded.

A *point* is a place that gradients are asked at: a tensor made a leaf, or one with a hook or a
retained gradient.  It is a node of the graph, a copy that the gradient path leads through.
``backward()`` records `gradients` nodes from the outputs to the points, newest first; what arrives
at a point passes its hooks, which are traced like other code, and goes on from behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import AutogradError, ShapeError, UnsupportedError
from tracegrad.graph.ir import Graph, Literal, Operand, Value
from tracegrad.ops.arithmetic import add
from tracegrad.ops.control import GradientsAttrs, gradients
from tracegrad.ops.create import full
from tracegrad.ops.handles import PointAttrs, point
from tracegrad.trace.hook_handle import Handle, Hooks, call_hook
from tracegrad.trace.modes import STATE, is_tracking
from tracegrad.trace.symbolic import Unrollable
from tracegrad.trace.tracer import Trace, Tracer

# ``(graph so far, attributes, operands) -> whether a gradient arrives at each point``.
Reach = Callable[[Graph, GradientsAttrs, Sequence[Operand]], tuple[bool, ...]]
_reach: list[Reach] = []


def set_reach(reach: Reach) -> None:
    """Name what knows where gradients arrive (the pipeline calls this once)."""
    _reach[:] = [reach]


@dataclass(slots=True, eq=False)
class Point:
    """`replaced`: ``.grad`` was set by the function, so that what it was on entry is gone."""

    tensor: Tracer
    value: Value
    leaf: bool
    grad: Any = None
    retained: bool = False
    replaced: bool = False
    hooks: Hooks = field(default_factory=dict)
    after: Hooks = field(default_factory=dict)


def point_of(x: Tracer) -> Point | None:
    """The newest point of a tensor."""
    trace: Any = x.trace
    return next((p for p in reversed(trace.points) if p.tensor is x), None)


def refuse_in_loop(x: Tracer) -> Trace:
    """The trace of `x`; a loop whose body works with gradients is not one node."""
    trace: Any = x.trace
    inner = STATE.traces[-1] if STATE.traces else trace
    if inner.loop is not None:
        raise Unrollable("its body works with gradients (backward, hooks, requires_grad_)")
    return trace  # type: ignore[no-any-return]


def make_leaf(x: Tracer) -> None:
    """``requires_grad_()`` of a tensor without gradient."""
    trace = refuse_in_loop(x)
    a = x.alias
    if x.element_type.is_complex:
        raise UnsupportedError(
            "a complex leaf inside a compiled function is not supported", loc=source.here(),
            remedy="Make real leaves of its real and imaginary parts.",
        )  # fmt: skip
    if a.is_view or a.cut or a.family.viewed:
        raise UnsupportedError(
            "requires_grad_() of a view, or of a tensor that has views, is not supported inside a "
            "compiled function", loc=source.here(),
            remedy="Take x.detach() or x.clone() of it first.",
        )  # fmt: skip
    if x.memory in trace.tensors and a.family is x.memory.family:
        raise UnsupportedError(
            "requires_grad_() of an argument would change the caller's Tensor",
            loc=source.here(),
            remedy="Call it before the call, or use x.detach().requires_grad_() inside.",
        )  # fmt: skip
    place_point(trace, x, leaf=True, cut=True)
    a.leaf = a.own = a.family.tracked = a.family.leaf = True


def place_point(trace: Trace, x: Tracer, *, leaf: bool, cut: bool) -> Point:
    trace.place()
    if x.memory.array is not None:
        trace._promote(x.memory)
    before, trace.builder.grad = trace.builder.grad, True
    value = trace.builder.emit(point, (trace.handle(x),), PointAttrs(cut))
    trace.builder.grad = before
    made = Point(x, value, leaf)
    trace.points.append(made)
    return made


def hooked_point(x: Tracer) -> Point:
    """The point of a tensor that gets a hook or retains its gradient.

    Raises:
        UnsupportedError: a computed tensor that was used before, whose earlier uses the point
            would not see.
    """
    found = point_of(x)
    trace = refuse_in_loop(x)
    if found is not None:
        return found
    if x.alias.is_view or x.memory.trace is not trace or _is_used(trace, x):
        raise UnsupportedError(
            "inside a compiled function a hook is put on a tensor (or its gradient is retained) "
            "right after it was computed, and not on a view", loc=source.here(),
            remedy="Register it before the tensor is used; of a view take a clone() first.",
        )  # fmt: skip
    return place_point(trace, x, leaf=False, cut=False)


def _is_used(trace: Trace, x: Tracer) -> bool:
    """Whether a node reads or writes the storage of `x` after it was made."""
    assert x.memory.base is not None
    storage = x.memory.base.storage
    return any(v.storage == storage for node in trace.builder.nodes for v in node.values())


# ---------------------------------------------------------------------------------- backward


def backward(
    outputs: Sequence[Tracer],
    seeds: Sequence[Any],
    create_graph: bool,
    inputs: Sequence[Tracer] | None,
) -> None:
    """Add gradients to ``.grad`` of the leaves that `outputs` depend on, or of `inputs`."""
    for p, g in _pull(outputs, seeds, create_graph, inputs):
        if inputs is None and not p.leaf:
            continue
        p.grad = g if p.grad is None else _sum(p.tensor.trace, p.grad, g, create_graph)
        for hook in list(p.after.values()):
            hook(p.tensor)


def grad(
    outputs: Sequence[Tracer],
    seeds: Sequence[Any],
    create_graph: bool,
    inputs: Sequence[Tracer],
) -> list[Any]:
    """The gradient for each of `inputs`, None where there is none."""
    found = {id(p.tensor): g for p, g in _pull(outputs, seeds, create_graph, inputs)}
    return [found.get(id(x)) for x in inputs]


def _pull(
    outputs: Sequence[Tracer],
    seeds: Sequence[Any],
    create_graph: bool,
    inputs: Sequence[Tracer] | None,
) -> list[tuple[Point, Any]]:
    """What arrives at the points: leaves, or `inputs`, after their hooks."""
    trace = refuse_in_loop(outputs[0])
    wanted = None if inputs is None else [_wanted(x) for x in inputs]
    for x in outputs:
        if x.trace is not trace:
            raise _no_leaf()
        if not x.alias.requires_grad:
            raise AutogradError(
                "a tensor that does not require a gradient and has no grad_fn has no backward",
                kind="no_grad_fn", loc=source.here(),
                remedy="Make a leaf with tg.tensor(..., requires_grad=True).",
            )  # fmt: skip
    before, STATE.grad = STATE.grad, create_graph
    try:
        cts = [_seed(trace, x, s) for x, s in zip(outputs, seeds, strict=True)]
        total: dict[Point, Any] = {}
        _step(trace, [trace.handle(x) for x in outputs], cts, False, total)
        if not total:
            raise _no_leaf()
        found = []
        for p in reversed(list(trace.points)):
            if p not in total:
                continue
            g = total[p]
            for hook in list(p.hooks.values()):
                g = call_hook(hook, g)
            if wanted is not None and p in wanted or wanted is None and p.leaf:
                found.append((p, g))
            if p.retained and wanted is None:
                p.grad = g if p.grad is None else _sum(trace, p.grad, g, create_graph)
            if not p.leaf:
                _step(trace, [p.value], [g], True, total)
    finally:
        STATE.grad = before
    return found


def _wanted(x: Tracer) -> Point:
    found = point_of(x)
    if found is None:
        raise AutogradError(
            "a gradient is asked for a tensor that is no leaf of this function",
            kind="no_grad_fn", loc=source.here(),
            remedy="Call x.requires_grad_() (of a computed tensor x.retain_grad()) before using "
            "it.",
        )  # fmt: skip
    return found


def _step(trace: Trace, outputs: list[Value], cts: list[Any], behind: bool,
          total: dict[Point, Any]) -> None:  # fmt: skip
    """Record the gradients of `outputs` up to the points before them; add them to `total`."""
    trace.place()
    at = next((k for k, p in enumerate(trace.points) if behind and p.value is outputs[0]), None)
    points = trace.points[:at] if behind else list(trace.points)
    if not points:
        return
    values = [trace.operand(ct) for ct in cts]
    types = tuple(p.value.type for p in points)
    attrs = GradientsAttrs(len(outputs), behind, types)
    operands = (*outputs, *values, *(p.value for p in points))
    b = trace.builder
    graph = Graph(b.name, b.stage, tuple(b.inputs), tuple(b.nodes), (), tuple(b.tracked))
    reached = _reach[0](graph, attrs, operands)
    points = [p for p, is_reached in zip(points, reached, strict=True) if is_reached]
    if not points:
        return
    attrs = GradientsAttrs(len(outputs), behind, tuple(p.value.type for p in points))
    operands = (*outputs, *values, *(p.value for p in points))
    made = b.emit(gradients, operands, attrs, hints=tuple(f"d_{p.value.hint}" for p in points))
    for p, value in zip(points, made, strict=True):
        g = trace._base(value, is_tracking())
        total[p] = g if p not in total else trace.apply(add, (total[p], g))


def _sum(trace: Any, a: Any, b: Any, create_graph: bool) -> Any:
    before, STATE.grad = STATE.grad, create_graph
    try:
        return trace.apply(add, (trace.lift(a), trace.lift(b)))
    finally:
        STATE.grad = before


def _seed(trace: Trace, x: Tracer, given: Any) -> Tracer:
    if given is None:
        if x.sizes != () and int(np.prod(x.sizes)) != 1:
            raise AutogradError(
                f"a gradient can be left out for scalars only, not for shape {x.sizes}",
                kind="gradient_shape", loc=source.here(),
                remedy="Pass gradient=, or reduce the output with sum().",
            )  # fmt: skip
        one = full.attrs(x.sizes, Literal(1, x.element_type))
        return trace.apply(full, (), one)  # type: ignore[no-any-return]
    from tracegrad.trace.creation_data import tracer

    g = trace.lift(tracer(trace, given))
    if g.sizes != x.sizes or g.element_type is not x.element_type:
        raise ShapeError(
            f"the gradient is {g.element_type}{list(g.sizes)}, the output "
            f"{x.element_type}{list(x.sizes)}", loc=source.here(),
        )  # fmt: skip
    return g


def _no_leaf() -> AutogradError:
    return AutogradError(
        "backward() inside a compiled function finds no leaf of that function", kind="no_grad_fn",
        loc=source.here(),
        remedy="Make one with x.detach().requires_grad_() inside, or differentiate the function "
        "with tg.grad.",
    )  # fmt: skip


__all__ = ["Handle", "Point", "backward", "grad", "hooked_point", "make_leaf", "point_of"]
