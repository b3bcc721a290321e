"""`scan`, `fori_loop` and `while_loop`: functions traced into the region of one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optree

from tracegrad import dims, source
from tracegrad.dims import Dim, symbol
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import ArgumentError, RuntimeValueError, ShapeError, UnsupportedError
from tracegrad.graph.ir import Literal
from tracegrad.ops.branch import RequireAttrs, WhileAttrs, require, while_
from tracegrad.ops.cast import cast as cast_op
from tracegrad.ops.compare import logical_not
from tracegrad.ops.control import LoopAttrs, PositionAttrs, loop, position, stacked
from tracegrad.trace.carried import Leaf, check_tree, final_operands, leaf_of, settle
from tracegrad.trace.leaves import flatten
from tracegrad.trace.modes import STATE
from tracegrad.trace.promote import as_arg, shape_of
from tracegrad.trace.regions import (
    Asked,
    Index,
    Region,
    as_leaf,
    emit,
    join,
    operands_of,
    run_region,
    were_numbers,
    write_back,
)
from tracegrad.trace.symbolic import SymbolicInt, integer
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.types import TensorType

ROUNDS = 8  # traces of a body until the types that it carries come to rest


@dataclass(slots=True, eq=False)
class Carried:
    """What goes from one iteration to the next."""

    leaves: list[Leaf]
    tree: optree.PyTreeSpec
    what: str

    def enter(self, trace: Trace) -> tuple[list[Tracer], Any]:
        """The carry inside a region: its inputs, and the user's structure of them."""
        inside = [leaf.enter(trace, "carry") for leaf in self.leaves]
        return inside, self.tree.unflatten(inside)


@dataclass(slots=True, eq=False)
class Iteration:
    """A body that has been traced: next carries, then values to be stacked."""

    region: Region
    after: list[Tracer | Literal]
    numbers: list[bool]
    stacked: list[Tracer | Literal] = field(default_factory=list)
    stacked_tree: Any = None


def carried(outer: Trace, init: Any, what: str) -> Carried:
    leaves, tree = flatten(init)
    for x in leaves:
        if isinstance(x, (str, bytes)) or callable(x):
            raise ArgumentError(
                f"{what} cannot carry {x!r}",
                loc=source.here(),
                remedy="Carry arrays and numbers, and close over other objects.",
            )
    return Carried([leaf_of(outer, x) for x in leaves], tree, what)


def settled(state: Carried, trace_body: Callable[[], Iteration]) -> Iteration:
    """The body traced until what it carries keeps its types."""
    for _ in range(ROUNDS):
        done = trace_body()
        if not settle(
            done.region.trace, state.leaves, state.tree, done.after, done.numbers, state.what
        ):
            done.region.outputs = final_operands(done.region.trace, state.leaves, done.after)
            return done
    raise UnsupportedError(
        f"the types that {state.what} carries do not come to rest",
        kind="carry_type",
        loc=source.here(),
    )


# ------------------------------------------------------------------------------ counted loops


def fori(outer: Trace, lower: int, upper: int, body: Callable[..., Any], init: Any) -> Any:
    """`fori_loop` with known bounds, at least one iteration."""
    state = carried(outer, init, "the body of fori_loop")
    run = _inside(outer, body)

    def step(carry: Any, at: Any, trace: Trace) -> tuple[Any, Any]:
        return run(at, carry), None

    return _counted(outer, state, lower, upper - lower, False, step, "fori_loop")[0]


def scan(
    outer: Trace, f: Callable[..., Any], init: Any, xs: Any, trips: int, reverse: bool
) -> tuple[Any, Any]:
    """``(last carry, stacked results)``."""
    state = carried(outer, init, "the body of scan")
    run = _inside(outer, f)
    leaves, tree = flatten(xs)
    arrays = [_moving(outer, x) for x in leaves]

    def step(carry: Any, at: Any, trace: Trace) -> tuple[Any, Any]:
        if trips:
            elements = [x[at] for x in arrays]
        else:
            faces: Any = trace.face
            elements = [
                trace.argument(
                    TensorType(x.sizes[1:], x.element_type),
                    "x",
                    tracked=False,
                    scalar=faces.numpy_scalars and len(x.sizes) == 1,
                )
                for x in arrays
            ]
        out = run(carry, tree.unflatten(elements))
        if not isinstance(out, tuple) or len(out) != 2:
            raise ArgumentError(
                "the body of scan returns (carry, y)",
                loc=source.here(),
                remedy="Return (carry, None) where nothing is stacked.",
            )
        return out

    if not trips:
        return _no_steps(outer, state, init, step)
    return _counted(outer, state, 0, trips, reverse, step, "scan")


