"""What a node keeps for backward: values by reference and version, or copies.

PyTorch's choice: an operand is kept by reference, so that a later write is noticed; the old
contents of the written operand are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tracegrad.eager.arrays import strides_of
from tracegrad.eager.history import OpNode, Saved, saved_value
from tracegrad.eager.program import Origin
from tracegrad.graph.ir import Literal
from tracegrad.graph.storage import Geometry, View
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.views import legality
from tracegrad.views.geometry import are_disjoint

if TYPE_CHECKING:
    from tracegrad.eager.tensor import EagerTensor


def keep_operands(
    node: OpNode, xs: Sequence[Tracer | Literal], written: EagerTensor | None = None
) -> None:
    """Keep what the rule reads; the old contents of a written operand, and an operand that
    the write changes in part, as a copy."""
    is_copied = False
    for origin, k in node.rule.reads:
        if origin is not Origin.OPERAND:
            continue
        x: EagerTensor = xs[k]  # type: ignore[assignment]
        legality.check_saved(x.alias, node.loc)
        if x is written and not is_copied:
            is_copied = True  # further operands that are it are kept as they are
            node.kept[origin, k] = copied(x)
        elif written is not None and _overlaps(x, written):
            node.kept[origin, k] = copied(x)
        else:
            node.kept[origin, k] = saved_value(x)


def copied(x: EagerTensor) -> Saved:
    array = np.array(x.array, order="C")
    dense = Geometry(0, array.shape, strides_of(array))
    memory = Memory(array.shape, x.element_type, trace=x.trace, array=array,
                    layout=dense.stride)  # type: ignore[arg-type]  # fmt: skip
    return Saved(array, memory, 0, View(), dense)


def keep_results(node: OpNode, results: Sequence[EagerTensor]) -> None:
    """Keep the results that the rule reads, as they are now (after a write)."""
    for origin, k in node.rule.reads:
        if origin is Origin.RESULT:
            node.kept[origin, k] = saved_value(results[k])


def _overlaps(x: EagerTensor, written: EagerTensor) -> bool:
    """Whether some elements of `x`, but not the same ones in the same order, are written."""
    a, b = x.alias, written.alias
    return (
        a.storage is b.storage
        and a.view != b.view
        and not are_disjoint(a.view, b.view, a.storage.shape)
    )
