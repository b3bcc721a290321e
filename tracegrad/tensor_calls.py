"""Calls of compiled functions with tensors of the prompt among the arguments.

The call is one node of the eager graph; results are tensors, views of the arguments where the
function returns such; written arguments get a new version, and the node as their history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import source
from tracegrad.derived import Derived, derived
from tracegrad.eager.call_node import CallNode
from tracegrad.eager.history import Edge, Saved, op_node, saved_value
from tracegrad.eager.keeping import copied
from tracegrad.eager.recorder import EAGER
from tracegrad.eager.tensor import EagerTensor
from tracegrad.errors import ArgumentError, UnsupportedError, ViewMutationError
from tracegrad.graph.array_views import apply_view
from tracegrad.graph.storage import AsComplex, AsReal, View
from tracegrad.loops.program import Place
from tracegrad.ops.handles import copy
from tracegrad.schedule.plan import Slot
from tracegrad.trace.modes import is_tracking, no_grad
from tracegrad.trace.results import Grad, Input, Made, OutLeaf
from tracegrad.types import TensorType
from tracegrad.views import family
from tracegrad.views.between import view_between
from tracegrad.views.family import CreationKind

if TYPE_CHECKING:
    from tracegrad.specialise import Specialisation


def call_on_tensors(
    spec: Specialisation, leaves: Sequence[Any], captured: Sequence[np.ndarray]
) -> Any:
    """The result of one call; `leaves` are arrays, numbers and `EagerTensor`s.

    Raises:
        ViewMutationError: a tensor is written that may not be; nothing has been written then.
    """
    return _Call(spec, leaves, captured).run()


class _Call:
    def __init__(
        self, spec: Specialisation, leaves: Sequence[Any], captured: Sequence[np.ndarray]
    ) -> None:
        self.spec = spec
        self.loc = source.here()
        self.given = [*leaves, *captured]
        self.arrays: list[Any] = [
            x.contents if isinstance(x, EagerTensor) else x for x in self.given
        ]
        self.tensors = [self._tensor(s) for s in spec.traced.inputs]
        self.written = (
            {w.input: w.output for w in spec.report.write_backs} if spec.options.write_back else {}
        )
        tracked = is_tracking()
        self.edges: tuple[Edge | None, ...] = tuple(
            EAGER.edge(x) if tracked and x is not None and x.element_type.is_inexact
            and x.requires_grad else None
            for x in self.tensors
        )  # fmt: skip

    def run(self) -> Any:
        self._check()
        node = self._node() if any(e is not None for e in self.edges) else None
        inputs, out = self.spec.execute(self.arrays)
        for k, output in self.written.items():
            self._wrote(k, node, output)
        made = _Results(self, node, inputs, out)
        self.spec.show(made.array)
        for g in self.spec.traced.grads:
            self._accumulate(self.given[g.leaf], g, None if g.out is None else made.of(g.out))
        return self.spec.traced.rebuild([made.of(o) for o in self.spec.traced.outputs])

    # -- before

    def _tensor(self, s: Input) -> EagerTensor | None:
        """The tensor that an input of the program is the contents of."""
        if s.group is None:
            x = self.given[s.leaf] if s.leaf is not None else None
            return x if isinstance(x, EagerTensor) else None
        group = self.spec.traced.groups[s.group]
        members = [self.given[m.position] for m in group.members]
        first = next((x for x in members if isinstance(x, EagerTensor)), None)
        if first is None:
            return None
        if all(isinstance(x, EagerTensor) and x.memory is first.memory for x in members):
            root = group.root
            whole = self.given[root] if root is not None else None
            found = (
                whole
                if whole is not None
                else _within(first if first.root is None else first.root, group.base(self.arrays))
            )
            if found is not None:
                return found  # type: ignore[no-any-return]
        if any(isinstance(x, EagerTensor) and x.requires_grad for x in members):
            raise ArgumentError(
                "arguments share memory that is written, and one of them requires a gradient, "
                "but they are not views of one tensor", kind="aliasing_args", loc=self.loc,
                remedy="Take views of one tensor, or pass clones.",
            )  # fmt: skip
        return None

    def _check(self) -> None:
        """Refuse what a write or a use at the prompt would be refused for."""
        for x in self.tensors:
            if x is not None and is_tracking() and x.requires_grad:
                EAGER._check_use(x)
        for o in self.spec.traced.outputs:
            if (
                o.made is not None
                and o.made.tracked
                and o.made.kind is CreationKind.CUSTOM
                and (o.index in self.spec.aliases or o.index in self.spec.shared)
            ):
                raise UnsupportedError(
                    "a compiled function returns a view that came out of a custom Function",
                    loc=self.loc, remedy="Return a clone() of it.",
                )  # fmt: skip
        operands = [x for x in self.tensors if x is not None]
        for k in self.written:
            x = self.tensors[k]
            if x is None:
                continue
            if x.lens is not None:
                raise ViewMutationError(
                    "a conjugate that is a view is written by a compiled function",
                    kind="unresolved_conjugate", loc=self.loc, remedy="Pass x.clone().",
                )  # fmt: skip
            if is_tracking() and k in self.spec.traced.histories:
                EAGER.check_write(x, operands, allow_overlap=True)
            else:
                with no_grad():
                    EAGER.check_write(x, (), allow_overlap=True)

    def _node(self) -> CallNode:
        kept = []
        for k, (s, x) in enumerate(zip(self.spec.traced.inputs, self.tensors, strict=True)):
            if x is not None:
                kept.append(copied(x) if k in self.written else saved_value(x))
            else:
                kept.append(self._kept(np.asarray(self.spec.input_of(s, self.arrays)), s))
        return CallNode(self._program(), self.edges, kept, self.loc)

    @staticmethod
    def _kept(array: np.ndarray, s: Input) -> Saved:
        """An ndarray, whose owner may write it without a version: a copy."""
        return saved_value(EAGER.concrete(array))

    def _program(self) -> Derived:
        spec = self.spec
        found = spec.__dict__.get("derived")
        if found is None:
            graph = spec.lowering.functional
            inputs = tuple(v.type for v in spec.traced.graph.inputs)
            outputs = [x.type for x in spec.traced.graph.outputs]
            outputs += [inputs[w.input] for w in spec.report.write_backs]
            outputs += [x.type for x in graph.outputs[len(outputs) :]]
            name = "".join(p.capitalize() for p in spec.traced.graph.name.split("_"))
            found = spec.__dict__["derived"] = derived(
                name, graph, inputs, tuple(outputs), spec.options
            )
        return found  # type: ignore[no-any-return]

    # -- after

    @staticmethod
    def _accumulate(x: EagerTensor, g: Grad, value: Any) -> None:
        """What ``backward()`` inside the function left in ``.grad`` of an argument."""
        if g.replaced or x.grad is None:
            x.grad = value
        elif value.requires_grad or x.grad.requires_grad:
            x.grad = x.grad + value
        else:
            x.grad.array[...] += value.array
            x.grad.memory.version += 1

    def _wrote(self, k: int, node: CallNode | None, output: int) -> None:
        """A new version for what shares memory with input `k`, and its history."""
        x = self.tensors[k]
        s = self.spec.traced.inputs[k]
        tracked = (
            node is not None
            and k in self.spec.traced.histories
            and (x is not None and x.element_type.is_inexact)
        )
        if x is None:
            for m in self.spec.traced.groups[s.group].members if s.group is not None else ():
                t = self.given[m.position]
                if isinstance(t, EagerTensor):
                    family.record_write(t.alias, False)
                    t.memory.written_at = self.loc
            return
        family.record_write(x.alias, tracked)
        x.memory.written_at = self.loc
        if not tracked:
            return
        assert node is not None
        if x.root is None:
            x.set_node(node, output)
            return
        type_ = TensorType(x.shape, x.element_type)
        step = op_node(copy, copy.attrs(), (type_,), (type_,), (Edge(node, output),), self.loc)
        EAGER.rebase_view(x, step, ())


class _Results:
    """What the caller gets for each traced result; the same result twice is one tensor."""

    def __init__(
        self, call: _Call, node: CallNode | None, inputs: Sequence[Any], out: Sequence[np.ndarray]
    ) -> None:
        self.call = call
        self.spec = call.spec
        self.node = node
        self.inputs = inputs
        self.out = out
        self.made: dict[int, Any] = {}
        self.bases: dict[int, EagerTensor] = {}

    def of(self, o: OutLeaf) -> Any:
        if o.index is None:
            return o.value
        if o.same is not None and o.index in self.spec.aliases:
            return self.spec.input_of(o.same, self.call.given)
        if o.index not in self.made:
            self.made[o.index] = self._tensor(o, o.index)
        return self.made[o.index]

    def array(self, o: OutLeaf) -> Any:
        """The value of a result to be printed."""
        if o.index is None:
            return o.value
        return self._computed(o.index)

    def _tensor(self, o: OutLeaf, k: int) -> Any:
        made = o.made
        alias, share = self.spec.aliases.get(k), self.spec.shared.get(k)
        if alias is not None:
            base = self.call.tensors[alias.input]
            if base is None:
                s = self.spec.traced.inputs[alias.input]
                base = EAGER.base(np.asarray(self.spec.input_of(s, self.call.arrays)))
            return self._view(base, alias.view, k, made)
        if share is not None:
            if share.base not in self.bases:
                self.bases[share.base] = self._fresh(
                    self._base_array(share.base), share.base, made is not None and made.tracked
                )
            return self._view(self.bases[share.base], share.view, k, made)
        return self._fresh(self._computed(k), k, made is not None and made.tracked)

    def _computed(self, k: int) -> np.ndarray:
        """An output of the program, never memory of an argument."""
        if k in self.spec.aliases:
            return np.asarray(self.spec.values_of(self.inputs, self.out)[k])
        array = self._whole(self.spec.computed.index(k))
        like = self.spec.traced.graph.outputs[k]
        return _complex(array) if like.type.dtype.is_complex else array

    def _base_array(self, k: int) -> np.ndarray:
        return self._whole(self.spec.computed.index(k))

    def _whole(self, n: int) -> np.ndarray:
        slot: Slot = self.spec.lowering.plan.outputs[n]
        if slot.place is Place.OUTPUT:
            return np.asarray(self.out[slot.index])
        return np.array(self.inputs[slot.index])

    def _fresh(self, array: np.ndarray, k: int, tracked: bool) -> EagerTensor:
        if not (tracked and self.node is not None and array.dtype.kind in "fc"):
            return EAGER.base(array)
        return EAGER.computed(array, self.node, k)  # type: ignore[arg-type]

    def _view(self, base: EagerTensor, view: View, k: int, made: Made | None) -> Any:
        """A view of a tensor as the function made it."""
        steps = view.steps
        if base.element_type.is_complex:
            steps = (AsReal(), *steps)
        if self.spec.traced.graph.outputs[k].type.dtype.is_complex:
            steps = (*steps, AsComplex())
        chain = View().then(*steps, base=base.shape)
        if made is None or made.kind is CreationKind.DEFAULT:
            is_base = not chain and made is not None and not made.is_view
            out = base if is_base else EAGER.view(base, *chain.steps)
            return EAGER.detach(out) if made is not None and made.detached else out
        if made.kind is CreationKind.MULTI_OUTPUT:
            return EAGER.view(base, *chain.steps, origin="split", output=made.output_nr)
        with no_grad():
            return EAGER.view(base, *chain.steps)


def _complex(array: np.ndarray) -> np.ndarray:
    return apply_view(View((AsComplex(),)), array)


def _within(root: EagerTensor, base: np.ndarray) -> Any:
    """The view of `root` whose elements are those of `base`; None when there is none."""
    whole = root.array
    offset = _address(base) - _address(whole)
    view = view_between(whole.shape, whole.strides, offset, base.shape, base.strides)
    return None if view is None else EAGER.view(root, *view.steps)


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])
