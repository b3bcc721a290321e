"""Gradients that a rule returned, in the shape and dtype of what they belong to."""

from __future__ import annotations

from typing import Any

from tracegrad import nested, source
from tracegrad.errors import GradientError
from tracegrad.graph.storage import Reshape
from tracegrad.ops.cast import CastAttrs, cast
from tracegrad.ops.reduce import sum_
from tracegrad.trace.memory import Tracer
from tracegrad.trace.modes import current_trace


def as_gradient(g: Any, like: Tracer, what: str) -> Tracer:
    """`g` with the dtype of `like`; a gradient to which `like` broadcasts is summed.

    Raises:
        GradientError: another shape, or a value without a gradient's dtype.
    """
    trace = current_trace()
    assert trace is not None
    x = nested.as_tracer(trace, g)
    if x.element_type.is_bool:
        raise GradientError(f"{what} is boolean", kind="custom_rule", loc=source.here())
    if x.element_type is not like.element_type:
        x = trace.apply(cast, (x,), CastAttrs(like.element_type))
    if x.sizes != like.sizes:
        x = _summed(x, like, what)
    return x


def _summed(x: Tracer, like: Tracer, what: str) -> Tracer:
    lead = len(x.sizes) - len(like.sizes)
    if lead < 0 or any(n not in (1, m) for n, m in zip(like.sizes, x.sizes[lead:], strict=True)):
        raise GradientError(
            f"{what} has shape {x.sizes}, and the value it belongs to {like.sizes}",
            kind="custom_rule",
            loc=source.here(),
        )
    trace = x.trace
    axes = [
        *range(lead),
        *(k + lead for k, n in enumerate(like.sizes) if n == 1 and x.sizes[k + lead] != 1),
    ]
    x = trace.apply(sum_, (x,), sum_.attrs(tuple(axes)))
    if x.sizes != like.sizes:
        x = trace.read(x, Reshape(like.sizes))
    return x
