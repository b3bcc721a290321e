"""One specialisation of a compiled function: traced, lowered, and bound to its fast call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import TracegradError
from tracegrad.graph.array_views import apply_view
from tracegrad.graph.ir import AliasReport, Graph, Operand, OutputAlias, SharedOutput, WriteBack
from tracegrad.graph.storage import AsComplex, AsReal, View
from tracegrad.loops.program import Place
from tracegrad.options import Options
from tracegrad.pipeline import Lowering
from tracegrad.runtime.artifact import Accept, Returns
from tracegrad.schedule.plan import Slot
from tracegrad.trace.alias_pattern import Group, find_groups
from tracegrad.trace.array import Array
from tracegrad.trace.enter import Traced, trace_call
from tracegrad.trace.modes import is_tracking
from tracegrad.trace.results import Input, OutLeaf
from tracegrad.trace.sharing import APART, Sharing
from tracegrad.trace.signature import CallSignature, Kind, restore
from tracegrad.trace.tensor import Tensor
from tracegrad.trace.tracer import Tracer

_RETURNS = {Kind.ARRAY: Returns.ARRAY, Kind.SCALAR: Returns.SCALAR, Kind.WEAK: Returns.FLOAT}
_PARTS, _COMPLEX = View((AsReal(),)), View((AsComplex(),))
_ROUNDS = 4  # traces until writes and the memory that arguments share agree
_ACCEPTS = {Kind.ARRAY: Accept.ARRAY, Kind.SCALAR: Accept.SCALAR, Kind.WEAK: Accept.FLOAT}


class Specialisation:
    """A function compiled for one signature.  Calling is safe from several threads."""

    def __init__(
        self,
        fn: Callable[..., Any],
        call: CallSignature,
        options: Options,
        leaves: Sequence[Any] | None = None,
    ) -> None:
        """`leaves` are those of the call that asks, looked at for memory that they share (None:
        every argument has memory of its own)."""
        self.call_signature = call
        self.options = options
        # Tensors of the prompt among the arguments: results are such tensors, too.
        self.on_tensors = any(isinstance(x, Tracer) for x in leaves or ())
        torch = options.arrays == "torch" or (options.arrays == "auto" and self.on_tensors)
        face = Tensor if torch else Array
        shared = APART
        for _ in range(_ROUNDS):
            self.traced: Traced = trace_call(
                fn, call, face=face, options=options, grad=is_tracking(), shared=shared
            )
            self.lowering = Lowering(self.traced.graph, options, self._returned)
            self.__dict__.pop("report", None)
            self.__dict__.pop("_written", None)
            if leaves is None or not self._written:
                break
            # What is written shows only in a trace, and so do captured arrays.
            arrays = [*map(_memory, leaves), *self.traced.outside.fetch(leaves)]
            groups = self._pattern(arrays)
            if groups == shared.groups:
                break
            shared = Sharing(groups, arrays)

    # -- arguments that share memory

    @cached_property
    def _written(self) -> frozenset[int]:
        """Positions (leaves, then captured arrays) of what is written; of a group, all."""
        count = len(self.call_signature.leaves)
        out: set[int] = set()
        for k in (*(w.input for w in self.report.write_backs), *self.traced.touched):
            source_ = self.traced.inputs[k]
            if source_.leaf is not None:
                out.add(source_.leaf)
            elif source_.array is not None:
                out.add(count + source_.array)
        out |= {m.position for g in self.traced.groups for m in g.members}
        return frozenset(out)

    def _pattern(self, arrays: Sequence[Any]) -> tuple[Group, ...]:
        """The alias pattern of a call, as far as it concerns what this program writes."""
        try:
            return find_groups(
                arrays,
                self._written,
                [
                    *(leaf.name for leaf in self.call_signature.leaves),
                    *(str(a.path) for a in self.traced.outside.arrays),
                ],
            )
        except TracegradError as e:
            raise e.at(source.here()) from None

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
        arrays = self._array_outputs
        return {
            a.output: a
            for a in self.report.aliases
            if a.output in arrays and self._is_array(a.input)
        }

    @cached_property
    def shared(self) -> dict[int, SharedOutput]:
        """Graph outputs that are views of an intermediate which others are views of too."""
        arrays = self._array_outputs
        found = [s for s in self.report.shared if s.output in arrays]
        bases = Counter(s.base for s in found)
        return {s.output: s for s in found if bases[s.base] > 1}

    @cached_property
    def _array_outputs(self) -> frozenset[int]:
        return frozenset(
            o.index for o in self.traced.outputs if o.index is not None and o.kind is Kind.ARRAY
        )

    @cached_property
    def computed(self) -> tuple[int, ...]:
        """Graph outputs that the program computes: results, then what several of them view."""
        rebuilt = self.aliases.keys() | self.shared.keys()
        return (
            *(k for k in range(self.report.results) if k not in rebuilt),
            *sorted({s.base for s in self.shared.values()}),
        )

    def _is_array(self, k: int) -> bool:
        leaf = self.traced.inputs[k].leaf
        return leaf is None or self.call_signature.leaves[leaf].kind is Kind.ARRAY

    def _returned(self, graph: Graph) -> tuple[Graph, tuple[str, ...]]:
        """The graph with only the outputs that a program has to compute, and their names."""
        report = graph.alias
        assert report is not None
        keep = self.computed
        write_backs = []
        # Transforms were written out since, and left the outputs as they were.
        outputs = [graph.outputs[k] for k in keep]
        names = [
            getattr(
                graph.outputs[k] if k >= report.results else self.traced.graph.outputs[k],
                "hint",
                "value",
            )
            for k in keep
        ]
        if self.options.write_back:
            for w in report.write_backs:
                write_backs.append(WriteBack(w.input, len(outputs)))
                outputs.append(graph.outputs[w.output])
                names.append(f"{graph.inputs[w.input].hint}_after")
        alias = AliasReport(len(keep), tuple(write_backs))
        return replace(graph, outputs=tuple(outputs), alias=alias), tuple(names)

    # -- calling

    @property
    def passes_on(self) -> bool:
        """Whether a call only checks guards, passes its arrays on and returns what comes out."""
        # The launcher keeps apart what the program writes itself, and nothing else.
        apart = not self._written or (
            self.options.write_back and not self._late and not self.traced.touched
        )
        return apart and not (
            self.on_tensors
            or self.aliases
            or self.shared
            or self._has_complex
            or self.traced.prints
            or self.traced.groups
        )

    @cached_property
    def _has_complex(self) -> bool:
        """Whether arguments or results are complex: programs take and give pairs of floats."""
        graph = self.traced.graph
        return any(x.type.dtype.is_complex for x in (*graph.inputs, *graph.outputs))

    @cached_property
    def is_plain(self) -> bool:
        """Whether what the program returns is what the function returns."""
        outputs, tree = self.traced.outputs, self.traced.out_tree
        if any(o.index != k for k, o in enumerate(outputs)) or self._late:
            return False
        return tree.is_leaf() or (
            tree.type is tuple and len(outputs) != 1 and all(c.is_leaf() for c in tree.children())
        )

    @cached_property
    def _late(self) -> list[tuple[int, Slot]]:
        """Write-backs that the caller has to copy: (input, where the contents are)."""
        alias = self.lowering.returned.alias
        assert alias is not None
        slots = self.lowering.plan.outputs
        return [
            (w.input, slots[w.output])
            for w in alias.write_backs
            if slots[w.output].place is Place.OUTPUT
        ]

    @cached_property
    def launch(self) -> Callable[..., Any]:
        """``f(*arrays)`` for the inputs of the program."""
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
        at = {k: n for n, k in enumerate(self.computed)}
        printed = [o for p in self.traced.prints for o in (*p.values, *(o for _, o in p.named))]
        printed += [g.out for g in self.traced.grads if g.out is not None]
        return [(o, at[o.index]) for o in (*self.traced.outputs, *printed) if o.index in at]

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """The result for these leaves; NotImplemented when a guard, or the memory that they
        share, asks for a new trace."""
        captured = self.traced.outside.enter(leaves)
        if captured is None or (
            self._written
            and self._pattern([*map(_memory, leaves), *captured]) != self.traced.groups
        ):
            return NotImplemented
        return self.run(leaves, captured)

    def run(self, leaves: Sequence[Any], captured: Sequence[np.ndarray]) -> Any:
        """The result for these leaves and captured arrays."""
        if self.on_tensors:
            from tracegrad.tensor_calls import call_on_tensors

            return call_on_tensors(self, leaves, captured)
        given = [*map(_memory, leaves), *captured]
        arrays, out = self.execute(given)
        values = self.values_of(arrays, out)

        def found(o: OutLeaf) -> Any:
            if o.same is not None and o.index in self.aliases:
                return self.input_of(o.same, [*leaves, *captured])
            return values[o.index] if o.index is not None else o.value

        self.show(found)
        return self.traced.rebuild([found(o) for o in self.traced.outputs])

    def show(self, found: Callable[[OutLeaf], Any]) -> None:
        """Print what `debug.print` asked for."""
        for p in self.traced.prints:
            print(p.text.format(*map(found, p.values), **{k: found(o) for k, o in p.named}))

    def execute(self, given: Sequence[Any]) -> tuple[list[Any], Sequence[np.ndarray]]:
        """Run the program on the arrays of a call, which are written as the function does.

        Returns the program's inputs and what it returned.
        """
        arrays = [self.input_of(s, given) for s in self.traced.inputs]
        if self._has_complex:
            arrays = [
                _view(_PARTS, np.asarray(x)) if v.dtype.is_complex else x
                for x, v in zip(arrays, self.traced.graph.inputs, strict=True)
            ]
        try:
            out = self.lowering.executable(*arrays)
        except TracegradError as e:
            raise e.at(source.here()) from None
        for k, slot in self._late:
            group = self.traced.inputs[k].group
            if group is None:
                arrays[k][...] = out[slot.index]
            else:
                v = self.traced.graph.inputs[k]
                self.traced.groups[group].store(given, _typed(v, out[slot.index]))
        return arrays, out

    def input_of(self, s: Input, given: Sequence[Any]) -> Any:
        """What a program's input is, from the leaves and captured arrays of the call."""
        if s.group is not None:
            return self.traced.groups[s.group].base(given)
        return given[
            s.leaf if s.leaf is not None else len(self.call_signature.leaves) + (s.array or 0)
        ]

    def values_of(self, arrays: Sequence[Any], out: Sequence[np.ndarray]) -> dict[int, Any]:
        """The value of each graph output that is a result."""
        slots, outputs = self.lowering.plan.outputs, self.traced.graph.outputs
        values: dict[int, Any] = {}

        def whole(k: int) -> np.ndarray:
            slot = slots[k]
            return np.asarray(out[slot.index] if slot.place is Place.OUTPUT else arrays[slot.index])

        for o, k in self._results():
            values[o.index or 0] = restore(_typed(outputs[o.index or 0], whole(k)), o.kind)
        for k, alias in self.aliases.items():
            values[k] = _typed(outputs[k], _view(alias.view, arrays[alias.input]))
        for k, share in self.shared.items():
            base = whole(self.computed.index(share.base))
            values[k] = _typed(outputs[k], _view(share.view, base))
        for o in self.traced.outputs:
            if o.readonly and (o.index in self.aliases or o.index in self.shared):
                values[o.index].flags.writeable = False
        return values


def _memory(x: Any) -> Any:
    """The array that a tensor at the prompt holds; other leaves as they are."""
    return x.contents if isinstance(x, Tracer) else x


def _view(view: View, array: np.ndarray) -> np.ndarray:
    """A view of an array, always another object."""
    return apply_view(view, array) if view else array[...]


def _typed(like: Operand, array: np.ndarray) -> np.ndarray:
    """An array of the program as the traced value that it stands for."""
    return _view(_COMPLEX, array) if like.type.dtype.is_complex else array
