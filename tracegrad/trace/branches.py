"""`cond` and `switch`: functions traced into the regions of one branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optree

from tracegrad import source
from tracegrad.dtypes import BOOL, I64, promote
from tracegrad.errors import ArgumentError, DTypeError
from tracegrad.graph.ir import Literal
from tracegrad.graph.walk import is_observable
from tracegrad.ops.branch import CondAttrs, cond
from tracegrad.trace.leaves import flatten
from tracegrad.trace.promote import as_arg, cast
from tracegrad.trace.regions import (
    Index,
    Region,
    as_leaf,
    emit,
    join,
    operands_of,
    run_region,
    were_numbers,
    write_back,
)
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.types import TensorType


@dataclass(slots=True, eq=False)
class _Branch:
    """A traced function: its result in leaves."""

    trace: Trace
    leaves: list[Tracer | Literal]
    tree: optree.PyTreeSpec
    numbers: list[bool]

    def type(self, k: int) -> TensorType:
        x = self.leaves[k]
        return x.type if isinstance(x, Literal) else TensorType(x.sizes, x.element_type)

    def is_weak(self, k: int) -> bool:
        x = self.leaves[k]
        return self.numbers[k] or (isinstance(x, Tracer) and x.weak)


def choose(
    outer: Trace,
    selector: Any,
    functions: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    what: str,
) -> Any:
    """The result of the one of `functions` that `selector` (a traced scalar) counts."""
    at = as_arg(outer, selector)
    assert isinstance(at, Tracer)
    if at.element_type is not BOOL:
        at = cast(outer, at, I64)  # type: ignore[assignment]
    found = [_traced(outer, f, operands, what) for f in functions]
    tree = found[0].tree
    for other in found[1:]:
        if other.tree != tree:
            raise ArgumentError(
                f"the branches of {what} return {_text(tree)} and {_text(other.tree)}",
                kind="branch_type",
                loc=source.here(),
                remedy="Return one structure from all branches.",
            )
    types = [_common(found, k, what) for k in range(tree.num_leaves)]
    regions = [
        Region(
            b.trace,
            [],
            [
                b.trace.operand(cast(b.trace, x, t.dtype))
                for x, t in zip(b.leaves, types, strict=True)
            ],
        )
        for b in found
    ]
    joined = join(regions)
    graphs = joined.close(outer, first=len(types), writers=regions)
    results = (
        *types,
        *(
            TensorType(m.base.type.shape, m.dtype)  # type: ignore[union-attr]
            for m in joined.written
        ),
    )
    if not results:
        if not any(is_observable(n) for g in graphs for n in g.nodes):
            return tree.unflatten([])
        graphs = tuple(_with_result(g) for g in graphs)
        results = (TensorType((), I64),)
    hints = [f"{what}{k}" for k in range(len(types))] if len(types) > 1 else [what] * len(types)
    hints += [m.base.hint for m in joined.written]  # type: ignore[union-attr]
    given = [outer.base_of(m) for m in (*joined.written, *joined.read)]
    out = emit(outer, cond, [at, *given], CondAttrs(0, results), graphs, hints or [what])
    write_back(outer, joined.written, out[len(types) : len(types) + len(joined.written)])
    weak = [all(b.is_weak(k) for b in found) for k in range(len(types))]
    leaves = []
    for k, x in enumerate(out[: len(types)]):
        like = next(
            (b.leaves[k] for b in found if isinstance(b.leaves[k], Tracer)), found[0].leaves[k]
        )
        y = as_leaf(x, like)
        y.weak = y.scalar and weak[k] and y.element_type.is_inexact
        leaves.append(y)
    return tree.unflatten(leaves)


def _traced(outer: Trace, f: Callable[..., Any], operands: Sequence[Any], what: str) -> _Branch:
    run = outer.names.call(f) if outer.names is not None else f

    def call(trace: Trace) -> Any:
        leaves, tree = flatten(run(*operands))
        return operands_of(trace, leaves, f"a branch of {what}"), tree, were_numbers(leaves)

    trace, (leaves, tree, numbers) = run_region(outer, what, call, Index())
    return _Branch(trace, leaves, tree, numbers)


def _common(found: Sequence[_Branch], k: int, what: str) -> TensorType:
    """The type of leaf `k` of all branches; Python numbers take that of the others."""
    strong = [b for b in found if not b.is_weak(k)] or list(found)
    type_ = strong[0].type(k)
    for b in found:
        other = b.type(k)
        if other == type_:
            continue
        fits = (
            b.is_weak(k)
            and other.shape == type_.shape
            and promote(other.dtype, type_.dtype).kind == type_.dtype.kind
        )
        if not fits:
            first, x = strong[0].leaves[k], b.leaves[k]
            raise DTypeError(
                f"the branches of {what} return {type_} and {other}",
                kind="branch_type",
                loc=source.here(),
                notes=tuple(
                    (f"{t} is made here:", y.alias.made)
                    for t, y in ((type_, first), (other, x))
                    if isinstance(y, Tracer)
                ),
                remedy="Return one shape and dtype from all branches.",
            )
    return type_


def _text(tree: optree.PyTreeSpec) -> str:
    return str(tree.unflatten(["*"] * tree.num_leaves)).replace("'*'", "*")


def _with_result(graph: Any) -> Any:
    return replace(graph, outputs=(Literal(0, I64),))
