"""Index expressions: read, resolved into view steps and gathers.

Basic indices (ints, slices, ``...``, ``None``) are view steps.  With an integer or boolean array
among them the index is *advanced*: basic parts are applied as a view, the axes with arrays are
moved to the front, and `gather` reads them; NumPy's placement rule then puts the broadcast index
axes where the arrays stood, or first when a slice, ``...`` or ``None`` separates them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import DataDependentShapeError, IndexingError
from tracegrad.graph.ir import Literal
from tracegrad.graph.storage import Index, Item, NewAxis, Permute, Pick, Span
from tracegrad.ops.index import WrapAttrs, bounds_message, gather, wrap_index
from tracegrad.trace.promote import as_arg, broadcast, broadcast_shapes, cast, is_known, shape_of
from tracegrad.trace.tracer import Trace, Tracer

INVALID = ("only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
           "boolean arrays are valid indices")


@dataclass(frozen=True, slots=True)
class At:
    """An integer-array index on the axis that the k-th `Span` of the basic part keeps."""

    index: Tracer | Literal
    axis: int  # of the indexed tensor, for messages
    size: int


@dataclass(slots=True)
class Parsed:
    """`items` is the basic part, one item an axis of the tensor plus new axes.

    `arrays[k]` is the array index on result axis k of the basic part.  `first` is the result
    axis where the broadcast index axes go (0 when the arrays are separated).
    `mask`: the index is one traced boolean array over the leading `mask_rank` axes.
    """

    items: tuple[Item, ...]
    arrays: dict[int, At]
    separated: bool = False
    mask: Tracer | None = None
    only_ints: bool = False


def parse(trace: Trace, x: Tracer, key: Any) -> Parsed:
    """`key` for a tensor like `x`.  Raises IndexingError in NumPy's words."""
    entries = _expand(trace, x, key)
    items: list[Item] = []
    arrays: dict[int, At] = {}
    kinds: list[str] = []  # of each entry: "array", "int" (counts as one beside arrays), "other"
    axis = position = 0
    mask: Tracer | None = None
    for entry in entries:
        if entry is None:
            items.append(NewAxis())
            kinds.append("other")
            position += 1
        elif isinstance(entry, _Flag):
            items.append(NewAxis())
            kinds.append("array")
            index = trace.concrete(np.zeros(1 if entry.value else 0, np.int64))
            arrays[position] = At(index, -1, 1)
            position += 1
        elif isinstance(entry, slice):
            items.append(_span(trace, entry, x.shape[axis]))
            kinds.append("other")
            axis, position = axis + 1, position + 1
        elif isinstance(entry, int):
            items.append(Pick(_wrap(trace, entry, axis, x.shape[axis])))
            kinds.append("int")
            axis += 1
        else:
            assert isinstance(entry, Tracer)
            if entry.element_type is BOOL:
                mask = entry
                items.extend(Span(0, n) for n in entry.shape)
                axis, position = axis + len(entry.shape), position + len(entry.shape)
            else:
                arrays[position] = At(_checked(trace, entry, axis, x.shape[axis]), axis,
                                      x.shape[axis])
                items.append(Span(0, x.shape[axis]))
                axis, position = axis + 1, position + 1
            kinds.append("array")
    only_ints = bool(kinds) and all(k == "int" for k in kinds) or (
        not kinds and not x.shape and isinstance(key, tuple) and not key)
    return Parsed(tuple(items), arrays, _separated(kinds), mask, only_ints)


def _separated(kinds: list[str]) -> bool:
    if "array" not in kinds:
        return False
    where = [k for k, kind in enumerate(kinds) if kind != "other"]
    return where[-1] - where[0] + 1 != len(where)


@dataclass(frozen=True, slots=True)
class _Flag:
    """A Python or 0-d bool as an index: a new axis of size 1 or 0."""

    value: bool


def _expand(trace: Trace, x: Tracer, key: Any) -> list[Any]:
    """Entries that cover every axis: ints, slices, None, `_Flag`, index tracers; known masks
    become integer arrays."""
    raw = list(key) if isinstance(key, tuple) else [key]
    out: list[Any] = []
    dots = -1
    used = 0
    for entry in raw:
        if entry is Ellipsis:
            if dots >= 0:
                raise IndexingError("an index can only have a single ellipsis ('...')",
                                    loc=source.here())
            dots = len(out)
            continue
        for part in _entry(trace, x, entry, used):
            out.append(part)
            if isinstance(part, Tracer) and part.element_type is BOOL:
                used += len(part.shape)
            elif part is not None and not isinstance(part, _Flag):
                used += 1
    rank = len(x.shape)
    if used > rank:
        raise _too_many(trace, rank, used)
    fill = [slice(None)] * (rank - used)
    at = len(out) if dots < 0 else dots
    if fill and at < len(out):
        # Masks before the dots were checked against their own axes; those after need a second look.
        out = out[:at] + fill + out[at:]
    else:
        out = out[:at] + fill + out[at:]
    return out


