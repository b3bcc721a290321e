"""The rest of NumPy's functions on tracers, and the import that fills the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dtypes import F64
from tracegrad.errors import (
    ArgumentError,
    DataDependentShapeError,
    DTypeError,
    UnsupportedError,
    ValueArgumentError,
)
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.ops import arithmetic, compare
from tracegrad.ops.handles import copy as copy_op
from tracegrad.ops.rounding import round_
from tracegrad.ops.select import clamp_max, clamp_min
from tracegrad.ops.select import clip as clip_op
from tracegrad.ops.transcendental import arctan2
from tracegrad.trace import complex_parts, creation, indexing, inplace, reduce, shape
from tracegrad.trace import numpy_reduce as _reductions  # noqa: F401
from tracegrad.trace.elementwise import apply_op, scalar_flag, select, store
from tracegrad.trace.numpy_shape import start
from tracegrad.trace.numpy_table import FUNCTIONS, NO_VALUE, dispatch, implements
from tracegrad.trace.numpy_ufuncs import into
from tracegrad.trace.promote import as_arg, cast, trace_of
from tracegrad.trace.strided import numpy_as_strided, sliding_window_view
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


@implements(np.where)
def where(condition: Any, x: Any = NO_VALUE, y: Any = NO_VALUE, /) -> Tracer:
    trace = trace_of(*[a for a in (condition, x, y) if a is not NO_VALUE])
    if (x is NO_VALUE) != (y is NO_VALUE):
        raise ValueArgumentError(
            "either both or neither of x and y should be given", loc=source.here()
        )
    if x is NO_VALUE:
        raise DataDependentShapeError(
            "np.where with one argument has a result whose shape depends on traced values",
            loc=source.here(),
            remedy=indexing.MASK_REMEDY,
        )
    return select(trace, *(as_arg(trace, a) for a in (condition, x, y)))


def data_dependent(name: str) -> Callable[..., Any]:
    """A function or method whose result has a shape that depends on values: refused."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise DataDependentShapeError(
            f"the shape of the result of {name} depends on traced values",
            loc=source.here(),
            remedy=indexing.MASK_REMEDY,
        )

    return refuse


def _register_data_dependent() -> None:
    for name in (
        "nonzero",
        "flatnonzero",
        "argwhere",
        "unique",
        "unique_values",
        "unique_all",
        "unique_counts",
        "unique_inverse",
        "extract",
        "compress",
        "intersect1d",
        "union1d",
        "setdiff1d",
        "setxor1d",
        "trim_zeros",
    ):
        implements(getattr(np, name))(data_dependent(f"np.{name}"))


@implements(np.clip)
def clip(
    a: Any,
    a_min: Any = NO_VALUE,
    a_max: Any = NO_VALUE,
    out: Any = None,
    *,
    min: Any = NO_VALUE,
    max: Any = NO_VALUE,
    **keywords: Any,
) -> Tracer:
    if keywords:
        raise UnsupportedError(
            f"np.clip with {next(iter(keywords))}= is not supported yet", loc=source.here()
        )
    low = a_min if min is NO_VALUE else min
    high = a_max if max is NO_VALUE else max
    trace = trace_of(*[x for x in (a, low, high, out) if isinstance(x, Tracer)])
    value = clipped(trace, as_arg(trace, a), low, high)
    return value if out is None else into(trace, value, (out,))


def clipped(trace: Recorder, x: Any, low: Any, high: Any) -> Tracer:
    """``min(max(x, low), high)``; None leaves a side open."""
    lo = None if low is None or low is NO_VALUE else as_arg(trace, low)
    hi = None if high is None or high is NO_VALUE else as_arg(trace, high)
    if lo is not None and hi is not None:
        return apply_op(trace, clip_op, (x, lo, hi))
    if lo is not None:
        return apply_op(trace, clamp_min, (x, lo))
    if hi is not None:
        return apply_op(trace, clamp_max, (x, hi))
    return trace.apply(copy_op, (creation.tracer(trace, x),))  # type: ignore[no-any-return]


