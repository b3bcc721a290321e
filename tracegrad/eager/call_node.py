"""A call of a compiled program as one node of the eager graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tracegrad.eager.history import Algebra, Edge, Node, Saved, backward_twice, saved_value
from tracegrad.eager.recorder import EAGER
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType


class CompiledProgram(Protocol):
    """A pure function of arrays that has a derivative of the same kind."""

    @property
    def name(self) -> str: ...

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """What it returns."""

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Fresh arrays, one an output."""

    @property
    def reads(self) -> frozenset[int]:
        """The inputs that the program reads."""

    def pullback(self, wrt: tuple[int, ...], live: tuple[int, ...]) -> CompiledProgram:
        """From the inputs and the gradients of the outputs `live` to those of the inputs `wrt`."""


class CallNode(Node):
    """One call: `kept` are its inputs as they were, one an edge.

    Backward runs the compiled pullback once, for the outputs that have a gradient.
    """

    __slots__ = ("kept", "program")

    def __init__(
        self,
        program: CompiledProgram,
        edges: tuple[Edge | None, ...],
        kept: list[Saved],
        loc: SourceLoc | None,
    ) -> None:
        super().__init__(f"{program.name}Backward", edges, program.outputs, loc)
        self.program = program
        self.kept: list[Saved] | None = kept

    def run_as(
        self, algebra: Algebra, cts: Sequence[Any], own: Callable[[int], Edge]
    ) -> Sequence[Any]:
        if self.kept is None:
            raise backward_twice(self)
        wrt = tuple(k for k, e in enumerate(self.edges) if e is not None)
        live = tuple(k for k, ct in enumerate(cts) if ct is not None)
        if not wrt or not live:
            return (None,) * len(self.edges)
        pull = self.program.pullback(wrt, live)
        for k, saved in enumerate(self.kept):
            if k in pull.reads:
                saved.check(self)
        values = [algebra.saved(s, e) for s, e in zip(self.kept, self.edges, strict=True)]
        found = run_program(pull, [*values, *(cts[k] for k in live)])
        grads: list[Any] = [None] * len(self.edges)
        for k, g in zip(wrt, found, strict=True):
            grads[k] = g
        return grads

    def release(self) -> None:
        self.kept = None


def run_program(program: CompiledProgram, values: Sequence[Any]) -> list[Any]:
    """`program` on arrays, or on tensors, whose results have a history then."""
    if all(isinstance(x, np.ndarray) for x in values):
        return list(program(values))
    edges = tuple(EAGER.edge(x) if x.element_type.is_inexact else None for x in values)
    node = None
    if any(e is not None for e in edges):
        node = CallNode(program, edges, [saved_value(x) for x in values], EAGER.place())
    made = program([x.array for x in values])
    return [
        EAGER.computed(a, node if t.dtype.is_inexact else None, k)
        for k, (a, t) in enumerate(zip(made, program.outputs, strict=True))
    ]
