"""Arguments that enter a trace as views of common memory, instead of each with its own input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad.graph.storage import Geometry
from tracegrad.ops.handles import HandleAttrs, view
from tracegrad.trace.alias_pattern import Group, Member
from tracegrad.trace.captures import Captures
from tracegrad.trace.leaves import element_strides
from tracegrad.trace.signature import CallSignature
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.views import family


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Which arguments of a call are views of what.

    At the prompt `groups` counts positions in `arrays`: the leaves of the call, then the arrays
    that it captures.  In a transform inside a trace `received` are leaves that are views of
    arrays of the enclosing trace, and stay so.
    """

    groups: tuple[Group, ...] = ()
    arrays: Sequence[Any] = ()
    received: Mapping[int, Tracer] = field(default_factory=dict)

    @property
    def leaves(self) -> frozenset[int]:
        """Leaves that have no input of their own; positions of captured arrays besides."""
        return frozenset(self.received) | {m.position for g in self.groups for m in g.members}

    def enter(
        self, trace: Trace, signature: CallSignature, tracked: Collection[int], captures: Captures
    ) -> dict[int, Tracer]:
        """Make the inputs of common memory; what stands for each leaf that is a view of it."""
        out: dict[int, Tracer] = {}
        for group in self.groups:
            for member, x in zip(
                group.members, self._members(trace, signature, group, tracked), strict=True
            ):
                if member.position < len(signature.leaves):
                    captures.passed.add(x.memory)
                    out[member.position] = x
                else:
                    captures.shared[id(self.arrays[member.position])] = x
        memories: dict[Any, list[int]] = {}
        for k, given in self.received.items():
            memories.setdefault(given.memory, []).append(k)
        for leaves in memories.values():
            made = trace.receive(
                [self.received[k] for k in leaves], tracked=any(k in tracked for k in leaves)
            )
            out.update(zip(leaves, made, strict=True))
        return out

    def _members(
        self, trace: Trace, signature: CallSignature, group: Group, tracked: Collection[int]
    ) -> list[Tracer]:
        name, leaves = "memory", signature.leaves
        is_tracked = any(m.position in tracked for m in group.members)
        if group.root is not None and group.root < len(leaves):
            name = leaves[group.root].name
        base = trace.argument(group.type, name, tracked=is_tracked, layout=group.layout)
        arrays = [self.arrays[m.position] for m in group.members]
        # The base may be written where one of the arrays may.
        base.readonly = not any(x.flags.writeable for x in arrays)
        names = [
            leaves[m.position].name if m.position < len(leaves) else "captured"
            for m in group.members
        ]
        return [
            _member(trace, base, m, x, name)
            for m, x, name in zip(group.members, arrays, names, strict=True)
        ]


def _member(trace: Trace, base: Tracer, member: Member, array: np.ndarray, name: str) -> Tracer:
    readonly = not array.flags.writeable
    if not member.view:
        return trace.face(trace, base.alias, base.layout, base._value, None, readonly=readonly)
    alias = family.view_of(base.alias, member.view.steps, grad=True, op_name="argument")
    layout = Geometry(member.offset // array.itemsize, array.shape, element_strides(array))
    assert base._value is not None
    attrs = HandleAttrs(member.view, "argument")
    value = trace.builder.alias(view, base._value, attrs, name)
    return trace.face(trace, alias, layout, value, None, readonly=readonly)


APART = Sharing()