def _no_steps(outer: Trace, state: Carried, init: Any, step: Callable[..., Any]) -> Any:
    """A scan of nothing: its body is traced for the types of what it stacks."""
    done = settled(state, lambda: _iteration(outer, state, step, Index(), 0, "scan"))
    ys = [outer.concrete(np.zeros((0, *shape_of(y)), _dtype(y).np)) for y in done.stacked]
    return init, done.stacked_tree.unflatten(ys)


def _moving(outer: Trace, x: Any) -> Any:
    given = as_arg(outer, x)
    assert isinstance(given, Tracer)
    if given.concrete is not None:
        given.memory.trace._promote(given.memory)  # type: ignore[attr-defined]
    return given


def _counted(
    outer: Trace,
    state: Carried,
    lower: int,
    trips: int,
    reverse: bool,
    step: Callable[..., Any],
    name: str,
) -> tuple[Any, Any]:
    """A `loop` node over ``step(carry, index, trace) -> (carry, y)``."""
    index = Index(symbolic=True)
    index.index = symbol(index.name, 0, trips - 1)
    at = dims.add(lower, index.index)
    depth = len(STATE.traces)
    try:
        done = settled(state, lambda: _iteration(outer, state, step, index, integer(at), name))
    except Asked as e:
        if e.index is not index:
            raise
        index.symbolic = False  # it is a value, as in JAX
        del STATE.traces[depth:]
        done = settled(state, lambda: _iteration(outer, state, step, index, at, name))
    n, trace = len(state.leaves), done.region.trace
    done.region.outputs += [trace.operand(y) for y in done.stacked]
    joined = join([done.region])
    (graph,) = joined.close(outer, first=n, writers=[done.region])
    m = n + len(joined.written)
    types = [x.type for x in graph.inputs[:m]]
    types += [stacked(index.name, trips, y.type) for y in graph.outputs[m:]]
    attrs = LoopAttrs(index.name, trips, reverse, m, len(joined.read), tuple(types))
    given = [
        *(leaf.start(outer) for leaf in state.leaves),
        *(outer.base_of(x) for x in (*joined.written, *joined.read)),
    ]
    hints = [*("carry",) * n, *(x.hint for x in graph.inputs[n:m]), *("y",) * len(done.stacked)]
    out = emit(outer, loop, given, attrs, (graph,), hints)
    write_back(outer, joined.written, out[n:m])
    return _carry(state, out[:n]), done.stacked_tree.unflatten(out[m:])


def _iteration(
    outer: Trace, state: Carried, step: Callable[..., Any], index: Index, at: Any, name: str
) -> Iteration:
    """One trace of a body; an index that is a `Dim` is given as a value."""

    def call(trace: Trace) -> Any:
        inside, carry = state.enter(trace)
        where = _position(trace, at) if isinstance(at, dims.Expr) else at
        after, y = step(carry, where, trace)
        leaves, tree = flatten(after)
        check_tree(state.tree, tree, state.what)
        ys, y_tree = flatten(y)
        return (
            inside,
            operands_of(trace, leaves, state.what),
            were_numbers(leaves),
            operands_of(trace, ys, state.what),
            y_tree,
        )

    trace, (inside, after, numbers, ys, tree) = run_region(outer, name, call, index)
    inputs = [x.memory.base for x in inside]
    return Iteration(Region(trace, inputs, []), after, numbers, ys, tree)  # type: ignore


def _position(trace: Trace, at: Dim) -> Tracer:
    trace.place()
    value = trace.builder.emit(position, (), PositionAttrs(at))
    faces: Any = trace.face
    return trace._base(value, False, scalar=faces.numpy_scalars)


def _carry(state: Carried, results: Sequence[Tracer]) -> Any:
    for leaf, x in zip(state.leaves, results, strict=True):
        as_leaf(x, leaf)
    return state.tree.unflatten(results)


# ------------------------------------------------------------------------- until a condition


def counted(
    outer: Trace, lower: Any, upper: Any, body: Callable[..., Any], init: Any, most: int | None
) -> Any:
    """`fori_loop` with bounds that are traced."""
    lo, hi = _integer(outer, lower, "lower"), _integer(outer, upper, "upper")
    run = _inside(outer, body)
    return repeat(
        outer,
        lambda s: s[0] < hi,
        lambda s: (s[0] + 1, run(s[0], s[1])),
        (lo, init),
        most,
        what="fori_loop",
    )[1]


