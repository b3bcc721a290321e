"""Parser of the text form of graphs; `graph.text` has the grammar by example."""

from __future__ import annotations

import re
from typing import NamedTuple

from tracegrad import dims
from tracegrad.graph.attr_text import parse_fields, parse_scalar
from tracegrad.graph.ir import AliasReport, Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.graph.scan import Scanner
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType


def parse_graph(text: str) -> Graph:
    """The graph that `text` spells.  Types are taken from the text: `verify` checks them.

    Knows the ops declared so far: import `tracegrad.ops` first.
    Raises `ParseError` with line, column and a caret.
    """
    s = Scanner(text)
    graph = _graph(s)
    s.skip()
    if s.pos < len(text):
        raise s.fail("expected the end of the text after the graph")
    return graph


class _Tail(NamedTuple):
    """What follows a node's attributes."""

    target: Value | None
    types: tuple[TensorType, ...]
    storages: tuple[int | None, ...]
    loc: SourceLoc | None
    grad: bool
    inference: bool


def _graph(s: Scanner) -> Graph:
    if not s.take_word("graph"):
        raise s.fail("expected 'graph'")
    name = s.graph_name()
    outer = s.symbols
    s.symbols = _symbols(s)
    scope: dict[str, Value] = {}
    inputs, tracked = _inputs(s, scope)
    s.expect("->")
    s.skip()
    types_at = s.pos
    types = _types(s)
    stage = _stage(s)
    s.expect("{")
    nodes: list[Node] = []
    while not s.take_word("return"):
        nodes.append(_node(s, scope))
    outputs = _outputs(s, scope)
    if tuple(x.type for x in outputs) != types:
        raise s.fail(f"the graph returns {', '.join(repr(x.type) for x in outputs)}", types_at)
    alias = parse_fields(s, AliasReport) if s.take_word("alias") else None
    s.expect("}")
    s.symbols = outer
    return Graph(name, stage, inputs, tuple(nodes), outputs, tracked, alias)


def _symbols(s: Scanner) -> dict[str, dims.Expr]:
    out: dict[str, dims.Expr] = {}
    s.symbols = out
    if not s.take("["):
        return out
    while not s.take("]"):
        if out:
            s.expect(",")
        name = s.word()
        lo = hi = None
        if s.take(":"):
            lo = None if s.peek("..") else _bound(s)
            s.expect("..")
            hi = None if s.peek(",") or s.peek("]") else s.dim()
        out[name] = dims.symbol(name, lo, hi)
    return out


_INTEGER = re.compile(r"-?\d+")


def _bound(s: Scanner) -> int:
    # A plain integer: the number token would take the first dot of `1..`.
    s.skip()
    m = _INTEGER.match(s.text, s.pos)
    if m is None:
        raise s.fail("expected an integer")
    s.pos = m.end()
    return int(m.group())


def _inputs(s: Scanner, scope: dict[str, Value]) -> tuple[tuple[Value, ...], tuple[bool, ...]]:
    inputs: list[Value] = []
    tracked: list[bool] = []
    s.expect("(")
    while not s.take(")"):
        if inputs:
            s.expect(",")
        s.skip()
        at = s.pos
        name = s.value_name()
        s.expect(":")
        type_ = s.type()
        storage = _storage(s) if s.take_word("in") else None
        inputs.append(_define(s, scope, name, at, type_, storage, None))
        tracked.append(s.take_word("tracked"))
    return tuple(inputs), tuple(tracked)


def _define(
    s: Scanner,
    scope: dict[str, Value],
    name: str,
    at: int,
    type_: TensorType,
    storage: int | None,
    loc: SourceLoc | None,
) -> Value:
    if name in scope:
        raise s.fail(f"{name} is defined twice", at)
    value = Value(type_, name[1:].partition(".")[0], storage, loc)
    scope[name] = value
    return value


def _types(s: Scanner) -> tuple[TensorType, ...]:
    s.expect("(")
    out: list[TensorType] = []
    while not s.take(")"):
        if out:
            s.expect(",")
        out.append(s.type())
    return tuple(out)


def _stage(s: Scanner) -> Stage:
    if not s.take_word("stage"):
        raise s.fail("expected 'stage='")
    s.expect("=")
    s.skip()
    at = s.pos
    word = s.word()
    for stage in Stage:
        if stage.value == word:
            return stage
    raise s.fail(f"expected one of {', '.join(x.value for x in Stage)}", at)


def _outputs(s: Scanner, scope: dict[str, Value]) -> tuple[Operand, ...]:
    out: list[Operand] = []
    while not (s.peek("}") or s.peek_word() == "alias"):
        if out:
            s.expect(",")
        out.append(_use(s, scope) if s.peek("%") else parse_scalar(s))
    return tuple(out)


