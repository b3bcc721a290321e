"""Products of tracers and norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.dtypes import F64
from tracegrad.errors import ShapeError, UnsupportedError, ValueArgumentError
from tracegrad.graph.storage import Permute
from tracegrad.ops import arithmetic, compare, einsum, transcendental
from tracegrad.trace import reduce
from tracegrad.trace.creation import tracer
from tracegrad.trace.elementwise import apply_op, scalar_flag
from tracegrad.trace.promote import cast, result_type
from tracegrad.trace.shape import axes_of, axis_of, diagonal, ravel, reshape, view
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder
from tracegrad.types import shape_text


def _pair(trace: Recorder, a: Any, b: Any) -> tuple[Tracer, Tracer]:
    """Both operands as tracers of their common dtype."""
    x, y = tracer(trace, a), tracer(trace, b)
    dtype = result_type(trace, (x, y))
    return cast(trace, x, dtype), cast(trace, y, dtype)  # type: ignore[return-value]


def _product(
    trace: Recorder, build: Any, x: Tracer, y: Tracer, shape: tuple[int, ...], hint: str
) -> Tracer:
    return trace.compose(build, (x, y), hint=hint, scalar=scalar_flag(trace, shape))


def matmul(trace: Recorder, a: Any, b: Any) -> Tracer:
    """``a @ b``; operands need at least one axis."""
    x, y = _pair(trace, a, b)
    for k, z in enumerate((x, y)):
        if not z.sizes:
            raise ShapeError(
                f"matmul: Input operand {k} does not have enough dimensions (has 0, "
                "gufunc core with signature (n?,k),(k,m?)->(n?,m?) requires 1)",
                loc=source.here(),
            )
    inner = y.sizes[-2] if len(y.sizes) > 1 else y.sizes[0]
    if x.sizes[-1] != inner:
        raise ShapeError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {inner} is different from {x.sizes[-1]})",
            loc=source.here(),
        )
    flat = len(x.sizes) == 1 and len(y.sizes) == 1
    return _product(trace, einsum.matmul_any, x, y, () if flat else (1,), "matmul")


def dot(trace: Recorder, a: Any, b: Any) -> Tracer:
    """``np.dot``: a product of scalars, an inner product, or a sum over the last axis of `a` and
    the second to last of `b`."""
    x, y = _pair(trace, a, b)
    if not x.sizes or not y.sizes:
        return apply_op(trace, arithmetic.mul, (x, y))
    axis = len(y.sizes) - 2 if len(y.sizes) > 1 else 0
    if x.sizes[-1] != y.sizes[axis]:
        raise ShapeError(
            f"shapes {shape_text(x.sizes)} and {shape_text(y.sizes)} not aligned: "
            f"{x.sizes[-1]} (dim {len(x.sizes) - 1}) != {y.sizes[axis]} (dim {axis})",
            loc=source.here(),
        )
    return _tensordot(trace, x, y, [len(x.sizes) - 1], [axis])


def _tensordot(trace: Recorder, x: Tracer, y: Tracer, xa: list[int], ya: list[int]) -> Tracer:
    rank = len(x.sizes) + len(y.sizes) - len(xa) - len(ya)
    return _product(
        trace, lambda b, u, v: einsum.tensordot(b, u, v, xa, ya), x, y, (1,) * rank, "dot"
    )


def inner(trace: Recorder, a: Any, b: Any) -> Tracer:
    x, y = _pair(trace, a, b)
    if not x.sizes or not y.sizes:
        return apply_op(trace, arithmetic.mul, (x, y))
    if x.sizes[-1] != y.sizes[-1]:
        raise ShapeError(
            f"shapes {shape_text(x.sizes)} and {shape_text(y.sizes)} not aligned: "
            f"{x.sizes[-1]} (dim {len(x.sizes) - 1}) != {y.sizes[-1]} (dim {len(y.sizes) - 1})",
            loc=source.here(),
        )
    return _tensordot(trace, x, y, [len(x.sizes) - 1], [len(y.sizes) - 1])


def vdot(trace: Recorder, a: Any, b: Any) -> Tracer:
    x, y = tracer(trace, a), tracer(trace, b)
    if x.element_type.is_complex:
        x = apply_op(trace, arithmetic.conj, (x,))
    return dot(trace, ravel(trace, x), ravel(trace, y))


def outer(trace: Recorder, a: Any, b: Any) -> Tracer:
    x, y = tracer(trace, a), tracer(trace, b)
    column = reshape(trace, ravel(trace, x), (-1, 1) if x.sizes != (0,) else (0, 1))
    return apply_op(trace, arithmetic.mul, (column, ravel(trace, y)))


def tensordot(trace: Recorder, a: Any, b: Any, axes: Any = 2) -> Tracer:
    x, y = _pair(trace, a, b)
    if isinstance(axes, (tuple, list)):
        first, second = axes
        xa = [axis_of(trace, k, len(x.sizes)) for k in _many(first)]
        ya = [axis_of(trace, k, len(y.sizes)) for k in _many(second)]
    else:
        xa = [len(x.sizes) - int(axes) + k for k in range(int(axes))]
        ya = list(range(int(axes)))
    if (
        len(xa) != len(ya)
        or any(k < 0 for k in xa)
        or any(k >= len(y.sizes) for k in ya)
        or any(x.sizes[i] != y.sizes[j] for i, j in zip(xa, ya, strict=True))
    ):
        raise ShapeError("shape-mismatch for sum", loc=source.here())
    out = _tensordot(trace, x, y, xa, ya)
    out.scalar = False  # NumPy gives an array of shape () here
    return out


def _many(axes: Any) -> list[Any]:
    return list(axes) if isinstance(axes, (tuple, list)) else [axes]


def einsum_call(trace: Recorder, spec: Any, operands: list[Any]) -> Tracer:
    """``np.einsum`` with a subscript string and one or two operands."""
    if not isinstance(spec, str):
        raise UnsupportedError(
            "np.einsum with lists of axes is not supported yet",
            loc=source.here(),
            remedy="Give the subscripts as a string.",
        )
    xs = [tracer(trace, x) for x in operands]
    if len(xs) not in (1, 2):
        raise UnsupportedError(
            f"np.einsum of {len(xs)} operands is not supported yet",
            loc=source.here(),
            remedy="Contract two operands at a time.",
        )
    dtype = result_type(trace, xs)
    terms, out = einsum.parse_subscripts(spec, [len(x.sizes) for x in xs])
    if len(xs) == 1 and out and set(out) == set(terms[0]):
        return _relabelled(trace, xs[0], terms[0], out)
    build = einsum.einsum_one if len(xs) == 1 else einsum.einsum_two
    return trace.compose(
        lambda b, *vs: build(b, spec, *vs),  # type: ignore[operator]
        [cast(trace, x, dtype) for x in xs],
        hint="einsum",
        scalar=scalar_flag(trace, (1,) * len(out)),
    )


def _relabelled(trace: Recorder, x: Tracer, labels: Sequence[str], out: Sequence[str]) -> Tracer:
    """The view of `x` that an einsum without a sum is: diagonals and permuted axes."""
    left = list(labels)
    for label in dict.fromkeys(labels):
        while left.count(label) > 1:
            i = left.index(label)
            j = left.index(label, i + 1)
            if x.sizes[i] != x.sizes[j]:
                raise ShapeError(
                    f"dimensions in operand 0 for collapsing index {label!r} don't match "
                    f"({x.sizes[i]} != {x.sizes[j]})",
                    loc=source.here(),
                )
            x = diagonal(trace, x, 0, i, j, readonly=x.readonly)
            left = [name for k, name in enumerate(left) if k not in (i, j)] + [label]
    return view(trace, x, Permute(tuple(left.index(name) for name in out)), origin="einsum")


def trace_of_matrix(
    trace: Recorder, x: Tracer, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None
) -> Tracer:
    """``np.trace``: the sum of a diagonal."""
    return reduce.sum(trace, diagonal(trace, x, offset, axis1, axis2, readonly=True), -1, dtype)


def norm(
    trace: Recorder, a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Tracer:
    """``np.linalg.norm`` of vectors (every `ord`) and matrices (Frobenius, 1, inf)."""
    x = tracer(trace, a)
    if x.element_type.is_complex:
        x = apply_op(trace, arithmetic.absolute, (x,))
    if not x.element_type.is_float:
        x = cast(trace, x, F64)  # type: ignore[assignment]
    rank = len(x.sizes)
    if axis is None:
        if ord is None or (ord in ("fro", "f") and rank == 2) or (ord == 2 and rank == 1):
            return _root(trace, x, axes_of(trace, None, rank), keepdims)
        axis = tuple(range(rank))
    axes = axes_of(trace, axis, rank)
    if len(axes) == 1:
        return _vector_norm(trace, x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(trace, x, ord, axis, keepdims)
    raise ValueArgumentError("Improper number of dimensions to norm.", loc=source.here())


def _root(trace: Recorder, x: Tracer, axes: Any, keepdims: bool) -> Tracer:
    total = reduce.sum(trace, apply_op(trace, arithmetic.mul, (x, x)), axes, None, keepdims)
    return reduce.root(trace, total)


def _vector_norm(
    trace: Recorder, x: Tracer, ord: Any, axes: tuple[int, ...], keepdims: bool
) -> Tracer:
    if ord is None or ord == 2:
        return _root(trace, x, axes, keepdims)
    size = apply_op(trace, arithmetic.absolute, (x,))
    if ord == np.inf:
        return reduce.max(trace, size, axes, keepdims)
    if ord == -np.inf:
        return reduce.min(trace, size, axes, keepdims)
    if ord == 0:
        hits = cast(trace, apply_op(trace, compare.ne, (x, 0)), x.element_type)
        return reduce.sum(trace, hits, axes, None, keepdims)  # type: ignore[arg-type]
    if ord == 1:
        return reduce.sum(trace, size, axes, None, keepdims)
    if isinstance(ord, str):
        raise ValueArgumentError(f"Invalid norm order '{ord}' for vectors", loc=source.here())
    powers = apply_op(trace, transcendental.power, (size, float(ord)))
    total = reduce.sum(trace, powers, axes, None, keepdims)
    if ord > 0:
        return reduce.root(trace, total, transcendental.power, 1.0 / float(ord))
    return apply_op(trace, transcendental.power, (total, 1.0 / float(ord)))


def _matrix_norm(trace: Recorder, x: Tracer, ord: Any, axis: Any, keepdims: bool) -> Tracer:
    if ord in (None, "fro", "f"):
        return _root(trace, x, axis, keepdims)
    row, column = (axis_of(trace, k, len(x.sizes)) for k in axis)
    if ord not in (1, -1, np.inf, -np.inf):
        raise UnsupportedError(
            f"np.linalg.norm with ord={ord!r} of matrices is not supported yet", loc=source.here()
        )
    summed, along = (row, column) if abs(ord) == 1 else (column, row)
    size = apply_op(trace, arithmetic.absolute, (x,))
    sums = reduce.sum(trace, size, summed, None, True)
    pick = reduce.max if ord > 0 else reduce.min
    out = pick(trace, sums, along, True)
    if keepdims:
        return out
    kept = tuple(n for k, n in enumerate(x.sizes) if k not in (row, column))
    return trace.read(reshape(trace, out, kept), scalar=scalar_flag(trace, kept))
