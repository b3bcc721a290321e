"""Run a user function on tracers: arguments in, a traced graph and the form of its results out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import optree

from tracegrad import source
from tracegrad.graph.ir import Graph, Operand, Value
from tracegrad.options import Options
from tracegrad.source import SourceLoc
from tracegrad.trace import leaving, segments, symbolic
from tracegrad.trace.alias_pattern import Group
from tracegrad.trace.captures import Captures
from tracegrad.trace.floating import warn_errstate
from tracegrad.trace.guards import Argument, Outside
from tracegrad.trace.leaves import NAMESPACE, Kind, Leaf, flatten, registration
from tracegrad.trace.loop_plan import Plan
from tracegrad.trace.modes import STATE
from tracegrad.trace.results import Grad, Input, OutLeaf, Printed, grads_of, name_sources, prints_of
from tracegrad.trace.sharing import APART, Sharing
from tracegrad.trace.signature import CallSignature
from tracegrad.trace.substitute import Substitution
from tracegrad.trace.substitute_classes import restore_class
from tracegrad.trace.substitute_objects import is_user_class
from tracegrad.trace.substitute_table import known_array
from tracegrad.trace.tracer import Capture, Trace, Tracer


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A traced call.  `touched` are inputs that the function writes and that stay as they are,
    since it runs in a pullback only; `histories` are those whose writes carry gradients."""

    signature: CallSignature
    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[OutLeaf, ...]
    out_tree: optree.PyTreeSpec
    outside: Outside
    captures: tuple[Capture, ...] = ()
    location: SourceLoc | None = None  # where the function is defined
    prints: tuple[Printed, ...] = ()
    groups: tuple[Group, ...] = ()
    touched: tuple[int, ...] = ()
    histories: tuple[int, ...] = ()
    loops: tuple[str, ...] = ()  # what became of each loop, a line each
    grads: tuple[Grad, ...] = ()

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """The result in its own structure, from one value for each of `outputs`."""
        return self.out_tree.unflatten(leaves)


def trace_call(
    fn: Callable[..., Any],
    signature: CallSignature,
    *,
    face: type[Tracer],
    tracked: Collection[int] = (),
    options: Options | None = None,
    parent: Trace | None = None,
    grad: bool = True,
    shared: Sharing = APART,
) -> Traced:
    """Trace ``fn`` for the arguments that `signature` describes.

    `tracked` are the leaves that gradients may be asked of; `parent` is the enclosing trace of
    a transform written inside a traced function; `grad` is the gradient mode on entry; `shared`
    says which arguments are views of common memory.

    Raises:
        TracegradError: something in the function cannot be traced; placed at the user's line.
    """
    options = Options() if options is None else options
    if parent is None:
        return _until_loops_settle(fn, signature, face, tracked, options, grad, shared)
    return _trace(fn, signature, face, tracked, options, parent, grad, shared, parent.rolling)


def _until_loops_settle(
    fn: Callable[..., Any],
    signature: CallSignature,
    face: type[Tracer],
    tracked: Collection[int],
    options: Options,
    grad: bool,
    shared: Sharing,
) -> Traced:
    """Trace, and start again whenever a loop on trial taught something."""
    plan = Plan(options.loops, options.max_unrolled)
    depth = len(STATE.traces)
    while True:
        try:
            found = _trace(fn, signature, face, tracked, options, None, grad, shared, plan)
            if not plan.pending:
                return found
        except symbolic.Retrace:
            pass
        except Exception as e:
            if not plan.pending and not plan.failed(e):
                raise
        finally:
            del STATE.traces[depth:]
        plan.start_again()


