"""Laws of the rewriting passes: meaning is kept, every rule fires on its example, idempotence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.graphs import (
    COLUMN,
    EMPTY,
    EVEN,
    EVERY_OTHER,
    ODD,
    OTHER_ROW,
    PAIR,
    PART_OF_ROW,
    ROW,
    TURNED,
    Build,
    S,
    T,
    X,
    fill,
    hard_array,
    make,
    padded,
    put,
    read,
    same_numbers,
)
from tracegrad import dtypes
from tracegrad.dtypes import BOOL, F64, I8, DType
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph, Literal, Operand, Value
from tracegrad.graph.storage import (
    Expand,
    Index,
    Pick,
    Reshape,
    Span,
    Strided,
    View,
)
from tracegrad.graph.text import canonical, print_graph
from tracegrad.graph.verify import verify
from tracegrad.ops.arithmetic import absolute, add, div, mul, neg, positive, sub
from tracegrad.ops.bitwise import bitwise_xor, invert
from tracegrad.ops.cast import cast
from tracegrad.ops.compare import eq, gt, logical_and, logical_not, logical_or
from tracegrad.ops.handles import copy
from tracegrad.ops.pairs import joined, part
from tracegrad.ops.reduce import max_, sum_
from tracegrad.ops.select import maximum, where
from tracegrad.ops.views import add_slices, as_view
from tracegrad.rewrite.driver import RULES, simplify, simplify_counting


def halves(b: GraphBuilder, x: Value) -> tuple[Operand, Operand]:
    """Both parts of a last axis of 2."""
    return part(b, x, 0), part(b, x, 1)


def half_of_zeros(b: GraphBuilder, x: Value, k: int) -> Operand:
    """`x` as part `k` of zeros."""
    view = View((Index((Span(0, 3), Pick(k))),))
    return add_slices(b, 0, x, view=view, shape=(3, 2))  # type: ignore[no-any-return]


# (rule, builder, input types, nodes left); "~": the sign of zero may differ, "=": last bits too.
EXACT: list[tuple[str, Build, tuple[str, ...], int]] = [
    ("add_nothing", lambda b, x: add(b, x, -0.0), (X,), 0),
    ("add_nothing", lambda b, x: add(b, 0, x), ("i8[4]",), 0),
    ("subtract_nothing", lambda b, x: sub(b, x, 0.0), (X,), 0),
    ("multiply_by_one", lambda b, x: mul(b, x, 1.0), (X,), 0),
    ("multiply_by_one", lambda b, x: mul(b, x, True), ("bool[4]",), 0),
    ("divide_by_one", lambda b, x: div(b, x, fill(b, 1.0, (4, 3))), (X,), 0),
    ("multiply_by_zero", lambda b, x: mul(b, x, 0), ("i8[4]",), 1),
    ("multiply_by_minus_one", lambda b, x: mul(b, x, -1.0), (X,), 1),
    ("divide_by_power_of_two", lambda b, x: div(b, x, -8.0), (X,), 1),
    ("divide_by_power_of_two", lambda b, x: div(b, x, 0.25), ("f32[9]",), 1),
    ("merge_integer_literals", lambda b, x: mul(b, mul(b, x, 50), 7), ("i8[4]",), 1),
    ("merge_integer_literals", lambda b, x: add(b, add(b, x, 100), 100), ("u8[4]",), 1),
    ("twice_is_nothing", lambda b, x: neg(b, neg(b, x)), (X,), 0),
    ("twice_is_nothing", lambda b, x: invert(b, invert(b, x)), ("i8[4]",), 0),
    ("twice_is_nothing", lambda b, x: logical_not(b, logical_not(b, x)), ("bool[4]",), 0),
    ("absolute_drops_sign", lambda b, x: absolute(b, neg(b, x)), ("i8[4]",), 1),
    ("absolute_drops_sign", lambda b, x: absolute(b, absolute(b, x)), (X,), 1),
    ("part_of_pair", lambda b, s, t: mul(b, *halves(b, joined(b, s, t, (3,)))), (S, S), 1),
    ("pair_of_parts", lambda b, x: joined(b, *halves(b, x), (4,)), ("f64[4, 2]",), 0),
    ("identity", lambda b, x: copy(b, positive(b, x)), (X,), 0),
    ("add_negated", lambda b, x, y: add(b, x, neg(b, y)), (X, X), 1),
    ("add_negated", lambda b, x, y: add(b, neg(b, x), y), (X, X), 1),
    ("add_negated", lambda b, x, y: sub(b, x, neg(b, y)), ("i8[4]", "i8[4]"), 1),
    ("multiply_negated", lambda b, x, y: mul(b, neg(b, x), neg(b, y)), (X, X), 1),
    ("multiply_negated", lambda b, x: mul(b, neg(b, x), 3.5), (X,), 1),
    ("multiply_negated", lambda b, x: div(b, 3.0, neg(b, x)), (X,), 1),
    ("negate_product", lambda b, x: neg(b, mul(b, x, -128)), ("i8[4]",), 1),
    ("nothing_remains", lambda b, x: bitwise_xor(b, x, x), ("u8[4]",), 1),
    ("nothing_remains", lambda b, x: sub(b, x, x), ("i8[4]",), 1),
    ("idempotent", lambda b, x: maximum(b, x, x), (X,), 0),
    ("known_side", lambda b, x: logical_and(b, x, True), ("bool[4]",), 0),
    ("known_side", lambda b, x: logical_or(b, x, 2.0), (X,), 1),
    ("negate_equality", lambda b, x, y: logical_not(b, eq(b, x, y)), (X, X), 1),
    ("decided_where", lambda b, c, x: where(b, c, x, x), ("bool[4, 3]", X), 0),
    ("decided_where", lambda b, x, y: where(b, Literal(False, BOOL), x, y), (X, X), 0),
    (
        "negated_where",
        lambda b, c, x, y: where(b, logical_not(b, c), x, y),
        ("bool[4, 3]", X, X),
        1,
    ),
    (
        "nested_where",
        lambda b, c, x, y: where(b, c, where(b, c, x, Literal(0.0, F64)), y),
        ("bool[4, 3]", X, X),
        1,
    ),
    (
        "nested_where",
        lambda b, c, x, y: where(b, c, x, where(b, c, Literal(0.0, F64), y)),
        ("bool[4, 3]", X, X),
        1,
    ),
    ("fold", lambda b, s: mul(b, s, neg(b, fill(b, 2.0, ()))), ("f64[]",), 1),
    ("splat_operands", lambda b, x: mul(b, x, fill(b, 3.0, (4, 3))), (X,), 1),
    ("splat_operands", lambda b: gt(b, fill(b, 3.0, (2,)), 1.0), (), 1),
    ("cast_to_itself", lambda b, x: cast(b, x, dtype=F64), (X,), 0),
    ("cast_of_splat", lambda b: cast(b, fill(b, 3.7, (2,)), dtype=I8), (), 1),
    ("whole_view", lambda b, x: read(b, x, View((Reshape((12,)), Reshape((4, 3))))), (X,), 0),
    ("view_of_splat", lambda b: read(b, fill(b, 2.0, (4, 3)), ROW), (), 1),
    ("view_of_view", lambda b, x: read(b, read(b, x, TURNED), EVERY_OTHER), (X,), 1),
    ("read_of_write", lambda b, x, s: read(b, put(b, x, s, ROW), ROW), (X, S), 0),
    ("read_of_write", lambda b, x: read(b, put(b, x, 2.5, ROW), ROW), (X,), 1),
    ("read_of_write", lambda b, x, s: read(b, put(b, x, s, ROW), PART_OF_ROW), (X, S), 1),
    ("read_past_write", lambda b, x, s: read(b, put(b, x, s, ROW), OTHER_ROW), (X, S), 1),
    ("read_past_write", lambda b, x, t: read(b, put(b, x, t, EVEN), ODD), (X, T), 1),
    (
        "read_past_write",
        lambda b, x, s: read(b, add_slices(b, x, s, view=ROW, shape=(4, 3)), EVEN),
        (X, S),
        1,
    ),
    ("splat_slices", lambda b, x: put(b, x, fill(b, 2.0, (3,)), ROW), (X,), 1),
    ("write_of_nothing", lambda b, x: put(b, x, 1.0, EMPTY), (X,), 0),
    ("write_of_nothing", lambda b, x: put(b, x, read(b, x, ROW), ROW), (X,), 0),
    ("write_after_write", lambda b, x, s, t: put(b, put(b, x, s, ROW), t, ROW), (X, S, S), 1),
    ("write_of_all", lambda b, x, s: put(b, x, s, TURNED), (X, "f64[3, 4]"), 1),
    ("reduce_nothing", lambda b, x: max_(b, x, axes=()), (X,), 0),
    ("reduce_unit_axes", lambda b, x: max_(b, x, axes=(1,)), ("f64[4, 1]",), 1),
    (
        "reduce_of_reduction",
        lambda b, x: max_(b, max_(b, x, axes=(1,)), axes=(1,)),
        ("f64[2, 3, 4]",),
        1,
    ),
    (
        "reduce_of_reduction",
        lambda b, x: sum_(b, sum_(b, x, axes=(0,)), axes=(1,)),
        ("i8[2, 3, 4]",),
        1,
    ),
    ("sum_of_splat", lambda b: sum_(b, fill(b, 100, (3, 4), I8), axes=(1,)), (), 1),
    ("sum_of_splat", lambda b: sum_(b, fill(b, 3.0, (3, 4)), axes=(0, 1)), (), 0),
]
UP_TO_ZERO: list[tuple[str, Build, tuple[str, ...], int]] = [
    ("read_of_write", lambda b, s: read(b, padded(b, s, ROW), ROW), (S,), 0),
    ("write_of_nothing", lambda b, x: add_slices(b, x, 0.0, view=ROW, shape=(4, 3)), (X,), 0),
    ("write_of_all", lambda b, s: padded(b, s, TURNED), ("f64[3, 4]",), 1),
    (
        "write_of_all",
        lambda b, x, s: add_slices(b, x, s, view=TURNED, shape=(4, 3)),
        (X, "f64[3, 4]"),
        2,
    ),
    (
        "add_to_cleared",
        lambda b, g, s: add_slices(b, put(b, g, 0.0, ROW), s, view=ROW, shape=(4, 3)),
        (X, S),
        1,
    ),
    ("add_to_region", lambda b, g, s: add(b, padded(b, s, ROW), g), (X, S), 1),
    ("add_to_region", lambda b, s, t: add(b, padded(b, s, ROW), padded(b, t, EVEN)), (S, T), 2),
    ("subtract_region", lambda b, g, s: sub(b, g, padded(b, s, ROW)), (X, S), 2),
    (
        "add_twice",
        lambda b, s, t: add_slices(b, padded(b, s, ROW), t, view=ROW, shape=(4, 3)),
        (S, S),
        2,
    ),
    (
        "add_other_part",
        lambda b, s, t: add(b, half_of_zeros(b, s, 1), half_of_zeros(b, t, 0)),
        (S, S),
        1,
    ),
    (
        "add_to_part",
        lambda b, s, t: add(b, joined(b, s, t, (3,)), half_of_zeros(b, s, 1)),
        (S, S),
        2,
    ),
    ("reduce_nothing", lambda b, x: sum_(b, x, axes=()), (X,), 0),
    ("reduce_unit_axes", lambda b, x: sum_(b, x, axes=(1,)), ("f64[4, 1]",), 1),
]
ROUNDED: list[tuple[str, Build, tuple[str, ...], int]] = [
    (
        "reduce_of_reduction",
        lambda b, x: sum_(b, sum_(b, x, axes=(0,)), axes=(1,)),
        ("f64[2, 3, 4]",),
        1,
    ),
    (
        "sum_of_expand",
        lambda b, x: sum_(b, as_view(b, x, Expand((3, 4))), axes=(0, 1)),
        ("f64[3, 1]",),
        3,
    ),
    (
        "sum_of_expand",
        lambda b, x: sum_(b, as_view(b, x, Expand((3, 4))), axes=(1,)),
        ("i8[3, 1]",),
        2,
    ),
]


def _ids(cases: list[tuple[str, Build, tuple[str, ...], int]]) -> list[str]:
    return [f"{k}-{case[0]}" for k, case in enumerate(cases)]


@pytest.mark.parametrize("case", EXACT, ids=_ids(EXACT))
def test_exact_rule_keeps_every_bit(case: tuple[str, Build, tuple[str, ...], int]) -> None:
    check_rule(*case, signed_zeros=True)


@pytest.mark.parametrize("case", UP_TO_ZERO, ids=_ids(UP_TO_ZERO))
def test_rule_keeps_all_but_the_sign_of_zero(case: tuple[str, Build, tuple[str, ...], int]) -> None:
    check_rule(*case, signed_zeros=False)


@pytest.mark.parametrize("case", ROUNDED, ids=_ids(ROUNDED))
def test_reordered_sums_agree_to_rounding(case: tuple[str, Build, tuple[str, ...], int]) -> None:
    name, build, types, left = case
    graph, after = shrink(name, build, types, left)
    rng = np.random.default_rng(5)
    for _ in range(10):
        inputs = [np.asarray(rng.normal(size=v.shape) * 9, v.dtype.np) for v in graph.inputs]
        for a, b in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def shrink(name: str, build: Build, types: tuple[str, ...], left: int) -> tuple[Graph, Graph]:
    graph = make(build, *types)
    verify(graph)
    after, hits = simplify_counting(graph)
    verify(after)
    assert hits[name] > 0, f"{name} did not fire: {dict(hits)}\n{print_graph(after)}"
    assert len(after.nodes) == left, print_graph(after)
    assert canonical(simplify(after)) == canonical(after)
    return graph, after


def check_rule(
    name: str, build: Build, types: tuple[str, ...], left: int, signed_zeros: bool
) -> None:
    graph, after = shrink(name, build, types, left)
    rng = np.random.default_rng(11)
    for _ in range(25):
        inputs = [hard_array(rng, v.type) for v in graph.inputs]
        for a, b in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
            same_numbers(a, b, signed_zeros)


def test_every_rule_has_an_example_and_a_docstring() -> None:
    shown = {case[0] for case in (*EXACT, *UP_TO_ZERO, *ROUNDED)} | {"cast_chain"}
    assert {r.name for r in RULES} == shown
    assert all(r.doc for r in RULES)
    assert len({r.name for r in RULES}) == len(RULES)


@pytest.mark.parametrize("start", dtypes.ALL, ids=repr)
def test_cast_chains_are_shortened_without_loss(start: DType) -> None:
    rng = np.random.default_rng(3)
    shortened = 0
    for middle in dtypes.ALL:
        for end in dtypes.ALL:
            graph = make(
                lambda b, x, m=middle, e=end: cast(b, cast(b, x, dtype=m), dtype=e), f"{start}[40]"
            )
            after = simplify(graph)
            shortened += len(after.nodes) < 2
            x = hard_array(rng, graph.inputs[0].type)
            same_numbers(evaluate(graph, [x])[0], evaluate(after, [x])[0], True)
    assert shortened > len(dtypes.ALL)


# ------------------------------------------------------- what IEEE arithmetic does not allow


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: add(b, x, 0.0),
        lambda b, x: mul(b, x, 0.0),
        lambda b, x: sub(b, x, x),
        lambda b, x: sub(b, x, -0.0),
        lambda b, x: div(b, x, 3.0),
        lambda b, x: neg(b, sub(b, x, 1.0)),
        lambda b, x: mul(b, mul(b, x, 3.0), 5.0),
    ],
)
def test_inexact_algebra_is_left_alone(build: Build) -> None:
    graph = make(build, X)
    assert canonical(simplify(graph)) == canonical(graph)


def test_overlapping_and_unequal_regions_are_left_alone() -> None:
    windows = View((Strided((3, 3), (1, 1), 0),))
    wide = "f64[3, 3]"
    for graph in (
        make(lambda b, x, t: read(b, put(b, x, t, EVEN), PAIR), X, T),
        make(lambda b, x, s: read(b, put(b, x, s, ROW), COLUMN), X, S),
        make(lambda b, g, s: add(b, g, padded(b, s, windows, (5,))), "f64[5]", wide),
        make(lambda b, s: read(b, padded(b, s, windows, (5,)), windows), wide),
        make(lambda b, g, s: add_slices(b, put(b, g, 1.0, ROW), s, view=ROW, shape=(4, 3)), X, S),
    ):
        after = simplify(graph)
        assert len(after.nodes) == len(graph.nodes), print_graph(after)
