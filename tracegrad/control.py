"""Control flow in JAX's form: `scan`, `fori_loop`, `while_loop`, `cond`, `switch`.

In a traced function each is one node of the graph; at the prompt they run as the Python that they
stand for.  The functions given to them may write arrays in place: those of the enclosing function
are written as Python would, what is carried is a value that starts as a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from tracegrad import source
from tracegrad.dims import bounds
from tracegrad.dtypes import BOOL
from tracegrad.errors import ArgumentError, DTypeError, ShapeError
from tracegrad.trace import branches, iterations
from tracegrad.trace import shape as shapes
from tracegrad.trace.leaves import NAMESPACE, flatten
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.promote import trace_of
from tracegrad.trace.symbolic import Condition, SymbolicInt
from tracegrad.trace.tracer import Trace


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """``true_fun(*operands)`` if `pred`, else ``false_fun(*operands)``; only that one runs.

    `pred` is a bool or a number of shape (); both functions return results of one structure and
    type.  Where `pred` is known while tracing, the other function is not looked at.  Arrays in
    the result are fresh.
    """
    trace = current_trace()
    known = _known_number(pred, "pred", "cond")
    if trace is not None and known is None:
        pred = pred.value() if isinstance(pred, SymbolicInt) else pred
        holds = pred if pred.element_type is BOOL else pred != 0
        return branches.choose(trace, holds, [false_fun, true_fun], operands, "cond")
    return _fresh(_inside(trace, true_fun if known else false_fun)(*operands))


def switch(index: Any, branches_: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """``branches_[index](*operands)``, the index clamped to those there are; only that one runs.

    As `cond` otherwise.
    """
    functions = list(branches_)
    if not functions:
        raise ArgumentError("switch needs at least one branch", loc=source.here())
    trace = current_trace()
    known = _known_number(index, "index", "switch")
    if isinstance(index, (float, complex, np.inexact)) or (
        isinstance(index, Tracer) and not index.element_type.is_integer
    ):
        raise DTypeError(
            "the index of switch is an integer",
            loc=source.here(),
            remedy="For a condition use tg.cond.",
        )
    last = len(functions) - 1
    if trace is not None and known is None and last:
        index = index.value() if isinstance(index, SymbolicInt) else index
        at = np.minimum(np.maximum(index, 0), last)
        return branches.choose(trace, at, functions, operands, "switch")
    at = 0 if known is None else min(max(int(known), 0), last)
    return _fresh(_inside(trace, functions[at])(*operands))


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``carry, y = f(carry, x)`` for each element ``x`` along the first axis of `xs`.

    Returns the last carry and the stacked ``y``.  `init`, `xs` and ``y`` are trees of arrays and
    numbers; without `xs` the function gets None `length` times.  `reverse` starts at the end
    (results keep the order of `xs`).

    Raises:
        DTypeError, ArgumentError: kind ``carry_type``, the carry changes its type or structure.
    """
    trace = current_trace()
    leaves = flatten(xs)[0]
    trips = _length(leaves, length)
    if trace is not None:
        return iterations.scan(trace, f, _fresh(init) if not trips else init, xs, trips, reverse)
    carry, ys = _fresh(init), []
    for k in reversed(range(trips)) if reverse else range(trips):
        x = optree.tree_map(lambda a, k=k: a[k], xs, namespace=NAMESPACE)
        carry, y = f(carry, x)
        ys.append(_fresh(y))
    if not trips:
        raise ArgumentError(
            "scan of no elements outside a traced function has no results",
            loc=source.here(),
            remedy="Call it inside tg.compile.",
        )
    ys = ys[::-1] if reverse else ys
    return carry, optree.tree_map(lambda *parts: _stack(parts), *ys, namespace=NAMESPACE)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[..., Any],
    init_val: Any,
    *,
    max_trips: int | None = None,
) -> Any:
    """``val = body_fun(i, val)`` for i from `lower` to ``upper - 1``; returns the last ``val``.

    More iterations than `max_trips` are an error; with bounds that depend on traced values it
    bounds what the reverse mode keeps, as in `while_loop`.
    """
    _check_max_trips(max_trips)
    trace = current_trace()
    if trace is None:
        val = _fresh(init_val)
        _check_trips(int(upper) - int(lower), max_trips)
        for i in range(int(lower), int(upper)):
            val = body_fun(i, val)
        return val
    lo, hi = _known_number(lower, "lower", "fori_loop"), _known_number(upper, "upper", "fori_loop")
    if lo is not None and hi is not None and hi <= lo:
        return _fresh(init_val)
    if lo is not None and hi is not None:
        _check_trips(int(hi) - int(lo), max_trips)
        return iterations.fori(trace, int(lo), int(hi), body_fun, init_val)
    most = max_trips
    if most is None and lo is not None and isinstance(upper, SymbolicInt):
        high = bounds(upper.dim)[1]
        most = None if high is None else max(high - int(lo), 1)
    return iterations.counted(trace, lower, upper, body_fun, init_val, most)


