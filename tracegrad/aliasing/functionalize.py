"""Traced graph -> functional graph: views become reads, writes become new bases.

One forward walk (views specification, section 20).  Each storage has a current *primal* (its
contents) and, for each gradient family over it, a *path*: the value that cotangents of reads go
to.  Usually they are one value.  They part where a write is hidden from a family (under
``no_grad``, or through a ``detach``), and reads then give ``graft(primal, path)``.

    read  of handle v        ->  as_strided(primal, view of v)
    write of n through v     ->  primal' = copy_slices(primal, n, view of v)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.ir import (
    AliasReport,
    Graph,
    Node,
    Operand,
    OutputAlias,
    SharedOutput,
    Stage,
    Value,
    WriteBack,
)
from tracegrad.graph.op import NoGradient
from tracegrad.graph.storage import Bitcast, View
from tracegrad.ops.bitcast import bitcast
from tracegrad.ops.branch import CONTROL
from tracegrad.ops.custom import ReturnedAttrs, custom_view
from tracegrad.ops.handles import HandleAttrs, PointAttrs, copy, detach, graft, point, stop_gradient
from tracegrad.ops.views import as_view, copy_slices
from tracegrad.views import family, legality
from tracegrad.views.family import Alias, Family, Storage
from tracegrad.views.geometry import are_disjoint
from tracegrad.views.kept import kept_operands


@dataclass(slots=True, eq=False)
class Contents:
    """The current values of one storage: `paths[f] is primal` while family f sees every write;
    a missing path means that no gradient flows."""

    primal: Value
    paths: dict[Family, Value] = field(default_factory=dict)


def functionalize(graph: Graph, *, exact_views: bool = False, share_outputs: bool = False) -> Graph:
    """The functional graph of a traced one; its `alias` report says what the caller must do.

    Outputs of the result are the traced outputs, then the final contents of written inputs, then
    (with `share_outputs`) every intermediate that several outputs are overlapping views of.
    Raises `ViewMutationError` where PyTorch's rules forbid a write or a use.
    """
    return _Functionalizer(graph, exact_views).run(share_outputs)


class _Functionalizer:
    def __init__(self, graph: Graph, exact_views: bool) -> None:
        self.graph = graph
        self.exact = exact_views
        self.b = GraphBuilder(graph.name, Stage.FUNCTIONAL)
        self.aliases: dict[Value, Alias] = {}
        self.contents: dict[Storage, Contents] = {}
        self._reads: dict[tuple[Value, View], Value] = {}
        # What a custom function returned, for the views of which its rule is the history.
        self._ruled: dict[Alias, Value] = {}

    def run(self, share_outputs: bool) -> Graph:
        roots: dict[Storage, int] = {}
        tracked = self.graph.tracked or (False,) * len(self.graph.inputs)
        for k, (v, t) in enumerate(zip(self.graph.inputs, tracked, strict=True)):
            value = self.b.input(v.type, v.hint, tracked=t, loc=v.loc)
            roots[self._fresh(v, value, t).storage] = k
        for node in self.graph.nodes:
            with self.b.at(node.loc):
                self._visit(node)
        outputs: list[Operand] = []
        aliases: list[OutputAlias] = []
        for k, out in enumerate(self.graph.outputs):
            outputs.append(self._value(out))
            alias = self.aliases.get(out) if isinstance(out, Value) else None
            if alias is not None and alias.storage in roots:
                aliases.append(OutputAlias(k, roots[alias.storage], alias.view))
        results = len(outputs)
        write_backs = []
        for storage, k in roots.items():
            if storage.written:
                write_backs.append(WriteBack(k, len(outputs)))
                outputs.append(self.contents[storage].primal)
        shared = self._shared_outputs(roots, outputs) if share_outputs else ()
        report = AliasReport(results, tuple(write_backs), tuple(aliases), tuple(shared))
        return self.b.finish(outputs, report)

    def _shared_outputs(
        self, roots: dict[Storage, int], outputs: list[Operand]
    ) -> list[SharedOutput]:
        """Outputs that overlap each other; the intermediates they view join `outputs`."""
        of: dict[Storage, list[tuple[int, View]]] = {}
        for k, out in enumerate(self.graph.outputs):
            alias = self.aliases[out] if isinstance(out, Value) else None
            if alias is not None and alias.storage not in roots:
                of.setdefault(alias.storage, []).append((k, alias.view))
        shared = []
        for storage, found in of.items():
            if any(
                not are_disjoint(a, b, storage.shape) for (_, a), (_, b) in combinations(found, 2)
            ):
                shared += [SharedOutput(k, len(outputs), view) for k, view in found]
                outputs.append(self.contents[storage].primal)
        return shared

    # -- nodes

    def _visit(self, node: Node) -> None:
        if node.op is detach:
            source = self.aliases[_only(node)]
            self.aliases[node.result] = family.detached(source, node.loc)
            return
        if node.op is point:
            self._point(node)
            return
        if node.op is custom_view:
            self._returned_view(node)
            return
        if isinstance(node.attrs, HandleAttrs):
            self._view(node, node.attrs)
            return
        tracked = self._check_operands(node)
        if node.target is not None:
            self._write(node, node.target, tracked)
            return
        values = self._emit(node)
        for result, value in zip(node.results, values, strict=True):
            if not node.grad and value.dtype.is_inexact:
                value = stop_gradient(self.b, value)
            fresh = self._fresh(result, value, tracked and value.dtype.is_inexact)
            fresh.storage.inference = node.inference

    def _view(self, node: Node, attrs: HandleAttrs) -> None:
        parent = self.aliases[_only(node)]
        if node.grad:
            legality.check_use(parent, True, node.loc, self.exact)
        self.aliases[node.result] = family.view_of(
            parent,
            attrs.view.steps,
            grad=node.grad,
            multi_output=attrs.output >= 0,
            op_name=attrs.origin,
            output_nr=max(attrs.output, 0),
            loc=node.loc,
            inference=node.inference,
        )
        if self.aliases[node.result].ruled:
            # Steps of a ruled view count from the base; its history counts from the parent.
            self._ruled[self.aliases[node.result]] = self._read(
                self._ruled[parent], attrs.view, node.result.hint
            )

    def _point(self, node: Node) -> None:
        """A copy that the gradient path of operand 0 leads through from now on."""
        assert isinstance(node.attrs, PointAttrs)
        alias = self.aliases[_only(node)]
        contents = self.contents[alias.storage]
        value = self._value(_only(node))
        path = contents.paths.get(alias.family)
        if node.attrs.cut:
            value = stop_gradient(self.b, value)
        made = copy(self.b, value)
        base = stop_gradient(self.b, contents.primal) if path is None else path
        contents.paths[alias.family] = self._put(base, made, alias.view)
        alias.family.tracked = alias.own = True
        self._fresh(node.result, made, True)

    def _returned_view(self, node: Node) -> None:
        attrs = node.attrs
        assert isinstance(attrs, ReturnedAttrs)
        base, result = node.operands
        assert isinstance(base, Value) and isinstance(result, Value)
        self.aliases[node.result] = alias = family.returned_view(
            self.aliases[base],
            attrs.view.steps,
            tracked=node.grad and self.aliases[result].requires_grad,
            multi_output=attrs.several,
            op_name=attrs.origin,
            output_nr=max(attrs.output, 0),
            loc=node.loc,
        )
        value = self._value(result)
        assert isinstance(value, Value)
        self._ruled[alias] = value

    def _write(self, node: Node, target: Value, tracked: bool) -> None:
        alias = self.aliases[target]
        tracked = node.grad and (tracked or alias.requires_grad)
        legality.check_inference_write(alias, node.inference, node.loc)
        legality.check_write(alias, tracked, node.grad, node.loc, self.exact)
        (new,) = self._emit(node)
        contents = self.contents[alias.storage]
        old = contents.primal
        path = contents.paths.get(alias.family)
        if not node.grad:
            # Hidden: every family keeps its path to the old contents.
            contents.primal = self._put(old, new, alias.view)
            if contents.primal is new and new.dtype.is_inexact:
                # A value of its own, so that no family's path is the hidden one.
                contents.primal = stop_gradient(self.b, new)
        elif path is old:
            contents.primal = contents.paths[alias.family] = self._put(old, new, alias.view)
        elif path is None:
            base = stop_gradient(self.b, old) if old.dtype.is_inexact else old
            contents.primal = contents.paths[alias.family] = self._put(base, new, alias.view)
        else:
            contents.primal = self._put(old, new, alias.view)
            contents.paths[alias.family] = self._put(path, new, alias.view)
        self._reads[contents.primal, alias.view] = new
        family.record_write(alias, tracked and alias.dtype.is_inexact)

    def _put(self, base: Value, new: Value, view: View) -> Value:
        if not view:
            return new
        for k, step in enumerate(view.steps):
            if isinstance(step, Bitcast):
                return self._put_bytes(base, new, view, k)
        return copy_slices(  # type: ignore[no-any-return]
            self.b, base, new, view=view, shape=base.type.shape
        )

    def _put_bytes(self, base: Value, new: Value, view: View, k: int) -> Value:
        """As `_put`, where step `k` of the view is the first that changes the element type."""
        head, step, tail = View(view.steps[:k]), view.steps[k], View(view.steps[k + 1 :])
        assert isinstance(step, Bitcast)
        part = as_view(self.b, base, *head.steps)
        seen = bitcast(self.b, part, before=step.before, to=step.to)
        after = bitcast(self.b, self._put(seen, new, tail), before=step.to, to=step.before)
        return self._put(base, after, head)

    def _emit(self, node: Node) -> tuple[Value, ...]:
        operands = [self._value(x) for x in node.operands]
        regions = tuple(self._region(r) for r in node.regions)
        if isinstance(node.attrs, CONTROL):
            # Writes of a region are among its outputs already.
            regions = tuple(
                replace(
                    r,
                    outputs=r.outputs[: len(r.outputs) if r.alias is None else r.alias.results],
                    alias=None,
                )
                for r in regions
            )
        hint = node.target.hint if node.target is not None else ""
        out = self.b.emit(
            node.op,
            operands,
            node.attrs,
            hint=hint,
            regions=regions,
            hints=tuple(r.hint for r in node.results),
        )
        return out if isinstance(out, tuple) else (out,)

    def _region(self, region: Graph) -> Graph:
        if region.stage is not Stage.TRACED:
            return region
        return functionalize(region, exact_views=self.exact)

    def _check_operands(self, node: Node) -> bool:
        """Legality of the reads; whether the result requires a gradient."""
        if not node.grad or isinstance(node.op.derivative, NoGradient):
            return False
        tracked = False
        for x in node.operands:
            if isinstance(x, Value):
                alias = self.aliases[x]
                if x is not node.target:
                    legality.check_use(alias, True, node.loc, self.exact)
                tracked |= alias.requires_grad
        if tracked:
            self._check_kept(node)
        return tracked

    def _check_kept(self, node: Node) -> None:
        """Refuse inference tensors that the node's backward would need."""
        found = [self.aliases[x] if isinstance(x, Value) else None for x in node.operands]
        if any(a is not None and a.storage.inference for a in found):
            tracked = [k for k, a in enumerate(found) if a is not None and a.requires_grad]
            for k in kept_operands(node, tracked):
                alias = found[k]
                if alias is not None:
                    legality.check_saved(alias, node.loc)

    # -- values

    def _fresh(self, handle: Value, value: Value, tracked: bool) -> Alias:
        alias = family.fresh(value.type.shape, value.dtype, tracked, handle.loc)
        self.aliases[handle] = alias
        self.contents[alias.storage] = Contents(value, {alias.family: value})
        return alias

    def _value(self, x: Operand) -> Operand:
        """The functional value that reading `x` now gives."""
        if not isinstance(x, Value):
            return x
        alias = self.aliases[x]
        contents = self.contents[alias.storage]
        primal = self._read(contents.primal, alias.view, x.hint)
        if not primal.dtype.is_inexact:
            return primal
        if alias in self._ruled:
            if alias.fresh_at != alias.storage.version:
                return stop_gradient(self.b, primal)  # type: ignore[no-any-return]
            return graft(self.b, primal, self._ruled[alias])  # type: ignore[no-any-return]
        path = contents.paths.get(alias.family)
        if path is None or alias.cut:
            return stop_gradient(self.b, primal)  # type: ignore[no-any-return]
        if path is contents.primal:
            return primal
        return graft(self.b, primal, self._read(path, alias.view, x.hint))  # type: ignore[no-any-return]

    def _read(self, base: Value, view: View, hint: str) -> Value:
        if not view:
            return base
        found = self._reads.get((base, view))
        if found is None:
            made = self._taken(base, view)
            found = self._reads[base, view] = made
        return found

    def _taken(self, base: Value, view: View) -> Value:
        """The elements that a view of `base` reads, some perhaps as another dtype."""
        part: Operand = base
        start = 0
        for k, step in enumerate(view.steps):
            if isinstance(step, Bitcast):
                part = as_view(self.b, part, *view.steps[start:k])
                part = bitcast(self.b, part, before=step.before, to=step.to)
                start = k + 1
        return as_view(self.b, part, *view.steps[start:])  # type: ignore[return-value]


def _only(node: Node) -> Value:
    (x,) = node.operands
    assert isinstance(x, Value)
    return x
