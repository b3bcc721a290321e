"""``x[mask]`` with a traced mask: no array, but it can be computed with and written back.

``y[mask] *= 3`` and ``y[mask] = f(y[mask], x[mask])`` are writes of fixed shape although the
right-hand side, read as an array, is not.  A `MaskedRead` stands for that right-hand side: it keeps
values for all elements and refuses everything but elementwise operations with scalars or reads
through the same mask.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.dtypes import BOOL
from tracegrad.errors import DataDependentShapeError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef
from tracegrad.graph.storage import Expand, Index, NewAxis, Span
from tracegrad.ops.select import where as where_op
from tracegrad.trace.elementwise import apply_op, check_target, prepared, select
from tracegrad.trace.indexing import MASK_REMEDY, Parsed, is_whole
from tracegrad.trace.promote import Arg, as_arg, cast, shape_of, ufunc_ops
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


class MaskedRead:
    """The elements of `part` (a basic view of the tensor) where `mask` holds."""

    __slots__ = ("_key", "_loc", "_mask", "_values")
    __array_priority__ = 1000.0

    def __init__(self, trace: Recorder, x: Tracer, parsed: Parsed) -> None:
        part, mask = masked_part(trace, x, parsed)
        self._loc = source.here()
        assert parsed.mask is not None
        self._key = mask_key(parsed.mask)
        self._mask = mask
        # Elements outside the mask may be outside an operation's domain; 1 is in nearly all.
        self._values: Tracer = select(trace, mask, part, Literal(1, part.element_type))

    def refuse(self) -> NoReturn:
        raise DataDependentShapeError(
            "x[mask] with a traced mask has a shape that depends on traced values",
            loc=self._loc,
            remedy=MASK_REMEDY,
        )

    def _made(self, values: Tracer) -> MaskedRead:
        other = object.__new__(MaskedRead)
        other._loc, other._key, other._mask = self._loc, self._key, self._mask
        other._values = values
        return other

    def _same_mask(self, other: MaskedRead) -> bool:
        return self._key == other._key and self._values.sizes == other._values.sizes

    def apply(self, op: OpDef, args: tuple[Any, ...]) -> MaskedRead:
        """An elementwise op of masked reads and scalars."""
        trace = self._values.trace
        xs: list[Arg] = []
        for x in args:
            if isinstance(x, MaskedRead):
                if not self._same_mask(x):
                    self.refuse()
                xs.append(x._values)
                continue
            arg = as_arg(trace, x)
            if shape_of(arg) != ():
                self.refuse()
            xs.append(arg)
        return self._made(apply_op(trace, op, xs))

    def values_for(self, mask: Tracer, shape: tuple[int, ...]) -> Tracer:
        """Values for all elements, to be written where the same `mask` holds."""
        if mask_key(mask) != self._key or self._values.sizes != shape:
            self.refuse()
        return self._values

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        op = ufunc_ops().get(ufunc)
        if op is None or method != "__call__" or keywords:
            self.refuse()
        return self.apply(op, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        self.refuse()

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    def __getitem__(self, key: Any) -> NoReturn:
        self.refuse()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self.refuse()

    def __matmul__(self, other: Any) -> NoReturn:
        self.refuse()

    def __rmatmul__(self, other: Any) -> NoReturn:
        self.refuse()

    def __len__(self) -> NoReturn:
        self.refuse()

    def __iter__(self) -> NoReturn:
        self.refuse()

    def __bool__(self) -> NoReturn:
        self.refuse()

    def __float__(self) -> NoReturn:
        self.refuse()

    def __repr__(self) -> str:
        return f"<x[mask] of dtype {self._values.element_type}, shape known at run time only>"


def _install() -> None:
    ufuncs = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "truediv": np.true_divide,
        "pow": np.power,
        "floordiv": np.floor_divide,
        "mod": np.remainder,
    }

    def forward(ufunc: Any) -> Any:
        return lambda self, other: self.apply(ufunc_ops()[ufunc], (self, other))

    def reflected(ufunc: Any) -> Any:
        return lambda self, other: self.apply(ufunc_ops()[ufunc], (other, self))

    for name, ufunc in ufuncs.items():
        setattr(MaskedRead, f"__{name}__", forward(ufunc))
        setattr(MaskedRead, f"__i{name}__", forward(ufunc))
        setattr(MaskedRead, f"__r{name}__", reflected(ufunc))
    unary = {"neg": np.negative, "abs": np.absolute, "pos": np.positive}
    for name, one in unary.items():
        setattr(MaskedRead, f"__{name}__", lambda self, u=one: self.apply(ufunc_ops()[u], (self,)))


_install()


def mask_key(mask: Tracer) -> tuple[object, ...]:
    """What two masks with equal elements share: storage, version and view."""
    return mask.memory, mask.memory.version, mask.alias.view


def masked_part(trace: Recorder, x: Tracer, parsed: Parsed) -> tuple[Tracer, Tracer]:
    """The basic part of a masked index, and the mask read with its shape."""
    part = x if is_whole(x, parsed) else trace.view(x, Index(tuple(parsed.items)), origin="slice")
    mask = parsed.mask
    assert mask is not None
    shape, at, rank = part.sizes, parsed.mask_at, len(mask.sizes)
    if mask.sizes == shape:
        return part, mask
    sizes = iter(mask.sizes)
    items = tuple(
        Span(0, next(sizes)) if at <= k < at + rank else NewAxis() for k in range(len(shape))
    )
    return part, trace.read(mask, Index(items), Expand(shape))


def set_masked(trace: Recorder, x: Tracer, parsed: Parsed, value: Any) -> None:
    """``x[mask] = value`` with a traced mask: a write of ``where(mask, value, old)``."""
    part, mask = masked_part(trace, x, parsed)
    check_target(trace, part, (value,))
    given: Arg
    if isinstance(value, MaskedRead):
        assert parsed.mask is not None
        given = value.values_for(parsed.mask, part.sizes)
    else:
        given = as_arg(trace, value)
        rest = part.sizes[parsed.mask_at + len(parsed.mask.shape) :]  # type: ignore[union-attr]
        shape = shape_of(given)
        while len(shape) > len(rest) and shape[0] == 1:
            shape = shape[1:]
        if len(shape) > len(rest):
            raise DataDependentShapeError(
                "an assignment x[mask] = values with a traced mask needs to know how many "
                "elements the mask selects",
                loc=source.here(),
                remedy="Write x[...] = np.where(mask, v, x) with v of the shape of x.",
            )
        if isinstance(given, Tracer) and given.sizes != shape:
            from tracegrad.trace.shape import reshape

            given = reshape(trace, given, shape)
    cast_value = cast(trace, given, part.element_type)
    xs = prepared(trace, (mask, cast_value), (BOOL, part.element_type), part.sizes)
    trace.write(part, where_op, (*xs, part))
