"""The programs of every op, mapped and not: verified, printed and read back, renamed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.test_registry import LOWERED, by_name, graph_of
from tracegrad.graph.op import OpDef
from tracegrad.loops.ir import Expr, Intrinsic, Load
from tracegrad.loops.program import Program
from tracegrad.loops.text import parse_program, print_program
from tracegrad.loops.transform import Rebuild, canonical, structure
from tracegrad.loops.verify import verify_kernel, verify_program
from tracegrad.schedule.plan import make_plan


class _Intrinsics(Rebuild):
    """Collects the intrinsics that a kernel applies, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Intrinsic] = {}

    def expr(self, e: Expr) -> Expr:
        if not isinstance(e, Load) and hasattr(e, "fn"):
            assert self.found.setdefault(e.fn.name, e.fn) is e.fn, "one name, one intrinsic"
        return super().expr(e)


def programs(op: OpDef) -> Iterator[Program]:
    graph, _ = graph_of(op, list(op.samples(np.random.default_rng(2))))
    yield make_plan(graph).program
    yield make_plan(graph, map_kernel=lambda kernel: kernel).program


@pytest.mark.parametrize("op", LOWERED, ids=by_name)
def test_programs_verify_and_round_trip(op: OpDef) -> None:
    for program in programs(op):
        verify_program(program)
        used = _Intrinsics()
        for kernel in program.kernels():
            used.kernel(kernel)
            verify_kernel(canonical(kernel))
            assert structure(canonical(kernel)) == structure(kernel)
        text = print_program(program)
        again = parse_program(text, used.found)
        assert print_program(again) == text
        assert again.kernels() == program.kernels()
