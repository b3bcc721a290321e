"""The text form of graphs: one node a line, parsed back to the same.

::

    graph @f(%x: f32[4, 3] in s0 tracked) -> (f32[]) stage=traced {
      %y = mul(%x, 2.0) : f32[4, 3] in s1 loc("demo.py":4:9)
      %v = view(%y) {view = [1, 0:3]} : f32[3] in s1 loc("demo.py":5:9)
      mul_(%v, 3.0) writes s1 loc("demo.py":6:5)
      %r = sum(%y) {axes = [0, 1]} : f32[] in s2 loc("demo.py":7:12)
      return %r
    }

A node with a target reads ``op_(%target, ...) writes s`` when the target is operand 0 and
``op(...) -> %target writes s`` otherwise.  A literal operand takes the dtype of the node's first
value operand unless it names its own (``2.0:f64``).  Several results: ``%a, %b = op(..) : f64[2],
f64[3] in s1, s1``.  Regions follow their node in braces.  Size symbols are declared after the
name: ``graph @f[n: 1.., m: 0..9](...)``.  ``#`` starts a comment.
"""

from __future__ import annotations

import json
import re

from tracegrad import dims
from tracegrad.errors import VerifyError
from tracegrad.graph.attr_text import (
    field_values,
    format_attr,
    format_fields,
    format_literal,
    format_scalar,
)
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.parse import parse_graph
from tracegrad.source import SourceLoc

__all__ = ["canonical", "format_loc", "parse_graph", "print_graph", "print_lines", "value_names"]

_UNFIT = re.compile(r"\W", re.ASCII)
_PLAIN_NAME = re.compile(r'[^\s"(\[{]+')


def print_graph(graph: Graph, *, loc: bool = True) -> str:
    """`graph` as text ending in a newline; `loc` adds the user's places."""
    return "\n".join(print_lines(graph, loc=loc)[0]) + "\n"


def print_lines(graph: Graph, *, loc: bool = True) -> tuple[list[str], dict[Node, int]]:
    """The lines of `graph`, and the line (from 0) on which each of its own nodes starts."""
    printer = _Printer(graph, loc, "")
    return printer.lines(), printer.line_of


def value_names(graph: Graph) -> dict[Value, str]:
    """The name that the text gives to each value of `graph` (regions have names of their own)."""
    printer = _Printer(graph, False, "")
    for value in (*graph.inputs, *(r for node in graph.nodes for r in node.results)):
        printer.define(value)
    return printer.names


def canonical(graph: Graph) -> str:
    """Text that two graphs share exactly when they differ in names and places only."""
    return "\n".join(_Printer(graph, False, "", anonymous=True).lines()) + "\n"


def format_loc(loc: SourceLoc) -> str:
    return f"loc({json.dumps(loc.file)}:{loc.line}:{loc.col + 1})"


def _format_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


