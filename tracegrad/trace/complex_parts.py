"""Views between complex and real elements, and views of the same bytes as another dtype."""

from __future__ import annotations

from typing import Any

from tracegrad import source
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ShapeError, UnsupportedError, ViewMutationError
from tracegrad.graph.ir import Literal
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Geometry,
    Index,
    Pick,
    Span,
    advance,
)
from tracegrad.ops.create import full
from tracegrad.trace.promote import as_arg, trace_of
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def is_complex(x: Any) -> bool:
    """Whether the elements of a traced or real array are complex."""
    return isinstance(x, Tracer) and x.element_type.is_complex


def refuse(x: Tracer, name: str) -> None:
    """Raise where a function is not defined here for complex numbers."""
    if x.element_type.is_complex:
        raise DTypeError(
            f"{name} of complex numbers is not supported",
            loc=source.here(),
            remedy="Work on x.real and x.imag.",
        )


def real(trace: Recorder, x: Tracer) -> Tracer:
    """The real parts as a view; a real array is its own."""
    return _part(trace, x, 0, "real") if x.element_type.is_complex else x


def imag(trace: Recorder, x: Tracer) -> Tracer:
    """The imaginary parts as a view; of a real array zeros that may not be written."""
    x = trace.lift(x)
    if x.element_type.is_complex:
        return _part(trace, x, 1, "imag")
    zero = Literal(0, x.element_type)
    out = trace.apply(full, (), full.attrs(x.sizes, zero), scalar=x.scalar)
    out.readonly = True
    return out  # type: ignore[no-any-return]


def _part(trace: Recorder, x: Tracer, k: int, origin: str) -> Tracer:
    x = trace.lift(x)
    steps = (AsReal(), Index((*(Span(0, n) for n in x.sizes), Pick(k))))
    if x.scalar:
        return trace.read(x, *steps, scalar=True, weak=x.weak)
    return trace.view(x, *steps, origin=origin)


def set_part(trace: Recorder, x: Tracer, k: int, value: Any) -> None:
    """``x.real = value`` (0) or ``x.imag = value`` (1)."""
    from tracegrad.trace.elementwise import store

    x = trace.lift(x)
    if not x.element_type.is_complex:
        if k:
            raise DTypeError(
                "cannot set imaginary part of a real array",
                loc=source.here(),
                remedy="Make it complex first: x.astype(np.complex128).",
            )
        store(trace, x, as_arg(trace, value))
        return
    if x.scalar:
        trace.place()
        trace.check_write(x, [])
    store(trace, _part(trace, x, k, ("real", "imag")[k]), as_arg(trace, value))


def conjugate_view(trace: Recorder, x: Tracer) -> Tracer:
    """PyTorch's ``conj``: a view; a real tensor is its own."""
    if not x.element_type.is_complex:
        return x
    return trace.view(x, Conj(), origin="conj")


def view_as_real(x: Any) -> Any:
    """Complex elements as real ones with a last axis of 2, sharing memory."""
    trace = trace_of(x)
    x = trace.lift(x)
    if not x.element_type.is_complex:
        raise DTypeError("view_as_real is only supported for complex tensors", loc=source.here())
    if _is_conjugate(x):
        raise ViewMutationError(
            "view_as_real of a conj() view is not supported",
            kind="unresolved_conjugate",
            loc=source.here(),
            op_name="view_as_real",
            remedy="Use a clone() of it, which has memory of its own.",
        )
    return trace.view(x, AsReal(), origin="view_as_real")


def view_as_complex(x: Any) -> Any:
    """Pairs along a last axis of 2 as complex elements, sharing memory."""
    trace = trace_of(x)
    x = trace.lift(x)
    if not x.element_type.is_float:
        raise DTypeError(
            f"view_as_complex needs float elements, not {x.element_type.np}", loc=source.here()
        )
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(
            f"view_as_complex needs a last axis of size 2, not a shape of {x.shape}",
            loc=source.here(),
        )
    if advance(x.layout, AsComplex()) is None or _is_conjugate(x):
        raise ViewMutationError(
            "view_as_complex needs pairs that lie side by side in memory",
            kind="bad_geometry",
            loc=source.here(),
            op_name="view_as_complex",
            remedy="Use a clone() or contiguous copy of it.",
        )
    return trace.view(x, AsComplex(), origin="view_as_complex")


def _is_conjugate(x: Tracer) -> bool:
    return any(isinstance(s, Conj) for s in x.alias.view.steps)


def bitcast(trace: Recorder, x: Tracer, to: DType) -> Tracer:
    """The bytes of `x` as elements of `to`: shares memory, carries no gradient."""
    x = trace.lift(x)
    before = x.element_type
    layout = _recast(x, before, to)
    if layout is None:
        raise ViewMutationError(
            f"an array of shape {x.sizes} and dtype {before.np} cannot be seen as {to.np}",
            kind="bad_geometry",
            loc=source.here(),
            op_name="view",
            remedy="The last axis must be contiguous, and hold whole elements of the new size.",
        )
    if to.is_bool or _is_conjugate(x):
        raise UnsupportedError(
            f"a view as {to.np} of this array is not supported",
            loc=source.here(),
            remedy="Use astype, which converts.",
        )
    return trace.view(trace.detach(x), Bitcast(before, to), origin="view")


def _recast(x: Tracer, before: DType, to: DType) -> Geometry | None:
    if before.nbytes == to.nbytes:
        return x.layout
    if not x.sizes:
        return None
    if to.nbytes > before.nbytes and x.sizes[-1] * before.nbytes % to.nbytes:
        return None
    return advance(x.layout, Bitcast(before, to))
