"""`checkpoint`: keep the arguments of a function for its gradient, and compute the rest again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracegrad import nested, source
from tracegrad.errors import UnsupportedError
from tracegrad.ops.control import CheckpointAttrs
from tracegrad.ops.control import checkpoint as checkpoint_op
from tracegrad.trace.modes import current_trace
from tracegrad.trace.signature import Signature


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, whose intermediate values are not kept for a gradient but computed again when it is
    taken (JAX's ``checkpoint``, PyTorch's ``utils.checkpoint``).  Use it around parts of a
    computation whose intermediates are large; the loops of one are cut by ``memory_limit``.

    Raises:
        UnsupportedError: `f` writes an array that it did not make.
    """
    signature = Signature(f)

    @functools.wraps(f)
    def called(*args: Any, **keywords: Any) -> Any:
        outer = current_trace()
        if outer is None:
            return f(*args, **keywords)
        region = nested.enter_region(f, args, keywords, signature, lambda call: (), outer)
        if region.written:
            raise UnsupportedError(
                f"{signature.name} writes {region.graph.inputs[region.written[0]].hint} inside "
                "tg.checkpoint",
                loc=source.here(),
                remedy="Write a copy, and return it.",
            )
        attrs = CheckpointAttrs(tuple(region.output_types()))
        hints = [getattr(x, "hint", "value") for x in region.graph.outputs]
        made = outer.apply_region(checkpoint_op, region.operands, attrs, (region.graph,), hints)
        for leaf in region.traced.outputs:
            if leaf.index is not None:
                nested.as_kind(made[leaf.index], leaf.kind)
        return nested.result_of(region, made)

    return called
