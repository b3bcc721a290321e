"""Elementwise ops on tracers: as fresh results and as writes through a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dtypes import BOOL, DType
from tracegrad.errors import (
    DTypeError,
    ShapeError,
    ValueArgumentError,
    ViewMutationError,
)
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.ops.arithmetic import positive, reciprocal, square
from tracegrad.ops.create import full
from tracegrad.ops.handles import copy as copy_op
from tracegrad.ops.integer import NEGATIVE, integer_power
from tracegrad.ops.select import where as where_op
from tracegrad.ops.transcendental import power as power_op
from tracegrad.ops.transcendental import sqrt
from tracegrad.trace import layout
from tracegrad.trace.promote import (
    COMPARISONS,
    Arg,
    broadcast,
    broadcast_shapes,
    cast,
    is_known,
    kind_of,
    loop_of,
    result_type,
    shape_of,
    ufunc_of,
)
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder
from tracegrad.types import shape_text


def scalar_flag(trace: Recorder, shape: tuple[int, ...]) -> bool:
    """Whether a fresh result of this shape is a NumPy scalar."""
    return shape == () and trace.face.numpy_scalars  # type: ignore[attr-defined, no-any-return]


def strides_of(shape: tuple[int, ...], args: Sequence[Arg]) -> layout.Strides | None:
    """NumPy's layout of an elementwise result."""
    return layout.elementwise(
        shape,
        [
            (x.layout.size, x.layout.stride)  # type: ignore[misc]
            for x in args
            if isinstance(x, Tracer)
        ],
    )


def apply_op(
    trace: Recorder,
    op: OpDef,
    args: Sequence[Arg],
    *,
    dtype: DType | None = None,
    weak: bool = False,
    ufunc: np.ufunc | None = None,
) -> Tracer:
    """``op(*args)`` with promotion and broadcasting; `weak` marks arithmetic of Python floats."""
    wrapped = _out_of_range(trace, op, args)
    if wrapped is not None:
        return wrapped
    op, ins, _ = loop_of(trace, op, args, dtype, ufunc)
    shape = broadcast_shapes(*map(shape_of, args))
    first = trace.mark()
    xs = prepared(trace, args, ins, shape)
    out = trace.apply(
        _checked(op, xs),
        xs,
        layout=strides_of(shape, args),
        scalar=scalar_flag(trace, shape),
        weak=weak,
    )
    trace.check_saved(first, args)
    return out  # type: ignore[no-any-return]


def prepared(
    trace: Recorder, args: Sequence[Arg], ins: Sequence[DType], shape: tuple[int, ...]
) -> list[Tracer | Literal]:
    """Operands cast to `ins` and repeated to `shape`."""
    known = is_known(args)
    return [
        broadcast(trace, cast(trace, x, d), shape, known) for x, d in zip(args, ins, strict=True)
    ]


def fast_power(x: Any, exponent: Any) -> OpDef | None:
    """What ``x ** exponent`` means for the few exponents that NumPy and PyTorch single out: they
    give other bits than `power` (``(-0.0) ** 0.5`` is -0.0) and cost less."""
    if not isinstance(x, Tracer):
        return None
    if isinstance(exponent, Literal) and exponent.dtype is x.element_type:
        exponent = exponent.value
    if type(exponent) not in (int, float):
        return None
    if not x.element_type.is_inexact:
        return square if exponent == 2 and type(exponent) is int else None
    found = {1: positive, 2: square}.get(exponent)
    if found is None and not x.scalar:
        found = {-1: reciprocal, 0.5: sqrt}.get(exponent)
    return found


def _checked(op: OpDef, xs: Sequence[Tracer | Literal]) -> OpDef:
    """`op`, or the form of it that checks at run time what NumPy checks: integer exponents."""
    exponent = xs[-1]
    dtype = exponent.dtype if isinstance(exponent, Literal) else exponent.element_type
    if op is not power_op or dtype.kind != "i":
        return op
    if not isinstance(exponent, Literal):
        return integer_power
    if exponent.value < 0:
        raise ValueArgumentError(NEGATIVE, loc=source.here())
    return op