def _use(s: Scanner, scope: dict[str, Value]) -> Value:
    s.skip()
    at = s.pos
    name = s.value_name()
    if name not in scope:
        raise s.fail(f"{name} is not defined here", at)
    return scope[name]


def _node(s: Scanner, scope: dict[str, Value]) -> Node:
    names: list[tuple[str, int]] = []
    while s.peek("%"):
        at = s.pos
        names.append((s.value_name(), at))
        if not s.take(","):
            s.expect("=")
            break
    op, twin = _op(s)
    operands = _operands(s, scope)
    attrs = parse_fields(s, op.attrs)
    tail = _tail(s, scope, twin, operands, len(names))
    regions: list[Graph] = []
    if s.take("{"):
        while not s.take("}"):
            regions.append(_graph(s))
    results = tuple(
        _define(s, scope, name, at, type_, storage, tail.loc)
        for (name, at), type_, storage in zip(names, tail.types, tail.storages, strict=True)
    )
    return Node(
        op,
        operands,
        attrs,
        results,
        tuple(regions),
        tail.target,
        tail.grad,
        tail.loc,
        tail.inference,
    )


def _op(s: Scanner) -> tuple[OpDef, bool]:
    """The op, and whether it is spelled with the underscore of a write to its operand 0."""
    s.skip()
    at = s.pos
    name = s.word()
    if name in REGISTRY:
        return REGISTRY[name], False
    if name.endswith("_") and name[:-1] in REGISTRY:
        return REGISTRY[name[:-1]], True
    raise s.fail(f"unknown op {name!r}", at)


def _operands(s: Scanner, scope: dict[str, Value]) -> tuple[Operand, ...]:
    """Literals without a dtype take that of the first value, which may come after them."""
    s.expect("(")
    out: list[Operand | int] = []
    while not s.take(")"):
        if out:
            s.expect(",")
        if s.peek("%"):
            out.append(_use(s, scope))
        else:
            out.append(s.pos)
            _skip_scalar(s)
    end = s.pos
    first = next((x for x in out if isinstance(x, Value)), None)
    done: list[Operand] = []
    for x in out:
        if isinstance(x, int):
            s.pos = x
            done.append(parse_scalar(s, None if first is None else first.dtype))
        else:
            done.append(x)
    s.pos = end
    return tuple(done)


def _skip_scalar(s: Scanner) -> None:
    if s.take("("):
        s.number()
        s.expect(",")
        s.number()
        s.expect(")")
    elif s.peek_word() in ("true", "false"):
        s.word()
    else:
        s.number()
    if s.take(":"):
        s.dtype()


def _tail(
    s: Scanner, scope: dict[str, Value], twin: bool, operands: tuple[Operand, ...], results: int
) -> _Tail:
    target: Value | None = None
    types: list[TensorType] = []
    storages: list[int | None] = [None] * results
    if s.take("->"):
        target = _use(s, scope)
    if s.peek_word() == "writes":
        if twin:
            if not operands or isinstance(operands[0], Literal):
                raise s.fail("an in-place node writes its first operand, a value")
            target = operands[0]
        if target is None:
            raise s.fail("a write needs its target: 'op_(%x, ..)' or 'op(..) -> %x'")
        s.word()
        s.skip()
        at = s.pos
        if _storage(s) != target.storage:
            raise s.fail(f"the target lies in s{target.storage}", at)
    elif target is not None or twin:
        raise s.fail("expected 'writes'")
    if results:
        s.expect(":")
        for k in range(results):
            if k:
                s.expect(",")
            types.append(s.type())
        if s.take_word("in"):
            for k in range(results):
                if k:
                    s.expect(",")
                storages[k] = _storage(s)
    loc = _loc(s)
    inference = s.take_word("inference")
    grad = not inference and not s.take_word("no_grad")
    return _Tail(target, tuple(types), tuple(storages), loc, grad, inference)


def _storage(s: Scanner) -> int:
    s.skip()
    at = s.pos
    word = s.word()
    if word[0] != "s" or not word[1:].isdigit():
        raise s.fail("expected a storage such as s0", at)
    return int(word[1:])


def _loc(s: Scanner) -> SourceLoc | None:
    if not s.take_word("loc"):
        return None
    s.expect("(")
    file = s.string()
    s.expect(":")
    line = s.integer()
    s.expect(":")
    col = s.integer() - 1
    s.expect(")")
    return SourceLoc(file, line, col, col + 1)
