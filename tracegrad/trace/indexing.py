"""Index expressions: read, resolved into view steps and gathers.

Basic indices (ints, slices, ``...``, ``None``) are view steps.  With an integer or boolean array
among them the index is *advanced*: basic parts are applied as a view, the axes with arrays are
moved to the front, and `gather` reads them; NumPy's placement rule then puts the broadcast index
axes where the arrays stood, or first when a slice, ``...`` or ``None`` separates them.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dims import Dim
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import (
    ArgumentError,
    DataDependentShapeError,
    IndexingError,
    ValueArgumentError,
)
from tracegrad.graph.ir import Literal
from tracegrad.graph.storage import Index, Item, NewAxis, Permute, Pick, Span
from tracegrad.ops.index import WrapAttrs, bounds_message, gather, wrap_index
from tracegrad.trace import layout
from tracegrad.trace.promote import as_arg, broadcast, broadcast_shapes, cast, is_known, shape_of
from tracegrad.trace.symbolic import SymbolicInt, Unrollable
from tracegrad.trace.symbolic_index import symbolic_span, wrapped
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder
from tracegrad.trace.windows import open_window
from tracegrad.types import shape_text

INVALID = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
    "boolean arrays are valid indices"
)


MASK_REMEDY = (
    "Use np.where(mask, x, 0) to keep the shape, np.sum(x, where=mask) to reduce, or a "
    "mask that does not depend on traced values."
)


@dataclass(slots=True)
class Parsed:
    """`items` is the basic part: one item for each axis of the tensor, and new axes.

    `arrays[k]` is the array index (not negative, i64) of axis k of the basic part's result.
    `separated`: NumPy puts the index axes first.  `scalar`: integers for all axes.
    `picks`: the array indices are integers for NumPy, which gives a view.
    `mask` is a traced boolean array over axes `mask_at`, ... of the basic part's result.
    """

    items: list[Item] = field(default_factory=list)
    arrays: dict[int, Tracer | Literal] = field(default_factory=dict)
    separated: bool = False
    scalar: bool = False
    picks: bool = True
    mask: Tracer | None = None
    mask_at: int = 0


@dataclass(frozen=True, slots=True)
class _Flag:
    """A Python or 0-d bool as an index: a new axis of size 1 or 0."""

    value: bool


def parse(trace: Recorder, x: Tracer, key: Any) -> Parsed:
    """`key` for a tensor like `x`.  Raises IndexingError in NumPy's words."""
    raw = list(key) if isinstance(key, tuple) else [key]
    entries = _fill(trace, [e if e is Ellipsis else _entry(trace, e) for e in raw], len(x.sizes))
    out = Parsed()
    kinds: list[str] = []
    axis = 0
    for entry in entries:
        if entry is Ellipsis:
            kinds.append("basic")
            continue
        kinds.append(_add(trace, x, out, entry, axis))
        axis += _axes_used(entry)
    where = [k for k, kind in enumerate(kinds) if kind != "basic"]
    if "array" in kinds:
        out.separated = where[-1] - where[0] + 1 != len(where)
    out.scalar = all(k == "int" for k in kinds)
    if out.mask is not None and out.arrays:
        raise DataDependentShapeError(
            "a traced boolean mask together with other index arrays is not supported",
            loc=source.here(),
            remedy=MASK_REMEDY,
        )
    return out