class _Printer:
    """Prints one graph; regions get printers of their own, since names are local to a graph."""

    def __init__(self, graph: Graph, loc: bool, indent: str, anonymous: bool = False) -> None:
        self.graph = graph
        self.loc = loc
        self.indent = indent
        self.anonymous = anonymous
        self.names: dict[Value, str] = {}
        self.used: dict[str, int] = {}
        self.storages: dict[int, int] = {}
        self.symbols: dict[str, dims.Symbol] = {}
        self.line_of: dict[Node, int] = {}

    def lines(self) -> list[str]:
        graph, inner = self.graph, self.indent + "  "
        tracked = graph.tracked or (False,) * len(graph.inputs)
        inputs = ", ".join(
            f"{self.define(v)}: {self._type(v)}{self._home(v)}{' tracked' * t}"
            for v, t in zip(graph.inputs, tracked, strict=True)
        )
        body: list[str] = []
        for node in graph.nodes:
            self.line_of[node] = len(body) + 1
            body.append(inner + self._node(node))
            if node.regions:
                body[-1] += " {"
                for region in node.regions:
                    body += _Printer(region, self.loc, inner + "  ", self.anonymous).lines()
                body.append(inner + "}")
        outputs = [
            self.name(x) if isinstance(x, Value) else format_literal(x) for x in graph.outputs
        ]
        body.append(f"{inner}return {', '.join(outputs)}".rstrip())
        if graph.alias is not None:
            body.append(inner + "alias " + format_fields(graph.alias))
            self._collect(graph.alias)
        types = ", ".join(self._type(x) for x in graph.outputs)
        name = "_" if self.anonymous else _format_name(graph.name)
        head = (
            f"{self.indent}graph @{name}{self._symbol_list()}({inputs}) -> ({types}) "
            f"stage={graph.stage.value} {{"
        )
        return [head, *body, self.indent + "}"]

    # -- names

    def define(self, value: Value) -> str:
        base = "v" if self.anonymous else _UNFIT.sub("_", value.hint) or "t"
        if base[0].isdigit():
            base = "_" + base
        n = self.used.get(base, 0)
        self.used[base] = n + 1
        self.names[value] = name = f"%{base}.{n}" if n else f"%{base}"
        return name

    def name(self, value: Value) -> str:
        """The value's name; one that is not defined yet shows as ``%?hint``."""
        return self.names.get(value) or f"%?{value.hint}"

    # -- pieces

    def _type(self, x: Operand) -> str:
        for d in x.shape:
            self._note(d)
        return repr(x.type)

    def _home(self, value: Value) -> str:
        return "" if value.storage is None else f" in {self._storage(value.storage)}"

    def _storage(self, number: int | None) -> str:
        if self.anonymous and number is not None:
            number = self.storages.setdefault(number, len(self.storages))
        return f"s{number}"

    def _operand(self, x: Operand, node: Node) -> str:
        if isinstance(x, Value):
            return self.name(x)
        first = next((y for y in node.operands if isinstance(y, Value)), None)
        same = first is not None and first.dtype is x.dtype
        return format_scalar(x) if same else format_literal(x)

    def _node(self, node: Node) -> str:
        operands = ", ".join(self._operand(x, node) for x in node.operands)
        attrs = format_fields(node.attrs)
        if attrs:
            attrs = " " + attrs
            self._collect(node.attrs)
        target = node.target
        in_place = target is not None and bool(node.operands) and node.operands[0] is target
        text = f"{node.op.name}{'_' * in_place}({operands}){attrs}"
        if target is not None:
            to = "" if in_place else f" -> {self.name(target)}"
            text += f"{to} writes {self._storage(target.storage)}"
        elif node.results:
            types = ", ".join(map(self._type, node.results))
            names = ", ".join(map(self.define, node.results))
            text = f"{names} = {text} : {types}"
            if all(r.storage is not None for r in node.results):
                text += " in " + ", ".join(self._storage(r.storage) for r in node.results)
        if self.loc and node.loc is not None:
            text += " " + format_loc(node.loc)
        if node.inference:
            return text + " inference"
        return text if node.grad else text + " no_grad"

    # -- symbols

    def _note(self, d: object) -> None:
        if not isinstance(d, dims.Expr):
            return
        for s in sorted(dims.symbols(d), key=lambda s: s.name):
            self._note(s.hi)  # in front of it, since its range depends on them
            if self.symbols.setdefault(s.name, s) != s:
                raise VerifyError(f"size symbol {s.name} has two ranges in graph {self.graph.name}")

    def _collect(self, x: object) -> None:
        """Note the symbols inside an attribute value."""
        stack = [x]
        while stack:
            y = stack.pop()
            if isinstance(y, dims.Expr):
                self._note(y)
            elif isinstance(y, tuple):
                stack.extend(y)
            elif hasattr(y, "__dataclass_fields__") and not hasattr(y, "to_text"):
                stack.extend(field_values(y))

    def _symbol_list(self) -> str:
        if not self.symbols:
            return ""
        alone = sorted(n for n, s in self.symbols.items() if not isinstance(s.hi, dims.Expr))
        names = dict.fromkeys((*alone, *self.symbols))
        return f"[{', '.join(_format_symbol(self.symbols[n]) for n in names)}]"


def _format_symbol(s: dims.Symbol) -> str:
    if s.lo is None and s.hi is None:
        return s.name
    lo, hi = ("" if end is None else format_attr(end) for end in (s.lo, s.hi))
    return f"{s.name}: {lo}..{hi}"
