"""Loops cut into segments, so that a gradient keeps one state a segment and computes the rest
again: checkpointing across iterations, nested for smaller memory (Griewank's scheme with equal
segments instead of binomial ones)."""

from __future__ import annotations

from dataclasses import replace

from tracegrad.dims import Dim, add, mul, symbol
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Node, Operand, Value
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.graph.symbols import bind_symbols
from tracegrad.graph.walk import Replaced, copy_node, map_regions, rebuild, replay
from tracegrad.ops.control import LoopAttrs, emit_loop
from tracegrad.ops.create import undefined
from tracegrad.ops.views import as_strided, copy_slices
from tracegrad.types import Shape

SHORTEST = 4  # trips of a loop that is worth cutting


def segment_loops(graph: Graph, levels: int) -> Graph:
    """`graph` with every outermost loop of enough trips nested into `levels` loops.

    Of the nested loops all but the innermost keep only their carries for the reverse pass.
    """

    def visit(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
        attrs = node.attrs
        if (
            isinstance(attrs, LoopAttrs)
            and isinstance(attrs.trips, int)
            and attrs.trips >= SHORTEST
            and not attrs.reverse
            and not attrs.counted
        ):
            return _segmented(b, node, attrs, operands, levels)
        regions = map_regions(node, lambda r: segment_loops(r, levels))
        if regions is node.regions:
            return copy_node(b, node, operands)
        return b.emit(
            node.op,
            operands,
            node.attrs,
            regions=regions,  # type: ignore[no-any-return]
            hints=tuple(r.hint for r in node.results),
        )

    if levels < 2 or not any(n.regions for n in graph.nodes):
        return graph
    return rebuild(graph, visit)


def _segmented(
    b: GraphBuilder, node: Node, attrs: LoopAttrs, operands: tuple[Operand, ...], levels: int
) -> tuple[Operand, ...]:
    """The loop as `levels` nested ones, and what does not divide as one more behind them."""
    assert isinstance(attrs.trips, int)
    n, m = attrs.carries, attrs.carries + attrs.consts
    stacks = [undefined(b, type=t) for t in attrs.results[n:]]
    carries: tuple[Operand, ...] = (*operands[:n], *stacks)
    consts = operands[m - attrs.consts :]
    size = max(2, round(attrs.trips ** (1 / levels)))
    length = attrs.trips // size
    if length < 2:
        return node_again(b, node, operands)
    hints = [r.hint for r in node.results]
    carries = _nest(b, node, attrs, carries, consts, 0, size, length, levels, hints)
    rest = attrs.trips - size * length
    if rest:
        body = _body(node, attrs, lambda j: add(size * length, j), f"{attrs.index}_rest", rest)
        carries = emit_loop(
            b,
            body,
            f"{attrs.index}_rest",
            rest,
            carries=carries,
            consts=consts,
            hints=hints,
            parallel=attrs.parallel.derived,
        )
    return carries


def node_again(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """The node as it is, on new operands."""
    out = b.emit(
        node.op,
        operands,
        node.attrs,
        regions=node.regions,
        hints=tuple(r.hint for r in node.results),
    )
    return out if isinstance(out, tuple) else (out,)


def _nest(
    b: GraphBuilder,
    node: Node,
    attrs: LoopAttrs,
    carries: tuple[Operand, ...],
    consts: tuple[Operand, ...],
    base: Dim,
    size: int,
    length: int,
    levels: int,
    hints: list[str],
) -> tuple[Operand, ...]:
    """``size`` segments of ``length`` iterations from iteration `base` on."""
    index = f"{attrs.index}_{levels}"
    at = symbol(index, 0, size - 1)
    start = add(base, mul(at, length))
    inner = GraphBuilder(f"{node.regions[0].name}.segment")
    held = [inner.input(x.type, h) for x, h in zip(carries, hints, strict=True)]
    given = [inner.input(x.type, getattr(x, "hint", "c")) for x in consts]
    parts = max(2, round(length ** (1 / (levels - 1)))) if levels > 2 else 1
    if levels > 2 and length // parts >= 2:
        step = length // parts
        out = _nest(
            inner, node, attrs, tuple(held), tuple(given), start, parts, step, levels - 1, hints
        )
        done = parts * step
    else:
        out, done = tuple(held), 0
    if done < length:
        name, rest = f"{attrs.index}_1", length - done
        body = _body(node, attrs, lambda j: add(add(start, done), j), name, rest)
        out = emit_loop(
            inner,
            body,
            name,
            rest,
            carries=out,
            consts=tuple(given),
            hints=hints,
            parallel=attrs.parallel.derived,
        )
    found = emit_loop(
        b, inner.finish(out), index, size, carries=carries, consts=consts, hints=hints
    )
    last = b.nodes[-1]
    assert isinstance(last.attrs, LoopAttrs)
    parallel = attrs.parallel.derived
    b.nodes[-1] = replace(last, attrs=replace(last.attrs, recompute=True, parallel=parallel))
    return found


def _body(
    node: Node,
    attrs: LoopAttrs,
    index_of,
    name: str,  # type: ignore[no-untyped-def]
    trips: int,
) -> Graph:
    """The loop's region with its index an expression of another one; stacks are carries and
    moving inputs whole arrays."""
    region = node.regions[0]
    n, m = attrs.carries, attrs.carries + attrs.consts
    at = index_of(symbol(name, 0, trips - 1))
    env = {attrs.index: at}
    b = GraphBuilder(region.name)
    values: dict[Value, Operand] = {}
    for x in region.inputs[:n]:
        values[x] = b.input(x.type, x.hint)
    stacks = [b.input(t, "stack") for t in attrs.results[n:]]
    for x in region.inputs[n:m]:
        values[x] = b.input(x.type, x.hint)
    for x, whole in zip(region.inputs[m:], node.operands[m:], strict=True):
        source = b.input(whole.type, x.hint)
        values[x] = as_strided(b, source, view=_element(at, bind_symbols(x.type.shape, env)))

    def visit(b: GraphBuilder, inner: Node, operands: tuple[Operand, ...]) -> Replaced:
        return _emit_bound(b, inner, operands, env)

    outputs = replay(region, b, values, visit)
    written = [
        copy_slices(b, s, y, view=_element(at, y.type.shape), shape=s.type.shape)
        for s, y in zip(stacks, outputs[n:], strict=True)
    ]
    return b.finish([*outputs[:n], *written])


def _bound(region: Graph, env: dict[str, Dim]) -> Graph:
    """A region with symbols of loops around it replaced."""
    b = GraphBuilder(region.name)
    values: dict[Value, Operand] = {
        x: b.input(bind_symbols(x.type, env), x.hint) for x in region.inputs
    }

    def visit(b: GraphBuilder, inner: Node, operands: tuple[Operand, ...]) -> Replaced:
        return _emit_bound(b, inner, operands, env)

    return b.finish(list(replay(region, b, values, visit)))


def _emit_bound(
    b: GraphBuilder, node: Node, operands: tuple[Operand, ...], env: dict[str, Dim]
) -> Replaced:
    return b.emit(  # type: ignore[no-any-return]
        node.op,
        operands,
        bind_symbols(node.attrs, env),
        regions=tuple(_bound(r, env) for r in node.regions),
        hints=tuple(r.hint for r in node.results),
    )


def _element(at: Dim, shape: Shape) -> View:
    return View((Index((Pick(at), *(Span(0, size) for size in shape))),))
