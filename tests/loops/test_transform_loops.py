"""Substitution, renaming, canonical names, collapsed loops, mapping to the CPU."""

from __future__ import annotations

from loop_cases import ADD, CASES, LT, call, params

from tracegrad.dims import Symbol, of_atom
from tracegrad.dtypes import F64, I64
from tracegrad.loops.builder import LoopBuilder
from tracegrad.loops.ir import Combine, Const, For, Index, Kernel, Let, Load, LoopTag, Reduce, Var
from tracegrad.loops.transform import (
    canonical,
    definitions,
    rename,
    statements,
    structure,
    substitute,
)
from tracegrad.loops.unused import drop_unused
from tracegrad.loops.verify import verify_kernel
from tracegrad.schedule.map_cpu import map_cpu


def step(suffix: str) -> Kernel:
    """One time step as an unrolled trace gives it: other names, same structure."""
    b = LoopBuilder()
    with b.loop(6, LoopTag.PARALLEL, f"i_{suffix}") as i:
        t = b.let(call(ADD, Load(f"u_{suffix}", i, F64), Const(1.0, F64)), f"t_{suffix}")
        b.store(f"v.{suffix}", i, t)
    return Kernel(
        f"k{suffix}",
        params(**{f"u_{suffix}": ("in", F64, 6), f"v.{suffix}": ("out", F64, 6)}),
        b.finish(),
    )


def test_steps_have_one_structure_and_one_canonical_form():
    first, second = step("3"), step("12")
    assert first != second
    assert structure(first) == structure(second)
    assert hash(structure(first)) == hash(structure(second))
    assert canonical(first).params == canonical(second).params
    assert canonical(first).body == canonical(second).body
    assert list(definitions(canonical(first))) == ["u", "v", "i", "t"]
    verify_kernel(canonical(first))


def test_structure_sees_constants_and_sizes():
    base = structure(step("1"))
    b = LoopBuilder()
    with b.loop(6, LoopTag.PARALLEL, "i") as i:
        t = b.let(call(ADD, Load("u", i, F64), Const(-1.0, F64)))
        b.store("v", i, t)
    other = Kernel("k", params(u=("in", F64, 6), v=("out", F64, 6)), b.finish())
    assert structure(other) != base


def test_canonical_keeps_the_meaning_of_every_case():
    for case in CASES.values():
        verify_kernel(canonical(case.kernel))
        assert structure(canonical(case.kernel)) == structure(case.kernel)
    assert canonical(CASES["check_fails"].kernel).params[-1].name == "detail"


def test_substitute_replaces_indices_and_variables():
    kernel = CASES["stencil"].kernel
    outer = kernel.body[0]
    inner = substitute(outer.body, {outer.var.name: 2})
    assert inner[0].body[0].value.index == of_atom(inner[0].var) + 19
    (let,) = substitute((For(Symbol("j", 0, 1), 2, LoopTag.SERIAL, ()),), {"j": 1})
    assert let.extent == 2


def test_rename_reaches_indices():
    kernel = rename(CASES["gather_by_let"].kernel, {"j": "row", "x": "table"})
    verify_kernel(kernel)
    assert "row" in set(definitions(kernel)) and "x" not in set(definitions(kernel))


def pointwise(*reads) -> Kernel:
    b = LoopBuilder()
    with b.loops((4, 5)) as (i, j):
        total = Const(0.0, F64)
        for read in reads:
            total = call(ADD, total, Load("x", read(i, j), F64))
        b.store("o", 5 * i + j, total)
    return map_cpu(Kernel("k", params(x=("in", F64, 20), o=("out", F64, 20)), b.finish()))


def test_contiguous_nests_become_one_vector_loop():
    kernel = pointwise(lambda i, j: 5 * i + j)
    (loop,) = kernel.body
    assert (loop.extent, loop.tag) == (20, LoopTag.VECTOR)
    verify_kernel(kernel)


def test_other_nests_stay():
    for read in (lambda i, j: 4 * j + i, lambda i, j: 5 * i, lambda i, j: j):
        (outer,) = pointwise(read).body
        assert outer.tag is LoopTag.PARALLEL
        assert [s.tag for s in outer.body] == [LoopTag.VECTOR]


def test_loops_with_conditions_on_their_index_stay():
    b = LoopBuilder()
    with b.loops((4, 5)) as (i, j), b.when(call(LT, Index(i), Const(2, I64))):
        b.store("o", 5 * i + j, Const(1.0, F64))
    kernel = map_cpu(Kernel("k", params(o=("inout", F64, 20)), b.finish()))
    assert kernel.body[0].extent == 4


def test_reductions_collapse_from_the_inside():
    b = LoopBuilder()
    with b.reduce((3, 4, 5)) as r:
        i, j, k = r.index
        total = r.accumulate(Combine.ADD, Const(0.0, F64), Load("x", 40 * i + 5 * j + k, F64))
    b.store("o", 0, total)
    kernel = map_cpu(Kernel("k", params(x=("in", F64, 100), o=("out", F64, 1)), b.finish()))
    assert [n for _, n in kernel.body[0].loops] == [3, 20]
    verify_kernel(kernel)
    assert isinstance(total, Var)


def test_updates_are_not_vectorised():
    assert map_cpu(CASES["updates_repeat"].kernel).body[0].tag is LoopTag.PARALLEL


def test_column_reductions_run_row_by_row():
    kernel = map_cpu(CASES["column_sums"].kernel)
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    assert not any(isinstance(s, Reduce) for s in statements(kernel.body))
    assert {s.tag for s in loops if s.var.name.startswith("r")} == {LoopTag.SERIAL}
    assert sum(s.tag is LoopTag.VECTOR for s in loops) >= 4


def test_row_reductions_are_not_turned():
    kernel = map_cpu(CASES["sum_long"].kernel)
    assert any(isinstance(s, Reduce) for s in statements(kernel.body))


def test_updates_at_own_elements_are_vectorised():
    b = LoopBuilder()
    with b.loops((9,)) as (i,):
        b.update("o", 2 * i + 1, Combine.ADD, Load("x", i, F64))
    own = Kernel("k", params(x=("in", F64, 9), o=("inout", F64, 20)), b.finish())
    assert map_cpu(own).body[0].tag is LoopTag.VECTOR
    b = LoopBuilder()
    with b.loops((9,)) as (i,):
        b.update("o", i, Combine.ADD, Load("x", i, F64))
        b.update("o", i + 1, Combine.ADD, Load("x", i, F64))
    shared = Kernel("k", params(x=("in", F64, 9), o=("inout", F64, 20)), b.finish())
    assert map_cpu(shared).body[0].tag is LoopTag.PARALLEL


def test_unused_bindings_are_dropped_and_their_operands_too():
    b = LoopBuilder()
    with b.loops((9,)) as (i,):
        a = b.let(Load("x", i, F64), "a")
        b.let(call(ADD, a, a), "never")
        at = b.index_of(Load("k", i, I64), 9)
        used = b.let(Load("x", at, F64), "used")
        b.store("o", i, used)
    kernel = Kernel("k", params(x=("in", F64, 9), k=("in", I64, 9), o=("out", F64, 9)), b.finish())
    kept = [s.name for s in statements(drop_unused(kernel).body) if isinstance(s, Let)]
    assert kept == ["j", "used"]
    for case in CASES.values():
        assert drop_unused(case.kernel) == case.kernel