def _out_of_range(trace: Recorder, op: OpDef, args: Sequence[Arg]) -> Tracer | None:
    """A comparison with a Python integer that the other operand's dtype cannot hold."""
    ufunc: Any = ufunc_of(op)
    if ufunc not in COMPARISONS or not any(type(x) is int for x in args):
        return None
    for number, other in (args, tuple(reversed(args))):
        if type(number) is int and isinstance(other, (Tracer, Literal)):
            kind = kind_of(other)
            if isinstance(kind, type) or kind.kind not in "iu":
                continue  # a Python number takes any
            info = np.iinfo(kind)
            if not info.min <= number <= info.max:
                side = 1 if number > 0 else -1
                pair = (side, 0) if number is args[0] else (0, side)
                value = Literal(bool(ufunc(*pair)), BOOL)
                shape = shape_of(other)
                return trace.apply(
                    full,
                    (),
                    full.attrs(shape, value),  # type: ignore[no-any-return]
                    scalar=scalar_flag(trace, shape),
                )
    return None


def select(trace: Recorder, cond: Arg, x: Arg, y: Arg) -> Tracer:
    """``np.where(cond, x, y)``; of shape () it is an array, not a scalar."""
    dtype = result_type(trace, (x, y))
    args = (cond, x, y)
    shape = broadcast_shapes(*map(shape_of, args))
    xs = prepared(trace, (truth(trace, cond), x, y), (BOOL, dtype, dtype), shape)
    return trace.apply(  # type: ignore[no-any-return]
        where_op, xs, layout=strides_of(shape, args)
    )


def truth(trace: Recorder, x: Arg) -> Arg:
    """`x` as bool: true where it is not zero."""
    if isinstance(x, Tracer):
        return x if x.element_type is BOOL else cast(trace, x, BOOL)
    value = x.value if isinstance(x, Literal) else x
    return Literal(bool(value), BOOL)


# ------------------------------------------------------------------------------------ writes


def check_writable(target: Tracer, message: str = "assignment destination is read-only") -> None:
    """Refuse an array that NumPy would not write, in its words."""
    if target.readonly:
        raise ValueArgumentError(
            message,
            kind="read_only",
            loc=source.here(),
            remedy="Write a copy of it: x.copy().",
        )


def check_target(
    trace: Recorder, target: Tracer, operands: Sequence[Any] = (), *, allow_overlap: bool = False
) -> None:
    """Refusals that come before shapes and dtypes: read-only arrays, creation kinds, overlap."""
    trace.place()
    check_writable(target, "output array is read-only")
    trace.check_write(
        target,
        [x for x in operands if isinstance(x, (Tracer, Literal))],
        allow_overlap=allow_overlap,
    )


def write_op(
    trace: Recorder,
    target: Tracer,
    op: OpDef,
    args: Sequence[Arg],
    *,
    where: Arg | None = None,
    casting: str = "same_kind",
    dtype: DType | None = None,
    ufunc: np.ufunc | None = None,
) -> Tracer:
    """``target[...] = op(*args)`` with the in-place rules of the trace's face; returns `target`.

    Raises DTypeError when the result cannot be cast to the target's dtype and ShapeError when it
    is larger than the target.
    """
    check_target(trace, target, args)
    name = op.name
    op, ins, out = loop_of(trace, op, args, dtype, ufunc)
    check_cast(trace, name, out, target.element_type, casting)
    shape = broadcast_shapes(*map(shape_of, args), *([] if where is None else [shape_of(where)]))
    check_fits(trace, name, shape, target.sizes)
    # Constants alone have no shape of their own: their value is written.
    shaped = any(isinstance(x, Tracer) for x in args)
    if where is None and out is target.element_type and shaped:
        first = trace.mark()
        xs = prepared(trace, args, ins, target.sizes)
        trace.write(target, _checked(op, xs), xs)
        trace.check_saved(first, args)
        return target
    xs = prepared(trace, args, ins, shape)
    value: Any = trace.apply(_checked(op, xs), xs)
    if where is not None:
        old = cast(trace, target, out) if out is not target.element_type else target
        pair = prepared(trace, (truth(trace, where), value), (BOOL, out), target.sizes)
        if out is target.element_type:
            trace.write(target, where_op, (*pair, old))
            return target
        value = trace.apply(where_op, (*pair, old))
    return store(trace, target, value)


