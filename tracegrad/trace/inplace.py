"""Index assignment and the in-place operations that are not elementwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import ArgumentError, OutOfRangeError, ShapeError, ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef
from tracegrad.graph.storage import Index, Permute
from tracegrad.ops.scatter import ScatterAttrs, ScatterSetAttrs, scatter_add, scatter_set
from tracegrad.ops.select import where as where_op
from tracegrad.trace import indexing
from tracegrad.trace.elementwise import (
    broadcast_to_target,
    check_cast,
    check_fits,
    check_target,
    check_writable,
    prepared,
    store,
    truth,
    write_op,
)
from tracegrad.trace.masked import MaskedRead, set_masked
from tracegrad.trace.promote import Arg, as_arg, broadcast, cast, is_known, loop_of, shape_of
from tracegrad.trace.shape import axis_of, reshape, swapaxes
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def setitem(trace: Recorder, x: Tracer, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    x = trace.lift(x)
    check_writable(x)
    if x.scalar:
        raise ArgumentError(
            f"'numpy.{x.element_type.np}' object does not support item assignment",
            kind="scalar_inplace",
            loc=source.here(),
            remedy="It is a copy: write into the array that it came from.",
        )
    if isinstance(value, Tracer):
        window = trace.lift(value).memory.window
        if window is not None and window.is_same(x, key):
            check_target(trace, value)
            return
    parsed = indexing.parse(trace, x, key)
    if parsed.mask is not None:
        set_masked(trace, x, parsed, value)
        return
    if isinstance(value, MaskedRead):
        value.refuse()
    if parsed.arrays:
        _set_arrays(trace, x, parsed, as_arg(trace, value))
        return
    given = as_arg(trace, value)
    _check_integer(x, given)
    step = Index(tuple(parsed.items))
    if trace.face.numpy_scalars and isinstance(given, Tracer) and _is_part(given, x, step):  # type: ignore[attr-defined]
        # What Python does after ``x[a:b] += v``: the view is stored into itself.
        check_target(trace, given)
        return
    if parsed.scalar and trace.face.numpy_scalars and math.prod(shape_of(given)) != 1:  # type: ignore[attr-defined]
        raise ShapeError("setting an array element with a sequence.", loc=source.here())
    target = x if indexing.is_whole(x, parsed) else trace.view(x, step, origin="slice")
    store(trace, target, given)


def _check_integer(target: Tracer, value: Arg) -> None:
    """Refuse, as NumPy, to store NaN or infinity in integers where it is known beforehand."""
    known = value.value if isinstance(value, Literal) else value
    if not isinstance(known, float) or math.isfinite(known) or not target.element_type.is_integer:
        return
    if math.isnan(known):
        raise ValueArgumentError("cannot convert float NaN to integer", loc=source.here())
    raise OutOfRangeError("cannot convert float infinity to integer", loc=source.here())


def _is_part(part: Tracer, x: Tracer, step: Index) -> bool:
    """Whether `part` is exactly the view of `x` by `step`."""
    return (
        part.memory is x.memory
        and part.sizes == step.shape(x.sizes)
        and part.alias.view == x.alias.view.then(step, base=x.memory.shape)
    )


def _set_arrays(trace: Recorder, x: Tracer, parsed: indexing.Parsed, value: Arg) -> None:
    part, index = indexing.gathered_axes(trace, x, parsed)
    check_target(trace, part, (value,))
    src = placed(trace, cast(trace, value, part.element_type), parsed, part, index)
    attrs = ScatterSetAttrs(part.sizes, _is_unique(part.sizes, index))
    trace.write(part, scatter_set, (part, src, *index), attrs)


def placed(
    trace: Recorder,
    value: Tracer | Literal,
    parsed: indexing.Parsed,
    part: Tracer,
    index: Sequence[Tracer | Literal],
) -> Tracer | Literal:
    """`value`, broadcast to what the index selects, with the index axes first."""
    if isinstance(value, Literal):
        return value
    lead, rest = shape_of(index[0]), part.sizes[len(index) :]
    back = indexing.result_order(parsed, len(lead), len(rest))
    moved = (*lead, *rest)
    result = tuple(moved[k] for k in back)
    shape = value.sizes
    while len(shape) > len(result) and shape[0] == 1:
        shape = shape[1:]
    if not broadcast_to_target(shape, result):
        raise ShapeError(
            f"shape mismatch: value array of shape {value.sizes} could not be "
            f"broadcast to indexing result of shape {result}",
            loc=source.here(),
        )
    if shape != value.sizes:
        value = reshape(trace, value, shape)
    spread = broadcast(trace, value, result, is_known((part, value, *index)))
    if back != tuple(range(len(back))) and isinstance(spread, Tracer):
        order = tuple(sorted(range(len(back)), key=back.__getitem__))
        return trace.read(spread, Permute(order))
    return spread


def _is_unique(shape: tuple[int, ...], index: Sequence[Tracer | Literal]) -> bool:
    """Whether no element is selected twice; False when that is known only at run time."""
    if all(math.prod(shape_of(i)) < 2 for i in index):
        return True
    if not is_known(index):
        return False
    arrays = [i.concrete if isinstance(i, Tracer) else np.asarray(i.value) for i in index]
    if arrays[0].size < 2:  # type: ignore[union-attr]
        return True
    flat = np.ravel_multi_index(tuple(arrays), shape[: len(arrays)])  # type: ignore[arg-type]
    return len(np.unique(flat)) == flat.size


def add_at(trace: Recorder, x: Tracer, key: Any, value: Any, add: OpDef) -> None:
    """``np.add.at(x, key, value)``: repeated elements accumulate."""
    x = trace.lift(x)
    trace.place()
    parsed = indexing.parse(trace, x, key)
    given = as_arg(trace, value)
    if parsed.mask is not None:
        indexing.get(trace, x, key).refuse()
    if not parsed.arrays:
        target = x
        if not indexing.is_whole(x, parsed):
            target = trace.view(x, Index(tuple(parsed.items)), origin="slice")
        write_op(trace, target, add, (target, given))
        return
    part, index = indexing.gathered_axes(trace, x, parsed)
    check_target(trace, part, (given,))
    _, _, out = loop_of(trace, add, (part, given))
    check_cast(trace, add.name, out, part.element_type, "same_kind")
    src = placed(trace, cast(trace, given, part.element_type), parsed, part, index)
    trace.write(part, scatter_add, (part, src, *index), ScatterAttrs(part.sizes))


def index_add(
    trace: Recorder, x: Tracer, dim: Any, index: Any, value: Any, alpha: Any = 1
) -> Tracer:
    """PyTorch's ``x.index_add_(dim, index, value)``."""
    x = trace.lift(x)
    at, given = as_arg(trace, index), as_arg(trace, value)
    check_target(trace, x, (given,))
    axis = axis_of(trace, dim, len(x.sizes))
    part = x if axis == 0 else swapaxes(trace, x, 0, axis)
    src = cast(trace, given, part.element_type)
    if alpha != 1:
        from tracegrad.ops.arithmetic import mul
        from tracegrad.trace.elementwise import apply_op

        src = cast(trace, apply_op(trace, mul, (src, as_arg(trace, alpha))), part.element_type)
    if axis and isinstance(src, Tracer) and len(src.sizes) > 1:
        order = list(range(len(src.sizes)))
        order[0], order[axis] = axis, 0
        src = trace.read(src, Permute(tuple(order)))
    if isinstance(at, Tracer):
        at = indexing.checked(trace, at, axis, x.sizes[axis])
    rows = cast(trace, at, I64)
    want = (*shape_of(rows), *part.sizes[1:])
    if shape_of(src) != want:
        raise ShapeError(
            f"index_add_: the source has shape {shape_of(given)}; what the index "
            f"selects has shape {want}",
            loc=source.here(),
        )
    trace.write(part, scatter_add, (part, src, rows), ScatterAttrs(part.sizes))
    return x


