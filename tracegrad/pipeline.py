"""The ordered passes from a traced graph to something that runs: the compiler's contents page.

traced      what the user wrote, views and writes included
functional  complex as pairs, aliasing resolved     aliasing.pairs, functionalize
joint       transforms written out as graphs        autodiff.expand
optimized   simplified, grafts dropped              rewrite
scheduled   kernels, buffers, launches              schedule
source      C text                                  codegen
built       a callable                              runtime
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tracegrad.aliasing.functionalize import functionalize
from tracegrad.aliasing.pairs import real_graph
from tracegrad.autodiff.checkpoint import inline_checkpoints
from tracegrad.autodiff.custom import inline_custom
from tracegrad.autodiff.expand import expand_transforms
from tracegrad.autodiff.gradients import reached_points
from tracegrad.autodiff.segment import segment_loops
from tracegrad.codegen.unit import SourceUnit, render
from tracegrad.errors import MemoryLimitError, UnsupportedError
from tracegrad.graph.ir import Graph, Operand
from tracegrad.loops.program import first_growth
from tracegrad.ops.control import GradientsAttrs
from tracegrad.options import Options
from tracegrad.rewrite.cleanup import drop_grafts
from tracegrad.rewrite.driver import simplify
from tracegrad.rewrite.loops import hoist_invariants, prune_loops
from tracegrad.runtime.artifact import Executable
from tracegrad.runtime.cpu import load
from tracegrad.runtime.threads import thread_count
from tracegrad.schedule.effects import Copied
from tracegrad.schedule.plan import Plan, make_plan
from tracegrad.trace.segments import set_reach


def not_in_place(copies: Sequence[Copied]) -> UnsupportedError:
    """The refusal of ``inplace="require"``, at the first copy."""
    more = f" (and {len(copies) - 1} more, see explain())" if len(copies) > 1 else ""
    return UnsupportedError(
        f"inplace='require', but {copies[0].text}{more}",
        kind="not_in_place",
        loc=copies[0].loc,
        remedy="Read what is needed of the old contents before they are written, or copy() that "
        "part yourself; inplace='auto' allows the copy.",
    )


MOST_LEVELS = 5  # of nested segments: a fifth root of the trips is short enough
GRAPH_STAGES = ("traced", "functional", "joint", "optimized")
STAGES = (*GRAPH_STAGES, "scheduled", "source")


def functional(traced: Graph, options: Options) -> Graph:
    """Aliasing resolved; raises ViewMutationError where PyTorch's rules forbid the program."""
    return functionalize(
        real_graph(traced),
        exact_views=options.views == "exact",
        share_outputs=not options.copy_outputs,
    )


def _reach(graph: Graph, attrs: GradientsAttrs, operands: Sequence[Operand]) -> tuple[bool, ...]:
    """Where the gradients of a `gradients` node behind a traced graph arrive."""
    asked = replace(graph, outputs=tuple(operands))
    whole = expand_transforms(functionalize(asked, exact_views=True))
    return reached_points(whole, attrs, whole.outputs[: len(operands)])


set_reach(_reach)


def joint(graph: Graph) -> Graph:
    """Value and gradients as one graph; custom functions become their values.

    What iterations carry and nobody reads is dropped first: its cotangents would be carried too.
    """
    return inline_custom(inline_checkpoints(expand_transforms(prune_loops(graph))))


def optimize(graph: Graph) -> Graph:
    """Simplified once gradients have been taken, so that grafts have served."""
    simple = simplify(drop_grafts(graph))
    if not any(node.regions for node in simple.nodes):
        return simple
    return simplify(prune_loops(hoist_invariants(prune_loops(simple))))


@dataclass(frozen=True)
class Lowering:
    """One traced graph on its way down; each stage is made when it is first asked for.

    `select` keeps those outputs that a program has to compute (the caller rebuilds others from
    its own arrays), and names them.
    """

    traced: Graph
    options: Options
    select: Callable[[Graph], tuple[Graph, tuple[str, ...]]]

    @cached_property
    def functional(self) -> Graph:
        return functional(self.traced, self.options)

    @cached_property
    def levels(self) -> int:
        """How deeply loops are nested into segments, so that the memory limit holds."""
        limit = self.options.memory_limit
        if limit is None:
            return 1
        assert isinstance(limit, int), "Options turns text into bytes"
        peaks = []
        for levels in range(1, MOST_LEVELS + 1):
            chosen = self.select(joint(segment_loops(self.functional, levels)))[0]
            plan = make_plan(optimize(chosen), threads=thread_count(self.options.threads))
            grows = first_growth(plan.program)
            if grows is not None:
                raise MemoryLimitError(
                    "what the iterations of this loop leave for its gradient has no limit",
                    loc=grows.loc,
                    remedy="Give tg.while_loop or tg.fori_loop max_trips=n, or no memory_limit.",
                )
            peaks.append(plan.program.arena_nbytes)
            if peaks[-1] <= limit:
                return levels
        raise MemoryLimitError(
            f"{self.traced.name} needs {min(peaks)} bytes beside its arguments and results, and "
            f"memory_limit is {limit}",
            remedy=f"The smallest limit that works is memory_limit={min(peaks)}.",
        )

    @cached_property
    def joint(self) -> Graph:
        return joint(segment_loops(self.functional, self.levels))

    @cached_property
    def returned(self) -> Graph:
        return self.select(self.joint)[0]

    @cached_property
    def optimized(self) -> Graph:
        return optimize(self.returned)

    @cached_property
    def plan(self) -> Plan:
        names = self.select(self.joint)[1]
        plan = make_plan(self.optimized, names=names, threads=thread_count(self.options.threads))
        if self.options.inplace == "require" and plan.copies:
            raise not_in_place(plan.copies)
        return plan

    @cached_property
    def unit(self) -> SourceUnit:
        """The translation unit that is built for calls from Python."""
        return render(self.plan.program, shim=True, embed_all=False)

    @cached_property
    def executable(self) -> Executable:
        return load(self.plan.program, self.unit, self.options)

    def graph(self, stage: str) -> Graph:
        """The graph of one of `GRAPH_STAGES`."""
        return getattr(self, stage)  # type: ignore[no-any-return]