@implements(np.round, np.around)
def round(a: Any, decimals: Any = 0, out: Any = None) -> Tracer:
    trace, x = start(a)
    value = trace.apply(
        round_,
        (x,),
        round_.attrs(decimals=int(decimals)),  # type: ignore[call-arg]
        scalar=scalar_flag(trace, x.sizes),
    )
    return value if out is None else into(trace, value, (out,))


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Tracer:
    trace, x = start(a)
    if mode != "raise":
        raise UnsupportedError(
            f"np.take with mode={mode!r} is not supported yet", loc=source.here()
        )
    if axis is None:
        x = shape.ravel(trace, x)
        axis = 0
    k = shape.axis_of(trace, axis, len(x.sizes))
    value = indexing.get(trace, x, (*(slice(None),) * k, indices))
    return value if out is None else into(trace, value, (out,))


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Tracer:
    trace, x = start(arr)
    at = creation.tracer(trace, indices)
    if axis is None:
        x, axis = shape.ravel(trace, x), 0
    k = shape.axis_of(trace, axis, len(x.sizes))
    if len(at.sizes) != len(x.sizes):
        raise ValueArgumentError(
            "`indices` and `arr` must have the same number of dimensions", loc=source.here()
        )
    key: list[Any] = []
    for d, n in enumerate(x.sizes):
        own = (1,) * d + (-1,) + (1,) * (len(x.sizes) - d - 1)
        key.append(at if d == k else trace.concrete(np.arange(n).reshape(own)))
    return indexing.get(trace, x, tuple(key))  # type: ignore[no-any-return]


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    trace = trace_of(*[a for a in (dst, src, where) if isinstance(a, Tracer)])
    if not isinstance(dst, Tracer):
        from tracegrad.trace.concretize import escape

        escape(src if isinstance(src, Tracer) else where, "np.copyto")
    target, value = trace.lift(dst), as_arg(trace, src)
    if isinstance(value, Tracer) and not np.can_cast(
        value.element_type.np, target.element_type.np, casting
    ):  # type: ignore[arg-type]
        raise DTypeError(
            f"Cannot cast array data from {value.element_type.np!r} to "
            f"{target.element_type.np!r} according to the rule '{casting}'",
            kind="result_cast",
            loc=source.here(),
        )
    if where is True:
        store(trace, target, value)
    else:
        store(trace, target, select(trace, as_arg(trace, where), value, target))


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return creation.copy(a, order)


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    if mode != "raise":
        raise UnsupportedError(f"np.put with mode={mode!r} is not supported yet", loc=source.here())
    trace, x = start(a)
    inplace.setitem(trace, shape.torch_view(trace, x, (-1,)), ind, v)


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    trace, x = start(a)
    if len(x.sizes) != 2 or wrap:
        raise UnsupportedError(
            "np.fill_diagonal of other than matrices is not supported yet", loc=source.here()
        )
    store(trace, shape.diagonal(trace, x, 0, 0, 1, readonly=False), as_arg(trace, val))


# --------------------------------------------------------------------------- about the array


@implements(np.shape)
def shape_of(a: Any) -> tuple[int, ...]:
    return start(a)[1].sizes


@implements(np.ndim)
def ndim(a: Any) -> int:
    return len(start(a)[1].sizes)


@implements(np.size)
def size(a: Any, axis: Any = None) -> int:
    x = start(a)[1]
    return int(np.prod(x.sizes)) if axis is None else x.sizes[axis]


@implements(np.result_type)
def result_type(*args: Any) -> np.dtype:
    from tracegrad.trace.promote import result_type as promoted

    trace = trace_of(*args)
    given = [
        creation.tracer(trace, np.zeros((), a).item())
        if isinstance(a, (np.dtype, type))
        else as_arg(trace, a)
        for a in args
    ]
    return promoted(trace, given).np


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return complex_parts.is_complex(x)


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return not complex_parts.is_complex(x)


@implements(np.real)
def real(val: Any) -> Any:
    return val.real


@implements(np.imag)
def imag(val: Any) -> Any:
    return val.imag


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Tracer:
    trace, x = start(z)
    out = apply_op(trace, arctan2, (complex_parts.imag(trace, x), complex_parts.real(trace, x)))
    return apply_op(trace, arithmetic.mul, (out, 180 / np.pi)) if deg else out


@implements(np.may_share_memory, np.shares_memory)
def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    return isinstance(a, Tracer) and isinstance(b, Tracer) and a.memory is b.memory


# ----------------------------------------------------------------------- built from elementwise


