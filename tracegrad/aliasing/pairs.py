"""Traced graph with complex values -> the same traced graph of real ones.

A complex storage of shape S becomes a real one of shape ``(*S, 2)``: the same memory.  Views
between complex and real are then reshapes of nothing, or the choice of a part, and every op is
written out on real and imaginary parts by its own `OpDef.pairs`.  What strides cannot say, the
conjugate, stays with the handle: reads negate the imaginary part, writes store it negated.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from tracegrad.errors import UnsupportedError
from tracegrad.graph.builder import GraphBuilder, fold, literals, refused
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Value
from tracegrad.graph.op import Attrs, OpDef, Point
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Diagonal,
    Expand,
    Index,
    Permute,
    Pick,
    Reshape,
    Span,
    Step,
    Strided,
    Unfold,
    View,
)
from tracegrad.graph.walk import all_nodes, graphs
from tracegrad.ops.arithmetic import neg
from tracegrad.ops.handles import copy, detach
from tracegrad.ops.pairs import Pair, PairAttrs, joined, pair
from tracegrad.ops.views import ViewAttrs, as_strided, as_view
from tracegrad.types import Shape, TensorType


def real_graph(graph: Graph) -> Graph:
    """`graph` without complex values; inputs and outputs correspond one to one.  The graph
    itself if there are none."""
    if not has_complex(graph):
        return graph
    return _Splitter(graph).run()


def has_complex(graph: Graph) -> bool:
    """Whether a value of the graph or of its regions is complex."""
    return any(
        x.type.dtype.is_complex for g in graphs(graph) for x in (*g.inputs, *g.outputs)
    ) or any(
        x.type.dtype.is_complex
        for node in all_nodes(graph)
        for x in (*node.operands, *node.results)
    )


def real_type(t: TensorType) -> TensorType:
    return TensorType((*t.shape, 2), t.dtype.parts) if t.dtype.is_complex else t


class Sign(Enum):
    """What a handle reads: its memory, the conjugate of it, or (a real part of such) its
    negative."""

    PLAIN = "plain"
    CONJUGATE = "conjugate"
    NEGATIVE = "negative"


class _Builder(GraphBuilder):
    """Folds ops on literals, as the functional stage does."""

    def emit(self, op: OpDef, operands: Any, attrs: Any = None, **more: Any) -> Any:
        lowering = op.lowering
        if isinstance(lowering, Point) and lowering.folds and operands and not more.get("target"):
            xs = tuple(operands)
            if any(isinstance(x, Literal) for x in xs) and not any(
                isinstance(x, Value) for x in xs
            ):
                return fold(op, op.attrs() if attrs is None else attrs, literals(xs))  # type: ignore
        return super().emit(op, operands, attrs, **more)


class _Splitter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.b = _Builder(graph.name, graph.stage)
        self.env: dict[Value, Value] = {}
        self.signs: dict[Value, Sign] = {}

    def run(self) -> Graph:
        tracked = self.graph.tracked or (False,) * len(self.graph.inputs)
        for v, t in zip(self.graph.inputs, tracked, strict=True):
            self.env[v] = self.b.input(real_type(v.type), v.hint, tracked=t, loc=v.loc)
        for node in self.graph.nodes:
            self.b.grad, self.b.inference = node.grad, node.inference
            with self.b.at(node.loc):
                self._visit(node)
        self.b.grad, self.b.inference = True, False
        outputs = [self._output(x) for x in self.graph.outputs]
        return self.b.finish(outputs, self.graph.alias)

    # -- nodes

    def _visit(self, node: Node) -> None:
        if node.results and isinstance(node.attrs, ViewAttrs) and node.op is not as_strided:
            self._alias(node, node.attrs)
        elif node.op is detach:
            (x,) = node.operands
            made = self.b.alias(detach, self.env[x], node.attrs)  # type: ignore[index]
            self._bind(node.results[0], made, self.signs.get(x, Sign.PLAIN))  # type: ignore
        elif node.regions:
            self._regions(node)
        else:
            self._plain(node)

    def _bind(self, old: Value, new: Value, sign: Sign = Sign.PLAIN) -> None:
        self.env[old] = new
        if sign is not Sign.PLAIN:
            self.signs[old] = sign

    def _alias(self, node: Node, attrs: ViewAttrs) -> None:
        x, *others = node.operands
        assert isinstance(x, Value)
        steps, sign = self._steps(attrs.view, x)
        if others and sign is not Sign.PLAIN:
            raise _unresolved("a result of a custom function")
        view = View().then(*steps, base=self.env[x].shape)
        given = tuple(self.env[y] for y in others if isinstance(y, Value))
        made = self.b.alias(node.op, self.env[x], replace(attrs, view=view), x.hint, others=given)
        self._bind(node.results[0], made, sign)

    def _steps(self, view: View, x: Value) -> tuple[list[Step], Sign]:
        sign = self.signs.get(x, Sign.PLAIN)
        shapes = view.shapes(x.shape)
        dtype = x.dtype
        steps: list[Step] = []
        for step, before, after in zip(view.steps, shapes, shapes[1:], strict=False):
            if isinstance(step, Bitcast):
                if sign is not Sign.PLAIN:
                    raise _unresolved("a view as another dtype")
                steps.extend(_bitcast(step, before, after))
            elif isinstance(step, AsReal):
                # Of a conjugate only a part is a view (the tracer takes it at once).
                sign = Sign.PLAIN if sign is Sign.PLAIN else Sign.CONJUGATE
            elif isinstance(step, AsComplex):
                if sign is not Sign.PLAIN:
                    raise _unresolved("view_as_complex")
            elif isinstance(step, Conj):
                sign = Sign.PLAIN if sign is Sign.CONJUGATE else Sign.CONJUGATE
            else:
                steps.extend(_with_parts(step, before) if dtype.is_complex else (step,))
                if not dtype.is_complex and sign is Sign.CONJUGATE:
                    sign = _sign_of_part(step)
            dtype = View((step,)).dtype(dtype)
        if not dtype.is_complex and sign is Sign.CONJUGATE:
            raise _unresolved("view_as_real")
        return steps, sign

    def _plain(self, node: Node) -> None:
        target = node.target
        complex_ = any(x.type.dtype.is_complex for x in (*node.operands, *node.results)) or (
            target is not None and target.dtype.is_complex
        )
        sign = Sign.PLAIN if target is None else self.signs.get(target, Sign.PLAIN)
        if not complex_:
            self._real(node, sign)
            return
        if node.op.pairs is None:
            dtype = next(x for x in (*node.operands, *node.results) if x.type.dtype.is_complex)
            raise refused(node.op, dtype.type.dtype).at(node.loc)
        if node.op is as_strided:
            out: Any = self._read(node)
        else:
            out = node.op.pairs(self.b, node.op, node.attrs, *map(self._operand, node.operands))
        if target is None:
            (result,) = node.results
            self._bind(result, self._stored(out, result.type))
            return
        self._store(target, out, sign)

    def _real(self, node: Node, sign: Sign) -> None:
        """An op on real values, some of which may be negated parts of conjugates."""
        operands = [self._operand(x) for x in node.operands]
        if node.target is None or sign is Sign.PLAIN:
            target = None if node.target is None else self.env[node.target]
            hints = [r.hint for r in node.results]
            out = self.b.emit(
                node.op,
                operands,
                node.attrs,
                target=target,
                hints=hints,
                hint=hints[0] if len(hints) == 1 else "",
            )
            made = out if isinstance(out, tuple) else (out,)
            for old, new in zip(node.results, made if node.results else (), strict=True):
                self._bind(old, new if isinstance(new, Value) else self._dense(new, old.type))
            return
        self._store(node.target, self.b.emit(node.op, operands, node.attrs), sign)

    def _store(self, target: Value, out: Any, sign: Sign) -> None:
        """Write the value of an op, a pair or a real operand, through a handle."""
        handle = self.env[target]
        if isinstance(out, Pair):
            im = neg(self.b, out.im) if sign is Sign.CONJUGATE else out.im
            self.b.emit(pair, (out.re, im), PairAttrs(target.shape), target=handle)
            return
        if sign is Sign.CONJUGATE:
            self._store(target, Pair.of(self.b, out, conjugate=True), Sign.PLAIN)
            return
        value = self._dense(out, target.type) if isinstance(out, Literal) else out
        self.b.emit(neg if sign is Sign.NEGATIVE else copy, (value,), target=handle)

    def _read(self, node: Node) -> Any:
        """``as_strided`` of a traced value: through the steps of its view."""
        x, attrs = node.operands[0], node.attrs
        assert isinstance(attrs, ViewAttrs)
        if isinstance(x, Literal):
            return Pair.literal(x)
        steps, sign = self._steps(attrs.view, x)
        found = as_view(self.b, self.env[x], *steps)
        if found is self.env[x]:
            found = self.b.emit(copy, (found,))
        assert isinstance(found, Value)
        if sign is Sign.NEGATIVE:
            return neg(self.b, found)
        return Pair.of(self.b, found, conjugate=True) if sign is Sign.CONJUGATE else found

    def _regions(self, node: Node) -> None:
        operands = []
        for x in node.operands:
            y = self._operand(x)
            operands.append(y.whole(self.b) if isinstance(y, Pair) else y)
        out = self.b.emit(
            node.op,
            operands,
            _real_attrs(node.attrs),
            regions=tuple(map(real_graph, node.regions)),
            hints=[r.hint for r in node.results],
        )
        for old, new in zip(node.results, out if isinstance(out, tuple) else (out,), strict=True):
            self._bind(old, new)

    # -- values

    def _operand(self, x: Operand) -> Any:
        """A pair for a complex operand."""
        if isinstance(x, Literal):
            return Pair.literal(x) if x.dtype.is_complex else x
        sign = self.signs.get(x, Sign.PLAIN)
        if x.dtype.is_complex:
            return Pair.of(self.b, self.env[x], sign is Sign.CONJUGATE)
        return neg(self.b, self.env[x]) if sign is Sign.NEGATIVE else self.env[x]

    def _output(self, x: Operand) -> Operand:
        y = self._operand(x)
        return self._stored(y, x.type) if isinstance(y, Pair) else y

    def _stored(self, out: Any, type_: TensorType) -> Value:
        if isinstance(out, Pair):
            return (
                out.whole(self.b) if out.is_stored else joined(self.b, out.re, out.im, type_.shape)
            )
        return self._dense(out, type_) if isinstance(out, Literal) else out

    def _dense(self, x: Literal, type_: TensorType) -> Value:
        from tracegrad.ops.create import full

        return full(self.b, shape=real_type(type_).shape, value=x)  # type: ignore[no-any-return]


def _unresolved(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what} of a conjugate that is a view is not supported",
        kind="unresolved_conjugate",
        remedy="Use np.conj(x), or a clone() of x.conj(), which has memory of its own.",
    )


def _real_attrs(attrs: Attrs) -> Attrs:
    """Attributes of an op with regions, whose result types are those of real values."""
    assert is_dataclass(attrs)
    changed = {}
    for f in fields(attrs):
        value = getattr(attrs, f.name)
        if isinstance(value, tuple) and any(isinstance(v, TensorType) for v in value):
            changed[f.name] = tuple(map(real_type, value))
    return replace(attrs, **changed)


def _sign_of_part(step: Step) -> Sign:
    """After a part of a conjugate seen as real has been taken: the imaginary one is negative."""
    last = step.items[-1] if isinstance(step, Index) else None
    if not isinstance(last, Pick):
        raise _unresolved("view_as_real")
    return Sign.PLAIN if last.at == 0 else Sign.NEGATIVE


def _with_parts(step: Step, before: Shape) -> tuple[Step, ...]:
    """A step on complex elements as steps on real ones that keep the last axis of 2."""
    rank = len(before)
    match step:
        case Index(items=items):
            return (Index((*items, Span(0, 2))),)
        case Permute(order=order):
            return (Permute((*order, rank)),)
        case Expand(to=to):
            return (Expand((*to, 2)),)
        case Reshape(to=to):
            return (Reshape((*to, 2)),)
        case Diagonal():
            last = rank - 1
            return (step, Permute((*range(last - 1), last, last - 1)))
        case Unfold():
            return (step, Permute((*range(rank), rank + 1, rank)))
        case Strided(size=size, stride=stride, offset=offset):
            return (Strided((*size, 2), (*(2 * s for s in stride), 1), 2 * offset),)
    raise AssertionError(step)


def _bitcast(step: Bitcast, before: Shape, after: Shape) -> tuple[Step, ...]:
    """The bytes of (parts of) elements as (parts of) others."""
    a, b = step.before.parts, step.to.parts
    steps: list[Step] = []
    if step.before.is_complex:
        flat = (*before[:-1], 2 * before[-1]) if before else (2,)  # type: ignore[operator]
        steps.append(Reshape(flat))
    if a is not b:
        steps.append(Bitcast(a, b))
    if step.before.is_complex or step.to.is_complex:
        steps.append(Reshape(real_type(TensorType(after, step.to)).shape))
    return tuple(steps)
