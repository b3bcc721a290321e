"""`custom_vjp` and `custom_jvp`: functions of values with rules of their own, in JAX's form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any

import numpy as np
import optree

from tracegrad import nested, source
from tracegrad.custom.depth import inner_name, level
from tracegrad.custom.record import Forward, Value, emit, trace_rule, trace_value
from tracegrad.custom.shapes import as_gradient
from tracegrad.errors import ArgumentError, GradientError, UnsupportedError
from tracegrad.ops.handles import copy
from tracegrad.trace.leaves import NAMESPACE
from tracegrad.trace.masked import MaskedRead
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace
from tracegrad.trace.substitute_table import known_array
from tracegrad.trace.tracer import Trace


class _Call:
    """The arguments of one call: tensors among the leaves of those that have a derivative."""

    def __init__(self, outer: Trace, args: Sequence[Any], nondiff: frozenset[int]) -> None:
        self.args = tuple(args)
        self.nondiff = nondiff
        self.positions = [k for k in range(len(args)) if k not in nondiff]
        moving: Any = tuple(args[k] for k in self.positions)
        self.leaves, self.tree = optree.tree_flatten(moving, none_is_leaf=True, namespace=NAMESPACE)
        for x in self.leaves:
            if isinstance(x, MaskedRead):
                x.refuse()
        self.spots = [
            k
            for k, x in enumerate(self.leaves)
            if isinstance(x, (Tracer, np.ndarray, float, np.generic))
        ]
        self.operands = [nested.as_tracer(outer, self.leaves[k]) for k in self.spots]

    @property
    def constants(self) -> list[Any]:
        """The arguments without a derivative, in order."""
        return [self.args[k] for k in sorted(self.nondiff)]

    def primals(self, tensors: Sequence[Tracer]) -> tuple[Any, ...]:
        """The differentiated arguments, made of these tensors."""
        leaves = list(self.leaves)
        for k, x in zip(self.spots, tensors, strict=True):
            leaves[k] = x
        return self.tree.unflatten(leaves)  # type: ignore[return-value]

    def whole(self, tensors: Sequence[Tracer]) -> list[Any]:
        """All arguments, the differentiated ones made of these tensors."""
        out = list(self.args)
        for k, x in zip(self.positions, self.primals(tensors), strict=True):
            out[k] = x
        return out


class _Result:
    """A structure of results: tensors by number, other leaves as they are."""

    def __init__(self, value: Value, result: Any) -> None:
        trace = current_trace()
        assert trace is not None
        self.leaves, self.tree = optree.tree_flatten(result, none_is_leaf=True, namespace=NAMESPACE)
        self.spots = []
        for k, x in enumerate(self.leaves):
            x = known_array(x) if isinstance(x, np.ndarray) else x
            if isinstance(x, Tracer):
                self.spots.append(k)
                # A value of its own: results of these functions never alias.
                value.results.append(trace.apply(copy, (x,), scalar=x.scalar, weak=x.weak))

    def rebuild(self, tensors: Sequence[Any], other: Callable[[Any], Any] = lambda x: x) -> Any:
        leaves = [other(x) for x in self.leaves]
        for k, x in zip(self.spots, tensors, strict=True):
            leaves[k] = x
        return self.tree.unflatten(leaves)


class _Custom:
    """What both forms share."""

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: int | Iterable[int] = ()) -> None:
        if not callable(fun):
            raise ArgumentError(f"a custom derivative needs a function, not {type(fun).__name__}")
        functools.update_wrapper(self, fun, updated=())
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        self.fun = fun
        self.nondiff = frozenset(nums)
        self.__name__ = getattr(fun, "__name__", type(fun).__name__)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        try:
            signature = inspect.signature(self.fun)
        except (ValueError, TypeError):
            signature = None
        if signature is None and not kwargs:
            return args
        try:
            bound = signature.bind(*args, **kwargs)  # type: ignore[union-attr]
        except (TypeError, AttributeError) as e:
            raise ArgumentError(f"{self.__name__}: {e}", loc=source.here()) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise ArgumentError(
                f"{self.__name__} has a custom derivative and takes no keyword-only arguments",
                loc=source.here(),
            )
        return bound.args

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return self.fun(*args, **kwargs)
        trace.place()
        call = _Call(trace, self._bind(args, kwargs), self.nondiff)
        with level(self) as has_rules:
            return self._record(trace, call) if has_rules else self._plain(trace, call)

    def _record(self, outer: Trace, call: _Call) -> Any:
        raise AssertionError

    def _plain(self, outer: Trace, call: _Call) -> Any:
        """The call without rules."""
        found: list[_Result] = []

        def run(tensors: tuple[Tracer, ...]) -> Value:
            value = Value(tensors)
            found.append(_Result(value, outer.names.call(self.fun)(*call.whole(tensors))))
            return value

        forward = trace_value(outer, inner_name(self.__name__), call.operands, run, grad=True)
        return self._deliver(forward, found[0], emit(forward, [], through=True))

    def _deliver(self, forward: Forward, result: _Result, made: Sequence[Tracer]) -> Any:
        _refuse_writes(self.__name__, forward)
        return result.rebuild(made[: len(result.spots)])


class custom_vjp(_Custom):
    """A function with a reverse rule of its own::

        @tg.custom_vjp
        def f(x, y): ...

        def fwd(x, y):                 # -> (result, residuals)
            return f(x, y), (np.cos(x), y)

        def bwd(residuals, ct):        # -> one cotangent an argument
            ...

        f.defvjp(fwd, bwd)

    Arguments and results are containers of arrays, passed as values.  ``bwd`` gets the arguments
    of `nondiff_argnums` first.  Residuals are differentiated as the functions that they are, so
    second derivatives are right.  Forward mode uses the transpose of `bwd`, which must be linear
    in `ct`.
    """

    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rules."""
        self.fwd, self.bwd = fwd, bwd

    def _record(self, outer: Trace, call: _Call) -> Any:
        fwd, bwd = self.fwd, self.bwd
        if fwd is None or bwd is None:
            raise GradientError(
                f"{self.__name__} has no rules",
                kind="custom_rule",
                loc=source.here(),
                remedy=f"Call {self.__name__}.defvjp(fwd, bwd).",
            )
        found: list[tuple[_Result, Any]] = []

        def run(tensors: tuple[Tracer, ...]) -> Value:
            value = Value(tensors)
            pair = outer.names.call(fwd)(*call.whole(tensors))
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise GradientError(
                    f"the forward rule of {self.__name__} must return (result, residuals)",
                    kind="custom_rule",
                    loc=source.here(),
                )
            result = _Result(value, pair[0])
            found.append((result, _slots(value, pair[1])))
            return value

        forward = trace_value(outer, self.__name__, call.operands, run, grad=True)
        result, residuals = found[0]
        given = [k for k, x in enumerate(forward.value.results) if x.element_type.is_inexact]

        def rule(slots: list[Tracer], cts: dict[int, Tracer]) -> dict[int, Tracer]:
            ct = result.rebuild([cts.get(k) for k in range(len(result.spots))], lambda x: None)
            grads = outer.names.call(bwd)(*call.constants, residuals(slots), ct)
            return self._gradients(call, forward, grads)

        made = emit(forward, [trace_rule(forward, "vjp", given, rule)], through=True)
        return self._deliver(forward, result, made)

    def _gradients(self, call: _Call, forward: Forward, grads: Any) -> dict[int, Tracer]:
        count = len(call.positions)
        if not isinstance(grads, (tuple, list)) or len(grads) != count:
            got = len(grads) if isinstance(grads, (tuple, list)) else type(grads).__name__
            raise GradientError(
                f"the backward rule of {self.__name__} must return a tuple of {count} "
                f"cotangents, one an argument, not {got}",
                kind="custom_rule",
                loc=source.here(),
            )
        leaves: list[Any] = []
        for part, g in zip(call.tree.children(), grads, strict=True):
            leaves += [None] * part.num_leaves if g is None else _matched(part, g, self.__name__)
        out = {}
        for at, k in enumerate(call.spots):
            like = forward.arguments[at]
            if leaves[k] is not None and like.element_type.is_inexact:
                out[at] = as_gradient(leaves[k], like, f"the cotangent {at} of {self.__name__}")
        return out


