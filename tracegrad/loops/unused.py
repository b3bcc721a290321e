"""Drops bindings that nothing reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracegrad.dims import Dim, symbols
from tracegrad.loops.ir import For, If, Kernel, Let, Reduce, Stmt
from tracegrad.loops.transform import Rebuild


def drop_unused(kernel: Kernel) -> Kernel:
    """`kernel` without Lets whose scalar is never read; expressions have no effects."""
    return replace(kernel, body=_block(kernel.body, _Uses()))


def used_names(kernel: Kernel) -> set[str]:
    """The names that the body of `kernel` reads, writes or binds."""
    uses = _Uses()
    uses.block(kernel.body)
    return uses.names


class _Uses(Rebuild):
    """Collects the scalars and buffers that are read or written."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def name(self, name: str) -> str:
        self.names.add(name)
        return name

    def dim(self, d: Dim) -> Dim:
        self.names.update(s.name for s in symbols(d))
        return d


def _block(body: Sequence[Stmt], uses: _Uses) -> tuple[Stmt, ...]:
    """Backwards, since a scalar is read only after its Let."""
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, Let):
            if s.name not in uses.names:
                continue
            uses.expr(s.value)
        elif isinstance(s, For):
            uses.dim(s.extent)
            s = replace(s, body=_block(s.body, uses))
        elif isinstance(s, If):
            uses.expr(s.cond)
            s = replace(s, then=_block(s.then, uses), other=_block(s.other, uses))
        elif isinstance(s, Reduce):
            for acc in s.accs:
                uses.accumulator(acc)
            for _, extent in s.loops:
                uses.dim(extent)
            s = replace(s, body=_block(s.body, uses))
        else:
            uses.stmt(s)
        kept.append(s)
    return tuple(reversed(kept))