def _too_many(trace: Trace, rank: int, used: int) -> IndexingError:
    return IndexingError(
        f"too many indices for array: array is {rank}-dimensional, but {used} were indexed",
        loc=source.here(), kind=None if _numpy(trace) else "out_of_bounds")


def _numpy(trace: Trace) -> bool:
    return trace.face.numpy_scalars  # type: ignore[attr-defined, no-any-return]


def _entry(trace: Trace, x: Tracer, entry: Any, used: int) -> list[Any]:
    if entry is None or isinstance(entry, slice):
        return [entry]
    if isinstance(entry, (bool, np.bool_)):
        return [_Flag(bool(entry))]
    if isinstance(entry, (int, np.integer)):
        return [int(entry)]
    if isinstance(entry, (list, tuple, range)):
        entry = list(entry)
        if not entry:
            entry = np.zeros(0, np.int64)
        elif not any(isinstance(e, Tracer) for e in _leaves(entry)):
            entry = _array(entry)
    if isinstance(entry, np.ndarray):
        entry = _array(entry)
        if entry.ndim == 0:
            return [_Flag(bool(entry)) if entry.dtype == bool else int(entry)]
        given: Any = trace.concrete(entry) if _is_constant(trace, entry) else as_arg(trace, entry)
    elif isinstance(entry, (Tracer, list)):
        given = as_arg(trace, entry)
    elif hasattr(entry, "__index__"):
        return [operator.index(entry)]
    else:
        raise IndexingError(INVALID, loc=source.here())
    return _array_entry(trace, x, given, used)


def _is_constant(trace: Trace, entry: np.ndarray) -> bool:
    """Index arrays written out as lists are constants; real ndarrays are looked up."""
    return entry.base is _FROM_LIST


class _Marked(np.ndarray):
    pass


_FROM_LIST: Any = object()


def _leaves(entry: Any) -> Any:
    for e in entry:
        if isinstance(e, (list, tuple)):
            yield from _leaves(e)
        else:
            yield e


def _array(entry: Any) -> np.ndarray:
    try:
        array = np.asarray(entry)
    except ValueError:
        raise IndexingError(INVALID, loc=source.here()) from None
    if array.size == 0 and isinstance(entry, list):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexingError("arrays used as indices must be of integer (or boolean) type",
                            loc=source.here())
    return array


def _array_entry(trace: Trace, x: Tracer, given: Any, used: int) -> list[Any]:
    if isinstance(given, Literal):
        return [_Flag(bool(given.value)) if given.dtype is BOOL else int(given.value)]
    kind = given.element_type
    if kind is not BOOL and not kind.is_integer:
        raise IndexingError("arrays used as indices must be of integer (or boolean) type",
                            loc=source.here())
    known = given.concrete
    if kind is not BOOL:
        return [int(known)] if known is not None and known.ndim == 0 else [given]
    if known is None:
        if not given.shape:
            raise DataDependentShapeError(
                "the shape of a result would depend on a traced bool used as an index",
                loc=source.here(), remedy=MASK_REMEDY)
        return [given]
    if known.ndim == 0:
        return [_Flag(bool(known))]
    _check_mask(x, known.shape, used)
    return [trace.concrete(i) for i in np.nonzero(known)]


MASK_REMEDY = ("Use np.where(mask, x, 0) to keep the shape, np.sum(x, where=mask) to reduce, or a "
               "mask that does not depend on traced values.")


def _check_mask(x: Tracer, shape: tuple[int, ...], used: int) -> None:
    own = x.shape[used:used + len(shape)]
    for k, (n, m) in enumerate(zip(own, shape, strict=False)):
        if n != m:
            raise IndexingError(
                f"boolean index did not match indexed array along axis {used + k}; size of axis is "
                f"{n} but size of corresponding boolean axis is {m}", loc=source.here())


def _wrap(trace: Trace, at: int, axis: int, size: int) -> int:
    if not -size <= at < size:
        raise IndexingError(bounds_message(WrapAttrs(size, axis), at), loc=source.here(),
                            kind=None if _numpy(trace) else "out_of_bounds")
    return at + size if at < 0 else at


