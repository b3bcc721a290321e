"""The rewriting driver: replay a graph node by node, each through the rules and hash-consing.

One forward pass: when a node is reached its operands are already rewritten, so a rule looks
backwards only.  What a rule emits goes through the rules too, to a bounded depth.  `simplify`
repeats the pass until nothing changes (in practice twice), with dead nodes removed between.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from tracegrad.errors import TracegradError, VerifyError
from tracegrad.graph.builder import GraphBuilder, literals
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import Attrs, OpDef, Trait
from tracegrad.graph.walk import Replaced, map_regions, replay, same_inputs, use_counts
from tracegrad.rewrite.algebra import ALGEBRA
from tracegrad.rewrite.casts import CASTS
from tracegrad.rewrite.cleanup import FOLDING, has_effect, remove_dead
from tracegrad.rewrite.pattern import Rule
from tracegrad.rewrite.reductions import REDUCTIONS
from tracegrad.rewrite.views import VIEWS
from tracegrad.types import TensorType

RULES: tuple[Rule, ...] = (*FOLDING, *CASTS, *ALGEBRA, *VIEWS, *REDUCTIONS)
_DEPTH = 12  # of rules applied to what rules emit
_ROUNDS = 8


class Rewritten(NamedTuple):
    """A graph and how often each rule fired (`cse` among them)."""

    graph: Graph
    hits: Counter[str]


def simplify(graph: Graph, rules: Sequence[Rule] = RULES) -> Graph:
    """`graph` made smaller by `rules`, with equal nodes merged and dead ones removed.

    Functional in and out; gives the same results, up to the sign of zeros where a rule says so.
    Nodes keep their places; a replacement has that of the node it stands for.  Nodes recorded
    with gradients off are left as they are until `drop_grafts` has run, since what stands for
    them might carry a gradient.  Idempotent.
    """
    return simplify_counting(graph, rules).graph


def simplify_counting(graph: Graph, rules: Sequence[Rule] = RULES) -> Rewritten:
    """As `simplify`, with the number of times each rule fired."""
    hits: Counter[str] = Counter()
    for _ in range(_ROUNDS):
        once, fired = rewrite(graph, rules)
        cleaned = remove_dead(once)
        hits += fired
        if not fired and len(cleaned.nodes) == len(graph.nodes):
            return Rewritten(graph, hits)
        graph = cleaned
    return Rewritten(graph, hits)


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Rewritten:
    """One pass of `rules` over a functional graph and its regions; dead nodes are left in."""
    if graph.stage is not Stage.FUNCTIONAL:
        raise VerifyError(f"graph {graph.name}: only functional graphs are rewritten")
    b = Rewriter(graph.name, rules)
    env = same_inputs(graph, b)
    reads = use_counts(graph)

    def step(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
        assert isinstance(b, Rewriter)
        out = _step(b, node, operands)
        for old, new in zip(node.results, out, strict=True):
            if isinstance(new, Value):
                b.makers.reads[new] += reads[old]
        return out

    outputs = replay(graph, b, env, step)
    return Rewritten(b.finish(outputs, graph.alias), b.hits)


def cse(graph: Graph) -> Graph:
    """`graph` with equal pure nodes merged (op, operands, attributes, regions); nothing else."""
    return remove_dead(rewrite(graph, ()).graph)


def _step(b: Rewriter, node: Node, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """The node on its new operands and with its regions rewritten, offered to the rules."""

    def inner(region: Graph) -> Graph:
        out, fired = rewrite(region, b.rules)
        b.hits += fired
        cleaned = remove_dead(out)
        return region if not fired and len(cleaned.nodes) == len(region.nodes) else cleaned

    regions = map_regions(node, inner)
    unchanged = regions is node.regions and all(
        x is y for x, y in zip(operands, node.operands, strict=True)
    )
    if unchanged:
        return b.offer(node)
    hints = tuple(r.hint for r in node.results)
    out = b.emit(node.op, operands, node.attrs, hints=hints, regions=regions)
    return out if isinstance(out, tuple) else (out,)


class Makers:
    """`pattern.ProducerOf` over the graph being built.

    `node` is the maker of each value, `reads` how often the graph being replaced reads what the
    value stands for.
    """

    def __init__(self) -> None:
        self.node: dict[Value, Node] = {}
        self.reads: Counter[Value] = Counter()

    def __call__(self, x: Operand) -> Node | None:
        """The node that made `x`.  Not of nodes recorded with gradients off: what a rule put in
        their place would let a gradient through."""
        node = self.node.get(x) if isinstance(x, Value) else None
        return node if node is not None and node.grad else None

    def is_read_once(self, x: Operand) -> bool:
        return not isinstance(x, Value) or self.reads[x] <= 1


class Rewriter(GraphBuilder):
    """A builder whose nodes pass through rules and hash-consing as they are emitted."""

    def __init__(self, name: str, rules: Sequence[Rule]) -> None:
        super().__init__(name, Stage.FUNCTIONAL)
        self.rules = rules
        self.hits: Counter[str] = Counter()
        self._seen: dict[Any, Any] = {}
        self.makers = Makers()
        self._numbers: dict[Value, int] = {}
        self._by_op: dict[OpDef, tuple[Rule, ...]] = {}
        self._depth = 0

    def emit(
        self,
        op: OpDef,
        operands: Sequence[Operand | bool | int | float],
        attrs: Attrs | None = None,
        *,
        hint: str = "",
        regions: tuple[Graph, ...] = (),
        hints: Sequence[str] = (),
        target: Value | None = None,
    ) -> Any:
        if target is not None:
            raise VerifyError(f"{op.name} writes through a target in the functional stage")
        xs = literals(operands) if operands else ()
        attrs = op.attrs() if attrs is None else attrs
        try:
            types = op.infer(attrs, *[x.type for x in xs])
        except TracegradError as e:
            raise e.at(self.loc) from None
        several = (types,) if isinstance(types, TensorType) else types
        names = hints or (hint or op.name,) * len(several)
        results = tuple(
            Value(t, name, None, self.loc) for t, name in zip(several, names, strict=True)
        )
        out = self.offer(Node(op, xs, attrs, results, regions, None, self.grad, self.loc))
        return out[0] if isinstance(types, TensorType) else out

    def offer(self, node: Node) -> tuple[Operand, ...]:
        """Add `node`, or find what stands for its results."""
        if has_effect(node):
            self._add(node)
            return node.results
        key = self._key(node)
        found = self._seen.get(key)
        if found is not None:
            self.hits["cse"] += 1
            return found  # type: ignore[no-any-return]
        out = self._rewritten(node)
        if out is None:
            self._add(node)
            out = node.results
        self._seen[key] = out
        return out

    def _add(self, node: Node) -> None:
        self.append(node)
        for r in node.results:
            self.makers.node[r] = node

    def _rewritten(self, node: Node) -> tuple[Operand, ...] | None:
        if not node.grad or len(node.results) != 1 or self._depth >= _DEPTH:
            return None
        rules = self._by_op.get(node.op)
        if rules is None:
            rules = tuple(r for r in self.rules if r.looks_at(node.op))
            self._by_op[node.op] = rules
        before, self._depth = self.loc, self._depth + 1
        self.loc = node.loc
        try:
            for r in rules:
                out = r.apply(self, node, self.makers)
                if out is not None:
                    if out.type != node.result.type:
                        raise VerifyError(
                            f"rule {r.name} turns {node.result.type} into {out.type}", loc=node.loc
                        )
                    self.hits[r.name] += 1
                    return (out,)
        finally:
            self.loc, self._depth = before, self._depth - 1
        return None

    def _key(self, node: Node) -> Any:
        """Equal for nodes that compute the same; values are numbered as they are first met, so
        that operands of commutative ops can be put in order."""
        xs = tuple([x if isinstance(x, Literal) else self._number(x) for x in node.operands])
        if (
            len(xs) == 2
            and node.op.has(Trait.COMMUTATIVE)
            and isinstance(xs[1], int)
            and (not isinstance(xs[0], int) or xs[1] < xs[0])
        ):
            xs = (xs[1], xs[0])
        exact = repr(node.attrs) if _has_floats(node.op.attrs) else None  # type: ignore[arg-type]
        return node.op, xs, node.attrs, exact, tuple(map(id, node.regions)), node.grad

    def _number(self, value: Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


@cache
def _has_floats(cls: type) -> bool:
    """Whether equality of attributes is too weak: 0.0 == -0.0, and 1 == 1.0 == True."""
    return any("float" in str(f.type) for f in dataclasses.fields(cls))
