"""Contractions of one or two operands by subscripts, planned onto views, products and sums.

``contract`` is the core: every axis has a label; a label in both operands and not in the result
is contracted.  `einsum`, `dot`, `tensordot`, `outer` and their kin are spellings of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracegrad.dims import product
from tracegrad.errors import ShapeError, ValueArgumentError
from tracegrad.graph.ir import Operand
from tracegrad.graph.storage import (
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
)
from tracegrad.ops.arithmetic import mul
from tracegrad.ops.linalg import matmul
from tracegrad.ops.reduce import any_, sum_
from tracegrad.ops.views import as_view

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder

Labels = tuple[str, ...]


# ------------------------------------------------------------------------------- subscripts


def _operand_labels(term: str, rank: int) -> Labels:
    """One label an axis; the axes of an ellipsis are labelled ``.0 .1 ..`` from the right."""
    head, dots, tail = term.partition("...")
    if "." in head + tail:
        raise ValueArgumentError(f"einstein sum subscripts string {term!r} has a stray '.'")
    for c in head + tail:
        if not (c.isascii() and c.isalpha()):
            raise ValueArgumentError(
                f"invalid subscript {c!r} in einstein sum subscripts string, subscripts must be "
                "letters"
            )
    spare = rank - len(head) - len(tail)
    if spare < 0 or (spare > 0 and not dots):
        raise ValueArgumentError(
            f"einstein sum subscripts {term!r} do not fit an operand of {rank} dimensions"
        )
    return (*head, *(f".{k}" for k in reversed(range(spare))), *tail)


def parse_subscripts(spec: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of each operand and of the result, from a string such as ``"...ij,jk->...ik"``.

    Raises ValueArgumentError for what NumPy refuses.
    """
    text = spec.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise ValueArgumentError(
            f"einstein sum subscripts {spec!r} name {len(terms)} operands, not {len(ranks)}"
        )
    labels = [_operand_labels(t, r) for t, r in zip(terms, ranks, strict=True)]
    used = [x for term in labels for x in term]
    dots = sorted({x for x in used if x[0] == "."}, key=lambda x: -int(x[1:]))
    if not arrow:
        once = sorted(x for x in set(used) if used.count(x) == 1 and x[0] != ".")
        return labels, (*dots, *once)
    if "..." not in output and dots:
        raise ValueArgumentError(
            "output has fewer dimensions than the ellipsis of the operands; write '...' in it"
        )
    result = _operand_labels(output, len(output.replace("...", "")) + len(dots))
    for x in result:
        if x not in used or result.count(x) > 1:
            raise ValueArgumentError(
                f"einstein sum subscripts string includes output subscript {x!r} "
                + ("multiple times" if x in used else "which never appeared in an input")
            )
    return labels, result


# ---------------------------------------------------------------------------------- operands


def _diagonals(b: GraphBuilder, x: Operand, labels: Labels) -> tuple[Operand, Labels]:
    """`x` with axes of equal labels taken along their diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(
                    "dimensions in single operand for collapsing index "
                    f"{label!r} don't match ({x.shape[i]} != {x.shape[j]})"
                )
            x = as_view(b, x, Diagonal(0, i, j))
            labels = (*(a for k, a in enumerate(labels) if k not in (i, j)), label)
    return x, labels


def _without(b: GraphBuilder, x: Operand, labels: Labels, drop: set[str]) -> tuple[Operand, Labels]:
    """`x` without its axes of size 1 that are labelled by `drop`."""
    items = tuple(
        Pick(0) if a in drop else Span(0, n) for a, n in zip(labels, x.shape, strict=True)
    )
    return as_view(b, x, Index(items)), tuple(a for a in labels if a not in drop)


def _summed(b: GraphBuilder, x: Operand, labels: Labels, keep: set[str]) -> tuple[Operand, Labels]:
    """`x` summed over the axes whose labels are not kept."""
    axes = tuple(k for k, a in enumerate(labels) if a not in keep)
    if axes:
        x = (any_ if x.dtype.is_bool else sum_)(b, x, axes=axes)
    return x, tuple(a for a in labels if a in keep)


def _ordered(b: GraphBuilder, x: Operand, labels: Labels, order: Labels) -> Operand:
    return as_view(b, x, Permute(tuple(labels.index(a) for a in order)))


def _aligned(
    b: GraphBuilder, x: Operand, labels: Labels, space: Labels, sizes: dict[str, int]
) -> Operand:
    """`x` broadcast to the axes `space`."""
    held = tuple(a for a in space if a in labels)
    items = tuple(Span(0, sizes[a]) if a in labels else NewAxis() for a in space)
    return as_view(
        b, _ordered(b, x, labels, held), Index(items), Expand(tuple(sizes[a] for a in space))
    )


# ------------------------------------------------------------------------------ contractions


def reduce_labels(b: GraphBuilder, x: Operand, labels: Labels, result: Labels) -> Operand:
    """One operand: diagonals of repeated labels, sums of dropped ones, then the axes' order."""
    x, labels = _diagonals(b, x, labels)
    x, labels = _summed(b, x, labels, set(result))
    return _ordered(b, x, labels, result)


