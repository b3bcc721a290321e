"""NumPy's functions that change shapes, join and split, with NumPy's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import DataDependentShapeError, ShapeError, ValueArgumentError
from tracegrad.trace import creation, indexing, shape
from tracegrad.trace.concretize import known
from tracegrad.trace.creation import array, the_trace, tracer
from tracegrad.trace.numpy_table import implements
from tracegrad.trace.numpy_ufuncs import into
from tracegrad.trace.promote import as_arg, as_int, broadcast_shapes, cast
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def start(a: Any) -> tuple[Recorder, Tracer]:
    """The trace, and `a` as a tracer (lists become arrays)."""
    trace = the_trace(a)
    return trace, array(a) if isinstance(a, (list, tuple)) else tracer(trace, a)


@implements(np.reshape)
def reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> Tracer:
    trace, x = start(a)
    return _shape.reshape(trace, x, newshape if shape is None else shape, order, copy)


_shape = shape  # the module, where a parameter has its name


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Tracer:
    return shape.ravel(*start(a), order)


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    return shape.permute(*start(a), axes, "transpose")


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> Tracer:
    return shape.swapaxes(*start(x), -1, -2, "transpose")


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Tracer:
    return shape.swapaxes(*start(a), axis1, axis2)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tracer:
    return shape.moveaxis(*start(a), source, destination)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: Any = 0) -> Tracer:
    trace = the_trace(a)
    x = tracer(trace, a)
    k = shape.axis_of(trace, axis, len(x.sizes))
    to = as_int(start, "start")
    to += len(x.sizes) if to < 0 else 0
    return shape.moveaxis(trace, x, k, to - 1 if k < to else to)


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    return shape.expand_dims(*start(a), axis, "expand_dims")


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Tracer:
    return shape.squeeze(*start(a), axis, strict=True)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    return _shape.broadcast_to(*start(array), shape)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracer, ...]:
    trace = the_trace(*args)
    xs = [start(a)[1] for a in args]
    to = broadcast_shapes(*(x.sizes for x in xs))
    return tuple(shape.broadcast_to(trace, x, to) for x in xs)


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Tracer:
    return shape.flip(*start(m), axis)


@implements(np.flipud)
def flipud(m: Any) -> Tracer:
    return shape.flip(*start(m), 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return shape.flip(*start(m), 1)


@implements(np.diagonal, np.linalg.diagonal)
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Tracer:
    return shape.diagonal(*start(a), offset, axis1, axis2, readonly=True)


@implements(np.diag)
def diag(v: Any, k: Any = 0) -> Tracer:
    trace, x = start(v)
    if len(x.sizes) == 2:
        return shape.diagonal(trace, x, k, 0, 1, readonly=True)
    if len(x.sizes) != 1:
        raise ValueArgumentError("Input must be 1- or 2-d.", loc=source.here())
    n = x.sizes[0] + abs(as_int(k, "k"))
    out = trace.concrete(np.zeros((n, n), x.element_type.np))
    _shape_store(trace, shape.diagonal(trace, out, k, 0, 1, readonly=False), x)
    return out


def _shape_store(trace: Recorder, target: Tracer, value: Tracer) -> None:
    from tracegrad.trace.elementwise import store

    store(trace, target, value)


@implements(np.tril)
def tril(m: Any, k: Any = 0) -> Tracer:
    return _triangle(m, k, lower=True)


@implements(np.triu)
def triu(m: Any, k: Any = 0) -> Tracer:
    return _triangle(m, k, lower=False)


def _triangle(m: Any, k: Any, lower: bool) -> Tracer:
    from tracegrad.trace.elementwise import select

    trace, x = start(m)
    if len(x.sizes) < 2:
        raise ShapeError("tril and triu need at least two axes", loc=source.here())
    rows, columns = x.sizes[-2:]
    below = np.tri(rows, columns, k=as_int(k, "k") - (0 if lower else 1), dtype=bool)
    mask = trace.concrete(below if lower else ~below)
    return select(trace, mask, x, as_arg(trace, x.element_type.np.type(0)))


# ----------------------------------------------------------------------------------- at least


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _at_least(arys, lambda x: x.shape or (1,))


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _at_least(arys, lambda x: (1,) * (2 - len(x.shape)) + x.shape)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    def to(x: Tracer) -> tuple[int, ...]:
        return {0: (1, 1, 1), 1: (1, *x.sizes, 1), 2: (*x.sizes, 1)}.get(len(x.sizes), x.sizes)

    return _at_least(arys, to)


def _at_least(arys: Sequence[Any], to: Any) -> Any:
    out = []
    for a in arys:
        trace, x = start(a)
        out.append(x if to(x) == x.sizes else shape.reshape(trace, x, to(x)))
    return out[0] if len(out) == 1 else tuple(out)


# -------------------------------------------------------------------------------------- joins


def _parts(arrays: Any) -> tuple[Recorder, list[Any]]:
    if isinstance(arrays, Tracer):
        return the_trace(arrays), list(arrays)  # type: ignore[call-overload]
    trace = the_trace(*arrays)
    return trace, [start(a)[1] for a in arrays]


@implements(np.concatenate)
def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    trace, xs = _parts(arrays)
    if not xs:
        raise ValueArgumentError("need at least one array to concatenate", loc=source.here())
    if dtype is not None:
        xs = [cast(trace, x, dtypes.of(dtype)) for x in xs]
    if axis is None:
        xs = [shape.ravel(trace, x) for x in xs]
        axis = 0
    if not xs[0].shape:
        raise ShapeError("zero-dimensional arrays cannot be concatenated", loc=source.here())
    value = shape.concatenate(trace, xs, shape.axis_of(trace, axis, len(xs[0].shape)))
    return value if out is None else into(trace, value, (out,))


@implements(np.stack)
def stack(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    trace, xs = _parts(arrays)
    if dtype is not None:
        xs = [cast(trace, x, dtypes.of(dtype)) for x in xs]
    value = shape.stack(trace, xs, axis)
    return value if out is None else into(trace, value, (out,))


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    xs = [atleast_1d(a) for a in (_parts(tup)[1])]
    return concatenate(xs, 0 if len(xs[0].shape) == 1 else 1, dtype=dtype)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    return concatenate([atleast_2d(a) for a in _parts(tup)[1]], 0, dtype=dtype)


@implements(np.dstack)
def dstack(tup: Any) -> Tracer:
    return concatenate([atleast_3d(a) for a in _parts(tup)[1]], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Tracer:
    trace, xs = _parts(tup)
    wide = [x if len(x.shape) > 1 else shape.reshape(trace, x, (-1, 1)) for x in xs]
    return concatenate(wide, 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Tracer:
    return concatenate([arr, values], axis)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    trace, x = start(a)
    if axis is None:
        flat = roll(shape.ravel(trace, x), shift, 0)
        return shape.reshape(trace, flat, x.sizes)
    if isinstance(shift, Tracer):
        shift = known(shift, "the shift of np.roll", "index")
    pairs = np.broadcast(shift, axis)
    for by, k in pairs:
        at = shape.axis_of(trace, int(k), len(x.sizes))
        n = x.sizes[at]
        cut = int(by) % n if n else 0
        if cut:
            x = shape.concatenate(
                trace,
                [shape.span(trace, x, at, n - cut, cut), shape.span(trace, x, at, 0, n - cut)],
                at,
            )
    return creation.copy(x) if x is start(a)[1] else x


@implements(np.tile)
def tile(A: Any, reps: Any) -> Tracer:
    trace, x = start(A)
    counts = tuple(as_int(r, "reps") for r in (reps if isinstance(reps, (tuple, list)) else [reps]))
    rank = max(len(counts), len(x.sizes))
    counts = (1,) * (rank - len(counts)) + counts
    own = (1,) * (rank - len(x.sizes)) + x.sizes
    thin = tuple(n for pair in zip((1,) * rank, own, strict=True) for n in pair)
    wide = tuple(n for pair in zip(counts, own, strict=True) for n in pair)
    from tracegrad.graph.storage import Expand, Reshape

    final = tuple(c * n for c, n in zip(counts, own, strict=True))
    return trace.read(x, Reshape(thin), Expand(wide), Reshape(final))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Tracer:
    from tracegrad.graph.storage import Expand, Reshape

    trace, x = start(a)
    if axis is None:
        x = shape.ravel(trace, x)
        axis = 0
    k = shape.axis_of(trace, axis, len(x.sizes))
    if isinstance(repeats, Tracer):
        if repeats.concrete is None:
            raise DataDependentShapeError(
                "the length of the result of np.repeat depends on traced counts",
                loc=source.here(),
                remedy="Pass the counts as static values, or index with an array of a fixed "
                "length: x[index].",
            )
        repeats = repeats.concrete if repeats.sizes else repeats.concrete[()]
    if np.ndim(repeats):
        rows = trace.concrete(np.repeat(np.arange(x.sizes[k]), repeats))
        return indexing.get(trace, x, (*(slice(None),) * k, rows))  # type: ignore[no-any-return]
    times = as_int(repeats, "repeats")
    head, n, tail = x.sizes[:k], x.sizes[k], x.sizes[k + 1 :]
    return trace.read(
        x,
        Reshape((*head, n, 1, *tail)),
        Expand((*head, n, times, *tail)),
        Reshape((*head, n * times, *tail)),
    )


# ------------------------------------------------------------------------------------- splits


def _cut(a: Any, sections: Any, axis: Any, strict: bool) -> list[Tracer]:
    """Basic-index views along `axis`: equal parts, or parts between indices."""
    trace, x = start(a)
    k = shape.axis_of(trace, axis, len(x.sizes))
    n = x.sizes[k]
    if isinstance(sections, (tuple, list, np.ndarray)):
        cuts = [0, *(slice(int(s)).indices(n)[1] for s in sections), n]
    else:
        parts = as_int(sections, "sections")
        if parts <= 0:
            raise ValueArgumentError("number sections must be larger than 0.", loc=source.here())
        if strict and n % parts:
            raise ValueArgumentError(
                "array split does not result in an equal division", loc=source.here()
            )
        size, extra = divmod(n, parts)
        cuts = [0]
        for p in range(parts):
            cuts.append(cuts[-1] + size + (p < extra))
    return [
        shape.span(trace, x, k, lo, max(hi - lo, 0))
        for lo, hi in zip(cuts[:-1], cuts[1:], strict=True)
    ]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Tracer]:
    return _cut(ary, indices_or_sections, axis, strict=True)


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Tracer]:
    return _cut(ary, indices_or_sections, axis, strict=False)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    return _cut(ary, indices_or_sections, 0 if len(ary.shape) == 1 else 1, strict=True)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    return _cut(ary, indices_or_sections, 0, strict=True)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    return _cut(ary, indices_or_sections, 2, strict=True)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: Any = 0) -> tuple[Tracer, ...]:
    trace, a = start(x)
    moved = shape.moveaxis(trace, a, axis, 0)
    return tuple(moved[k, ...] for k in range(moved.sizes[0]))  # type: ignore[index]
