"""Values of a region that are equal to earlier ones, so that a reverse pass keeps each once.

A view of an updated array is a view of the array before the update where the update leaves the
region alone, and is what was written where it writes the very region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tracegrad.autodiff.footprint import Footprints, are_apart, element
from tracegrad.graph.ir import Node, Operand, Value
from tracegrad.graph.op import Attrs, Trait
from tracegrad.graph.storage import View
from tracegrad.ops.views import SlicesAttrs, ViewAttrs, as_strided, copy_slices

MOST_STEPS = 5_000  # updates looked at, for one region


def same_values(nodes: Iterable[Node], prints: Footprints) -> dict[Value, Value]:
    """For results of `nodes` that are equal to an earlier result or input: that one.

    `prints` are those of the region; `nodes` may have views of its values besides.
    """
    same: dict[Value, Value] = {}
    first: dict[Any, Value] = {}
    left = MOST_STEPS
    for node in nodes:
        key: Any = None
        if node.op is as_strided:
            base, source, steps = _origin(node, same, prints, left)
            left -= steps
            if source is not None:
                same[node.result] = same.get(source, source)
                continue
            key = (base, node.attrs)
        elif type(node.attrs) is Attrs and len(node.results) == 1 and not _is_special(node):
            key = (node.op, tuple(put(x, same) for x in node.operands), node.grad)
        if key is not None:
            found = first.setdefault(key, node.result)
            if found is not node.result:
                same[node.result] = found
    return same


def put(x: Operand, same: Mapping[Value, Value]) -> Operand:
    return same.get(x, x) if isinstance(x, Value) else x


def merged(node: Node, same: Mapping[Value, Value]) -> Node:
    """`node` on the first of equal operands."""
    if not any(x in same for x in node.values()):
        return node
    return replace(node, operands=tuple(put(x, same) for x in node.operands))


def _is_special(node: Node) -> bool:
    return bool(node.regions) or any(
        node.op.has(t) for t in (Trait.EFFECT, Trait.CHECKED, Trait.HIDES)
    )


def _origin(
    node: Node, same: Mapping[Value, Value], prints: Footprints, most: int
) -> tuple[Value, Value | None, int]:
    """The earliest value that the view `node` is a view of; the value that it is equal to, if it
    was written; how many updates were looked at."""
    base = node.operands[0]
    assert isinstance(node.attrs, ViewAttrs) and isinstance(base, Value)
    base, view = same.get(base, base), node.attrs.view
    wanted = element(view, base.shape, prints.fresh)
    for steps in range(most):
        found = prints.update(base)
        if found is None or wanted is None:
            return base, None, steps
        source = _written(prints.producer[base], view)
        if source is not None:
            return base, prints.original(source), steps
        if not all(are_apart(wanted, w) for w in found[1]):
            return base, None, steps
        base = found[0]
    return base, None, most


def _written(node: Node, view: View) -> Value | None:
    """What `node` puts in the place of `view`, where it is of the same type."""
    if node.op is not copy_slices or not isinstance(node.attrs, SlicesAttrs):
        return None
    attrs, source = node.attrs, node.operands[1]
    shape, dtype = view.shape(attrs.shape), node.result.dtype
    if not isinstance(source, Value) or (source.shape, source.dtype) != (shape, dtype):
        return None
    return source if attrs.view == view and view.is_injective(attrs.shape) else None
