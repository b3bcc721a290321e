"""Reductions over axes (dropped; keepdims is a view put on by the tracer).

Means, variances and log-sum-exp are built from the ops here by plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim, is_at_most, product
from tracegrad.dims import add as dims_add
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, Linear, NoGradient, OpDef, Reduction, Rules, Sample, declare
from tracegrad.graph.storage import Expand, Index, NewAxis, Span
from tracegrad.loops.ir import Combine
from tracegrad.ops.arithmetic import add, div, mul, sub
from tracegrad.ops.cast import cast
from tracegrad.ops.compare import eq, isfinite, logical_or, ne
from tracegrad.ops.control import position
from tracegrad.ops.handles import stop_gradient
from tracegrad.ops.pairs import Pair, each_part
from tracegrad.ops.pointwise import random_array
from tracegrad.ops.select import where
from tracegrad.ops.transcendental import exp, log
from tracegrad.ops.views import as_view
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """`axes` are sorted and not negative."""

    axes: tuple[int, ...]


def reduced_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """`shape` without the axes `axes`."""
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def reduced_count(shape: Shape, axes: tuple[int, ...]) -> Dim:
    """The number of elements that one element of the reduction combines."""
    return product(n for k, n in enumerate(shape) if k in axes)


def spread(b: GraphBuilder, x: Operand, axes: tuple[int, ...], shape: Shape) -> Operand:
    """`x` (the shape of a reduction over `axes`) repeated to the reduction's input `shape`."""
    items = iter(x.shape)
    if not isinstance(x, Value):
        return x
    index = Index(
        tuple(NewAxis() if k in axes else Span(0, next(items)) for k in range(len(shape)))
    )
    return as_view(b, x, index, Expand(shape))


def _infer_number(name: str) -> Any:
    def infer(attrs: ReduceAttrs, x: TensorType) -> TensorType:
        if x.dtype.is_bool:
            raise DTypeError(f"{name} of bool needs a cast to an integer type first")
        return TensorType(reduced_shape(x.shape, attrs.axes), x.dtype)

    return infer


def _infer_logical(name: str) -> Any:
    def infer(attrs: ReduceAttrs, x: TensorType) -> TensorType:
        if not x.dtype.is_bool:
            raise DTypeError(f"{name} reduces bool; compare with 0 first")
        return TensorType(reduced_shape(x.shape, attrs.axes), x.dtype)

    return infer


def _infer_extremum(name: str) -> Any:
    def infer(attrs: ReduceAttrs, x: TensorType) -> TensorType:
        if reduced_count(x.shape, attrs.axes) == 0:
            raise ShapeError(
                f"zero-size array to reduction operation {name} which has no identity",
                remedy="Give initial=, or do not reduce an axis of size 0.",
            )
        return TensorType(reduced_shape(x.shape, attrs.axes), x.dtype)

    return infer


# ------------------------------------------------------------------------------------ samples

_AXES: tuple[tuple[int, ...], ...] = ((0, 1, 2), (1,), (0, 2), ())


def reduce_samples(rng: np.random.Generator) -> list[Sample]:
    """Operands of every number dtype; zero-size ones among them."""
    out = [Sample((rng.uniform(0.5, 2.0, (3, 4, 2)),), ReduceAttrs(axes)) for axes in _AXES]
    out += [
        Sample((random_array(rng, (3, 4), d),), ReduceAttrs((1,)))
        for d in dtypes.INTEGERS + dtypes.FLOATS
    ]
    out += [Sample((np.zeros((2, 0)),), ReduceAttrs(axes)) for axes in ((0,), (1,))]
    return [*out, Sample((np.asarray(1.5),), ReduceAttrs(()))]


def _extremum_samples(rng: np.random.Generator) -> list[Sample]:
    out = [s for s in reduce_samples(rng) if s.operands[0].size]  # type: ignore[union-attr]
    ordered = rng.permutation(24).reshape(3, 4, 2) / 7.0  # no ties: differentiable
    out += [Sample((ordered,), ReduceAttrs(axes)) for axes in _AXES]
    out.append(Sample((np.array([[1.0, np.nan], [np.inf, -np.inf]]),), ReduceAttrs((1,))))
    out.append(Sample((random_array(rng, (2, 3), dtypes.BOOL),), ReduceAttrs((0,))))
    return [*out, Sample((np.zeros((0, 3)),), ReduceAttrs((1,)))]


