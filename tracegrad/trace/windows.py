"""Views at an index that is known only when the function runs: ``row = A[k]`` for a traced `k`.

NumPy gives a view where all indices are integers and slices.  Where that view is depends on a
value, so the graph has a copy in a storage of its own, and keeps it equal to the elements of `A`:
a write to the copy is written to `A` too, and after a write to `A` the copy is read again before
it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracegrad import source
from tracegrad.errors import UnsupportedError
from tracegrad.graph.ir import Literal
from tracegrad.ops.index import gather
from tracegrad.ops.scatter import ScatterSetAttrs, scatter_set
from tracegrad.trace.memory import Memory, Tracer
from tracegrad.trace.modes import STATE

if TYPE_CHECKING:
    from tracegrad.trace.tracking import Recorder

MOVED = "is a view at a traced index (take a copy of it: .copy(), or .clone() of a Tensor)"


@dataclass(slots=True, eq=False)
class Window:
    """What a storage is a copy of: ``part[index]``, `index` for the first axes of `part`.

    `of` and `key` are what the user indexed and how, `seen` the version of the storage of `part`
    that the copy is equal to, `grad` whether it was indexed with gradients on.
    """

    part: Tracer
    index: tuple[Tracer | Literal, ...]
    of: Tracer
    key: Any
    seen: int
    grad: bool

    def is_same(self, x: Tracer, key: Any) -> bool:
        """Whether ``x[key] = copy`` stores the view into itself, as Python does at the end of
        ``x[key] += y``."""
        return (
            key is self.key
            and x.memory is self.of.memory
            and x.alias.view == self.of.alias.view
            and self.part.memory.version == self.seen
        )


def open_window(
    out: Tracer, part: Tracer, index: Iterable[Tracer | Literal], of: Tracer, key: Any
) -> None:
    """Keep `out`, a fresh copy of ``part[index]``, equal to it."""
    out.memory.window = Window(part, tuple(index), of, key, part.memory.version, grad=STATE.grad)


def refresh(trace: Any, memory: Memory) -> None:
    """Read the copy again if what it is a copy of was written since."""
    window = memory.window
    assert window is not None
    if window.part.memory.window is not None:
        refresh(trace, window.part.memory)
    if window.part.memory.version == window.seen:
        return
    window.seen = window.part.memory.version
    b, before = trace.builder, STATE.grad
    placed = b.loc, b.grad, b.inference
    memory.window, STATE.grad = None, window.grad
    try:
        trace.write(trace.base_of(memory), gather, (window.part, *window.index))
    finally:
        memory.window, STATE.grad = window, before
        b.loc, b.grad, b.inference = placed


def write_through(trace: Recorder, memory: Memory) -> None:
    """Give ``part[index]`` the contents that its copy was just given."""
    window = memory.window
    assert window is not None
    part = window.part
    whole = trace.base_of(memory)  # type: ignore[attr-defined]
    attrs = ScatterSetAttrs(part.sizes, True)
    trace.write(part, scatter_set, (part, whole, *window.index), attrs)
    window.seen = part.memory.version


def clash(pairs: Iterable[tuple[Memory, Memory]]) -> str:
    """The reason why a region cannot have both a copy and what it is a copy of, or nothing.

    `pairs` are storages outside with what stands for them inside.
    """
    inside = dict(pairs)
    for outer, inner in inside.items():
        at = outer.window
        while at is not None:
            found = inside.get(at.part.memory)
            if found is not None and (found.written or inner.written):
                return "it writes an array of which it has a view at a traced index"
            at = at.part.memory.window
    return ""


def check_clash(pairs: Iterable[tuple[Memory, Memory]]) -> None:
    """Refuse a function that has both."""
    both = clash(pairs)
    if both:
        raise UnsupportedError(
            f"a function inside a traced one cannot be traced: {both}",
            kind="window",
            loc=source.here(),
            remedy="Index the array inside that function, or take a copy of the view.",
        )