def _span(trace: Trace, s: slice, size: int) -> Span:
    try:
        start, stop, step = s.indices(size)
    except ValueError:
        raise IndexingError("slice step cannot be zero", loc=source.here()) from None
    except TypeError:
        if any(isinstance(e, Tracer) for e in (s.start, s.stop, s.step)):
            raise
        raise IndexingError(
            "slice indices must be integers or None or have an __index__ method",
            loc=source.here()) from None
    if step < 0 and not _numpy(trace):
        raise IndexingError("step must be greater than zero", kind="bad_geometry",
                            loc=source.here(), remedy="Use flip(dim), which copies.")
    count = len(range(start, stop, step))
    return Span(start, count, step) if count else Span(0, 0)


def _checked(trace: Trace, index: Tracer, axis: int, size: int) -> Tracer | Literal:
    """The index made not negative; checked now when known, else when the kernel runs."""
    attrs = WrapAttrs(size, axis)
    known = index.concrete
    if known is not None:
        wide = known.astype(np.int64)
        wrong = (wide < -size) | (wide >= size)
        if wrong.any():
            raise IndexingError(bounds_message(attrs, wide[wrong][0]), loc=source.here(),
                                kind=None if _numpy(trace) else "out_of_bounds")
        return trace.concrete(np.where(wide < 0, wide + size, wide))
    return trace.apply(wrap_index, (index,), attrs)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------ reading


def is_whole(x: Tracer, parsed: Parsed) -> bool:
    """Whether the basic part keeps everything as it is."""
    return len(parsed.items) == len(x.shape) and all(
        isinstance(i, Span) and (i.start, i.size, i.step) == (0, n, 1)
        for i, n in zip(parsed.items, x.shape, strict=True))


def get(trace: Trace, x: Tracer, key: Any) -> Any:
    """``x[key]``: a view, a scalar (Array face, integers only), or a copy by gather."""
    from tracegrad.trace.masked import MaskedRead

    x = trace.lift(x)
    if x.scalar and key not in ((), Ellipsis) if not isinstance(key, (Tracer, np.ndarray)) else False:
        _refuse_scalar(key)
    trace.place()
    parsed = parse(trace, x, key)
    if parsed.mask is not None:
        return MaskedRead(trace, x, parsed)
    if not parsed.arrays:
        step = Index(parsed.items)
        if parsed.only_ints and _numpy(trace):
            return trace.read(x, step, scalar=True)
        if x.scalar:
            return trace.read(x, step)
        return trace.view(x, step, origin="slice" if not parsed.only_ints else "select")
    part, index, order = gathered_axes(trace, x, parsed)
    rank = len(broadcast_shapes(*(shape_of(i) for i in index)))
    out = trace.apply(gather, (part, *index),
                      scalar=_numpy(trace) and rank == 0 and len(part.shape) == len(index))
    back = result_order(parsed, rank, len(part.shape) - len(index))
    if back == tuple(range(len(back))):
        return out
    strides = tuple(out.layout.stride[k] for k in back)
    return trace.read(out, Permute(back), layout=strides)


def _refuse_scalar(key: Any) -> None:
    raise IndexingError("invalid index to scalar variable.", loc=source.here())


def gathered_axes(trace: Trace, x: Tracer, parsed: Parsed
                  ) -> tuple[Tracer, list[Tracer | Literal], tuple[int, ...]]:
    """The basic part as a view with the indexed axes moved to the front, and the indices with
    one shape; the last result is the order of the moved axes."""
    part = x if is_whole(x, parsed) else trace.view(x, Index(parsed.items), origin="slice")
    axes = sorted(parsed.arrays)
    order = (*axes, *(k for k in range(len(part.shape)) if k not in parsed.arrays))
    if order != tuple(range(len(order))):
        part = trace.view(part, Permute(order), origin="permute")
    given = [parsed.arrays[k].index for k in axes]
    shape = _index_shape(given)
    known = is_known(given)
    return part, [broadcast(trace, cast(trace, i, I64), shape, known) for i in given], order


def _index_shape(given: list[Tracer | Literal]) -> tuple[int, ...]:
    shapes = [shape_of(i) for i in given]
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        listed = " ".join(map(str, shapes))
        raise IndexingError("shape mismatch: indexing arrays could not be broadcast together with "
                            f"shapes {listed}", loc=source.here()) from None


def result_order(parsed: Parsed, index_rank: int, rest: int) -> tuple[int, ...]:
    """Axes of ``I + rest`` in the order NumPy gives the result."""
    first = 0 if parsed.separated else _first(parsed)
    lead = list(range(index_rank))
    tail = list(range(index_rank, index_rank + rest))
    return (*tail[:first], *lead, *tail[first:])


def _first(parsed: Parsed) -> int:
    """Result axes before the first index (an int beside arrays counts as one)."""
    before = 0
    position = 0
    for item in parsed.items:
        if isinstance(item, Pick):
            break
        if position in parsed.arrays:
            break
        position += 1
        before += 1
    return before


def dtype_of_index() -> dtypes.DType:
    """Indices are int64."""
    return I64