def contract(
    b: GraphBuilder, x: Operand, xl: Labels, y: Operand, yl: Labels, result: Labels
) -> Operand:
    """The product of `x` and `y` (one dtype, one label an axis) summed over labels that are not
    in `result`.  An axis of size 1 is repeated as NumPy does.

    Raises ShapeError when sizes of a label differ.
    """
    x, xl = _diagonals(b, x, xl)
    y, yl = _diagonals(b, y, yl)
    nx, ny = dict(zip(xl, x.shape, strict=True)), dict(zip(yl, y.shape, strict=True))
    for a in set(nx) & set(ny):
        if nx[a] != ny[a] and 1 not in (nx[a], ny[a]):
            raise ShapeError(
                f"operands could not be broadcast together: subscript {a!r} has "
                f"sizes {nx[a]} and {ny[a]}"
            )
    x, xl = _without(b, x, xl, {a for a in nx if a in ny and nx[a] == 1 != ny[a]})
    y, yl = _without(b, y, yl, {a for a in ny if a in nx and ny[a] == 1 != nx[a]})
    x, xl = _summed(b, x, xl, {*result, *yl})
    y, yl = _summed(b, y, yl, {*result, *xl})
    sizes = dict(zip((*yl, *xl), (*y.shape, *x.shape), strict=True))
    inner = tuple(a for a in xl if a in yl and a not in result)
    rows = tuple(a for a in result if a in xl and a not in yl)
    cols = tuple(a for a in result if a in yl and a not in xl)
    if inner and (rows or cols):
        batch = tuple(a for a in result if a in xl and a in yl)
        return _by_matmul(b, x, xl, y, yl, (batch, rows, cols, inner, result), sizes)
    space = (*result, *inner)
    z = mul(b, _aligned(b, x, xl, space, sizes), _aligned(b, y, yl, space, sizes))
    return _summed(b, z, space, set(result))[0]


def _by_matmul(
    b: GraphBuilder,
    x: Operand,
    xl: Labels,
    y: Operand,
    yl: Labels,
    plan: tuple[Labels, Labels, Labels, Labels, Labels],
    sizes: dict[str, int],
) -> Operand:
    """Fold the groups of axes into a stack of matrices, multiply, unfold.

    An operand is handed over transposed where its axes lie so, to spare a copy.
    """
    batch, rows, cols, inner, result = plan

    def folded(v: Operand, labels: Labels, outer: Labels, flip: bool) -> Operand:
        first, second = (inner, outer) if flip else (outer, inner)
        lead = tuple(sizes[a] for a in batch)
        shape = (*lead, product(sizes[a] for a in first), product(sizes[a] for a in second))
        v = _ordered(b, v, labels, (*batch, *first, *second))
        return as_view(b, v, Reshape(shape))

    x_flip = xl == (*batch, *inner, *rows) and bool(rows)
    y_flip = yl == (*batch, *inner, *cols) or not cols
    z = matmul(
        b,
        folded(x, xl, rows, x_flip),
        folded(y, yl, cols, y_flip),
        transpose_a=x_flip,
        transpose_b=not y_flip,
    )
    space = (*batch, *rows, *cols)
    z = as_view(b, z, Reshape(tuple(sizes[a] for a in space)))
    return _ordered(b, z, space, result)


def einsum_one(b: GraphBuilder, spec: str, x: Operand) -> Operand:
    """``np.einsum(spec, x)``; a view where nothing is summed."""
    (labels,), result = parse_subscripts(spec, (len(x.shape),))
    return reduce_labels(b, x, labels, result)


def einsum_two(b: GraphBuilder, spec: str, x: Operand, y: Operand) -> Operand:
    """``np.einsum(spec, x, y)`` of operands of one dtype."""
    (xl, yl), result = parse_subscripts(spec, (len(x.shape), len(y.shape)))
    return contract(b, x, xl, y, yl, result)


def tensordot(
    b: GraphBuilder, x: Operand, y: Operand, x_axes: Sequence[int], y_axes: Sequence[int]
) -> Operand:
    """``np.tensordot`` over pairs of axes, which are not negative.  Sizes must be equal."""
    if len(x_axes) != len(y_axes) or any(
        x.shape[i] != y.shape[j] for i, j in zip(x_axes, y_axes, strict=True)
    ):
        raise ShapeError("shape-mismatch for sum")
    xl = [f"x{k}" for k in range(len(x.shape))]
    yl = [f"y{k}" for k in range(len(y.shape))]
    result = tuple(xl[k] for k in range(len(xl)) if k not in x_axes) + tuple(
        yl[k] for k in range(len(yl)) if k not in y_axes
    )
    for i, j in zip(x_axes, y_axes, strict=True):
        yl[j] = xl[i]
    return contract(b, x, tuple(xl), y, tuple(yl), result)


def matmul_any(b: GraphBuilder, x: Operand, y: Operand) -> Operand:
    """``np.matmul`` of operands of one dtype: 1-d operands, stacks, broadcast batch axes.

    Raises ShapeError in NumPy's words.
    """
    if not x.shape or not y.shape:
        which = 0 if not x.shape else 1
        raise ShapeError(f"matmul: Input operand {which} does not have enough dimensions")
    k = x.shape[-1]
    n = y.shape[0 if len(y.shape) == 1 else -2]
    if k != n:
        raise ShapeError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, "
            f"with gufunc signature (n?,k),(k,m?)->(n?,m?) (size {n} is different "
            f"from {k})"
        )
    for i, j in zip(reversed(x.shape[:-2]), reversed(y.shape[:-2]), strict=False):
        if i != j and 1 not in (i, j):
            raise ShapeError(
                "matmul: operands could not be broadcast together: stacks of shapes "
                f"{x.shape[:-2]} and {y.shape[:-2]}"
            )
    left = "k" if len(x.shape) == 1 else "...ik"
    right = "k" if len(y.shape) == 1 else "...kj"
    rows = "" if len(x.shape) == 1 else "i"
    cols = "" if len(y.shape) == 1 else "j"
    dots = "..." if rows or cols else ""
    return einsum_two(b, f"{left},{right}->{dots}{rows}{cols}", x, y)
