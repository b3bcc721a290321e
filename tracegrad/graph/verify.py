"""`verify`: the invariants of graphs.  Runs before and after every pass under test."""

from __future__ import annotations

from tracegrad.errors import TracegradError, VerifyError
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import Decompose, Special, Trait
from tracegrad.graph.storage import View
from tracegrad.graph.text import print_lines
from tracegrad.graph.view_check import misfit
from tracegrad.graph.walk import is_elementwise
from tracegrad.types import TensorType


def verify(graph: Graph, stage: Stage | None = None) -> None:
    """Check `graph` and its regions; `stage` is the stage it must be in (default: its own).

    Structure: every value is made once, before its uses; types are what the op's shape rule
    says; only a `Literal` may stand for a tensor of equal elements; a target has the type of
    what is written.  TRACED: values are handles into storages, views stay in their operand's.
    FUNCTIONAL: no targets, no storages, nothing that has no lowering.

    Raises `VerifyError` with the neighbouring lines of the graph's text.
    """
    if stage is not None and graph.stage is not stage:
        raise VerifyError(f"graph {graph.name} is {graph.stage.value}, not {stage.value}")
    _Verifier(graph).run()


class _Verifier:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: set[Value] = set()

    def run(self) -> None:
        graph = self.graph
        if graph.tracked and len(graph.tracked) != len(graph.inputs):
            self.fail("tracked has one entry an input", None)
        for value in graph.inputs:
            self._make(value, None)
        for node in graph.nodes:
            self._check_node(node)
            for region in node.regions:
                if region.stage is not graph.stage:
                    self.fail(f"region {region.name} is {region.stage.value}", node)
                verify(region)
        for x in graph.outputs:
            self._check_defined(x, None, "the graph returns")
        self._check_alias()

    def fail(self, message: str, node: Node | None) -> None:
        """Raise, with the five lines before and after the node's (the last ones for none)."""
        try:
            lines, line_of = print_lines(self.graph)
        except TracegradError as e:
            raise VerifyError(f"{message} (the graph does not print: {e.message})") from None
        at = line_of[node] if node is not None else len(lines) - 1
        shown = [
            f"{'->' if k == at else '  '} {lines[k]}"
            for k in range(max(0, at - 5), min(len(lines), at + 6))
        ]
        raise VerifyError(
            f"graph {self.graph.name}: {message}\n" + "\n".join(shown),
            loc=None if node is None else node.loc,
        )

    # -- structure

    def _make(self, value: Value, node: Node | None) -> None:
        if value in self.made:
            self.fail(f"{value.hint} is made twice", node)
        self.made.add(value)
        if (value.storage is None) is (self.graph.stage is Stage.TRACED):
            self.fail(
                f"{value.hint} has {'no' if value.storage is None else 'a'} storage in the "
                f"{self.graph.stage.value} stage",
                node,
            )

    def _check_defined(self, x: Operand, node: Node | None, what: str) -> None:
        if isinstance(x, Value) and x not in self.made:
            self.fail(f"{what} {x.hint}, which is not made before", node)

    def _check_node(self, node: Node) -> None:
        for x in node.operands:
            self._check_defined(x, node, f"{node.op.name} uses")
        if type(node.attrs) is not node.op.attrs:
            self.fail(
                f"{node.op.name} has attributes {type(node.attrs).__name__}, not "
                f"{node.op.attrs.__name__}",
                node,
            )
        types = self._infer(node)
        if node.target is not None:
            self._check_target(node, types)
        elif types != tuple(r.type for r in node.results):
            said = ", ".join(map(repr, types)) or "no results"
            self.fail(f"{node.op.name} gives {said} by its shape rule", node)
        self._check_splats(node, types)
        if self.graph.stage is Stage.TRACED:
            self._check_traced(node)
        else:
            self._check_functional(node)
        for result in node.results:
            self._make(result, node)

    def _infer(self, node: Node) -> tuple[TensorType, ...]:
        view = getattr(node.attrs, "view", None)
        if isinstance(view, View) and node.operands:
            why = misfit(view, getattr(node.attrs, "shape", node.operands[0].shape))
            if why:
                self.fail(f"{node.op.name}: {why}", node)
        try:
            types = node.op.infer(node.attrs, *[x.type for x in node.operands])
        except TracegradError as e:
            self.fail(f"{node.op.name} rejects its operands: {e.message}", node)
            raise
        return (types,) if isinstance(types, TensorType) else tuple(types)

    def _check_target(self, node: Node, types: tuple[TensorType, ...]) -> None:
        assert node.target is not None
        self._check_defined(node.target, node, f"{node.op.name} writes")
        if node.results:
            self.fail(f"{node.op.name} has a target and results", node)
        if types != (node.target.type,):
            self.fail(
                f"{node.op.name} writes {', '.join(map(repr, types))} through a target of "
                f"type {node.target.type}",
                node,
            )

    def _check_splats(self, node: Node, types: tuple[TensorType, ...]) -> None:
        """A value of shape () is a number, not a tensor of equal elements."""
        full: list[tuple[Operand, tuple]] = []  # type: ignore[type-arg]
        if is_elementwise(node):
            full = [(x, types[0].shape) for x in node.operands]
        elif node.op.has(Trait.UPDATES_FIRST):
            full = [(node.operands[0], types[0].shape)]
        for x, shape in full:
            if isinstance(x, Value) and x.shape == () and shape != ():
                self.fail(
                    f"{node.op.name}: {x.hint} of shape () stands for a tensor of shape "
                    f"{shape}; expand it, or use a literal",
                    node,
                )

    def _check_alias(self) -> None:
        alias, n = self.graph.alias, len(self.graph.outputs)
        if alias is None:
            return
        outputs = [w.output for w in alias.write_backs] + [a.output for a in alias.aliases]
        outputs += [k for s in alias.shared for k in (s.output, s.base)]
        if not 0 <= alias.results <= n or not all(0 <= k < n for k in outputs):
            self.fail("the alias report names outputs that do not exist", None)

    # -- stages

    def _check_traced(self, node: Node) -> None:
        if not node.op.has(Trait.TRACED_ONLY) and not node.op.has(Trait.MULTI_OUTPUT_VIEW):
            return
        base = node.operands[0] if node.operands else None
        if isinstance(base, Literal) or base is None:
            self.fail(f"{node.op.name} needs a value to alias", node)
        elif node.op.has(Trait.VIEW) and any(r.storage != base.storage for r in node.results):
            self.fail(f"{node.op.name} leaves the storage of its operand", node)

    def _check_functional(self, node: Node) -> None:
        if node.target is not None:
            self.fail(f"{node.op.name} writes through a target in the functional stage", node)
        if node.op.has(Trait.TRACED_ONLY):
            self.fail(f"{node.op.name} is legal in the traced stage only", node)
        lowering = node.op.lowering
        if isinstance(lowering, Decompose):
            self.fail(f"{node.op.name} must be decomposed before the functional stage", node)
        # Control flow, printing and constant data are lowered by what they are, not by a rule.
        known = node.regions or node.op.has(Trait.EFFECT) or not node.operands
        if isinstance(lowering, Special) and not known:
            self.fail(f"{node.op.name} has no lowering: {lowering.reason}", node)
