"""Shapes of tracers: reshape, axes, joins and splits, shared by both faces and NumPy's functions.

Every function takes the trace first and tracers after it.  What NumPy or PyTorch would give as
a view is a view; a scalar of the Array face is copied, since it is no array to share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracegrad import dims, source
from tracegrad.dims import Dim
from tracegrad.errors import AxisError, ShapeError, ValueArgumentError, ViewMutationError
from tracegrad.graph.storage import (
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
    Step,
    Unfold,
    View,
)
from tracegrad.ops.shape import concat, concat_attrs
from tracegrad.trace import layout
from tracegrad.trace.promote import (
    Arg,
    as_int,
    cast,
    result_type,
    shape_of,
    spread_steps,
)
from tracegrad.trace.ragged import is_empty, is_one
from tracegrad.trace.rows import Block, along, blocks, joined
from tracegrad.trace.symbolic import SymbolicInt, is_nonnegative
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder
from tracegrad.types import shape_text


def view(
    trace: Recorder, x: Tracer, *steps: Step, origin: str = "view", readonly: bool = False
) -> Tracer:
    """A view by `steps`, or a copy when `x` is a scalar (a scalar again if it has no axes)."""
    if x.scalar:
        return trace.read(x, *steps, scalar=View(steps).shape(x.sizes) == ())
    return trace.view(x, *steps, origin=origin, readonly=readonly)


def axis_of(trace: Recorder, axis: Any, rank: int) -> int:
    """A checked axis in ``0..rank-1``.  Raises AxisError."""
    k = as_int(axis, "axis")
    if -rank <= k < rank:
        return k + rank if k < 0 else k
    numpy = trace.face.numpy_scalars  # type: ignore[attr-defined]
    if not numpy and rank == 0 and k in (-1, 0):
        return 0
    raise AxisError(
        f"axis {k} is out of bounds for array of dimension {rank}",
        loc=source.here(),
        kind=None if numpy else "out_of_bounds",
    )


def axes_of(trace: Recorder, axis: Any, rank: int) -> tuple[int, ...]:
    """Sorted axes of ``axis=`` (None: all).  Raises AxisError, ValueArgumentError on repeats."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    out = tuple(axis_of(trace, a, rank) for a in given)
    if len(set(out)) != len(out):
        raise ValueArgumentError("duplicate value in 'axis'", loc=source.here())
    return tuple(sorted(k for k in out if k < rank))


def sizes_of(shape: Any) -> tuple[int, ...]:
    """A shape argument (an int or a sequence of ints) as a tuple."""
    if isinstance(shape, (tuple, list)):
        return tuple(map(_size_of, shape))
    if isinstance(shape, Iterable) and not isinstance(shape, Tracer):
        return tuple(map(_size_of, shape))
    if isinstance(shape, Tracer) and shape.sizes and shape.concrete is not None:
        return tuple(int(n) for n in shape.concrete)
    return (_size_of(shape),)


def _size_of(n: Any) -> Any:
    return n.dim if isinstance(n, SymbolicInt) else as_int(n, "a size")


def target_shape(x: Tracer, shape: Any) -> tuple[int, ...]:
    """A shape with at most one -1 resolved.  Raises ShapeError with NumPy's text."""
    sizes = list(sizes_of(shape))
    size = _size(x.sizes)
    if sizes.count(-1) > 1:
        raise ValueArgumentError("can only specify one unknown dimension", loc=source.here())
    if -1 in sizes:
        known = _size(tuple(n for n in sizes if n != -1))
        if known == 0 or size % known:
            raise _cannot_reshape(size, sizes)
        sizes[sizes.index(-1)] = size // known
    if any(isinstance(n, int) and n < 0 for n in sizes) or _size(tuple(sizes)) != size:
        raise _cannot_reshape(size, sizes)
    return tuple(sizes)


