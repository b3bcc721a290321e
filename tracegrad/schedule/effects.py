"""Which updates may run in place, and what has to be read before they do.

The order of a functional graph's nodes is that of the user's writes, and in it every write can
be in place.  For each node that replaces a part of its first operand (Trait.UPDATES_FIRST) this
pass looks at the other readers of that operand:

- readers earlier in the order must run first (fusion keeps to that);
- a later read of a region that the update leaves alone reads the result instead;
- a later read of a region that the update overwrites is moved in front of it and kept in a
  buffer of its own (`keep`): a copy of the region, not of the base;
- any other later reader, or regions larger than the base, cost a copy of the base.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tracegrad.dims import largest
from tracegrad.graph.ir import Graph, Node, Value
from tracegrad.graph.op import Trait
from tracegrad.ops.branch import CONTROL, carried
from tracegrad.ops.views import SlicesAttrs, ViewAttrs
from tracegrad.source import SourceLoc
from tracegrad.views.geometry import are_disjoint


@dataclass(frozen=True, slots=True)
class Copied:
    """An array is copied before it is written.  `given`: it is an argument or a result, which has
    to stay as it is."""

    text: str
    loc: SourceLoc | None
    given: bool = False


@dataclass(slots=True, eq=False)
class Effects:
    """The graph in an order that keeps updates in place; keys are results of its nodes.

    `in_place`: results of updates that overwrite their first operand.  `keep`: results of views
    that need a buffer.  `copies` are arrays that are copied all the same.
    """

    graph: Graph
    in_place: set[Value] = field(default_factory=set)
    keep: set[Value] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    copies: list[Copied] = field(default_factory=list)


def resolve_effects(graph: Graph, overwritable: set[Value]) -> Effects:
    """Decide about every update of `graph`; inputs may be overwritten if in `overwritable`."""
    return _Resolver(graph, overwritable).run()


class _Resolver:
    def __init__(self, graph: Graph, overwritable: set[Value]) -> None:
        self.graph = graph
        self.nodes: list[Node] = list(graph.nodes)
        self.key: list[float] = [float(k) for k in range(len(self.nodes))]
        self.users: dict[Value, list[int]] = {}
        self.made: dict[Value, int] = {}
        for k, node in enumerate(self.nodes):
            for x in node.values():
                uses = self.users.setdefault(x, [])
                if not uses or uses[-1] != k:
                    uses.append(k)
            for r in node.results:
                self.made[r] = k
        self.fixed = {x for x in graph.outputs if isinstance(x, Value)}
        self.fixed |= {x for x in graph.inputs if x not in overwritable}
        self.effects = Effects(graph)

    def run(self) -> Effects:
        for k in range(len(self.nodes)):
            for at, result in updated(self.nodes[k]):
                self._decide(k, at, result)
        order = sorted(range(len(self.nodes)), key=lambda k: self.key[k])
        nodes = tuple(self.nodes[k] for k in order)
        self.effects.graph = replace(self.graph, nodes=nodes)
        return self.effects

    def _decide(self, k: int, at: int, result: Value) -> None:
        """May operand `at` of node k be overwritten with `result`?"""
        node = self.nodes[k]
        base = node.operands[at]
        if not isinstance(base, Value) or self._is_virtual(base):
            return  # the base is computed straight into the result's buffer
        others = [u for u in self.users[base] if u != k]
        if any(x is base for j, x in enumerate(node.operands) if j != at):
            self._copied(node, "the update also reads its whole base")
            return
        if base in self.fixed:
            self._copied(node, "its old contents are an argument or a result", given=True)
            return
        if any(
            self.key[u] > self.key[k]
            and any(self.nodes[u].operands[j] is base for j, _ in updated(self.nodes[u]))
            for u in others
        ):
            self._copied(node, "a later update starts from the same contents")
            return
        kept = self._late_reads(k, base, others)
        if kept is None:
            self._copied(node, "the whole old contents are read later")
            return
        size = sum(_numel(self.nodes[u].result) for u in kept)
        if kept and size > _numel(base):
            self._copied(node, "most of the old contents is read later")
            return
        for u in kept:
            self.effects.keep.add(self.nodes[u].result)
            if self.key[u] > self.key[k]:
                self.key[u] = self.key[k] - 0.5
            self._note(
                self.nodes[u],
                "the region is kept aside, since it is overwritten before its last use",
            )
        self.effects.in_place.add(result)

    def _late_reads(self, k: int, base: Value, others: list[int]) -> list[int] | None:
        """Views of `base` that must be kept; None when a later reader needs all of it."""
        kept = []
        for u in others:
            reader = self.nodes[u]
            is_view = isinstance(reader.attrs, ViewAttrs) and reader.op.has(Trait.VIEW)
            if self.key[u] > self.key[k]:
                if not is_view:
                    return None
                if self._redirect(k, u):
                    continue
                kept.append(u)
            elif (
                is_view
                and reader.result not in self.effects.keep
                and (reader.result in self.fixed or self._last_use(u) > self.key[k])
            ):
                if reader.result in self.fixed:
                    continue  # an output is stored when it is computed
                kept.append(u)
        return kept

    def _last_use(self, u: int) -> float:
        """Where view node `u` is read last, through further views of it too."""
        last = self.key[u]
        for w in self.users.get(self.nodes[u].result, ()):
            last = max(last, self._last_use(w) if self.nodes[w].op.has(Trait.VIEW) else self.key[w])
        return last

    def _redirect(self, k: int, u: int) -> bool:
        """Let view node `u` read the result of update `k`, if the update leaves it alone."""
        update, reader = self.nodes[k], self.nodes[u]
        if not isinstance(update.attrs, SlicesAttrs) or not isinstance(reader.attrs, ViewAttrs):
            return False
        base = update.operands[0]
        assert isinstance(base, Value)
        if not are_disjoint(update.attrs.view, reader.attrs.view, base.type.shape):
            return False
        self.nodes[u] = replace(reader, operands=(update.result,))
        self.users[base].remove(u)
        uses = self.users.setdefault(update.result, [])
        uses.append(u)
        return True

    def _is_virtual(self, x: Value) -> bool:
        """Whether `x` is recomputed where it is used (a constant, a pattern, a view)."""
        k = self.made.get(x)
        if k is None:
            return False
        node = self.nodes[k]
        return not node.operands or (node.op.has(Trait.VIEW) and isinstance(node.attrs, ViewAttrs))

    def _copied(self, node: Node, why: str, given: bool = False) -> None:
        what = "its base" if node.op.has(Trait.UPDATES_FIRST) else "a carry"
        text = f"{node.op.name} copies {what} first: {why}"
        self.effects.copies.append(Copied(text, node.loc, given))
        self._note(node, text)

    def _note(self, node: Node, text: str) -> None:
        where = f"{node.loc.file}:{node.loc.line}: " if node.loc is not None else ""
        note = where + text
        if not self.effects.notes or self.effects.notes[-1] != note:
            self.effects.notes.append(note)


def updated(node: Node) -> list[tuple[int, Value]]:
    """The operands that a node replaces, each with the result that holds the new contents."""
    if isinstance(node.attrs, CONTROL):
        return carried(node)
    return [(0, node.result)] if node.op.has(Trait.UPDATES_FIRST) else []


def _numel(x: Value) -> int:
    return largest(x.type.size)