def _prod_samples(rng: np.random.Generator) -> list[Sample]:
    zeros = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.5], [1.0, -2.0, 0.5]])
    return [
        *reduce_samples(rng),
        Sample((zeros,), ReduceAttrs((1,))),
        Sample((zeros,), ReduceAttrs((0, 1))),
    ]


def _logical_samples(rng: np.random.Generator) -> list[Sample]:
    out = [Sample((rng.random((3, 4, 2)) < 0.6,), ReduceAttrs(axes)) for axes in _AXES]
    return [*out, Sample((np.zeros((2, 0), bool),), ReduceAttrs((1,)))]


# ---------------------------------------------------------------------------------- the ops

sum_ = declare(
    name="sum",
    attrs=ReduceAttrs,
    infer=_infer_number("sum"),
    reference=lambda a, x: np.asarray(np.sum(x, axis=a.axes, dtype=x.dtype)),
    derivative=Linear(lambda b, a, ct, xs: (spread(b, ct, a.axes, xs[0].shape),)),
    lowering=Reduction(Combine.ADD, lambda dtype: 0),
    samples=reduce_samples,
    pairs=each_part,
)


def product_of_others(b: GraphBuilder, x: Operand, axes: tuple[int, ...]) -> Operand:
    """For each element the product of all others that ``prod`` over `axes` combines it with.

    No division, so zeros are exact; made of ops that differentiate again.
    """
    from tracegrad.ops.accumulate import cumprod

    if not axes or not isinstance(x, Value):
        return Literal(1, x.dtype)
    *rest, axis = sorted(axes)
    others = mul(
        b,
        cumprod(b, x, axis=axis, reverse=False, exclusive=True),
        cumprod(b, x, axis=axis, reverse=True, exclusive=True),
    )
    if not rest:
        return others  # type: ignore[no-any-return]
    # Axis by axis, since axes whose sizes depend on a loop's index cannot be joined into one.
    outside = product_of_others(b, prod(b, x, axes=(axis,)), tuple(rest))
    return mul(b, others, spread(b, outside, (axis,), x.shape))  # type: ignore[no-any-return]


