"""PyTorch's in-place methods that are not an elementwise op of the registry."""

from __future__ import annotations

from typing import Any

from tracegrad import source
from tracegrad.errors import UnsupportedError
from tracegrad.ops.select import clamp_max, clamp_min, clip
from tracegrad.trace.promote import trace_of
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.views import legality


class TensorInplace(Tracer):
    """Mixin of `Tensor`."""

    __slots__ = ()

    def clamp_(self, min: Any = None, max: Any = None) -> Any:
        from tracegrad.trace.face import write_inplace

        if min is not None and max is not None:
            return write_inplace(self, clip, min, max)
        if min is not None:
            return write_inplace(self, clamp_min, min)
        return write_inplace(self, clamp_max, max)

    clip_ = clamp_

    def detach_(self) -> Any:
        """Cut this tensor from its history, in place.  Refused on views and on arguments."""
        trace = trace_of(self)
        assert isinstance(trace, Trace), "tensors of the prompt have a detach_ of their own"
        loc = trace.place()
        x = trace.lift(self)
        legality.check_detach_inplace(x.alias, loc)
        if any(x.memory.base is value for value in trace.builder.inputs):
            raise UnsupportedError(
                "detach_() of an argument is not supported",
                loc=source.here(),
                remedy="Use x = x.detach().",
            )
        trace.detach_in_place(x)
        return self
