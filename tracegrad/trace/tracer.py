"""`Trace` records user code as a traced graph; `Tracer` stands for one array in it.

A tracer (`trace.memory`) is a handle: an `Alias` (which storage, which view, made how) plus
NumPy's memory layout, which only decides whether a reshape is a view or a copy.  A storage made
from constants alone stays *concrete*: a real ndarray is kept beside it, and it enters the graph
when it meets a traced value or is written with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import CaptureError
from tracegrad.graph.array_views import apply_view
from tracegrad.graph.builder import GraphBuilder, check_real
from tracegrad.graph.ir import Graph, Literal, Operand, Stage, Value
from tracegrad.graph.op import Attrs, ByRegions, Decompose, OpDef
from tracegrad.graph.storage import Conj, Geometry, Step, View, dense_strides
from tracegrad.graph.symbols import symbols_of
from tracegrad.ops.handles import HandleAttrs, copy, view
from tracegrad.trace import known, ragged
from tracegrad.trace.handles import Handles
from tracegrad.trace.inference import check_kept
from tracegrad.trace.memory import Cut, Memory, Tracer, refuse_doubted
from tracegrad.trace.modes import STATE, is_tracking
from tracegrad.trace.nesting import Capture
from tracegrad.trace.symbolic import Unrollable
from tracegrad.trace.windows import check_clash, write_through
from tracegrad.types import TensorType
from tracegrad.views import family
from tracegrad.views.family import Alias


@dataclass(eq=False)
class Trace(Handles):
    """Records one function.  `face` makes tracers (the class `Array` or `Tensor`).

    `lookup_array` answers an ndarray of the user's that meets a traced value with its tracer
    (a capture), or None when its origin is unknown; `check_outside` sees the target of every
    write of a tracked value; `names` is what the user's names mean (`substitute.Substitution`).
    """

    name: str
    face: type[Tracer]
    parent: Trace | None = None
    exact_views: bool = False
    builder: GraphBuilder = field(init=False)
    open: bool = True
    captures: dict[Memory, Capture] = field(default_factory=dict)
    lookup_array: Callable[[np.ndarray], Tracer | None] | None = None
    check_outside: Callable[[Tracer, bool], None] | None = None
    names: Any = None
    rolling: Any = None  # the `rolling.Plan` of the outermost trace
    loop: Any = None  # the `loop_trial.Trial` that records here
    prints: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    # Storages that regions write without a trace outside: a pullback runs its function again.
    touched: set[Memory] = field(default_factory=set)
    points: list[Any] = field(default_factory=list)  # `segments.Point`, where gradients are asked
    tensors: set[Memory] = field(default_factory=set)  # arguments that are Tensors of the prompt
    had_grad: set[Tracer] = field(default_factory=set)  # arguments that came with a ``.grad``
    histories: set[Value] = field(default_factory=set)  # bases whose writes carry gradients
    _families: dict[object, family.Family] = field(default_factory=dict)
    _snapshots: dict[tuple[Memory, int, View], Value] = field(default_factory=dict)
    _warned: set[Alias] = field(default_factory=set)
    _cut: dict[family.Family, Cut] = field(default_factory=dict)
    # The whole storage as members of a family that detach started see it.
    _roots: dict[family.Family, Value] = field(default_factory=dict)
    _has_inference: bool = False
    _plain: dict[tuple[Alias, int, bool], Tracer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.builder = GraphBuilder(self.name, Stage.TRACED)

    # -- making tracers

    def argument(
        self,
        type_: TensorType,
        hint: str,
        *,
        tracked: bool,
        layout: tuple[int, ...] | None = None,
        **flags: bool,
    ) -> Tracer:
        """A new graph input; `layout` are its NumPy strides in elements (default C order),
        `flags` those of `Tracer`."""
        tracked = tracked and type_.dtype.is_inexact
        value = self.builder.input(type_, hint, tracked=tracked)
        made = self._base(value, tracked, layout, **flags)
        made.memory.inference = False
        return made

    def concrete(
        self, array: np.ndarray | float | int, *, scalar: bool = False, weak: bool = False
    ) -> Tracer:
        """An array known while tracing; it is copied, so the caller's memory stays apart."""
        data = np.array(array, copy=True, order="K")
        dtype = dtypes.of(data.dtype)
        layout = tuple(s // data.itemsize for s in data.strides)
        memory = Memory(data.shape, dtype, trace=self, array=data, layout=layout)
        self._note_inference(memory)
        alias = family.fresh(data.shape, dtype, False, self.builder.loc, memory)
        memory.family = alias.family
        return self.face(
            self, alias, Geometry(0, data.shape, layout), None, data, scalar=scalar, weak=weak
        )

    def _base(
        self, value: Value, tracked: bool, layout: tuple[int, ...] | None = None, **flags: bool
    ) -> Tracer:
        shape, dtype = value.type.shape, value.type.dtype
        strides = layout if layout is not None else dense_strides(shape)
        memory = Memory(shape, dtype, trace=self, base=value, layout=strides)  # type: ignore[arg-type]
        self._note_inference(memory)
        alias = family.fresh(shape, dtype, tracked, self.builder.loc, memory)
        memory.family = alias.family
        return self.face(self, alias, Geometry(0, shape, strides), value, None, **flags)

    # -- recording

    def apply(
        self,
        op: OpDef,
        operands: Sequence[Tracer | Literal],
        attrs: Attrs | None = None,
        *,
        hint: str = "",
        layout: tuple[int, ...] | None = None,
        scalar: bool = False,
        weak: bool = False,
    ) -> Any:
        """Record a pure op; returns a tracer of its fresh result, or a tuple of several.

        Operands known while tracing give a result known while tracing.
        """
        self.place()
        attrs = op.attrs() if attrs is None else attrs
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        if all(isinstance(x, Literal) or x.concrete is not None for x in xs) \
                and not symbols_of(attrs):  # fmt: skip
            return self._fold(op, xs, attrs, scalar, weak)
        tracked = self._use(op, xs)
        first = self.mark()
        results = self._emit(op, [self.operand(x) for x in xs], attrs, hint)
        self.check_saved(first, xs)
        if isinstance(results, Value):
            return self._base(
                results, tracked and results.dtype.is_inexact, layout, scalar=scalar, weak=weak
            )
        return tuple(self._base(r, tracked and r.dtype.is_inexact) for r in results)

    def _emit(self, op: OpDef, xs: Sequence[Operand], attrs: Attrs, hint: str = "") -> Any:
        """Emit `op`, or the ops that it stands for."""
        first = self.mark()
        if isinstance(op.lowering, Decompose):
            if op.pairs is None:
                check_real(op, xs, self.builder.loc)
            made = op.lowering.build(self.builder, attrs, *xs)
        else:
            made = self.builder.emit(op, xs, attrs, hint=hint)
        ragged.check(self.builder.nodes[first:])
        if self.rolling is not None and self.builder.loc is not None:
            self.rolling.count_visit(self.builder.loc)
        return made

    def apply_loop(
        self,
        op: OpDef,
        operands: Sequence[Tracer | Literal],
        attrs: Attrs,
        region: Graph,
        hints: Sequence[str],
    ) -> tuple[Tracer, ...]:
        """Record a loop; as `apply_region`, with literals among the first carries."""
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        tracked = False
        for x in xs:
            if isinstance(x, Tracer) and x.concrete is None:
                self._check_use(x)
                tracked |= STATE.grad and x.alias.requires_grad
        given = [self.operand(x) for x in xs]
        results = self.builder.emit(op, given, attrs, regions=(region,), hints=hints)
        return tuple(self._base(r, tracked and r.dtype.is_inexact) for r in results)

    def apply_region(
        self,
        op: OpDef,
        operands: Sequence[Tracer],
        attrs: Attrs,
        regions: tuple[Graph, ...],
        hints: Sequence[str],
    ) -> tuple[Tracer, ...]:
        """Record an op that holds regions; its results are fresh, tracked if an operand is."""
        xs = [self.lift(x) for x in operands]
        for x in xs:
            if x.concrete is None:
                self._check_use(x)
        tracked = is_tracking() and any(x.alias.requires_grad for x in xs)
        first = self.mark()
        results = self.builder.emit(
            op, [self.operand(x) for x in xs], attrs, regions=regions, hints=hints
        )
        if isinstance(op.derivative, ByRegions):
            self.check_saved(first, xs)
        return tuple(self._base(r, tracked and r.dtype.is_inexact) for r in results)

    def base_of(self, memory: Memory) -> Tracer:
        """The whole of a storage of this trace (or of an enclosing one)."""
        alias = Alias(memory, memory.family or family.Family(False))
        layout = Geometry(0, memory.shape, memory.layout)
        return self.lift(memory.trace.face(memory.trace, alias, layout, None, memory.array))

    def compose(
        self,
        build: Callable[..., Operand],
        operands: Sequence[Tracer | Literal],
        *,
        hint: str = "",
        scalar: bool = False,
        weak: bool = False,
    ) -> Tracer:
        """Record what ``build(builder, *operands)`` makes of several ops; one result."""
        self.place()
        xs = [self.lift(x) if isinstance(x, Tracer) else x for x in operands]
        if all(isinstance(x, Literal) or x.concrete is not None for x in xs):
            return self.concrete(known.evaluated(build, xs), scalar=scalar, weak=weak)
        tracked = is_tracking() and any(
            x.alias.requires_grad for x in xs if isinstance(x, Tracer) and x.concrete is None
        )
        for x in xs:
            if isinstance(x, Tracer) and x.concrete is None:
                self._check_use(x)
        given = [self.operand(x) for x in xs]
        first = self.mark()
        made = build(self.builder, *given)
        ragged.check(self.builder.nodes[first:])
        self.check_saved(first, xs)
        if isinstance(made, Literal):
            return self.concrete(np.asarray(made.value, made.dtype.np), scalar=scalar, weak=weak)
        if any(made is x for x in given):
            made = self.builder.emit(copy, (made,))
        return self._base(made, tracked and made.dtype.is_inexact, scalar=scalar, weak=weak)

    def embed(self, x: Tracer) -> Tracer:
        """The contents of `x`, known while tracing and of rank 1 or more, as a traced value."""
        value = self.operand(x)
        assert isinstance(value, Value)
        return self._base(value, False)

    def _view(
        self,
        x: Tracer,
        alias: Alias,
        layout: Geometry,
        steps: tuple[Step, ...],
        output: int,
        readonly: bool,
    ) -> Tracer:
        array = x.concrete
        if array is not None and any(isinstance(s, Conj) for s in steps):
            # NumPy has no views of conjugates, which later writes must reach.
            self._promote(x.memory)
            array = None
        if array is not None and symbols_of(steps):
            self._check_repeated(x.memory)
            if x.memory.trace is not self:
                raise Unrollable("it takes a view at the index of an array with known contents")
            self._promote(x.memory)
            array = None
        if array is not None:
            part = apply_view(View(steps), array)
            return self.face(self, alias, layout, None, part, readonly=readonly)
        x.alias.family.viewed = True
        ragged.check_view(View(steps), x.sizes)
        attrs = HandleAttrs(View(steps), alias.op_name, output)
        value = self.builder.alias(view, self.handle(x), attrs)
        return self.face(self, alias, layout, value, None, readonly=readonly)

    def _strided(self, x: Tracer, alias: Alias, layout: Geometry) -> Tracer:
        if x.concrete is not None:
            self._promote(x.memory)
        attrs = HandleAttrs(alias.view, "as_strided")
        self.builder.grad = not alias.cut
        value = self.builder.alias(view, self._root(x), attrs)
        return self.face(self, alias, layout, value, None)

    def _detached(self, x: Tracer, alias: Alias) -> Tracer:
        if x.concrete is not None:
            return self.face(self, alias, x.layout, None, x.concrete)
        return self.face(self, alias, x.layout, None, None, readonly=x.readonly)

    def detach_in_place(self, x: Tracer) -> None:
        """PyTorch's ``detach_`` of a base; views taken before follow it from the next write on."""
        before, cut = x.alias.family, self.detach(x)
        x.alias = cut.alias
        x._value = self.handle(cut) if x.concrete is None else None
        self._cut[before] = Cut(cut.alias.family, x._value, x.memory.version)

    def _follow(self, x: Tracer) -> None:
        """Move a view to its base's new family once that has been written."""
        cut = self._cut.get(x.alias.family)
        if cut is None or x.memory.version == cut.version or not x.alias.is_view:
            return
        a = x.alias
        x.alias = replace(a, family=cut.family, fresh_at=a.storage.version, own=False)
        if cut.base is not None:
            x._value = self.builder.alias(view, cut.base, HandleAttrs(a.view, a.op_name, -1))

    def _write(
        self,
        target: Tracer,
        op: OpDef,
        xs: Sequence[Tracer | Literal],
        attrs: Attrs,
        tracked: bool,
    ) -> None:
        if target.memory.doubted is not None:
            refuse_doubted(target.memory.doubted, self.builder.loc)
        if target.concrete is not None:
            self._check_repeated(target.memory)
            if all(isinstance(x, Literal) or x.concrete is not None for x in xs):
                value = known.reference(op, list(xs), attrs)
                target._array[...] = value  # type: ignore[index]
                target.memory.version += 1
                return
            if target.memory.trace is not self:
                raise CaptureError(
                    "a traced value is stored into an array made outside the function that is "
                    "being differentiated",
                    kind="closure_mutation",
                    loc=self.builder.loc,
                    remedy="Make the array inside that function, or pass it as an argument.",
                )
            self._promote(target.memory)
        if self.check_outside is not None:
            self.check_outside(target, tracked)
        handle, first = self.handle(target), self.mark()
        given = [self.operand(x) for x in xs]
        if isinstance(op.lowering, Decompose):
            given, op, attrs = [self._emit(op, given, attrs)], copy, copy.attrs()
        self.builder.emit(op, given, attrs, target=handle)
        ragged.check(self.builder.nodes[first:])
        self.check_saved(first, xs)
        family.record_write(target.alias, tracked and target.element_type.is_inexact)
        if target.alias.family.written and target.alias.family is target.memory.family \
                and target.memory.base is not None:  # fmt: skip
            self.histories.add(target.memory.base)
        if target.memory.window is not None:
            write_through(self, target.memory)

    def _check_repeated(self, memory: Memory) -> None:
        """Known contents from before a loop that the body writes change from one iteration to
        the next: they enter the graph in front of it, when the trace starts again."""
        trace: Trace | None = self
        found = None
        while trace is not None and trace is not memory.trace:
            found = trace.loop or found
            trace = trace.parent
        if found is not None:
            found.promote(memory)

    def place(self) -> source.SourceLoc | None:
        """Stamp the user's current line on what is recorded next."""
        loc = source.here()
        self.builder.loc = loc
        self.builder.grad = is_tracking()
        self.builder.inference = STATE.inference
        return loc

    def mark(self) -> int:
        return len(self.builder.nodes)

    def check_saved(self, first: int, operands: Sequence[Any]) -> None:
        if self._has_inference and is_tracking():
            check_kept(self, first, operands)

    # -- inside

    def _fold(
        self, op: OpDef, xs: Sequence[Tracer | Literal], attrs: Attrs, scalar: bool, weak: bool
    ) -> Any:
        out = known.reference(op, xs, attrs)
        if isinstance(out, tuple):
            return tuple(self.concrete(o) for o in out)
        return self.concrete(out, scalar=scalar, weak=weak)

    def _warn_no_grad(self, alias: Alias, loc: source.SourceLoc | None) -> None:
        if alias not in self._warned:
            self._warned.add(alias)
            super()._warn_no_grad(alias, loc)

    # -- the end

    def finish(self, outputs: Sequence[Operand]) -> Graph:
        """Close the trace; its tracers may not be used any more."""
        check_clash((c.outer, c.inner) for c in self.captures.values())
        self.open = False
        return self.builder.finish(outputs)
