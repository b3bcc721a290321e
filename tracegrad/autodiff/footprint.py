"""Which elements of an array a view reads and a chain of updates writes, and whether two such sets
have none in common for any values of the indices they depend on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from tracegrad.dims import Dim, Expr, add, is_equal, mul, substitute, symbol
from tracegrad.graph.ir import Graph, Node, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.storage import Retype, View
from tracegrad.graph.walk import producers
from tracegrad.loops.builder import flat_index
from tracegrad.ops.branch import CondAttrs, WhileAttrs, last_index
from tracegrad.ops.control import CheckpointAttrs, LoopAttrs
from tracegrad.ops.handles import copy
from tracegrad.ops.views import SlicesAttrs
from tracegrad.types import Shape

# Any one element of a set: its index along each axis, then its row-major position.  Symbols that
# no surrounding loop has (fresh ones, with a dot in their names) run over the set.
Element = tuple[Dim, ...]
Names = Iterator[int]
Update = tuple[Value, tuple[Element, ...]]


def element(view: View, base: Shape, fresh: Names) -> Element | None:
    """Any one element of a base of shape `base` that `view` reads; None for views that change the
    element type."""
    if any(isinstance(s, Retype) for s in view.steps):
        return None
    at = [symbol(f"e.{next(fresh)}", 0, add(n, -1)) for n in view.shape(base)]
    index = view.index(base, at)
    return (*index, flat_index(base, index))


def moved(x: Element, env: Mapping[str, Dim]) -> Element:
    """`x` with symbols replaced by name."""
    return tuple(substitute(d, env) for d in x)


def are_apart(x: Element, y: Element) -> bool:
    """Whether it is certain that no element of the one set is in the other."""
    return any(_differ(a, b) for a, b in zip(x, y, strict=True))


def _differ(a: Dim, b: Dim) -> bool:
    if is_equal(a, b) is False:
        return True
    difference = add(a, mul(b, -1))
    if not isinstance(difference, Expr):
        return False
    terms = dict(difference.terms)
    constant = terms.pop((), 0)
    return constant % gcd(*terms.values()) != 0


@dataclass(frozen=True, slots=True)
class History:
    """How an output of a region comes from input `root`: `versions` from the input to the output,
    and between each and the next the sets of elements that are written."""

    root: int
    versions: tuple[Value, ...]
    writes: tuple[tuple[Element, ...], ...]


class Footprints:
    """What the updates of one region write, with symbols replaced by `env`.

    Indices of loops inside the region become fresh symbols, since all their values are meant.
    """

    def __init__(self, region: Graph, fresh: Names, env: Mapping[str, Dim]) -> None:
        self.region = region
        self.fresh = fresh
        self.env = env
        self.producer = producers(region)
        self._updates: dict[Value, Update | None] = {}
        self._inputs = {x: k for k, x in enumerate(region.inputs)}

    def history(self, k: int) -> History | None:
        """Of output k; None where it does not come from an input by updates alone."""
        x = self.region.outputs[k]
        if not isinstance(x, Value):
            return None
        versions, writes = [x], []
        while x not in self._inputs:
            found = self.update(x)
            if found is None:
                return None
            x, written = found
            versions.append(x)
            writes.append(written)
        return History(self._inputs[x], tuple(reversed(versions)), tuple(reversed(writes)))

    def update(self, x: Value) -> Update | None:
        """The value that `x` is an update of, and what is written; None where `x` is made anew."""
        if x not in self._updates:
            self._updates[x] = self._update(x)
        return self._updates[x]

    def _update(self, x: Value) -> Update | None:
        node = self.producer.get(x)
        if node is None:
            return None
        if node.op is copy or node.op.has(Trait.UPDATES_FIRST):
            base = node.operands[0]
            if not isinstance(base, Value) or base.type != x.type:
                return None
            return base, () if node.op is copy else (self._written(node, x.shape),)
        return self._through_regions(node, node.results.index(x))

    def original(self, x: Value) -> Value:
        """The value that `x` is a copy of, or `x`."""
        while (node := self.producer.get(x)) and node.op is copy:
            if not isinstance(node.operands[0], Value):
                break
            x = node.operands[0]
        return x

    def _written(self, node: Node, shape: Shape) -> Element:
        found = None
        if isinstance(node.attrs, SlicesAttrs):
            found = element(node.attrs.view, shape, self.fresh)
        if found is None:
            found = element(View(), shape, self.fresh)
            assert found is not None
        return moved(found, self.env)

    def _through_regions(self, node: Node, k: int) -> Update | None:
        """An update by the regions of a node, of which result k is asked."""
        attrs, regions, env = node.attrs, node.regions, dict(self.env)
        loops = isinstance(attrs, (LoopAttrs, WhileAttrs))
        if isinstance(attrs, (LoopAttrs, WhileAttrs)):
            if k >= attrs.carries:
                return None
            regions = regions[-1:]
            name = f"{attrs.index}.{next(self.fresh)}"
            env[attrs.index] = symbol(name, 0, self._last(attrs))
        elif not isinstance(attrs, (CondAttrs, CheckpointAttrs)):
            return None
        found = [Footprints(r, self.fresh, env).history(k) for r in regions]
        root, *others = {None if h is None else h.root for h in found}
        if others or root is None or (loops and root != k):
            return None
        base = node.operands[root + isinstance(attrs, CondAttrs)]
        if not isinstance(base, Value):
            return None
        written = (w for h in found if h is not None for step in h.writes for w in step)
        return base, tuple(written)

    def _last(self, attrs: LoopAttrs | WhileAttrs) -> Dim | None:
        """The last index of a loop in the region."""
        if isinstance(attrs, WhileAttrs):
            return last_index(attrs.most)
        return substitute(add(attrs.trips, -1), self.env)