def while_loop(
    cond_fun: Callable[..., Any],
    body_fun: Callable[..., Any],
    init_val: Any,
    *,
    max_trips: int | None = None,
) -> Any:
    """``val = body_fun(val)`` while ``cond_fun(val)``; returns the last ``val``.

    `max_trips` is a bound on the iterations: one more is an error at run time.  Reverse mode keeps
    what it needs of every iteration in arrays of that length; without a bound they grow as the
    loop runs.  Forward mode keeps nothing.
    """
    _check_max_trips(max_trips)
    trace = current_trace()
    if trace is not None:
        return iterations.repeat(trace, cond_fun, body_fun, init_val, max_trips)
    val, trips = _fresh(init_val), 0
    while cond_fun(val):
        if trips == max_trips:
            raise iterations.too_many(max_trips)
        val, trips = body_fun(val), trips + 1
    return val


# ------------------------------------------------------------------------------------- inside


def _check_max_trips(most: Any) -> None:
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise ArgumentError(f"max_trips is a positive int, not {most!r}", loc=source.here())


def _check_trips(trips: int, most: int | None) -> None:
    if most is not None and trips > most:
        raise iterations.too_many(most, "fori_loop")


def _known_number(x: Any, name: str, where: str) -> Any:
    """The number `x` where it is known now, None for a traced one."""
    if isinstance(x, Condition):
        return bool(x)
    if isinstance(x, SymbolicInt):
        return None
    shape = getattr(x, "shape", ())
    if shape != ():
        raise ShapeError(
            f"{name} of {where} is a scalar, not an array of shape {tuple(shape)}",
            loc=source.here(),
            remedy="For a choice by element use np.where.",
        )
    if isinstance(x, Tracer):
        found = x.contents
        return None if found is None else found.item()
    if isinstance(x, (bool, int, float, complex, np.generic, np.ndarray)):
        return x.item() if isinstance(x, (np.generic, np.ndarray)) else x
    raise ArgumentError(f"{name} of {where} is a number, not {type(x).__name__}", loc=source.here())


def _inside(trace: Trace | None, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as traced code sees it."""
    if trace is None or trace.names is None:
        return f
    return trace.names.call(f)  # type: ignore[no-any-return]


def _fresh(tree: Any) -> Any:
    """Arrays of a result or an initial value with memory of their own."""

    def one(x: Any) -> Any:
        if isinstance(x, Tracer):
            return x if x.scalar else x.clone()  # type: ignore[attr-defined]
        return x.copy() if isinstance(x, np.ndarray) else x

    return optree.tree_map(one, tree, namespace=NAMESPACE)


def _stack(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Tracer):
        return shapes.stack(trace_of(*parts), list(parts), 0)
    return np.stack(parts)


def _length(leaves: Sequence[Any], length: int | None) -> int:
    """The number of iterations of a scan."""
    found = {} if length is None else {length: "length"}
    for x in leaves:
        shape = getattr(x, "shape", ())
        if not shape:
            raise ArgumentError(
                "xs of scan are arrays with a first axis",
                loc=source.here(),
                remedy="Close over what does not change from step to step.",
            )
        found.setdefault(shape[0], f"an array of shape {tuple(shape)}")
    if len(found) != 1:
        raise ArgumentError(
            "scan needs one length: "
            + (", ".join(f"{n} by {w}" for n, w in found.items()) or "give xs or length"),
            loc=source.here(),
        )
    return next(iter(found))