def _integer(outer: Trace, x: Any, name: str) -> Any:
    if isinstance(x, SymbolicInt):
        x = x.value()
    given = as_arg(outer, x)
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    dtype = given.dtype if isinstance(given, Literal) else getattr(given, "element_type", None)
    if dtype is None or not dtype.is_integer:
        raise ArgumentError(f"{name} of fori_loop is an integer", loc=source.here())
    if isinstance(given, Literal):
        return given.value
    assert isinstance(given, Tracer), "Python numbers have no dtype"
    faces: Any = outer.face
    return outer.apply(cast_op, (given,), cast_op.attrs(dtype=I64), scalar=faces.numpy_scalars)


def repeat(
    outer: Trace,
    test: Callable[..., Any],
    body: Callable[..., Any],
    init: Any,
    most: int | None,
    what: str = "while_loop",
) -> Any:
    """`while_loop`."""
    state = carried(outer, init, f"the body of {what}")
    ask, run = _inside(outer, test), _inside(outer, body)
    index = Index()

    def step(carry: Any, at: Any, trace: Trace) -> tuple[Any, Any]:
        return run(carry), None

    done = settled(state, lambda: _iteration(outer, state, step, index, 0, what))
    asked = _tested(outer, state, ask, index, what)
    joined = join([asked, done.region])
    if any(asked.writes(m) for m in joined.written):
        raise UnsupportedError(
            f"the condition of {what} writes an array",
            loc=source.here(),
            kind="condition_write",
            remedy="Write it in the body.",
        )
    graphs = joined.close(outer, first=len(state.leaves), writers=[done.region])
    n = len(state.leaves)
    m = n + len(joined.written)
    types = tuple(x.type for x in graphs[1].inputs[:m])
    given = [
        *(leaf.start(outer) for leaf in state.leaves),
        *(outer.base_of(x) for x in (*joined.written, *joined.read)),
    ]
    attrs = WhileAttrs(index.name, most or 0, m, len(joined.read), types)
    out = emit(
        outer,
        while_,
        given,
        attrs,
        graphs,
        [*("carry",) * n, *(x.hint for x in graphs[1].inputs[n:m])],
    )
    write_back(outer, joined.written, out[n:])
    result = _carry(state, out[:n])
    if most is not None:
        _check_over(outer, ask, result, most, what)
    return result


def _tested(
    outer: Trace, state: Carried, ask: Callable[..., Any], index: Index, what: str
) -> Region:
    """The condition as a region of one bool."""

    def call(trace: Trace) -> Any:
        inside, carry = state.enter(trace)
        return inside, _truth(trace, ask(carry), what)

    trace, (inside, flag) = run_region(outer, f"{what}.test", call, index)
    return Region(trace, [x.memory.base for x in inside], [trace.operand(flag)])  # type: ignore


def _truth(trace: Trace, x: Any, what: str) -> Tracer | Literal:
    (given,) = operands_of(trace, [x], f"the condition of {what}")
    if shape_of(given) != ():
        raise ShapeError(
            f"the condition of {what} is a scalar, not an array of shape {shape_of(given)}",
            loc=source.here(),
            remedy="Reduce it with np.any or np.all.",
        )
    if _dtype(given) is BOOL:
        return given
    (asked,) = operands_of(
        trace, [given != 0 if isinstance(given, Tracer) else bool(given.value)], what
    )
    return asked


def _check_over(outer: Trace, ask: Callable[..., Any], result: Any, most: int, what: str) -> None:
    """Stop the call where the condition still holds after the last iteration allowed."""
    still = _truth(outer, ask(result), what)
    message = str(too_many(most, what).message)
    if isinstance(still, Literal):
        if still.value:
            raise too_many(most, what)
        return
    outer.place()
    outer.apply(require, (outer.apply(logical_not, (still,)),), RequireAttrs(message))


def too_many(most: int | None, what: str = "while_loop") -> RuntimeValueError:
    return RuntimeValueError(
        f"{what} has not ended after max_trips={most} iterations",
        loc=source.here(),
        remedy="Raise max_trips.",
    )


# ------------------------------------------------------------------------------------- small


def _dtype(x: Tracer | Literal) -> Any:
    return x.type.dtype if isinstance(x, Literal) else x.element_type


def _inside(outer: Trace, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as traced code sees it."""
    return outer.names.call(f) if outer.names is not None else f  # type: ignore[no-any-return]
