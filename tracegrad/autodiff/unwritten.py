"""Reading what an iteration read from what the loop left behind, or started from.

A reverse iteration may read an element of a carried array from the loop's final carry where no
write runs after the forward iteration read it: neither later in that iteration nor in a later one.
It may read it from the array that entered the loop where no write runs before.
For nested loops the final carry of the inner one belongs to an iteration of the outer one, where
the same is asked again, outwards as far as the answer is yes.  Outside of all loops the latest
value of the array that still has the element is read, so that none is kept beside it.  Unknown
means no.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from tracegrad.autodiff.footprint import (
    Element,
    Footprints,
    History,
    Names,
    are_apart,
    element,
    moved,
)
from tracegrad.autodiff.kept import weight
from tracegrad.dims import Dim, add, mul, symbol
from tracegrad.graph.ir import Graph, Node, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.storage import View
from tracegrad.loops.grown import GROWN
from tracegrad.ops.branch import WhileAttrs
from tracegrad.ops.control import LoopAttrs
from tracegrad.ops.views import SlicesAttrs, ViewAttrs, copy_slices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_COMPARED = 20_000  # pairs of sets, for one loop
SHARED = 2  # how often an array kept whole may be as large as one of the parts it is kept for


class Keep(Enum):
    """TAPE: what holds the elements outside would have to be kept whole in each iteration there,
    and is much larger than the elements are together."""

    TAPE = auto()


@dataclass(frozen=True, slots=True)
class Read:
    """``view`` of `source`, a value of the reverse region, has the contents that are wanted."""

    source: Value
    view: View


class Unwritten:
    """What the reverse of a loop (or while) `node` may read of its final carries.

    `around` is that of the loop whose region `node` is in; None where results of `node` are
    at hand when its reverse runs.  `inputs`: values outside that the reverse region reads, each
    with the input of the region that it becomes.
    """

    def __init__(self, node: Node, around: Unwritten | Onwards | None) -> None:
        assert isinstance(node.attrs, (LoopAttrs, WhileAttrs))
        self.node, self.around, self.attrs = node, around, node.attrs
        self.region = node.regions[-1]
        self.fresh: Names = around.fresh if around is not None else count()
        self.inputs: dict[Value, Value] = {}
        outer = around.indices if isinstance(around, Unwritten) else frozenset()
        self.indices: frozenset[str] = outer | {self.attrs.index}
        self._is_ambiguous = self.attrs.index in outer
        self._at = {x: k for k, x in enumerate(self.region.inputs)}
        self._index = symbol(self.attrs.index, 0, add(self._trips, -1))
        self._own = {self.attrs.index: self._index}
        self.prints = Footprints(self.region, self.fresh, self._own)
        self._chains: dict[Value, list[int]] = {}
        self._histories: dict[int, History] = {}
        self._written: dict[tuple[int, bool], list[Element]] = {}
        self._left = MOST_COMPARED
        for k in range(self.attrs.carries):
            history = self.prints.history(k)
            if history is not None and history.root == k:
                self._histories[k] = history
                for v in history.versions:
                    self._chains.setdefault(v, []).append(k)

    @property
    def _trips(self) -> Dim:
        if isinstance(self.attrs, LoopAttrs):
            return self.attrs.trips
        return self.attrs.most or GROWN

    # ---------------------------------------------------------------------- what is asked

    def read(
        self, x: Value, producer: Mapping[Value, Node], written_to: Sequence[Node]
    ) -> Read | Keep | None:
        """Where the reverse region finds `x`, a value of the forward one that is a view of an
        array, or is written to one by the nodes `written_to`; None: by the usual ways.

        `producer` has the nodes of the forward region and views of their results.
        """
        kept = None
        for base, view in self._places(x, producer, written_to):
            wanted = element(view, base.shape, self.fresh)
            if wanted is None:
                continue
            found = self._reaching(base, wanted, weight(x.type.size))
            if isinstance(found, Value) and found not in self._at:
                return Read(found, view)
            kept = kept or (found if isinstance(found, Keep) else None)
        return kept

    def original(self, x: Value) -> Value:
        """The value of the forward region that `x` is a copy of, or `x`."""
        return self.prints.original(x)

    def _places(
        self, x: Value, producer: Mapping[Value, Node], written_to: Sequence[Node]
    ) -> Iterator[tuple[Value, View]]:
        """Arrays that hold `x`, and where."""
        base, view = self.original(x), View()
        while (node := producer.get(base)) is not None and _is_view(node):
            base, after = node.operands[0], view  # type: ignore[assignment]
            assert isinstance(node.attrs, ViewAttrs) and isinstance(base, Value)
            base, view = self.original(base), node.attrs.view.then(*after.steps, base=base.shape)
        yield base, view
        for node in written_to:
            attrs, out = node.attrs, node.result
            if (
                node.op is copy_slices
                and isinstance(attrs, SlicesAttrs)
                and isinstance(node.operands[1], Value)
                and self.original(node.operands[1]) is self.original(x)
                and x.dtype is out.dtype
                and x.shape == attrs.view.shape(attrs.shape)
                and attrs.view.is_injective(attrs.shape)
            ):
                yield out, attrs.view

    def _reaching(self, base: Value, wanted: Element, size: int) -> Value | Keep | None:
        """The value of the reverse region that has the elements `wanted` of `base`, a value of the
        forward one: an input for constants of the loop, or for a value outside."""
        wanted = moved(wanted, self._own)
        if self._is_ambiguous:
            return None
        size *= weight(self._trips)
        source = self._source(base, wanted)
        found: Value | Keep | None
        if source is not None:
            found = self._outside(source, wanted, size)
        else:
            source = self._entered(base, wanted, size)
            found = None if source is None else self._outside(source, wanted, size)
        if source is None or not isinstance(found, Value):
            return found
        k = self._at.get(base)
        if k is not None and k >= self.attrs.carries and found is self.node.operands[k]:
            return base
        return self.inputs.setdefault(found, Value(found.type, source.hint))

    def _outside(self, source: Value, wanted: Element, size: int) -> Value | Keep:
        """What holds the elements `wanted` of `source`, a value around the loop, when the reverse
        of the loop runs; their tapes would have `size` elements."""
        if isinstance(self.around, Onwards):
            return self.around.latest(source, wanted, size)
        if self.around is None or self.around.recomputes:
            return source
        found = self.around._reaching(source, wanted, size)
        if isinstance(found, Value):
            return found
        if self.around.is_taped(source) and weight(source.type.size) > SHARED * size:
            return Keep.TAPE
        return source

    @property
    def recomputes(self) -> bool:
        """Whether the reverse computes everything again from the carries."""
        return self.attrs.recompute

    def is_taped(self, x: Value) -> bool:
        """Whether the reverse region can have `x` only from a tape."""
        x = self.original(x)
        k = self._at.get(x)
        if k is not None:
            return k < self.attrs.carries
        op = self.prints.producer[x].op
        return op.has(Trait.EXPENSIVE) or op.has(Trait.UPDATES_FIRST)

    # ---------------------------------------------------------------------- what is proved

    def _source(self, base: Value, wanted: Element) -> Value | None:
        """The value around the loop that has the elements when the loop has run."""
        while True:
            k = self._at.get(base)
            if k is not None and k >= self.attrs.carries:
                moves = k >= self.attrs.carries + self.attrs.consts
                found = None if moves else self.node.operands[k]
                return found if isinstance(found, Value) else None
            for k in self._chains.get(base, ()):
                if self._is_left_alone(k, base, wanted):
                    return self.node.results[k]
            step = self.prints.update(base)
            if step is None or not self._are_apart(wanted, step[1]):
                return None
            base = step[0]

    def _entered(self, base: Value, wanted: Element, size: int) -> Value | None:
        """The array that entered the loop, if it has the elements: it is kept beside the one that
        leaves, and has to be much smaller than the tapes of `size` elements."""
        for k in self._chains.get(base, ()):
            start = self.node.operands[k]
            if (
                isinstance(start, Value)
                and 2 * weight(start.type.size) <= size
                and self._is_as_it_entered(k, base, wanted)
            ):
                return start
        return None

    def _is_left_alone(self, k: int, version: Value, wanted: Element) -> bool:
        """Whether nothing that runs after `version` of carry k was read writes to `wanted`."""
        history = self._histories[k]
        at = history.versions.index(version)
        here = [w for step in history.writes[at:] for w in step]
        return self._are_apart(wanted, here) and self._are_apart(wanted, self._others(k, True))

    def _is_as_it_entered(self, k: int, version: Value, wanted: Element) -> bool:
        """Whether nothing that runs before `version` of carry k was read writes to `wanted`."""
        history = self._histories[k]
        at = history.versions.index(version)
        here = [w for step in history.writes[:at] for w in step]
        return self._are_apart(wanted, here) and self._are_apart(wanted, self._others(k, False))

    def _others(self, k: int, later: bool) -> list[Element]:
        """What any later, or any earlier, iteration writes to carry k."""
        found = self._written.get((k, later))
        if found is None:
            there = {self.attrs.index: self._another(later)}
            writes = self._histories[k].writes
            found = self._written[k, later] = [moved(w, there) for step in writes for w in step]
        return found

    def _another(self, later: bool) -> Dim:
        """The index of any iteration that runs after, or before, that of the loop's own index."""
        i, name = self._index, f"{self.attrs.index}.{next(self.fresh)}"
        if later is (isinstance(self.attrs, LoopAttrs) and self.attrs.reverse):
            return add(add(i, -1), mul(symbol(name, 0, add(i, -1)), -1))
        return add(add(i, 1), symbol(name, 0, add(add(self._trips, -2), mul(i, -1))))

    def _are_apart(self, wanted: Element, written: Sequence[Element]) -> bool:
        for w in written:
            self._left -= 1
            if self._left < 0 or not are_apart(wanted, w):
                return False
        return True