def _size(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _cannot_reshape(size: int, sizes: Sequence[int]) -> ShapeError:
    shape = f"({sizes[0]},)" if len(sizes) == 1 else f"({','.join(map(str, sizes))})"
    return ShapeError(f"cannot reshape array of size {size} into shape {shape}", loc=source.here())


def reshape(
    trace: Recorder, x: Tracer, shape: Any, order: str = "C", copy: bool | None = None
) -> Tracer:
    """A view where the layout allows it, else a copy (`copy`: always, or False to refuse)."""
    to = target_shape(x, shape)
    if order not in ("C", "F", "A"):
        raise ValueArgumentError(
            f"order must be one of 'C', 'F', 'A' (got {order!r})", loc=source.here()
        )
    steps = layout.reshape_steps(x.layout, to, order)
    if not copy and layout.can_view(x.layout, steps):
        return view(trace, x, *steps, origin="reshape")
    if copy is False:
        raise ValueArgumentError(
            "Unable to avoid creating a copy while reshaping.", loc=source.here()
        )
    f_order = order == "F" or (order == "A" and len(steps) > 1)
    return trace.read(x, *steps, layout=layout.packed(to, range(len(to))) if f_order else None)


def torch_view(trace: Recorder, x: Tracer, shape: Any) -> Tracer:
    """PyTorch's ``view``: never copies.  Raises kind bad_geometry."""
    to = target_shape(x, shape)
    if not layout.can_view(x.layout, (Reshape(to),)):
        raise ViewMutationError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces)",
            kind="bad_geometry",
            loc=source.here(),
            op_name="view",
            remedy="Use .reshape(...), which copies.",
        )
    return trace.view(x, Reshape(to))


def ravel(trace: Recorder, x: Tracer, order: str = "C") -> Tracer:
    """``np.ravel``: a 1-d view of what is contiguous, else a copy (where reshape may still give a
    view); K reads in the order of memory."""
    sizes, strides = x.sizes, x.layout.stride
    if order == "K":
        axes = tuple(reversed(layout.axis_order(len(sizes), [strides])))  # type: ignore[list-item]
        steps: tuple[Step, ...] = (Permute(axes), Reshape((_size(sizes),)))
        if layout.is_c_ordered([sizes[k] for k in axes], [strides[k] for k in axes]):  # type: ignore
            return view(trace, x, *steps, origin="ravel")
        return trace.read(x, *steps)
    contiguous = (
        order != "F"
        and layout.is_c_ordered(sizes, strides)
        or (  # type: ignore[arg-type]
            order in ("F", "A") and layout.is_f_ordered(sizes, strides)
        )
    )  # type: ignore[arg-type]
    to = (-1,) if _size(sizes) else (0,)
    return reshape(trace, x, to, order, copy=None if contiguous else True)


def flatten(trace: Recorder, x: Tracer, order: str = "C") -> Tracer:
    """``ndarray.flatten``: always a copy."""
    if order == "K":
        axes = layout.axis_order(len(x.sizes), [x.layout.stride])  # type: ignore[list-item]
        return trace.read(x, Permute(tuple(reversed(axes))), Reshape((_size(x.sizes),)))
    return reshape(trace, x, (-1,) if _size(x.sizes) else (0,), order, copy=True)


def copy(trace: Recorder, x: Tracer, order: str = "C") -> Tracer:
    """A copy with NumPy's layout for `order` (C, F, A, K)."""
    return trace.read(x, layout=layout.copied(x.layout, order))


def permute(
    trace: Recorder, x: Tracer, axes: Sequence[Any] | None, origin: str = "permute"
) -> Tracer:
    rank = len(x.sizes)
    if axes is None:
        order = tuple(reversed(range(rank)))
    else:
        order = tuple(axis_of(trace, a, rank) for a in axes)
        if len(order) != rank:
            raise ValueArgumentError("axes don't match array", loc=source.here())
        if len(set(order)) != rank:
            raise ValueArgumentError("repeated axis in transpose", loc=source.here())
    return view(trace, x, Permute(order), origin=origin)


def swapaxes(trace: Recorder, x: Tracer, a: Any, b: Any, origin: str = "swapaxes") -> Tracer:
    rank = len(x.sizes)
    i, j = axis_of(trace, a, rank), axis_of(trace, b, rank)
    order = list(range(rank))
    if rank:
        order[i], order[j] = order[j], order[i]
    return view(trace, x, Permute(tuple(order)), origin=origin)