def _prod_vjp(b: GraphBuilder, a: ReduceAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    x = xs[0]
    return (
        mul(b, product_of_others(b, x, a.axes), spread(b, cts[0], a.axes, x.shape))
        if a.axes
        else cts[0],
    )


def _prod_jvp(b: GraphBuilder, a: ReduceAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    if not a.axes or ts[0] is None:
        return ts
    return (sum_(b, mul(b, product_of_others(b, xs[0], a.axes), ts[0]), axes=a.axes),)


def _prod_pairs(b: GraphBuilder, op: OpDef, a: ReduceAttrs, x: Pair) -> Pair:
    from tracegrad.ops.complex_elementary import product

    return product(b, x, x.shape, a.axes)


prod = declare(
    name="prod",
    attrs=ReduceAttrs,
    infer=_infer_number("prod"),
    reference=lambda a, x: np.asarray(np.prod(x, axis=a.axes, dtype=x.dtype)),
    derivative=Rules(_prod_vjp, _prod_jvp),
    lowering=Reduction(Combine.MUL, lambda dtype: 1),
    samples=_prod_samples,
    pairs=_prod_pairs,
)


def _winners(
    b: GraphBuilder, axes: tuple[int, ...], x: Operand, out: Operand
) -> tuple[Operand, Operand]:
    """Which elements of `x` equal the extremum `out` (NaN counts as equal), and how many."""
    hit = logical_or(b, eq(b, x, spread(b, out, axes, x.shape)), ne(b, x, x))
    one, zero = Literal(1, x.dtype), Literal(0, x.dtype)
    return hit, sum_(b, where(b, hit, one, zero), axes=axes)


def _extremum_vjp(b: GraphBuilder, a: ReduceAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    x = xs[0]
    hit, count = _winners(b, a.axes, x, outs[0])
    share = spread(b, div(b, cts[0], count), a.axes, x.shape)
    return (where(b, hit, share, Literal(0, x.dtype)),)


def _extremum_jvp(b: GraphBuilder, a: ReduceAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    if ts[0] is None:
        return ts
    hit, count = _winners(b, a.axes, xs[0], outs[0])
    kept = where(b, hit, ts[0], Literal(0, xs[0].dtype))
    return (div(b, sum_(b, kept, axes=a.axes), count),)


def _lowest(dtype: DType) -> bool | int | float:
    if dtype.is_bool:
        return False
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.np).min)


def _highest(dtype: DType) -> bool | int | float:
    if dtype.is_bool:
        return True
    return np.inf if dtype.is_float else int(np.iinfo(dtype.np).max)


max_ = declare(
    name="max",
    attrs=ReduceAttrs,
    infer=_infer_extremum("maximum"),
    reference=lambda a, x: np.asarray(np.max(x, axis=a.axes)),
    derivative=Rules(_extremum_vjp, _extremum_jvp),
    lowering=Reduction(Combine.MAX, _lowest),
    samples=_extremum_samples,
    doc="The largest element; NaN wins.  Elements that tie share the gradient evenly.",
)

min_ = declare(
    name="min",
    attrs=ReduceAttrs,
    infer=_infer_extremum("minimum"),
    reference=lambda a, x: np.asarray(np.min(x, axis=a.axes)),
    derivative=Rules(_extremum_vjp, _extremum_jvp),
    lowering=Reduction(Combine.MIN, _highest),
    samples=_extremum_samples,
    doc="The smallest element; NaN wins.  Elements that tie share the gradient evenly.",
)

all_ = declare(
    name="all",
    attrs=ReduceAttrs,
    infer=_infer_logical("all"),
    reference=lambda a, x: np.asarray(np.all(x, axis=a.axes)),
    derivative=NoGradient("all gives bool"),
    lowering=Reduction(Combine.AND, lambda dtype: True),
    samples=_logical_samples,
)

any_ = declare(
    name="any",
    attrs=ReduceAttrs,
    infer=_infer_logical("any"),
    reference=lambda a, x: np.asarray(np.any(x, axis=a.axes)),
    derivative=NoGradient("any gives bool"),
    lowering=Reduction(Combine.OR, lambda dtype: False),
    samples=_logical_samples,
)


# --------------------------------------------------------------------------- built from them


def _count(b: GraphBuilder, x: Operand, axes: Sequence[int], ddof: float = 0) -> Operand:
    """``max(n - ddof, 0)`` of the `n` elements that each result is made of, as a divisor."""
    n = reduced_count(x.shape, tuple(axes))
    if isinstance(n, int):
        return Literal(max(n - ddof, 0), x.type.dtype)
    if ddof != int(ddof) or is_at_most(int(ddof), n) is not True:
        raise ShapeError(f"the number of elements may be less than ddof={ddof}")
    found = cast(b, position(b, at=dims_add(n, -int(ddof))), dtype=x.type.dtype)
    kept = tuple(s for k, s in enumerate(x.shape) if k not in axes)
    return spread(b, found, tuple(range(len(kept))), kept)


def mean(b: GraphBuilder, x: Operand, axes: tuple[int, ...]) -> Operand:
    """Arithmetic mean over `axes`, which are dropped; `x` is float.  NaN when empty."""
    return div(b, sum_(b, x, axes=axes), _count(b, x, axes))  # type: ignore[no-any-return]


def var(b: GraphBuilder, x: Operand, axes: tuple[int, ...], ddof: float = 0) -> Operand:
    """Variance over `axes` with divisor ``max(n - ddof, 0)``, in two passes; `x` is float."""
    away = sub(b, x, spread(b, mean(b, x, axes), axes, x.shape))
    total = sum_(b, mul(b, away, away), axes=axes)
    return div(b, total, _count(b, x, axes, ddof))  # type: ignore[no-any-return]


def logsumexp(b: GraphBuilder, x: Operand, axes: tuple[int, ...]) -> Operand:
    """``log(sum(exp(x)))`` over `axes` without overflow; `x` is float.

    Infinite maxima are not subtracted, so that -inf gives -inf and inf gives inf; nothing gives
    -inf too.
    """
    top: Operand = Literal(0, x.dtype)
    if reduced_count(x.shape, axes) != 0:
        most = stop_gradient(b, max_(b, x, axes=axes))
        top = where(b, isfinite(b, most), most, top)
    shifted = exp(b, sub(b, x, spread(b, top, axes, x.shape)))
    return add(b, log(b, sum_(b, shifted, axes=axes)), top)  # type: ignore[no-any-return]