class Onwards:
    """Where the elements that a value of a graph without iterations has can be read at its end."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.fresh: Names = count()
        self._left = MOST_COMPARED

    @cached_property
    def _prints(self) -> Footprints:
        return Footprints(self.graph, self.fresh, {})

    @cached_property
    def _updates(self) -> dict[Value, list[Value]]:
        """The updates of each value."""
        found: dict[Value, list[Value]] = {}
        for x in self._prints.producer:
            step = self._prints.update(x)
            if step is not None:
                found.setdefault(step[0], []).append(x)
        return found

    def latest(self, x: Value, wanted: Element, size: int) -> Value | Keep:
        """The last update of `x` that has its elements `wanted`, whose tapes would have `size`
        elements; one that is overwritten later takes a copy."""
        while x in self._updates:
            for after in self._updates[x]:
                step = self._prints.update(after)
                if step is not None and self._are_apart(wanted, step[1]):
                    x = after
                    break
            else:
                return Keep.TAPE if weight(x.type.size) > SHARED * size else x
        return x

    def _are_apart(self, wanted: Element, written: Sequence[Element]) -> bool:
        self._left -= len(written)
        return self._left >= 0 and all(are_apart(wanted, w) for w in written)


def _is_view(node: Node) -> bool:
    return node.op.has(Trait.VIEW) and isinstance(node.attrs, ViewAttrs)