def masked_fill(trace: Recorder, x: Tracer, mask: Any, value: Any) -> Tracer:
    """PyTorch's ``x.masked_fill_(mask, value)``; the value has no axes."""
    x = trace.lift(x)
    cond, given = as_arg(trace, mask), as_arg(trace, value)
    trace.place()
    check_target(trace, x, (given,))
    if shape_of(given) != ():
        raise ShapeError(
            "masked_fill_ only supports a 0-dimensional value tensor", loc=source.here()
        )
    check_fits(trace, "masked_fill_", shape_of(cond), x.sizes)
    xs = prepared(
        trace,
        (truth(trace, cond), cast(trace, given, x.element_type)),
        (BOOL, x.element_type),
        x.sizes,
    )
    trace.write(x, where_op, (*xs, x))
    return x


def fill(trace: Recorder, x: Tracer, value: Any, allow_overlap: bool = False) -> Tracer:
    """Every element becomes `value`, which has no axes."""
    x = trace.lift(x)
    check_writable(x)
    given = as_arg(trace, value)
    _check_integer(x, given)
    if shape_of(given) != ():
        raise ShapeError(
            f"fill takes a value without axes, not one of shape {shape_of(given)}",
            loc=source.here(),
        )
    return store(trace, x, given, allow_overlap=allow_overlap)


def copy_into(trace: Recorder, x: Tracer, value: Any) -> Tracer:
    """``x.copy_(value)``: `value` broadcasts and is converted."""
    x = trace.lift(x)
    check_writable(x)
    given = as_arg(trace, value)
    check_target(trace, x, (given,))
    check_fits(trace, "copy_", shape_of(given), x.sizes)
    return store(trace, x, given)
