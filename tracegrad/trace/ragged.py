"""Sizes that depend on the index of a loop: what may be asked of them, and who takes them.

Such a size is an expression (`dims.Expr`).  Code that compares sizes as Python numbers would take
it for a number that is neither 0 nor 1; where that matters it asks here, and the loop splits
where the answer changes.  Ops take arrays of such sizes where their lowering counts to any size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tracegrad import dims
from tracegrad.dims import Dim, Expr
from tracegrad.errors import UnsupportedError
from tracegrad.graph.ir import Node
from tracegrad.graph.op import Nest, OpDef
from tracegrad.graph.storage import View
from tracegrad.ops import handles, views
from tracegrad.ops.accumulate import cumprod, cumsum
from tracegrad.ops.linalg import matmul
from tracegrad.ops.shape import concat
from tracegrad.trace.modes import STATE
from tracegrad.trace.symbolic import SymbolicInt, Unrollable, integer, is_zero
from tracegrad.types import Shape

# Ops with loops of their own that take any size, and those that take any but 0.
_ANY_SIZE = (matmul, concat, views.copy_slices, views.add_slices, handles.copy, handles.view)
_NOT_EMPTY = (cumsum, cumprod)


def is_ragged(shape: Iterable[Any]) -> bool:
    """Whether a size depends on an index."""
    return any(isinstance(n, Expr) for n in shape)


def is_one(size: Dim) -> bool:
    """Whether an axis has one element; splits or unrolls a loop where its index decides."""
    return size == 1 if isinstance(size, int) else is_zero(dims.add(size, -1))


def is_empty(shape: Iterable[Dim]) -> bool:
    """Whether an array has no elements; splits or unrolls a loop where its index decides."""
    return any(n == 0 if isinstance(n, int) else is_zero(n) for n in shape)


def total(shape: Iterable[Dim]) -> Any:
    """The number of elements, as an integer of traced code."""
    return integer(dims.product(shape))


def check(nodes: Iterable[Node]) -> None:
    """Refuse, by unrolling the loop, ops on sizes that they do not take."""
    in_loop = any(trace.loop is not None for trace in STATE.traces)
    for node in nodes:
        values = (*node.operands, *node.results)
        if in_loop and _holds_index(node.attrs):
            raise Unrollable(f"it gives its index to {node.op.name}")
        if not any(is_ragged(x.shape) for x in values):
            continue
        if node.op in _NOT_EMPTY:
            is_empty(node.result.shape)
        elif not _takes_any_size(node.op):
            raise Unrollable(f"{node.op.name} takes no array whose size depends on the index")
        view = getattr(node.attrs, "view", None)
        if isinstance(view, View) and node.operands:
            check_view(view, getattr(node.attrs, "shape", node.operands[0].shape))


def check_view(view: View, base: Shape) -> None:
    """Refuse a view whose elements cannot be found by counting: a reshape of some sizes."""
    if _holds_index(view):
        raise Unrollable("it gives its index to a view")
    shape = view.shape(base)
    if is_ragged(base) or is_ragged(shape):
        try:
            view.index(base, tuple(dims.symbol(f"_{k}", 0) for k in range(len(shape))))
        except UnsupportedError as e:
            raise Unrollable(f"it takes {e.message}") from None


def _holds_index(x: Any) -> bool:
    """Whether an index stands where a `Dim` belongs."""
    if isinstance(x, tuple):
        return any(map(_holds_index, x))
    if dataclasses.is_dataclass(x) and not isinstance(x, (type, Expr)):
        return any(_holds_index(getattr(x, f.name)) for f in dataclasses.fields(x))
    return isinstance(x, SymbolicInt)


def _takes_any_size(op: OpDef) -> bool:
    return op in _ANY_SIZE or not isinstance(op.lowering, Nest)


def has_symbol(shape: Shape, name: str) -> bool:
    """Whether a size depends on the index of this name."""
    return any(s.name == name for n in shape for s in dims.symbols(n))
