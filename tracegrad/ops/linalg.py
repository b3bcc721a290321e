"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import BOOL
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Operand
from tracegrad.graph.op import Attrs, Nest, Rules, Sample, Trait, declare
from tracegrad.loops.builder import flat_index
from tracegrad.loops.ir import Combine, Const, Expr, Select
from tracegrad.loops.ir import Operand as Matrix
from tracegrad.ops.arithmetic import add, mul, sub
from tracegrad.ops.pairs import Pair
from tracegrad.ops.pointwise import random_array, scalar
from tracegrad.ops.shape import dense
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


@dataclass(frozen=True, slots=True)
class MatmulAttrs(Attrs):
    """Whether an operand is stored transposed in its last two axes."""

    transpose_a: bool = False
    transpose_b: bool = False


def _sizes(attrs: MatmulAttrs, a: TensorType, b: TensorType) -> tuple[Dim, Dim, Dim]:
    """``m, n, k`` of ``[m, k] @ [k, n]``."""
    m, k = a.shape[-2:]
    if attrs.transpose_a:
        m, k = k, m
    return m, b.shape[-2 if attrs.transpose_b else -1], k


def _infer(attrs: MatmulAttrs, a: TensorType, b: TensorType) -> TensorType:
    if a.rank < 2 or b.rank < 2 or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul: {a} and {b} are not stacks of matrices of one shape")
    if a.dtype is not b.dtype:
        raise DTypeError(f"matmul: dtypes {a.dtype} and {b.dtype} differ")
    m, n, k = _sizes(attrs, a, b)
    rows = b.shape[-1 if attrs.transpose_b else -2]
    if k != rows:
        raise ShapeError(f"matmul: inner dimensions differ: {k} and {rows}")
    return TensorType((*a.shape[:-2], m, n), a.dtype)


def _reference(attrs: MatmulAttrs, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a = np.swapaxes(a, -1, -2) if attrs.transpose_a else a
    b = np.swapaxes(b, -1, -2) if attrs.transpose_b else b
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a, b))


# --------------------------------------------------------------------------------- lowering


def _matrix(source: Any, batch: Sequence[Dim], transposed: bool) -> Matrix:
    """Where matrix number `batch` of a dense stack lies, as the product reads it."""
    shape = source.type.shape
    offset = flat_index(shape, (*batch, 0, 0))
    row, col = shape[-1], 1
    return Matrix(source.buffer, offset, *((col, row) if transposed else (row, col)))


def _emit(lb: Any, attrs: MatmulAttrs, outs: Any, a: Any, b: Any) -> None:
    m, n, k = _sizes(attrs, a.type, b.type)
    out, dtype = outs[0], outs[0].type.dtype
    if out.type.size == 0:
        return
    if dtype.is_float:
        with lb.loops(out.type.shape[:-2]) as batch:
            lb.gemm(
                m,
                n,
                k,
                _matrix(a, batch, attrs.transpose_a),
                _matrix(b, batch, attrs.transpose_b),
                _matrix(out, batch, False),
                dtype,
            )
        return
    with lb.loops(out.type.shape) as at:
        *batch, i, j = at
        with lb.reduce((k,)) as r:
            p = r.index[0]
            left = a((*batch, p, i) if attrs.transpose_a else (*batch, i, p))
            right = b((*batch, j, p) if attrs.transpose_b else (*batch, p, j))
            total = _accumulate(r, dtype, left, right)
        out.store(at, total)


def _accumulate(scope: Any, dtype: dtypes.DType, left: Expr, right: Expr) -> Expr:
    """The sum of products; of bool, whether any pair holds."""
    if dtype.is_bool:
        no = Const(False, BOOL)
        return scope.accumulate(Combine.OR, no, Select(left, right, no))  # type: ignore[no-any-return]
    term = scalar(mul, dtype, left, right)
    return scope.accumulate(Combine.ADD, Const(0, dtype), term)  # type: ignore[no-any-return]


# -------------------------------------------------------------------------------- derivative


def _vjp(b: GraphBuilder, at: MatmulAttrs, cts: Any, outs: Any, xs: Any) -> Any:
    """Transposes are flags of the products, never copies."""
    x, y = xs
    ct = dense(b, cts[0], outs[0].shape)
    ta, tb = at.transpose_a, at.transpose_b
    if ta:
        dx = matmul(b, y, ct, transpose_a=tb, transpose_b=True)
    else:
        dx = matmul(b, ct, y, transpose_a=False, transpose_b=not tb)
    if tb:
        dy = matmul(b, ct, x, transpose_a=True, transpose_b=ta)
    else:
        dy = matmul(b, x, ct, transpose_a=not ta, transpose_b=False)
    return dx, dy


def _jvp(b: GraphBuilder, at: MatmulAttrs, ts: Any, outs: Any, xs: Any) -> Any:
    x, y = xs
    parts: list[Operand] = []
    if ts[0] is not None:
        parts.append(b.emit(matmul, (dense(b, ts[0], x.shape), y), at))
    if ts[1] is not None:
        parts.append(b.emit(matmul, (x, dense(b, ts[1], y.shape)), at))
    if len(parts) == 2:
        return (add(b, *parts),)
    return (parts[0] if parts else None,)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def sample(
        batch: Shape,
        m: int,
        n: int,
        k: int,
        ta: bool = False,
        tb: bool = False,
        dtype: dtypes.DType = dtypes.F64,
    ) -> Sample:
        a = random_array(rng, (*batch, *((k, m) if ta else (m, k))), dtype)  # type: ignore[arg-type]
        b = random_array(rng, (*batch, *((n, k) if tb else (k, n))), dtype)  # type: ignore[arg-type]
        return Sample((a, b), MatmulAttrs(ta, tb))

    flags = [(ta, tb) for ta in (False, True) for tb in (False, True)]
    out = [sample(batch, 2, 3, 4, ta, tb) for batch in ((), (2,), (2, 2)) for ta, tb in flags]
    out += [sample((), 2, 3, 2, ta, tb, dtype) for dtype in dtypes.ALL for ta, tb in flags[::3]]
    return [
        *out,
        sample((), 0, 2, 3),
        sample((), 2, 0, 3),
        sample((), 2, 2, 0),
        sample((0,), 2, 2, 2),
        sample((), 1, 3, 2),
        sample((), 1, 1, 1),
    ]


def _pairs(b: GraphBuilder, op: Any, at: MatmulAttrs, x: Pair, y: Pair) -> Pair:
    def product(u: Operand, v: Operand) -> Operand:
        return b.emit(matmul, (u, v), at)  # type: ignore[no-any-return]

    return Pair(
        sub(b, product(x.re, y.re), product(x.im, y.im)),
        add(b, product(x.re, y.im), product(x.im, y.re)),
    )


matmul = declare(
    name="matmul",
    attrs=MatmulAttrs,
    infer=_infer,
    reference=_reference,
    derivative=Rules(_vjp, _jvp),
    lowering=Nest(_emit),
    traits=frozenset({Trait.EXPENSIVE}),
    samples=_samples,
    pairs=_pairs,
    doc="Products of stacks of matrices, [.., m, k] @ [.., k, n]; batch shapes are equal.",
)