class custom_jvp(_Custom):
    """A function with a forward rule of its own::

        @tg.custom_jvp
        def f(x, y): ...

        @f.defjvp
        def rule(primals, tangents):   # -> (result, tangent of the result)
            ...

    Arguments and results are containers of arrays, passed as values.  The rule gets the
    arguments of `nondiff_argnums` first; reverse mode uses its transpose, so it must be linear in
    `tangents`.
    """

    rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; a decorator."""
        self.rule = rule
        return rule

    def defjvps(self, *parts: Callable[..., Any] | None) -> None:
        """One rule an argument, ``(tangent, result, *primals) -> tangent of the result`` (None:
        zero); they are summed."""

        def rule(*given: Any) -> tuple[Any, Any]:
            *constants, primals, tangents = given
            result = self.fun(*constants, *primals)
            moved = [
                part(t, result, *primals)
                for part, t in zip(parts, tangents, strict=True)
                if part is not None
            ]
            total = functools.reduce(
                lambda x, y: optree.tree_map(lambda a, c: a + c, x, y, namespace=NAMESPACE), moved
            )
            return result, total

        if not any(parts):
            raise ArgumentError("defjvps needs a rule for at least one argument")
        self.rule = rule

    def _record(self, outer: Trace, call: _Call) -> Any:
        user = self.rule
        if user is None:
            raise GradientError(
                f"{self.__name__} has no rule",
                kind="custom_rule",
                loc=source.here(),
                remedy=f"Decorate one with @{self.__name__}.defjvp.",
            )
        found: list[_Result] = []

        def run(tensors: tuple[Tracer, ...]) -> Value:
            value = Value(tensors)
            found.append(_Result(value, outer.names.call(self.fun)(*call.whole(tensors))))
            for x in tensors:
                value.slot(x)
            return value

        forward = trace_value(outer, self.__name__, call.operands, run, grad=True)
        (result,) = found
        given = [k for k, x in enumerate(forward.arguments) if x.element_type.is_inexact]

        def rule(slots: list[Tracer], ts: dict[int, Tracer]) -> dict[int, Tracer]:
            leaves: list[Any] = [None] * len(call.leaves)
            for at, k in enumerate(call.spots):
                leaves[k] = ts.get(at)
            pair = outer.names.call(user)(
                *call.constants, call.primals(slots), call.tree.unflatten(leaves)
            )
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise GradientError(
                    f"the rule of {self.__name__} must return (result, tangent)",
                    kind="custom_rule",
                    loc=source.here(),
                )
            moved = _matched(result.tree, pair[1], self.__name__)
            results = forward.value.results
            return {
                j: as_gradient(moved[k], results[j], f"the tangent {j} of {self.__name__}")
                for j, k in enumerate(result.spots)
                if moved[k] is not None and results[j].element_type.is_inexact
            }

        made = emit(forward, [trace_rule(forward, "jvp", given, rule)], through=True)
        return self._deliver(forward, result, made)


def _slots(value: Value, residuals: Any) -> Callable[[list[Tracer]], Any]:
    """The residuals as a function of the values of their slots."""
    trace = current_trace()
    assert trace is not None
    leaves, tree = optree.tree_flatten(residuals, none_is_leaf=True, namespace=NAMESPACE)
    at: dict[int, int] = {}
    for k, x in enumerate(leaves):
        x = known_array(x) if isinstance(x, np.ndarray) else x
        if isinstance(x, Tracer):
            at[k] = value.slot(trace.lift(x))
    return lambda slots: tree.unflatten(
        [slots[at[k]] if k in at else x for k, x in enumerate(leaves)]
    )


def _matched(tree: optree.PyTreeSpec, given: Any, name: str) -> list[Any]:
    """The leaves of `given`, which has the structure `tree` (None stands for zero)."""
    try:
        return tree.flatten_up_to(given)
    except (ValueError, TypeError) as e:
        raise GradientError(
            f"a rule of {name} returns another structure than the value it belongs to: {e}",
            kind="custom_rule",
            loc=source.here(),
        ) from None


def _refuse_writes(name: str, forward: Forward) -> None:
    graph = forward.traced.graph
    inputs = {v.storage for v in graph.inputs}
    for node in graph.nodes:
        if node.target is not None and node.target.storage in inputs:
            raise UnsupportedError(
                f"{name} has a rule on values and writes one of its arguments in place",
                kind="custom_write",
                loc=node.loc,
                remedy="Write a copy, or use tg.Function with ctx.mark_dirty.",
            )