def _trace(
    fn: Callable[..., Any],
    signature: CallSignature,
    face: type[Tracer],
    tracked: Collection[int],
    options: Options,
    parent: Trace | None,
    grad: bool,
    shared: Sharing,
    plan: Plan,
) -> Traced:
    exact = options.views == "exact" if parent is None else parent.exact_views
    trace = Trace(signature.name, face, parent, exact)
    trace.rolling = plan
    trace.strict = options.strict and parent is None and not face.numpy_scalars  # type: ignore
    captures, names = _outside_of(trace, parent, options.substitute)
    if parent is None and not tracked:
        tracked = [k for k, leaf in enumerate(signature.leaves) if leaf.tracked]
    values = _arguments(trace, names, signature, tracked, shared)
    args, kwargs = signature.rebuild(values)
    if names.is_open:
        _shadow_containers(names, (args, kwargs))
    run = names.call(fn, signature.name)
    if parent is None:
        warn_errstate(np.geterr())
    try:
        with _recording(trace, grad):
            result = leaving.run(run, args, kwargs, signature.name, face.__name__)
            plan.check_closed(trace)
            operands, outputs, tree, returned = _results(trace, names, result, _defined(fn))
            printed = prints_of(trace, operands)
            grads = grads_of(trace, values, operands)
            outside = _close(trace, captures, operands, parent)
            inputs = _inputs(trace, signature, captures, shared)
            if parent is None:
                outputs = name_sources(outputs, returned, values, captures.kept)
            graph = trace.finish(operands)
    finally:
        trace.open = False
        if parent is None:
            names.close()
    return Traced(
        signature,
        graph,
        inputs,
        tuple(outputs),
        tree,
        outside,
        tuple(trace.captures.values()),
        _defined(fn),
        printed,
        shared.groups,
        tuple(k for k, v in enumerate(graph.inputs) if any(m.base is v for m in trace.touched)),
        tuple(k for k, v in enumerate(graph.inputs) if v in trace.histories),
        plan.notes(),
        grads,
    )


def _outside_of(
    trace: Trace, parent: Trace | None, substitute: bool
) -> tuple[Captures, Substitution]:
    """The record of captures: that of the outermost trace."""
    if parent is None:
        captures = Captures(trace)
        trace.names = Substitution(captures, is_open=substitute)
        trace.lookup_array = captures.lookup
    else:
        trace.names = parent.names
        captures = trace.names.captures
    trace.check_outside = captures.check_write
    return captures, trace.names


def _arguments(
    trace: Trace,
    names: Substitution,
    signature: CallSignature,
    tracked: Collection[int],
    shared: Sharing,
) -> list[Any]:
    """What stands for each leaf inside; inputs of common memory come behind the others."""
    values: dict[int, Any] = {}
    for k, leaf in enumerate(signature.leaves):
        if not leaf.is_traced:
            values[k] = names.read(Argument(k, leaf.name), leaf.value)
        elif k not in shared.leaves:
            values[k] = _argument(trace, leaf, k in tracked)
    values |= shared.enter(trace, signature, tracked, names.captures)
    trace.tensors |= {values[k].memory for k, leaf in enumerate(signature.leaves) if leaf.tensor}
    return [values[k] for k in range(len(signature.leaves))]


def _shadow_containers(names: Substitution, tree: Any) -> None:
    """Give registered containers among the arguments the class that traced code sees."""
    found: list[Any] = []

    def visit(x: Any) -> bool:
        if registration(type(x)) is not None and is_user_class(type(x)):
            found.append(x)
        return False

    optree.tree_leaves(tree, is_leaf=visit, namespace=NAMESPACE)
    for x in found:
        object.__setattr__(x, "__class__", names.call(type(x)))


def _argument(trace: Trace, leaf: Leaf, tracked: bool) -> Tracer:
    assert leaf.type is not None
    scalar = leaf.kind is not Kind.ARRAY and trace.face.numpy_scalars  # type: ignore[attr-defined]
    made = trace.argument(
        leaf.type,
        leaf.name,
        tracked=tracked,
        layout=leaf.layout or None,
        scalar=scalar,
        weak=leaf.kind is Kind.WEAK,
        readonly=not leaf.writable,
    )
    if leaf.asked:
        made.alias.leaf = made.alias.family.leaf = True
        if not leaf.type.dtype.is_complex:
            segments.place_point(trace, made, leaf=True, cut=False)
        if leaf.has_grad:
            trace.had_grad.add(made)
    return made