def moveaxis(trace: Recorder, x: Tracer, start: Any, to: Any, origin: str = "moveaxis") -> Tracer:
    rank = len(x.sizes)
    a = [axis_of(trace, k, rank) for k in (start if isinstance(start, (tuple, list)) else [start])]
    b = [axis_of(trace, k, rank) for k in (to if isinstance(to, (tuple, list)) else [to])]
    if len(a) != len(b):
        raise ValueArgumentError(
            "`source` and `destination` arguments must have the same number of elements",
            loc=source.here(),
        )
    order = [k for k in range(rank) if k not in a]
    for dest, src in sorted(zip(b, a, strict=True)):
        order.insert(dest, src)
    return view(trace, x, Permute(tuple(order)), origin=origin)


def squeeze(trace: Recorder, x: Tracer, axis: Any, strict: bool) -> Tracer:
    """Drop axes of size 1; `strict`: naming another axis is an error (NumPy)."""
    rank = len(x.sizes)
    if axis is None:
        drop = tuple(k for k in range(rank) if is_one(x.sizes[k]))
        if strict and not drop:
            return x  # NumPy's squeeze makes no new array then
    else:
        drop = axes_of(trace, axis, rank)
        if strict and not all(is_one(x.sizes[k]) for k in drop):
            raise ValueArgumentError(
                "cannot select an axis to squeeze out which has size not equal to one",
                loc=source.here(),
            )
        drop = tuple(k for k in drop if is_one(x.sizes[k]))
    items = tuple(Pick(0) if k in drop else Span(0, n) for k, n in enumerate(x.sizes))
    return view(trace, x, Index(items), origin="squeeze")


def expand_dims(trace: Recorder, x: Tracer, axis: Any, origin: str = "unsqueeze") -> Tracer:
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.sizes) + len(given)
    new = axes_of(trace, given, rank)
    sizes = iter(x.sizes)
    items = tuple(NewAxis() if k in new else Span(0, next(sizes)) for k in range(rank))
    return view(trace, x, Index(items), origin=origin)


def broadcast_to(trace: Recorder, x: Tracer, shape: Any) -> Tracer:
    """NumPy's ``broadcast_to``: a read-only view."""
    to = sizes_of(shape)
    _check_expand(x.sizes, to)
    return view(trace, x, *spread_steps(x.sizes, to), origin="broadcast_to", readonly=True)


