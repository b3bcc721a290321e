"""One specialisation of a compiled function: traced, lowered, and bound to its fast call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, TracegradError
from tracegrad.graph.ir import AliasReport, Graph, OutputAlias, WriteBack
from tracegrad.loops.program import Place
from tracegrad.ops.views import apply_view
from tracegrad.options import Options
from tracegrad.pipeline import Lowering
from tracegrad.runtime.artifact import Accept, Returns, has_overlap
from tracegrad.schedule.plan import Slot
from tracegrad.trace.array import Array
from tracegrad.trace.enter import OutLeaf, Traced, trace_call
from tracegrad.trace.modes import STATE
from tracegrad.trace.signature import CallSignature, Kind, restore
from tracegrad.trace.tensor import Tensor

_RETURNS = {Kind.ARRAY: Returns.ARRAY, Kind.SCALAR: Returns.SCALAR, Kind.WEAK: Returns.FLOAT}
_ACCEPTS = {Kind.ARRAY: Accept.ARRAY, Kind.SCALAR: Accept.SCALAR, Kind.WEAK: Accept.FLOAT}


class Specialisation:
    """A function compiled for one signature.  Calling is safe from several threads."""

    def __init__(self, fn: Callable[..., Any], call: CallSignature, options: Options) -> None:
        self.call_signature = call
        self.options = options
        face = Tensor if options.arrays == "torch" else Array
        self.traced: Traced = trace_call(fn, call, face=face, options=options, grad=STATE.grad)
        self.lowering = Lowering(self.traced.graph, options, self._returned)

    # -- what the caller gets

    @cached_property
    def report(self) -> AliasReport:
        report = self.lowering.functional.alias
        assert report is not None
        return report

    @cached_property
    def aliases(self) -> dict[int, OutputAlias]:
        """Graph outputs that are views of the caller's arrays: graph output -> alias."""
        if self.options.copy_outputs or not self.options.write_back:
            return {}
        kinds = {o.index: o.kind for o in self.traced.outputs if o.index is not None}
        return {a.output: a for a in self.report.aliases
                if kinds.get(a.output) is Kind.ARRAY and self._is_array(a.input)}

    def _is_array(self, k: int) -> bool:
        leaf = self.traced.inputs[k].leaf
        return leaf is None or self.call_signature.leaves[leaf].kind is Kind.ARRAY

    def _returned(self, graph: Graph) -> tuple[Graph, tuple[str, ...]]:
        """The graph with only the outputs that a program has to compute, and their names."""
        report = graph.alias
        assert report is not None
        keep = [k for k in range(report.results) if k not in self.aliases]
        write_backs = []
        outputs = [graph.outputs[k] for k in keep]
        names = [getattr(self.traced.graph.outputs[k], "hint", "value") for k in keep]
        if self.options.write_back:
            for w in report.write_backs:
                write_backs.append(WriteBack(w.input, len(outputs)))
                outputs.append(graph.outputs[w.output])
                names.append(f"{graph.inputs[w.input].hint}_after")
        alias = AliasReport(len(keep), tuple(write_backs))
        return replace(graph, outputs=tuple(outputs), alias=alias), tuple(names)

    # -- calling

    def bind(self) -> Callable[..., Any] | None:
        """``f(*leaves)``, which answers NotImplemented for leaves that need `__call__`; None
        when a call always needs more work than checking guards and passing its leaves on."""
        outside = self.traced.outside
        if outside.arrays or self._late or self.aliases or self.traced.prints or any(
                not leaf.is_traced for leaf in self.call_signature.leaves):
            return None
        fast = self._fast
        if not self._is_plain:
            fast = _rebuilding(fast, self.traced)
        return fast if outside.is_empty else _guarded(fast, outside.enter)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether what the program returns is what the function returns."""
        outputs, tree = self.traced.outputs, self.traced.out_tree
        if any(o.index != k for k, o in enumerate(outputs)) or self._late:
            return False
        return tree.is_leaf() or (tree.type is tuple and len(outputs) != 1 and all(
            c.is_leaf() for c in tree.children()))

    @cached_property
    def _late(self) -> list[tuple[int, Slot]]:
        """Write-backs that the caller has to copy: (input, where the contents are)."""
        alias = self.lowering.returned.alias
        assert alias is not None
        slots = self.lowering.plan.outputs
        return [(w.input, slots[w.output]) for w in alias.write_backs
                if slots[w.output].place is Place.OUTPUT]

    @cached_property
    def _fast(self) -> Callable[..., Any]:
        leaves = self.call_signature.leaves
        accepts = []
        for source_ in self.traced.inputs:
            kind = Kind.ARRAY if source_.leaf is None else leaves[source_.leaf].kind
            accepts.append(_ACCEPTS[kind])
        return self.lowering.executable.bind(accepts, self._returns())

    def _returns(self) -> list[Returns]:
        kinds = self._kinds()
        count = len(self.lowering.executable.outputs)
        return [_RETURNS[kinds.get(k, Kind.ARRAY)] for k in range(count)]

    def _kinds(self) -> dict[int, Kind]:
        """Kind of each program output that is a result of the function."""
        kinds = {}
        for o in self._results():
            slot = self.lowering.plan.outputs[o[1]]
            if slot.place is Place.OUTPUT:
                kinds[slot.index] = o[0].kind
        return kinds

    def _results(self) -> list[tuple[OutLeaf, int]]:
        """Results that the program computes, with their place among its graph's outputs."""
        kept = [k for k in range(self.report.results) if k not in self.aliases]
        at = {k: n for n, k in enumerate(kept)}
        printed = [o for p in self.traced.prints
                   for o in (*p.values, *(o for _, o in p.named))]
        return [(o, at[o.index]) for o in (*self.traced.outputs, *printed) if o.index in at]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The result for these leaves; NotImplemented when a guard asks for a new trace."""
        captured = self.traced.outside.enter(leaves)
        return NotImplemented if captured is None else self.run(leaves, captured)

    def run(self, leaves: Sequence[Any], captured: Sequence[np.ndarray]) -> Any:
        """The result for these leaves and captured arrays."""
        arrays = [leaves[s.leaf] if s.leaf is not None else captured[s.array or 0]
                  for s in self.traced.inputs]
        self._check_apart(arrays)
        try:
            out = self.lowering.executable(*arrays)
        except TracegradError as e:
            raise e.at(source.here()) from None
        for k, slot in self._late:
            arrays[k][...] = out[slot.index]
        slots = self.lowering.plan.outputs
        values: dict[int, Any] = {}
        for o, k in self._results():
            slot = slots[k]
            whole = out[slot.index] if slot.place is Place.OUTPUT else arrays[slot.index]
            values[o.index or 0] = restore(np.asarray(whole), o.kind)
        for k, alias in self.aliases.items():
            array = arrays[alias.input]
            values[k] = apply_view(alias.view, array) if alias.view else array
        def found(o: OutLeaf) -> Any:
            return values[o.index] if o.index is not None else o.value

        for p in self.traced.prints:
            print(p.text.format(*map(found, p.values), **{k: found(o) for k, o in p.named}))
        return self.traced.rebuild([found(o) for o in self.traced.outputs])

    def _check_apart(self, arrays: Sequence[Any]) -> None:
        """Refuse arguments that share memory when one of them is written."""
        written = {w.input for w in self.report.write_backs}
        if not written or not self.options.write_back:
            return
        found = [(k, x) for k, x in enumerate(arrays) if isinstance(x, np.ndarray)]
        if has_overlap([x for _, x in found], [k in written for k, _ in found]):
            names = ", ".join(self.traced.graph.inputs[k].hint for k in sorted(written))
            raise ArgumentError(
                f"{self.call_signature.name} writes {names}, which shares memory with another "
                "argument", kind="aliasing_args", loc=source.here(),
                remedy="Pass a copy of one of them.")


def _guarded(fast: Callable[..., Any], enter: Callable[[Sequence[Any]], Any]
             ) -> Callable[..., Any]:
    def call(*leaves: Any) -> Any:
        return NotImplemented if enter(leaves) is None else fast(*leaves)

    return call


def _rebuilding(fast: Callable[..., Any], traced: Traced) -> Callable[..., Any]:
    """`fast` with its results put into the structure that the function returns."""
    rebuild, outputs = traced.rebuild, traced.outputs

    def call(*leaves: Any) -> Any:
        found = fast(*leaves)
        if found is NotImplemented:
            return found
        given = found if type(found) is tuple else (found,)
        return rebuild([given[o.index] if o.index is not None else o.value for o in outputs])

    return call