def store(trace: Recorder, target: Tracer, value: Arg, *, allow_overlap: bool = False) -> Tracer:
    """``target[...] = value`` with any conversion of dtype; the shape must broadcast."""
    check_target(trace, target, (value,), allow_overlap=allow_overlap)
    shape = shape_of(value)
    while len(shape) > len(target.sizes) and shape[0] == 1:
        shape = shape[1:]
    _check_assignable(shape, shape_of(value), target.sizes)
    x = cast(trace, value, target.element_type)
    if isinstance(x, Tracer) and x.sizes != shape:
        from tracegrad.trace.shape import reshape

        x = reshape(trace, x, shape)
    if isinstance(x, Tracer) and x.concrete is not None and x.concrete.ndim == 0:
        x = Literal(x.concrete.item(), x.element_type)
    if isinstance(x, Literal):
        trace.write(target, full, (), full.attrs(target.sizes, x), allow_overlap=allow_overlap)
        return target
    known = target.concrete is not None and x.concrete is not None
    trace.write(target, copy_op, (broadcast(trace, x, target.sizes, known),))
    return target


def check_cast(trace: Recorder, name: str, out: DType, to: DType, casting: str) -> None:
    if trace.face.numpy_scalars:  # type: ignore[attr-defined]
        if not np.can_cast(out.np, to.np, casting):  # type: ignore[arg-type]
            public = _numpy_name(name)
            raise DTypeError(
                f"Cannot cast ufunc '{public}' output from {out.np!r} to {to.np!r} with casting "
                f"rule '{casting}'",
                loc=source.here(),
                kind="result_cast",
                remedy="Convert the written array first, or write x = x + v instead of x += v.",
            )
        return
    category = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    if category[out.kind] > category[to.kind]:
        raise ViewMutationError(
            f"result type {out.np} can't be cast to the desired output type {to.np}",
            kind="result_cast",
            loc=source.here(),
            op_name=name,
            remedy="Convert the written tensor first, or write x = x + v instead of x += v.",
        )


def _numpy_name(name: str) -> str:
    ufunc = ufunc_of(REGISTRY[name]) if name in REGISTRY else None
    return ufunc.__name__ if ufunc is not None else name


def check_fits(trace: Recorder, name: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    if shape == target or broadcast_to_target(shape, target):
        return
    if trace.face.numpy_scalars:  # type: ignore[attr-defined]
        raise ShapeError(
            f"non-broadcastable output operand with shape {target} doesn't match the "
            f"broadcast shape {_joined(shape, target)}",
            loc=source.here(),
        )
    raise ViewMutationError(
        f"output with shape {list(target)} doesn't match the broadcast shape "
        f"{list(_joined(shape, target))}",
        kind="broadcast_self",
        loc=source.here(),
        op_name=name,
        remedy="The written tensor keeps its shape: expand it into a new tensor first.",
    )


def _joined(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    return broadcast_shapes(shape, target)


def broadcast_to_target(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to exactly `target`."""
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def _check_assignable(
    shape: tuple[int, ...], given: tuple[int, ...], target: tuple[int, ...]
) -> None:
    if not broadcast_to_target(shape, target):
        raise ShapeError(
            f"could not broadcast input array from shape {shape_text(given)} into shape "
            f"{shape_text(target)}",
            loc=source.here(),
        )
