"""Arguments of a transform inside a trace that are views of one array there.

While the function only reads them, each is an argument of its own with its own partial
derivative.  Once it writes one of them, those that overlap stay views of their storage, which
becomes one input of the region; its derivative is shared out so that each element is reported
once: by the largest argument that reads it, the first of equals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, UnsupportedError
from tracegrad.graph.array_views import flat_positions
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Operand
from tracegrad.graph.storage import Strided, View, dense_strides
from tracegrad.ops.arithmetic import add
from tracegrad.ops.select import where
from tracegrad.ops.views import add_slices, as_view
from tracegrad.trace.enter import Traced
from tracegrad.trace.tracer import Memory, Trace, Tracer
from tracegrad.views.geometry import are_disjoint


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What a differentiated leaf is of the region's differentiated input `wrt[at]`: that itself,
    or a view of it, of which it reports the elements in `mask` (None: all of them)."""

    at: int
    view: View = View()
    mask: np.ndarray | None = None


def written_inputs(traced: Traced) -> tuple[int, ...]:
    """The inputs of the graph that it writes."""
    targets = {n.target.storage for n in traced.graph.nodes if n.target is not None}
    return tuple(k for k, v in enumerate(traced.graph.inputs) if v.storage in targets)


def leaves_together(traced: Traced, given: Mapping[int, Tracer]) -> dict[int, Tracer]:
    """The leaves that have to be views of common storages, by what the function writes.

    Raises:
        ArgumentError: kind ``aliasing_args``, one of them was detached from a gradient that the
            enclosing function is asked for.
    """
    written = {*written_inputs(traced), *traced.touched}
    of: dict[Memory, dict[int, bool]] = {}
    for k, x in given.items():
        if not x.scalar:
            of.setdefault(x.memory, {})[k] = False
    closed_over: dict[Memory, bool] = {}
    for k, s in enumerate(traced.inputs):
        if s.leaf is not None and not given[s.leaf].scalar:
            of[given[s.leaf].memory][s.leaf] = k in written
        elif s.outer is not None:
            closed_over[traced.captures[s.outer].outer] = k in written
    out: set[int] = set()
    for memory, leaves in of.items():
        if memory in closed_over and (closed_over[memory] or any(leaves.values())):
            out |= leaves.keys()
        out |= {
            k for k, w in leaves.items() if w and not given[k].alias.view.is_injective(memory.shape)
        }
        for (i, a), (j, b) in combinations(leaves.items(), 2):
            if (a or b) and _overlap(given[i], given[j]):
                out |= {i, j}
    found = {k: given[k] for k in sorted(out)}
    _check_families(found)
    return found


def _overlap(a: Tracer, b: Tracer) -> bool:
    return not are_disjoint(a.alias.view, b.alias.view, a.memory.shape)


def _check_families(found: Mapping[int, Tracer]) -> None:
    for x in found.values():
        family = x.memory.family
        if x.alias.family is not family and family is not None and family.tracked:
            raise ArgumentError(
                "arguments share memory that is written, and one of them was detached",
                kind="aliasing_args",
                loc=source.here(),
                remedy="Pass a copy of one of them.",
            )


def parts_of(
    leaves: Sequence[int], inputs: Mapping[int, int], received: Mapping[int, Tracer]
) -> tuple[tuple[int, ...], tuple[Part, ...]]:
    """The region inputs to differentiate, and what each leaf is of them; `inputs` says which
    region input holds a leaf."""
    wrt = tuple(dict.fromkeys(inputs[k] for k in leaves))
    parts = [
        Part(wrt.index(inputs[k]), received[k].alias.view if k in received else View())
        for k in leaves
    ]
    order = sorted(
        (n for n, k in enumerate(leaves) if k in received),
        key=lambda n: (-int(np.prod(received[leaves[n]].sizes)), n),
    )
    reported: dict[int, np.ndarray] = {}
    for n in order:
        at, shape = parts[n].at, received[leaves[n]].memory.shape
        flat = reported.setdefault(at, np.zeros(int(np.prod(shape)), bool))  # type: ignore[arg-type]
        positions = flat_positions(parts[n].view, shape)  # type: ignore[arg-type]
        first = np.zeros(positions.size, bool)
        first[np.unique(positions, return_index=True)[1]] = True
        mask = ~flat[positions] & first.reshape(positions.shape)
        flat[positions] = True
        parts[n] = Part(at, parts[n].view, None if mask.all() else mask)
    return wrt, tuple(parts)


def by_leaf(
    trace: Trace, parts: Sequence[Part], found: Sequence[Tracer], bases: Sequence[tuple[int, ...]]
) -> list[Tracer]:
    """Derivatives by leaf from those by region input, which may have further axes in front;
    `bases` are the shapes of the inputs."""
    out = []
    for part in parts:
        x = found[part.at]
        if part.view:
            x = trace.compose(lambda b, v, p=part: _read(b, v, p.view, bases[p.at]), (x,))
        if part.mask is not None:
            x = _masked(trace, x, part.mask)
        out.append(x)
    return out


def by_input(
    trace: Trace,
    parts: Sequence[Part],
    tangents: Sequence[Tracer],
    bases: Sequence[tuple[int, ...]],
) -> list[Tracer]:
    """Tangents by region input from those by leaf; the transpose of `by_leaf`."""
    out: dict[int, Tracer] = {}
    for part, x in zip(parts, tangents, strict=True):
        if part.mask is not None:
            x = _masked(trace, x, part.mask)
        if part.view:
            x = trace.compose(
                lambda b, v, p=part: add_slices(b, 0, v, view=p.view, shape=bases[p.at]), (x,)
            )
        out[part.at] = trace.apply(add, (out[part.at], x)) if part.at in out else x
    return [out[k] for k in range(len(bases))]


def _read(b: GraphBuilder, x: Operand, view: View, base: tuple[int, ...]) -> Operand:
    """The view of the last axes of `x`, those of the base."""
    front = x.shape[: len(x.shape) - len(base)]
    if not front:
        return as_view(b, x, *view.steps)
    g = view.geometry(base)
    if g is None:
        raise UnsupportedError(
            "the Jacobian by an argument that shares memory in this order is not supported",
            loc=source.here(),
            remedy="Pass a copy of it.",
        )
    stride = dense_strides(x.shape)[: len(front)]
    return as_view(b, x, Strided((*front, *g.size), (*stride, *g.stride), g.offset))  # type: ignore[arg-type]


def _masked(trace: Trace, x: Tracer, mask: np.ndarray) -> Tracer:
    """`x` where the mask of its last axes is set, else zero."""
    if not mask.any():
        return trace.concrete(np.zeros(x.sizes, x.element_type.np))
    kept = trace.concrete(np.broadcast_to(mask, x.sizes).copy())
    zero = trace.concrete(np.zeros(x.sizes, x.element_type.np))
    return trace.apply(where, (kept, x, zero))  # type: ignore[no-any-return]