@contextmanager
def _recording(trace: Trace, grad: bool) -> Iterator[None]:
    before = STATE.grad, STATE.inference
    STATE.traces.append(trace)
    STATE.grad, STATE.inference = grad, False
    try:
        yield
    finally:
        STATE.grad, STATE.inference = before
        if STATE.traces and STATE.traces[-1] is trace:
            STATE.traces.pop()


# ---------------------------------------------------------------------------------- results


def _results(
    trace: Trace, names: Substitution, result: Any, loc: SourceLoc | None
) -> tuple[list[Operand], list[OutLeaf], optree.PyTreeSpec, list[Tracer | None]]:
    leaves, tree = flatten(result)
    while sum(restore_class(names, x) for x in leaves):  # every one, so not any()
        leaves, tree = flatten(result)
    operands: list[Operand] = []
    outputs: list[OutLeaf] = []
    returned: list[Tracer | None] = []
    for x in leaves:
        refuse = None if isinstance(x, type) else getattr(type(x), "refuse", None)
        if isinstance(x, np.ndarray):
            x = known_array(x)
        elif refuse is not None:
            x.refuse()
        if not isinstance(x, Tracer):
            leaving.check_result(x, trace.name, loc)
            outputs.append(OutLeaf(Kind.STATIC, value=names.original(x)))
            returned.append(None)
            continue
        x = trace.lift(x)
        again = next((k for k, y in enumerate(returned) if y is x), None)
        returned.append(x)
        if again is not None and trace.parent is None:
            outputs.append(outputs[again])
            continue
        weak = x.weak and x.element_type.is_inexact  # ints leave as NumPy scalars
        kind = Kind.WEAK if weak else Kind.SCALAR if x.scalar else Kind.ARRAY
        outputs.append(OutLeaf(kind, len(operands)))
        operands.append(trace.operand(x))
    return operands, outputs, tree, returned  # type: ignore[return-value]


def _close(
    trace: Trace, captures: Captures, operands: Sequence[Operand], parent: Trace | None
) -> Outside:
    """Drop inputs of arrays that were looked at and never used; the outermost trace only."""
    if parent is not None:
        return Outside()
    used = {x for x in operands if isinstance(x, Value)}
    for node in trace.builder.nodes:
        used.update(node.values())
    outside, dropped = captures.close(used)
    keep = [k for k, v in enumerate(trace.builder.inputs) if v not in dropped]
    trace.builder.inputs[:] = [trace.builder.inputs[k] for k in keep]
    trace.builder.tracked[:] = [trace.builder.tracked[k] for k in keep]
    return outside


def _inputs(
    trace: Trace, signature: CallSignature, captures: Captures, shared: Sharing
) -> tuple[Input, ...]:
    out = [
        Input(leaf=k)
        for k, leaf in enumerate(signature.leaves)
        if leaf.is_traced and k not in shared.leaves
    ]
    out += [Input(group=k) for k in range(len(shared.groups))]
    if trace.parent is None:
        inside = {id(x) for x in captures.shared.values()}
        out += [Input(array=k) for k, x in enumerate(captures.kept) if id(x) not in inside]
    else:
        out += [Input(outer=k) for k in range(len(trace.captures))]
    assert len(out) == len(trace.builder.inputs), "every input has a source"
    return tuple(out)


def _defined(fn: Any) -> SourceLoc | None:
    while isinstance(fn, (partial, MethodType)):
        fn = fn.func if isinstance(fn, partial) else fn.__func__
    if not isinstance(fn, FunctionType):
        return None
    return source.of_code(fn.__code__)