def _fill(trace: Recorder, entries: list[Any], rank: int) -> list[Any]:
    """Entries for every axis: the ellipsis, or the end, stands for full slices."""
    dots = [k for k, e in enumerate(entries) if e is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("an index can only have a single ellipsis ('...')", loc=source.here())
    at = dots[0] if dots else len(entries)
    rest = [e for e in entries if e is not Ellipsis]
    used = sum(map(_axes_used, rest))
    if used > rank:
        raise IndexingError(
            f"too many indices for array: array is {rank}-dimensional, but {used} were indexed",
            loc=source.here(),
            kind=_kind(trace),
        )
    # The ellipsis itself stays: even where it stands for no axis it separates index arrays.
    return [*rest[:at], *entries[at : at + len(dots)], *[slice(None)] * (rank - used), *rest[at:]]


def _axes_used(entry: Any) -> int:
    if entry is None or isinstance(entry, _Flag):
        return 0
    if isinstance(entry, Tracer) and entry.element_type is BOOL:
        return len(entry.sizes)
    return 1


def _kind(trace: Recorder) -> str | None:
    return None if _numpy(trace) else "out_of_bounds"


def _numpy(trace: Recorder) -> bool:
    return trace.face.numpy_scalars  # type: ignore[attr-defined, no-any-return]


def _entry(trace: Recorder, entry: Any) -> Any:
    """An int, slice, None, `_Flag`, or a tracer of integers or bools."""
    if entry is None or isinstance(entry, slice):
        return entry
    if isinstance(entry, (bool, np.bool_)):
        return _Flag(bool(entry))
    if isinstance(entry, SymbolicInt):
        return entry
    if isinstance(entry, (int, np.integer)):
        return int(entry)
    if isinstance(entry, (list, tuple, range, np.ndarray, Tracer)):
        return _array_entry(trace, _index_array(trace, entry))
    refuse = getattr(entry, "refuse", None)
    if callable(refuse):
        refuse()
    if hasattr(entry, "__index__"):
        return operator.index(entry)
    raise IndexingError(INVALID, loc=source.here())


def _index_array(trace: Recorder, entry: Any) -> Tracer | Literal:
    if isinstance(entry, (Tracer, np.ndarray)):
        return as_arg(trace, entry)  # type: ignore[return-value]
    from tracegrad.trace.creation_data import array

    if len(entry) == 0:
        return trace.concrete(np.zeros(np.shape(entry), np.int64))
    return array(list(entry))


def _array_entry(trace: Recorder, given: Tracer | Literal) -> Any:
    kind = given.dtype if isinstance(given, Literal) else given.element_type
    if kind is not BOOL and not kind.is_integer:
        raise IndexingError(
            "arrays used as indices must be of integer (or boolean) type", loc=source.here()
        )
    if isinstance(given, Literal):
        return _Flag(bool(given.value)) if kind is BOOL else int(given.value)
    known = given.concrete
    if known is not None and known.ndim == 0:
        return _Flag(bool(known)) if kind is BOOL else int(known)
    return given


def _add(trace: Recorder, x: Tracer, out: Parsed, entry: Any, axis: int) -> str:
    """Append one entry to `out`; says whether it counts as basic, int or array."""
    at = sum(not isinstance(i, Pick) for i in out.items)
    if entry is None:
        out.items.append(NewAxis())
        return "basic"
    if isinstance(entry, slice):
        out.items.append(_span(trace, entry, x.sizes[axis]))
        return "basic"
    if isinstance(entry, SymbolicInt):
        out.items.append(Pick(wrapped(entry.dim, x.sizes[axis])))
        return "int"
    if isinstance(entry, int):
        out.items.append(Pick(_wrap(trace, entry, axis, x.sizes[axis])))
        return "int"
    if isinstance(entry, _Flag):
        out.picks = False
        out.items.append(NewAxis())
        out.arrays[at] = trace.concrete(np.zeros(1 if entry.value else 0, np.int64))
    elif entry.element_type is BOOL:
        out.picks = False
        _add_mask(trace, x, out, entry, axis, at)
    else:
        out.picks &= entry.sizes == () and (entry.scalar or not _numpy(trace))
        out.items.append(Span(0, x.sizes[axis]))
        out.arrays[at] = checked(trace, entry, axis, x.sizes[axis])
    return "array"


def _add_mask(trace: Recorder, x: Tracer, out: Parsed, mask: Tracer, axis: int, at: int) -> None:
    for k, (n, m) in enumerate(zip(x.sizes[axis:], mask.sizes, strict=False), axis):
        if n != m:
            raise IndexingError(
                f"boolean index did not match indexed array along axis {k}; size of axis is "
                f"{n} but size of corresponding boolean axis is {m}",
                loc=source.here(),
            )
    out.items.extend(Span(0, n) for n in mask.sizes)
    if mask.concrete is not None:
        for k, index in enumerate(np.nonzero(mask.concrete)):
            out.arrays[at + k] = trace.concrete(index)
        return
    if out.mask is not None:
        raise DataDependentShapeError(
            "two traced boolean masks in one index are not supported",
            loc=source.here(),
            remedy=MASK_REMEDY,
        )
    out.mask, out.mask_at = mask, at


def _wrap(trace: Recorder, at: int, axis: int, size: Dim) -> Dim:
    if not isinstance(size, int):
        return wrapped(at, size)
    if not -size <= at < size:
        raise IndexingError(
            bounds_message(WrapAttrs(size, axis), at), loc=source.here(), kind=_kind(trace)
        )
    return at + size if at < 0 else at


def _span(trace: Recorder, s: slice, size: Dim) -> Span:
    if s == slice(None):
        return Span(0, size)
    if not isinstance(size, int) or any(
        isinstance(e, SymbolicInt) for e in (s.start, s.stop, s.step)
    ):
        return symbolic_span(s, size)
    try:
        start, stop, step = s.indices(size)
    except ValueError:
        raise ValueArgumentError("slice step cannot be zero", loc=source.here()) from None
    except TypeError:
        if any(isinstance(e, Tracer) for e in (s.start, s.stop, s.step)):
            raise
        raise ArgumentError(
            "slice indices must be integers or None or have an __index__ method", loc=source.here()
        ) from None
    if step < 0 and not _numpy(trace):
        raise IndexingError(
            "step must be greater than zero",
            kind="bad_geometry",
            loc=source.here(),
            remedy="Use flip(dim), which copies.",
        )
    count = len(range(start, stop, step))
    return Span(start, count, step) if count else Span(0, 0)


def checked(trace: Recorder, index: Tracer, axis: int, size: Dim) -> Tracer | Literal:
    """The index made not negative; checked now when known, else when the kernel runs."""
    if not isinstance(size, int):
        raise Unrollable("an array indexes an axis whose size depends on the index")
    attrs = WrapAttrs(size, axis)
    known = index.concrete
    if known is not None:
        wide = known.astype(np.int64)
        wrong = (wide < -size) | (wide >= size)
        if wrong.any():
            raise IndexingError(
                bounds_message(attrs, wide[wrong][0]), loc=source.here(), kind=_kind(trace)
            )
        return trace.concrete(np.where(wide < 0, wide + size, wide))
    return trace.apply(wrap_index, (index,), attrs)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------ reading


def is_whole(x: Tracer, parsed: Parsed) -> bool:
    """Whether the basic part keeps everything as it is."""
    return len(parsed.items) == len(x.sizes) and all(
        isinstance(i, Span) and (i.start, i.size, i.step) == (0, n, 1)
        for i, n in zip(parsed.items, x.sizes, strict=True)
    )


def get(trace: Recorder, x: Tracer, key: Any) -> Any:
    """``x[key]``: a view, a scalar (Array face, integers only), or a copy by gather.

    With a traced boolean mask the shape would depend on values: the result can only be computed
    with elementwise, reduced, and written back through the same mask.
    """
    from tracegrad.trace.masked import masked_read

    x = trace.lift(x)
    if (
        x.scalar
        and not (isinstance(key, tuple) and not key)
        and key is not Ellipsis
        and key is not None
    ):
        raise IndexingError("invalid index to scalar variable.", loc=source.here())
    parsed = parse(trace, x, key)
    if parsed.mask is not None:
        return masked_read(trace, x, parsed)
    if not parsed.arrays:
        return _basic(trace, x, parsed)
    part, index = gathered_axes(trace, x, parsed)
    rank = len(shape_of(index[0]))
    out = trace.apply(
        gather,
        (part, *index),
        layout=_gathered_strides(part, index),
        scalar=_numpy(trace) and rank == 0 and len(part.sizes) == len(index),
    )
    if parsed.picks and not x.scalar and not out.scalar:
        open_window(out, part, index, x, key)
    back = result_order(parsed, rank, len(part.sizes) - len(index))
    if back == tuple(range(len(back))):
        return out
    return trace.read(out, Permute(back), layout=tuple(out.layout.stride[k] for k in back))


def _gathered_strides(part: Tracer, index: list[Tracer | Literal]) -> tuple[int, ...] | None:
    """NumPy lays out what an index array selects in the order of the array it is taken from."""
    lead, rest = shape_of(index[0]), part.sizes[len(index) :]
    inner = layout.elementwise(rest, [(rest, part.layout.stride[len(index) :])])  # type: ignore[list-item]
    if inner is None:
        return None
    return (*(s * max(math.prod(rest), 1) for s in layout.dense(lead)), *inner)


def _basic(trace: Recorder, x: Tracer, parsed: Parsed) -> Tracer:
    step = Index(tuple(parsed.items))
    if parsed.scalar and _numpy(trace):
        return trace.read(x, step, scalar=True)
    if x.scalar:
        return trace.read(x, step)
    return trace.view(x, step, origin="select" if parsed.scalar else "slice")


def gathered_axes(
    trace: Recorder, x: Tracer, parsed: Parsed
) -> tuple[Tracer, list[Tracer | Literal]]:
    """The basic part as a view with the indexed axes moved to the front, and the indices with
    one shape."""
    part = x if is_whole(x, parsed) else trace.view(x, Index(tuple(parsed.items)), origin="slice")
    axes = sorted(parsed.arrays)
    order = (*axes, *(k for k in range(len(part.sizes)) if k not in parsed.arrays))
    if order != tuple(range(len(order))):
        part = trace.view(part, Permute(order), origin="permute")
    given = [parsed.arrays[k] for k in axes]
    shape = _index_shape(given)
    known = is_known(given)
    return part, [broadcast(trace, cast(trace, i, I64), shape, known) for i in given]


def _index_shape(given: list[Tracer | Literal]) -> tuple[int, ...]:
    shapes = [shape_of(i) for i in given]
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        listed = " ".join(map(shape_text, shapes))
        raise IndexingError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {listed}",
            loc=source.here(),
        ) from None


def result_order(parsed: Parsed, index_rank: int, rest: int) -> tuple[int, ...]:
    """Axes of ``I + rest`` in the order NumPy gives the result."""
    first = 0 if parsed.separated else _first(parsed)
    lead = list(range(index_rank))
    tail = list(range(index_rank, index_rank + rest))
    return (*tail[:first], *lead, *tail[first:])


def _first(parsed: Parsed) -> int:
    """Result axes before the first index (an int beside arrays counts as one)."""
    position = 0
    for item in parsed.items:
        if isinstance(item, Pick) or position in parsed.arrays:
            break
        position += 1
    return position