def _check_expand(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    from tracegrad.trace.elementwise import broadcast_to_target

    if not broadcast_to_target(shape, to):
        raise ShapeError(
            "operands could not be broadcast together with remapped shapes [original->remapped]: "
            f"{shape_text(shape)}  and requested shape {shape_text(to)}",
            loc=source.here(),
        )


def expand(trace: Recorder, x: Tracer, shape: Any) -> Tracer:
    """PyTorch's ``expand``: -1 keeps a size."""
    sizes = list(sizes_of(shape))
    for k in range(1, min(len(sizes), len(x.sizes)) + 1):
        if sizes[-k] == -1:
            sizes[-k] = x.sizes[-k]
    to = tuple(sizes)
    _check_expand(x.sizes, to)
    spread, expanded = spread_steps(x.sizes, to)
    return view(trace, x, spread, Expand(expanded.to), origin="expand")


def flip(trace: Recorder, x: Tracer, axis: Any) -> Tracer:
    axes = axes_of(trace, axis, len(x.sizes))
    items = tuple(
        Span(n - 1, n, -1) if k in axes and not is_empty((n,)) else Span(0, n)
        for k, n in enumerate(x.sizes)
    )
    return view(trace, x, Index(items), origin="flip")


def diagonal(
    trace: Recorder, x: Tracer, offset: Any, axis1: Any, axis2: Any, readonly: bool
) -> Tracer:
    rank = len(x.sizes)
    if rank < 2:
        raise ValueArgumentError(
            "diag requires an array of at least two dimensions", loc=source.here()
        )
    a, b = axis_of(trace, axis1, rank), axis_of(trace, axis2, rank)
    if a == b:
        raise ValueArgumentError("axis1 and axis2 cannot be the same", loc=source.here())
    step = Diagonal(as_int(offset, "offset"), a, b)
    return view(trace, x, step, origin="diagonal", readonly=readonly)


def span(
    trace: Recorder,
    x: Tracer,
    axis: int,
    start: Dim,
    size: Dim,
    *,
    origin: str = "slice",
    output: int = -1,
) -> Tracer:
    """`size` elements of one axis from `start`."""
    items = tuple(Span(start, size) if k == axis else Span(0, n) for k, n in enumerate(x.sizes))
    return trace.view(x, Index(items), origin=origin, output=output)


def narrow(trace: Recorder, x: Tracer, dim: Any, start: Any, length: Any) -> Tracer:
    """`length` elements of an axis from `start` (negative counts from the end)."""
    x = trace.lift(x)
    k = axis_of(trace, dim, len(x.sizes))
    at, size = (
        v.dim if isinstance(v, SymbolicInt) else as_int(v, what)
        for v, what in ((start, "start"), (length, "length"))
    )
    n = x.sizes[k]
    if not is_nonnegative(at):
        at = dims.add(at, n)
    room = dims.add(n, dims.mul(dims.add(at, size), -1))
    if not (is_nonnegative(at) and is_nonnegative(size) and is_nonnegative(room)):
        raise ValueArgumentError(
            f"narrow: {size} elements from {start} exceed axis {k} of size {n}",
            kind="out_of_bounds",
            loc=source.here(),
        )
    return span(trace, x, k, at, size, origin="narrow")


def unfold(trace: Recorder, x: Tracer, dim: Any, size: Any, step: Any) -> Tracer:
    """Windows of `size` every `step` elements along an axis; the window becomes the last axis."""
    x = trace.lift(x)
    k = axis_of(trace, dim, len(x.sizes))
    width, by = as_int(size, "size"), as_int(step, "step")
    if by <= 0 or width < 0 or not x.sizes or width > x.sizes[k]:
        raise ValueArgumentError(
            f"unfold: windows of {width} every {by} do not fit a shape of {x.sizes}",
            kind="out_of_bounds",
            loc=source.here(),
        )
    return trace.view(x, Unfold(k, width, by), origin="unfold")


# ------------------------------------------------------------------------------------- joins


def concatenate(trace: Recorder, xs: Sequence[Arg], axis: int) -> Tracer:
    """Joined along `axis` (not negative) in the promoted dtype; shapes as NumPy demands."""
    dtype = result_type(trace, xs)
    found = list(xs) if axis else blocks(trace, xs)
    given = [joined(trace, x) for x in found]
    parts = [cast(trace, x, dtype) for x in given]
    if len(found) == 1 and isinstance(found[0], Block):
        return parts[0]  # type: ignore[return-value]
    return trace.apply(  # type: ignore[no-any-return]
        concat, parts, concat_attrs([shape_of(x) for x in given], axis)
    )


def stack(trace: Recorder, xs: Sequence[Arg], axis: Any) -> Tracer:
    """Joined along a new axis; all shapes must be equal."""
    shapes = {x.sizes if isinstance(x, Block) else shape_of(x) for x in xs}
    if not xs:
        raise ValueArgumentError("need at least one array to stack", loc=source.here())
    if len(shapes) > 1:
        raise ShapeError("all input arrays must have the same shape", loc=source.here())
    shape = shapes.pop()
    k = axis_of(trace, axis, len(shape) + 1)
    dtype = result_type(trace, [x.array if isinstance(x, Block) else x for x in xs])
    found = blocks(trace, xs)
    parts = [along(trace, x, k, dtype) for x in found]
    if len(found) == 1 and isinstance(found[0], Block):
        return parts[0]  # type: ignore[return-value]
    return trace.apply(concat, parts, concat_attrs([shape_of(x) for x in parts], k))  # type: ignore[no-any-return]
