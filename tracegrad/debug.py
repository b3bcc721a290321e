"""Looking at values while a compiled function runs."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError
from tracegrad.ops.handles import copy
from tracegrad.trace.modes import current_trace
from tracegrad.trace.tracer import Tracer


def print(fmt: str, *values: Any, **named: Any) -> None:
    """Print ``fmt.format(*values, **named)`` at each call of the compiled function.

    The values are those of this moment; the lines appear in order when the call is done.
    Outside a compiled function it prints at once.

    Raises:
        ArgumentError: `fmt` is not a string, or does not fit the values.
    """
    if not isinstance(fmt, str):
        raise ArgumentError(
            f"debug.print: the format is a {type(fmt).__name__}, not a string",
            loc=source.here(),
            remedy='Write tg.debug.print("x = {}", x).',
        )
    trace = current_trace()
    if trace is None:
        builtins.print(fmt.format(*values, **named))
        return

    try:  # now: at run time the arguments would have been written
        fmt.format(*map(_sample, values), **{k: _sample(x) for k, x in named.items()})
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as e:
        raise ArgumentError(
            f"debug.print: the format {fmt!r} does not fit: {e}",
            loc=source.here(),
            remedy="Give one value for each field; arrays take no format such as .2f.",
        ) from None

    def kept(x: Any) -> Any:
        if not isinstance(x, Tracer):
            return x
        if x.concrete is not None:
            return x.concrete.copy()
        return trace.apply(copy, (x,), scalar=x.scalar, weak=x.weak)

    trace.prints.append((fmt, tuple(map(kept, values)), {k: kept(v) for k, v in named.items()}))


def _sample(x: Any) -> Any:
    """What a value will be like when it is printed."""
    if not isinstance(x, Tracer):
        return x
    zeros = np.zeros(x.sizes, x.element_type.np)
    return zeros[()] if x.scalar else zeros
