"""Looking at values while a compiled function runs."""

from __future__ import annotations

import builtins
from typing import Any

from tracegrad.errors import ArgumentError
from tracegrad.ops.views import copy
from tracegrad.trace.modes import current_trace
from tracegrad.trace.tracer import Tracer


def print(fmt: str, *values: Any, **named: Any) -> None:
    """Print ``fmt.format(*values, **named)`` at each call of the compiled function.

    The values are those of this moment; the lines appear in order when the call is done.
    Outside a compiled function it prints at once.

    Raises:
        ArgumentError: `fmt` is not a string.
    """
    if not isinstance(fmt, str):
        raise ArgumentError(f"debug.print: the format is a {type(fmt).__name__}, not a string",
                            remedy='Write tg.debug.print("x = {}", x).')
    trace = current_trace()
    if trace is None:
        builtins.print(fmt.format(*values, **named))
        return

    def kept(x: Any) -> Any:
        if not isinstance(x, Tracer):
            return x
        if x.concrete is not None:
            return x.concrete.copy()
        return trace.apply(copy, (x,), scalar=x.scalar, weak=x.weak)

    trace.prints.append((fmt, tuple(map(kept, values)), {k: kept(v) for k, v in named.items()}))
