"""Control flow before it is scheduled: what iterations and branches store becomes carries.

A moving input ``x[i]`` becomes a constant read through a view; a stacked result becomes a carry
into which each iteration writes its element; a result of a branch takes the place of the operand
that a branch updates or hands through, or of an undefined one.  Every region becomes one of its
own, so that its values name buffers of that node alone.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from tracegrad.dims import Dim, symbol
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Trait
from tracegrad.graph.storage import Index, Pick, Span, View
from tracegrad.graph.walk import Replaced, bind, copy_node, rebuild, substitute
from tracegrad.ops.branch import (
    CONTROL,
    CondAttrs,
    WhileAttrs,
    carried,
    emit_cond,
    emit_while,
    last_index,
)
from tracegrad.ops.control import LoopAttrs, emit_loop, loop_index
from tracegrad.ops.create import full, undefined
from tracegrad.ops.views import as_strided, copy_slices
from tracegrad.types import Shape


def stacks_to_carries(graph: Graph) -> Graph:
    """`graph` with every loop reading and writing at its index through views, and every result
    of a branch behind an operand in whose place it is."""
    if not any(isinstance(n.attrs, CONTROL) for n in graph.nodes):
        return graph
    return rebuild(graph, _visit)


def _visit(b: GraphBuilder, node: Node, operands: tuple[Operand, ...]) -> Replaced:
    attrs = node.attrs
    if isinstance(attrs, LoopAttrs):
        return _loop(b, node, attrs, operands)
    if isinstance(attrs, WhileAttrs):
        return _while(b, node, attrs, operands)
    if isinstance(attrs, CondAttrs):
        return _cond(b, node, attrs, operands)
    return copy_node(b, node, operands)


def _write_out(
    b: GraphBuilder, region: Graph, env: MutableMapping[Value, Operand]
) -> list[Operand]:
    """The outputs of `region`, its nodes written anew into `b`."""
    for node in region.nodes:
        with b.at(node.loc):
            operands = tuple(substitute(x, env) for x in node.operands)
            if isinstance(node.attrs, CONTROL):
                bind(env, node, _visit(b, node, operands))
            else:
                bind(
                    env,
                    node,
                    b.emit(
                        node.op,
                        operands,
                        node.attrs,
                        regions=node.regions,
                        hints=tuple(r.hint for r in node.results),
                    ),
                )
    return [substitute(x, env) for x in region.outputs]


def _stored(b: GraphBuilder, x: Operand) -> Operand:
    """A scalar that decides which steps run has a buffer."""
    return full(b, shape=(), value=x) if isinstance(x, Literal) else x  # type: ignore


# -------------------------------------------------------------------------------------- loops


def _loop(b: GraphBuilder, node: Node, attrs: LoopAttrs, operands: Sequence[Operand]) -> Replaced:
    n = attrs.carries
    region = _unstacked(node, node.regions[0], loop_index(attrs))
    stacks = [undefined(b, type=t) for t in attrs.results[n:]]
    count = _stored(b, operands[-1]) if attrs.counted else None
    return emit_loop(
        b,
        region,
        attrs.index,
        attrs.trips,
        carries=[*operands[:n], *stacks],
        consts=operands[n : len(operands) - attrs.counted],
        reverse=attrs.reverse,
        hints=[r.hint for r in node.results],
        count=count,
        parallel=attrs.parallel,
    )


def _while(b: GraphBuilder, node: Node, attrs: WhileAttrs, operands: Sequence[Operand]) -> Replaced:
    n = attrs.carries
    test, body = node.regions
    inner = GraphBuilder(test.name)
    env: dict[Value, Operand] = {x: inner.input(x.type, x.hint) for x in test.inputs[:n]}
    for t in attrs.results[n:]:
        inner.input(t, "stack")
    env.update({x: inner.input(x.type, x.hint) for x in test.inputs[n:]})
    checked = inner.finish(_write_out(inner, test, env))
    region = _unstacked(node, body, symbol(attrs.index, 0, last_index(attrs.most)))
    stacks = [undefined(b, type=t) for t in attrs.results[n:]]
    return emit_while(
        b,
        checked,
        region,
        attrs.index,
        attrs.most,
        carries=[*operands[:n], *stacks],
        consts=operands[n:],
        hints=[r.hint for r in node.results],
    )


def _unstacked(node: Node, region: Graph, at: Dim) -> Graph:
    """The region with stacks as carries and moving inputs as whole arrays."""
    attrs = node.attrs
    assert isinstance(attrs, (LoopAttrs, WhileAttrs))
    n, m = attrs.carries, attrs.carries + attrs.consts
    b = GraphBuilder(region.name)
    env: dict[Value, Operand] = {}
    for x in region.inputs[:n]:
        env[x] = b.input(x.type, x.hint)
    stacks = [b.input(t, f"{node.results[n + j].hint}") for j, t in enumerate(attrs.results[n:])]
    for x in region.inputs[n:m]:
        env[x] = b.input(x.type, x.hint)
    for x, whole in zip(region.inputs[m:], node.operands[m:], strict=False):
        source = b.input(whole.type, x.hint)  # type: ignore[arg-type]
        env[x] = as_strided(b, source, view=_element(at, x.type.shape))
    outputs = _write_out(b, region, env)
    written = [
        copy_slices(b, stack, y, view=_element(at, y.type.shape), shape=stack.type.shape)
        for stack, y in zip(stacks, outputs[n:], strict=True)
    ]
    return b.finish([*outputs[:n], *written])


def _element(at: Dim, shape: Shape) -> View:
    """Element `at` of the leading axis."""
    return View((Index((Pick(at), *(Span(0, size) for size in shape))),))


# ----------------------------------------------------------------------------------- branches


def _cond(b: GraphBuilder, node: Node, attrs: CondAttrs, operands: Sequence[Operand]) -> Replaced:
    selector, given = operands[0], operands[1:]
    same = _first_of_equals(given)
    pairs = _places(node, same)
    rest = [k for k in range(len(given)) if same[k] == k and k not in pairs.values()]
    regions = []
    for region in node.regions:
        inner = GraphBuilder(region.name)
        carries = [inner.input(t, r.hint) for t, r in zip(attrs.results, node.results, strict=True)]
        at: dict[int, Operand] = {k: carries[j] for j, k in pairs.items()}
        at |= {k: inner.input(region.inputs[k].type, region.inputs[k].hint) for k in rest}
        env = {x: at[same[k]] for k, x in enumerate(region.inputs)}
        regions.append(inner.finish(_write_out(inner, region, env)))
    bases = [
        given[pairs[j]] if j in pairs else undefined(b, type=t) for j, t in enumerate(attrs.results)
    ]
    return emit_cond(
        b,
        _stored(b, selector),
        regions,
        [*bases, *(given[k] for k in rest)],
        carries=len(bases),
        hints=[r.hint for r in node.results],
    )


def _first_of_equals(xs: Sequence[Operand]) -> list[int]:
    """For each operand the number of the first one that is the same value."""
    first: dict[Operand, int] = {}
    return [first.setdefault(x, k) if isinstance(x, Value) else k for k, x in enumerate(xs)]


def _places(node: Node, same: Sequence[int]) -> dict[int, int]:
    """The results that update, or are, an operand in some region: which (not counting the
    selector).  Each operand is the place of one result."""
    found: dict[int, int] = {}
    for region in node.regions:
        inputs = {x: k for k, x in enumerate(region.inputs)}
        made = {r: n for n in region.nodes for r in n.results}
        for j, out in enumerate(region.outputs):
            base = _base(out, made)
            k = None if base is None else inputs.get(base)
            if k is None or j in found or same[k] in found.values():
                continue
            operand = node.operands[1 + k]
            if isinstance(operand, Value) and operand.type == node.results[j].type:
                found[j] = same[k]
    return found


def _base(x: Operand, made: dict[Value, Node]) -> Value | None:
    """The value of which `x` is an update, or `x` itself."""
    while isinstance(x, Value):
        node = made.get(x)
        if node is None:
            return x
        before = x
        if node.op.has(Trait.UPDATES_FIRST):
            x = node.operands[0]
        elif isinstance(node.attrs, CondAttrs):
            found = _places(node, _first_of_equals(node.operands[1:]))
            at = found.get(node.results.index(x))
            x = x if at is None else node.operands[1 + at]
        elif isinstance(node.attrs, CONTROL):
            x = next((node.operands[k] for k, r in carried(node) if r is x), x)
        if x is before:
            return None
    return None
