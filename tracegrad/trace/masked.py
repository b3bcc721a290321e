"""``x[mask]`` with a traced mask: no array, but it can be computed with, reduced and written back.

``y[mask] *= 3`` and ``y[mask] = f(y[mask], x[mask])`` are writes of fixed shape although the
right-hand side, read as an array, is not; ``x[mask].mean()`` is a scalar.  A `MaskedRead` stands
for the selection: it keeps values for all elements and refuses everything but elementwise
operations with scalars or reads through the same mask, and reductions (`masked_reduce`,
`masked_face`).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dims import product
from tracegrad.dtypes import BOOL, I64
from tracegrad.errors import DataDependentShapeError, UnsupportedError
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import OpDef
from tracegrad.graph.storage import Expand, Index, NewAxis, Span
from tracegrad.ops import arithmetic, compare
from tracegrad.ops.select import where as where_op
from tracegrad.trace import complex_parts
from tracegrad.trace.elementwise import (
    apply_op,
    check_cast,
    check_target,
    fast_power,
    prepared,
    select,
)
from tracegrad.trace.indexing import MASK_REMEDY, Parsed, is_whole
from tracegrad.trace.promote import (
    Arg,
    as_arg,
    cast,
    loop_of,
    shape_of,
    trace_of,
    ufunc_of,
    ufunc_ops,
)
from tracegrad.trace.symbolic import integer
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder

Key = tuple[object, ...]


class MaskedRead:
    """The elements of a basic view of a tensor, its part, where a mask holds.

    `values` has the part's shape, and anything where the mask does not hold; `mask` is the mask
    with the part's shape, `own` the mask with its own (axes `at`, ... of the part), both as they
    were when the elements were read.
    """

    __slots__ = ("at", "key", "loc", "mask", "own", "stale", "values")
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, values: Tracer, mask: Tracer, own: Tracer, at: int, key: Key, loc: Any
    ) -> None:
        self.values, self.mask, self.own, self.at = values, mask, own, at
        self.key, self.loc, self.stale = key, loc, False

    def refuse(self) -> NoReturn:
        raise DataDependentShapeError(
            "x[mask] with a traced mask has a shape that depends on traced values",
            loc=self.loc,
            remedy=MASK_REMEDY,
        )

    def _made(self, values: Tracer) -> MaskedRead:
        return type(self)(values, self.mask, self.own, self.at, self.key, self.loc)

    def is_like(self, other: MaskedRead) -> bool:
        """Whether both select the same elements of arrays of one shape."""
        return self.key == other.key and self.values.sizes == other.values.sizes

    def present(self) -> Tracer:
        """The values, unless another name has changed them since."""
        if self.stale:
            raise UnsupportedError(
                "a selection x[mask] that was changed in place is read by another name",
                loc=source.here(),
                remedy="Write v = v + w instead of v += w, or use the changed one only.",
            )
        return self.values

    # -- what it is

    @property
    def dtype(self) -> np.dtype:
        return self.values.element_type.np

    @property
    def ndim(self) -> int:
        return len(self.values.sizes) - len(self.own.sizes) + 1

    def length(self) -> Tracer:
        """How many elements the mask selects along its axis: an int, as ``len`` gives."""
        from tracegrad.trace import reduce

        trace = trace_of(self.values)
        own = trace.lift(self.own)
        return weak_int(trace, reduce.sum(trace, own))

    @property
    def shape(self) -> tuple[Any, ...]:
        rest = self.values.sizes
        return (*rest[: self.at], self.length(), *rest[self.at + len(self.own.sizes) :])

    @property
    def size(self) -> Any:
        """The number of elements, as an int."""
        return self.count()

    def count(self) -> Tracer:
        trace = trace_of(self.values)
        sizes = self.values.sizes
        rest = product((*sizes[: self.at], *sizes[self.at + len(self.own.sizes) :]))
        others = as_arg(trace, integer(rest))
        return weak_int(trace, apply_op(trace, arithmetic.mul, (self.length(), others)))

    # -- elementwise

    def apply(self, op: OpDef, args: tuple[Any, ...]) -> MaskedRead:
        """An elementwise op of masked reads and scalars."""
        trace = trace_of(self.values)
        xs: list[Arg] = []
        for x in args:
            if isinstance(x, MaskedRead):
                if not self.is_like(x):
                    self.refuse()
                xs.append(trace.lift(x.present()))
                continue
            arg = as_arg(trace, x)
            if shape_of(arg) != ():
                self.refuse()
            xs.append(arg)
        return self._made(apply_op(trace, op, self._sheltered(trace, op, xs)))

    def _sheltered(self, trace: Recorder, op: OpDef, xs: list[Arg]) -> list[Arg]:
        """The operands, with 1 in place of those whose value where the mask does not hold could
        do harm: a negative exponent of integers, which stops the call, and a traced scalar, whose
        cotangent would be 0 times an infinite derivative there."""
        op, ins, out = loop_of(trace, op, xs)
        powers = ufunc_of(op) is np.power and not out.is_inexact
        found: list[Arg] = []
        for x, dtype in zip(xs, ins, strict=True):
            if isinstance(x, Tracer) and (powers or (x.sizes == () and out.is_inexact)):
                x = cast(trace, x, dtype)
                x = select(trace, trace.lift(self.mask), x, Literal(1, dtype))
            found.append(x)
        return found

    def power(self, exponent: Any) -> MaskedRead:
        op = fast_power(self.present(), exponent)
        if op is not None:
            return self.apply(op, (self,))
        return self.apply(ufunc_ops()[np.power], (self, exponent))

    def changed(self, op: OpDef, made: MaskedRead) -> MaskedRead:
        """`self` after an operation in place gave `made`, which needs a dtype that fits."""
        trace = trace_of(self.values)
        dtype = self.values.element_type
        check_cast(trace, op.name, made.values.element_type, dtype, "same_kind")
        self.stale = True
        values = cast(trace, made.values, dtype)
        assert isinstance(values, Tracer)
        return self._made(values)

    def like(self, values: Any) -> MaskedRead:
        """What an elementwise function made of all `values`."""
        if not isinstance(values, Tracer) or values.sizes != self.values.sizes:
            self.refuse()
        return self._made(values)

    def astype(self, dtype: Any, **keywords: Any) -> MaskedRead:
        if keywords.keys() - {"copy"}:
            self.refuse()
        values = cast(trace_of(self.values), self.present(), dtypes.of(dtype))
        assert isinstance(values, Tracer)
        return self._made(values)

    def copy(self, order: str = "C") -> MaskedRead:
        return self._made(self.present())

    @property
    def real(self) -> MaskedRead:
        return self.like(complex_parts.real(trace_of(self.values), self.present()))

    @property
    def imag(self) -> MaskedRead:
        return self.like(complex_parts.imag(trace_of(self.values), self.present()))

    def values_for(self, mask: Tracer, shape: tuple[int, ...]) -> Tracer:
        """Values for all elements, to be written where the same `mask` holds."""
        if mask_key(mask) != self.key or self.values.sizes != shape:
            self.refuse()
        return self.present()

    def __getitem__(self, key: Any) -> MaskedRead:
        """Those of the elements where a condition on them holds."""
        if not isinstance(key, MaskedRead) or key.dtype != np.bool_ or not self.is_like(key):
            self.refuse()
        if self.ndim != 1:
            self.refuse()
        trace = trace_of(self.values)
        mask = apply_op(
            trace, compare.logical_and, (trace.lift(self.mask), trace.lift(key.present()))
        )
        kept = select(trace, mask, self.present(), Literal(1, self.values.element_type))
        return type(self)(kept, mask, mask, 0, mask_key(mask), source.here())

    # -- NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        from tracegrad.trace import masked_face, masked_reduce

        if method == "reduce":
            return masked_face.ufunc_reduce(self, ufunc, inputs, keywords)
        op = ufunc_ops().get(ufunc)
        if op is None or method != "__call__" or keywords:
            if ufunc is np.matmul and method == "__call__" and not keywords:
                return masked_reduce.dot(*inputs)
            self.refuse()
        if ufunc is np.power and inputs[0] is self:
            return self.power(inputs[1])
        return self.apply(op, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tracegrad.trace import masked_face

        return masked_face.call(self, func, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.refuse()

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self.refuse()

    def __matmul__(self, other: Any) -> Any:
        from tracegrad.trace import masked_reduce

        return masked_reduce.dot(self, other)

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

    def __contains__(self, value: Any) -> NoReturn:
        self.refuse()

    def __repr__(self) -> str:
        return f"<x[mask] of dtype {self.values.element_type}, shape known at run time only>"


_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "pow": np.power,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY = {"neg": np.negative, "abs": np.absolute, "pos": np.positive, "invert": np.invert}


def _install() -> None:
    def forward(ufunc: Any) -> Any:
        if ufunc is np.power:
            return MaskedRead.power
        return lambda self, other: self.apply(ufunc_ops()[ufunc], (self, other))

    def reflected(ufunc: Any) -> Any:
        return lambda self, other: self.apply(ufunc_ops()[ufunc], (other, self))

    def in_place(ufunc: Any) -> Any:
        compute = forward(ufunc)
        return lambda self, other: self.changed(ufunc_ops()[ufunc], compute(self, other))

    for name, ufunc in _BINARY.items():
        setattr(MaskedRead, f"__{name}__", forward(ufunc))
        setattr(MaskedRead, f"__i{name}__", in_place(ufunc))
        setattr(MaskedRead, f"__r{name}__", reflected(ufunc))
    for name, ufunc in _COMPARE.items():
        setattr(MaskedRead, f"__{name}__", forward(ufunc))
    for name, one in _UNARY.items():
        setattr(MaskedRead, f"__{name}__", lambda self, u=one: self.apply(ufunc_ops()[u], (self,)))


_install()


# ``np.count_nonzero`` of a whole array is a Python int before NumPy 2.4, an int64 scalar since.
_COUNT_IS_INT = type(np.count_nonzero(np.zeros(1))) is int


def as_count(trace: Recorder, found: Tracer, axis: Any, keepdims: Any) -> Tracer:
    """What ``np.count_nonzero`` makes of a number of elements."""
    is_int = _COUNT_IS_INT and axis is None and not keepdims
    return weak_int(trace, found) if is_int else found


def weak_int(trace: Recorder, x: Tracer) -> Tracer:
    """A fresh integer scalar as a Python int where the face has them, which does not promote."""
    numpy = trace.face.numpy_scalars  # type: ignore[attr-defined]
    wide = cast(trace, x, I64)
    assert isinstance(wide, Tracer)
    return trace.read(wide, scalar=numpy, weak=numpy)  # type: ignore[no-any-return]


def mask_key(mask: Tracer) -> Key:
    """What two masks with equal elements share: storage, version and view."""
    return mask.memory, mask.memory.version, mask.alias.view


def masked_read(trace: Recorder, x: Tracer, parsed: Parsed) -> MaskedRead:
    """``x[mask]``: the selection as it is now, with the methods of the trace's face."""
    from tracegrad.trace.masked_face import MaskedArray, MaskedTensor

    part, mask = masked_part(trace, x, parsed)
    assert parsed.mask is not None
    own = trace.read(parsed.mask)  # the mask may be written later
    if mask is parsed.mask:
        mask = own
    # Elements outside the mask may be outside an operation's domain; 1 is in nearly all.
    values = select(trace, mask, part, Literal(1, part.element_type))
    kind = MaskedArray if trace.face.numpy_scalars else MaskedTensor  # type: ignore[attr-defined]
    return kind(values, mask, own, parsed.mask_at, mask_key(parsed.mask), source.here())


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
