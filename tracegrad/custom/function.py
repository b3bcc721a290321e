"""`Function`: a forward and its derivative, in PyTorch's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import nested, source
from tracegrad.custom.context import Context
from tracegrad.custom.depth import inner_name, level
from tracegrad.custom.outcome import Outcome, settle
from tracegrad.custom.record import Forward, RuleRegion, Value, emit, trace_rule, trace_value
from tracegrad.custom.returned import deliver
from tracegrad.custom.shapes import as_gradient
from tracegrad.errors import GradientError
from tracegrad.trace.masked import MaskedRead
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace, no_grad
from tracegrad.trace.tracer import Trace

# Set by the package that runs tensors at the prompt: ``(cls, args)`` -> the result, or
# NotImplemented when none of the arguments is such a tensor.
AT_THE_PROMPT: list[Callable[[type[Function], tuple[Any, ...]], Any]] = []


class Function:
    """Base of functions with a derivative of their own::

        class Cube(tg.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x ** 3

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return 3 * x ** 2 * g

        y = Cube.apply(x)

    `forward` runs with gradients off; `backward` gets one cotangent a result and returns one
    gradient an input (None: zero, or not a tensor).  An optional static ``jvp(ctx, *tangents)``
    gives tangents of the results; without it forward mode uses the transpose of `backward`.
    With ``setup_context(ctx, inputs, output)``, `forward` takes no context.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The value."""
        raise GradientError("a tg.Function needs a static method forward", kind="custom_rule")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fill the context after a `forward` that takes none."""

    backward: Any = None
    jvp: Any = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function.  Outside a trace plain arrays give `forward`'s value."""
        trace = current_trace()
        if trace is not None:
            with level(trace.names.original(cls)) as has_rules:
                return _record(cls, trace, args, has_rules)
        for run in AT_THE_PROMPT:
            found = run(cls, args)
            if found is not NotImplemented:
                return found
        with no_grad():
            return run_forward(cls, Context((False,) * len(args)), args)


def run_forward(
    cls: Any, ctx: Context, args: tuple[Any, ...], seen: Callable[[Any], Any] = lambda f: f
) -> Any:
    """``forward(ctx, *args)`` in the form that `cls` has; `seen` is a function as traced code
    sees it."""
    if cls.setup_context is Function.setup_context:
        return seen(cls.forward)(ctx, *args)
    result = seen(cls.forward)(*args)
    seen(cls.setup_context)(ctx, args, result)
    return result


# ------------------------------------------------------------------------------ inside a trace


def _record(cls: Any, outer: Trace, args: tuple[Any, ...], has_rules: bool) -> Any:
    outer.place()
    for x in args:
        if isinstance(x, MaskedRead):
            x.refuse()
    spots = [k for k, x in enumerate(args) if isinstance(x, (Tracer, np.ndarray))]
    operands = [nested.as_tracer(outer, args[k]) for k in spots]
    needs = [False] * len(args)
    for k, x in zip(spots, operands, strict=True):
        needs[k] = x.element_type.is_inexact and x.concrete is None
    ctx = Context(tuple(needs))
    outcomes: list[Outcome] = []

    def run(tensors: tuple[Tracer, ...]) -> Value:
        given = list(args)
        for k, x in zip(spots, tensors, strict=True):
            given[k] = x
        result = run_forward(cls, ctx, tuple(given), outer.names.call)
        outcomes.append(settle(cls.__name__, ctx, tensors, result))
        return outcomes[0].value

    name = cls.__name__ if has_rules else inner_name(cls.__name__)
    forward = trace_value(outer, name, operands, run, grad=False)
    (outcome,) = outcomes
    rules = []
    if has_rules and cls.backward is not None:
        rules.append(_backward(cls, forward, outcome, ctx, spots, len(args)))
    if has_rules and cls.jvp is not None:
        rules.append(_jvp(cls, forward, outcome, ctx, spots, len(args)))
    results = emit(forward, rules, through=False)
    return deliver(forward, outcome, results, [args[k] for k in spots])


def _differentiable(outcome: Outcome) -> list[int]:
    return [
        k
        for k, x in enumerate(outcome.value.results)
        if x.element_type.is_inexact and k not in outcome.constant
    ]


def _backward(
    cls: Any, forward: Forward, outcome: Outcome, ctx: Context, spots: list[int], count: int
) -> RuleRegion:
    given = _differentiable(outcome)

    def run(slots: list[Tracer], cts: dict[int, Tracer]) -> dict[int, Tracer]:
        cotangents = [
            None if k is None else cts[k] if k in cts else _zero(outcome.value.results[k], ctx)
            for k in outcome.places
        ]
        rule = forward.outer.names.call(cls.backward)
        grads = rule(outcome.context(ctx, slots), *cotangents)
        grads = grads if isinstance(grads, (tuple, list)) else (grads,)
        if len(grads) < count or any(g is not None for g in grads[count:]):
            raise GradientError(
                f"{cls.__name__}.backward returns {len(grads)} gradients, and forward takes "
                f"{count} inputs",
                kind="custom_rule",
                loc=source.here(),
                remedy="Return one gradient an input; None where there is none.",
            )
        out = {}
        for k, g in enumerate(grads[:count]):
            if g is None:
                continue
            if k not in spots:
                raise GradientError(
                    f"{cls.__name__}.backward returns a gradient of input {k}, which is not a "
                    "tensor",
                    kind="custom_rule",
                    loc=source.here(),
                    remedy="Return None in its place.",
                )
            at = spots.index(k)
            like = forward.arguments[at]
            if like.element_type.is_inexact:
                out[at] = as_gradient(g, like, f"{cls.__name__}.backward, gradient {k}")
        return out

    return trace_rule(forward, "vjp", given, run)


def _jvp(
    cls: Any, forward: Forward, outcome: Outcome, ctx: Context, spots: list[int], count: int
) -> RuleRegion:
    given = [k for k, x in enumerate(forward.arguments) if x.element_type.is_inexact]

    def run(slots: list[Tracer], ts: dict[int, Tracer]) -> dict[int, Tracer]:
        tangents: list[Any] = [None] * count
        for at, k in enumerate(spots):
            tangents[k] = ts[at] if at in ts else _zero(forward.arguments[at], ctx)
        rule = forward.outer.names.call(cls.jvp)
        moved = rule(outcome.context(ctx, slots, for_jvp=True), *tangents)
        moved = moved if isinstance(moved, (tuple, list)) else (moved,)
        if len(moved) != len(outcome.places):
            raise GradientError(
                f"{cls.__name__}.jvp returns {len(moved)} tangents, and forward "
                f"{len(outcome.places)} results",
                kind="custom_rule",
                loc=source.here(),
                remedy="Return one tangent a result; None where it is zero.",
            )
        wanted = _differentiable(outcome)
        return {
            k: as_gradient(t, outcome.value.results[k], f"{cls.__name__}.jvp, tangent {k}")
            for k, t in zip(outcome.places, moved, strict=True)
            if k is not None and t is not None and k in wanted
        }

    return trace_rule(forward, "jvp", given, run)


def _zero(like: Tracer, ctx: Context) -> Tracer | None:
    """The cotangent of a result that has none."""
    if not ctx._notes.materialize:
        return None
    trace = current_trace()
    assert trace is not None
    return trace.concrete(np.zeros(like.sizes, like.element_type.np))
