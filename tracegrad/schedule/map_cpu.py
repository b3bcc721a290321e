"""`map_cpu`: how the loops of a kernel run on one CPU core.

Nests over contiguous data become one long loop, and innermost loops whose iterations are
independent become SIMD loops.  How a `Reduce` associates is left to the printer
(`codegen.c_reduce`): its joining tree needs a run-time stack, which loop IR does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracegrad.loops.ir import For, If, Kernel, LoopTag, Reduce, Stmt
from tracegrad.loops.transform import collapse, is_simd
from tracegrad.loops.unused import drop_unused
from tracegrad.schedule.columns import turn_columns


def map_cpu(kernel: Kernel) -> Kernel:
    """`kernel` with contiguous nests joined, column reductions turned, inner loops VECTOR."""
    kernel = drop_unused(kernel)
    turned = turn_columns(replace(kernel, body=collapse(kernel.body)))
    return replace(turned, body=_tagged(turned.body))


def _tagged(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    return tuple(map(_tag, body))


def _tag(s: Stmt) -> Stmt:
    match s:
        case For(var, _, LoopTag.PARALLEL, body) if is_simd(var, body):
            return replace(s, tag=LoopTag.VECTOR)
        case For(body=body) | Reduce(body=body):
            return replace(s, body=_tagged(body))
        case If(_, then, other):
            return replace(s, then=_tagged(then), other=_tagged(other))
    return s