@implements(np.nan_to_num)
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Tracer:
    if not copy:
        raise UnsupportedError(
            "np.nan_to_num with copy=False is not supported yet",
            loc=source.here(),
            remedy="Write x[...] = np.nan_to_num(x).",
        )
    trace, a = start(x)
    complex_parts.refuse(a, "np.nan_to_num")
    if not a.element_type.is_float:
        return creation.copy(a)
    info = np.finfo(a.element_type.np)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    zero = as_arg(trace, 0.0)
    infinite = apply_op(trace, compare.isinf, (a,))
    side = select(
        trace, apply_op(trace, compare.gt, (a, zero)), as_arg(trace, high), as_arg(trace, low)
    )
    out = select(trace, infinite, cast(trace, side, a.element_type), a)
    return select(
        trace,
        apply_op(trace, compare.isnan, (a,)),
        cast(trace, as_arg(trace, nan), a.element_type),
        out,
    )


@implements(np.isclose)
def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Tracer:
    trace = trace_of(*[x for x in (a, b) if isinstance(x, Tracer)])
    x, y = as_arg(trace, a), as_arg(trace, b)
    gap = apply_op(trace, arithmetic.absolute, (apply_op(trace, arithmetic.sub, (x, y)),))
    room = apply_op(
        trace,
        arithmetic.add,
        (
            as_arg(trace, atol),
            apply_op(
                trace,
                arithmetic.mul,
                (as_arg(trace, rtol), apply_op(trace, arithmetic.absolute, (y,))),
            ),
        ),
    )
    near = apply_op(
        trace,
        compare.logical_and,
        (apply_op(trace, compare.le, (gap, room)), apply_op(trace, compare.isfinite, (y,))),
    )
    near = apply_op(trace, compare.logical_or, (near, apply_op(trace, compare.eq, (x, y))))
    if equal_nan:
        both = apply_op(
            trace,
            compare.logical_and,
            (apply_op(trace, compare.isnan, (x,)), apply_op(trace, compare.isnan, (y,))),
        )
        near = apply_op(trace, compare.logical_or, (near, both))
    return near


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    near = isclose(a, b, rtol, atol, equal_nan)
    return reduce.all(near.trace, near)


@implements(np.average)
def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = NO_VALUE,
) -> Tracer:
    trace, x = start(a)
    if returned:
        raise UnsupportedError(
            "np.average with returned=True is not supported yet", loc=source.here()
        )
    keep = bool(keepdims) if keepdims is not NO_VALUE else False
    if weights is None:
        return reduce.mean(trace, x, axis, None, keep)
    w = creation.tracer(trace, weights)
    if w.sizes != x.sizes:
        if axis is None or len(w.sizes) != 1 or isinstance(axis, (tuple, list)):
            raise ArgumentError(
                "Axis must be specified when shapes of a and weights differ.", loc=source.here()
            )
        k = shape.axis_of(trace, axis, len(x.sizes))
        w = shape.reshape(trace, w, (-1,) + (1,) * (len(x.sizes) - k - 1))
    w = cast(trace, w, F64) if not w.element_type.is_inexact else w  # type: ignore[assignment]
    weighted = apply_op(trace, arithmetic.mul, (x, w))
    spread = apply_op(trace, arithmetic.mul, (creation.ones_like(weighted), w))
    return apply_op(
        trace,
        arithmetic.div,
        (
            reduce.sum(trace, weighted, axis, None, keep),
            reduce.sum(trace, spread, axis, None, keep),
        ),
    )


def _register_elementwise() -> None:
    """Functions that are no ufuncs but mean one elementwise op (``np.fix``)."""

    def bind(op: OpDef) -> Any:
        def call(*args: Any, out: Any = None) -> Tracer:
            trace = trace_of(*args)
            value = apply_op(trace, op, [as_arg(trace, a) for a in args])
            return value if out is None else into(trace, value, (out,))

        call.__name__ = op.name
        return call

    for op in REGISTRY:
        for function in op.numpy:
            if not isinstance(function, np.ufunc) and function not in FUNCTIONS:
                implements(function)(bind(op))


for _like in (np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.linspace, np.meshgrid):
    implements(_like)(getattr(creation, _like.__name__))
implements(np.lib.stride_tricks.as_strided)(numpy_as_strided)
implements(np.lib.stride_tricks.sliding_window_view)(sliding_window_view)
_register_elementwise()
_register_data_dependent()

__all__ = ["FUNCTIONS", "dispatch"]
