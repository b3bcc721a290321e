"""Laws of the rewriting passes: meaning is kept, every rule fires on its example, idempotence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tracegrad import dtypes
from tracegrad.dtypes import BOOL, F32, F64, I8, DType
from tracegrad.errors import VerifyError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Graph, Literal, Operand, Value
from tracegrad.graph.op import Attrs, NoGradient, Special, Trait, declare
from tracegrad.graph.storage import (
    Expand,
    Index,
    NewAxis,
    Permute,
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
from tracegrad.ops.create import full
from tracegrad.ops.index import wrap_index
from tracegrad.ops.reduce import max_, sum_
from tracegrad.ops.select import maximum, where
from tracegrad.ops.views import (
    add_slices,
    as_strided,
    as_view,
    copy,
    copy_slices,
    graft,
    stop_gradient,
)
from tracegrad.rewrite.cleanup import drop_grafts, remove_dead
from tracegrad.rewrite.driver import RULES, cse, simplify, simplify_counting
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType

Build = Callable[..., Operand]

ROW = View((Index((Pick(1), Span(0, 3))),))
OTHER_ROW = View((Index((Pick(2), Span(0, 3))),))
EVEN = View((Index((Span(0, 2, 2), Span(0, 3))),))
ODD = View((Index((Span(1, 2, 2), Span(0, 3))),))
PAIR = View((Index((Span(0, 2), Span(0, 3))),))
EMPTY = View((Index((Span(0, 0), Span(0, 3))),))
PART_OF_ROW = View((Index((Pick(1), Span(1, 2))),))
TURNED = View((Permute((1, 0)),))
EVERY_OTHER = View((Index((Pick(1), Span(0, 2, 2))),))
COLUMN = View((Index((Span(0, 4), Pick(1))),))
X, S, T = "f64[4, 3]", "f64[3]", "f64[2, 3]"


def typed(text: str) -> TensorType:
    name, _, sizes = text.rstrip("]").partition("[")
    return TensorType(tuple(int(n) for n in sizes.split(",") if n), dtypes.parse(name))


def make(build: Build, *types: str) -> Graph:
    b = GraphBuilder("f")
    b.loc = SourceLoc("demo.py", 3, 0, 5)
    xs = [b.input(typed(t), f"x{k}") for k, t in enumerate(types)]
    out = build(b, *xs)
    return b.finish(out if isinstance(out, tuple) else (out,))


def hard_array(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    """Random elements, with NaN, infinities, signed zeros and extremes among them."""
    d, shape = type_.dtype, type_.shape
    if d.is_bool:
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if d.is_integer:
        info = np.iinfo(d.np)
        return np.asarray(
            rng.choice(np.array([info.min, info.max, 0, 1, 2, 5, 77], d.np), shape))
    tiny, huge = np.finfo(d.np).smallest_subnormal, np.finfo(d.np).max
    pool = [np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, huge, 1.0, -1.5, *rng.normal(size=6)]
    return np.asarray(rng.choice(np.asarray(pool, d.np), shape), d.np)


def same_numbers(a: np.ndarray, b: np.ndarray, signed_zeros: bool) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
    if signed_zeros and a.dtype.kind == "f":
        known = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])


def padded(b: GraphBuilder, src: Operand, view: View, shape: tuple[int, ...] = (4, 3)) -> Operand:
    return add_slices(b, Literal(0, src.dtype), src, view=view, shape=shape)


def put(b: GraphBuilder, base: Operand, src: object, view: View,
        shape: tuple[int, ...] = (4, 3)) -> Operand:
    return copy_slices(b, base, src, view=view, shape=shape)


def read(b: GraphBuilder, x: Operand, view: View) -> Operand:
    return as_strided(b, x, view=view)


def fill(b: GraphBuilder, value: float, shape: tuple[int, ...], dtype: DType = F64) -> Operand:
    return full(b, shape=shape, value=Literal(value, dtype))


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
    ("negated_where", lambda b, c, x, y: where(b, logical_not(b, c), x, y),
     ("bool[4, 3]", X, X), 1),
    ("nested_where", lambda b, c, x, y: where(b, c, where(b, c, x, Literal(0.0, F64)), y),
     ("bool[4, 3]", X, X), 1),
    ("nested_where", lambda b, c, x, y: where(b, c, x, where(b, c, Literal(0.0, F64), y)),
     ("bool[4, 3]", X, X), 1),
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
    ("read_past_write", lambda b, x, s: read(b, add_slices(b, x, s, view=ROW, shape=(4, 3)), EVEN),
     (X, S), 1),
    ("splat_slices", lambda b, x: put(b, x, fill(b, 2.0, (3,)), ROW), (X,), 1),
    ("write_of_nothing", lambda b, x: put(b, x, 1.0, EMPTY), (X,), 0),
    ("write_of_nothing", lambda b, x: put(b, x, read(b, x, ROW), ROW), (X,), 0),
    ("write_after_write", lambda b, x, s, t: put(b, put(b, x, s, ROW), t, ROW), (X, S, S), 1),
    ("write_of_all", lambda b, x, s: put(b, x, s, TURNED), (X, "f64[3, 4]"), 1),
    ("reduce_nothing", lambda b, x: max_(b, x, axes=()), (X,), 0),
    ("reduce_unit_axes", lambda b, x: max_(b, x, axes=(1,)), ("f64[4, 1]",), 1),
    ("reduce_of_reduction", lambda b, x: max_(b, max_(b, x, axes=(1,)), axes=(1,)),
     ("f64[2, 3, 4]",), 1),
    ("reduce_of_reduction", lambda b, x: sum_(b, sum_(b, x, axes=(0,)), axes=(1,)),
     ("i8[2, 3, 4]",), 1),
    ("sum_of_splat", lambda b: sum_(b, fill(b, 100, (3, 4), I8), axes=(1,)), (), 1),
    ("sum_of_splat", lambda b: sum_(b, fill(b, 3.0, (3, 4)), axes=(0, 1)), (), 0),
]
UP_TO_ZERO: list[tuple[str, Build, tuple[str, ...], int]] = [
    ("read_of_write", lambda b, s: read(b, padded(b, s, ROW), ROW), (S,), 0),
    ("write_of_nothing", lambda b, x: add_slices(b, x, 0.0, view=ROW, shape=(4, 3)), (X,), 0),
    ("write_of_all", lambda b, s: padded(b, s, TURNED), ("f64[3, 4]",), 1),
    ("write_of_all", lambda b, x, s: add_slices(b, x, s, view=TURNED, shape=(4, 3)),
     (X, "f64[3, 4]"), 2),
    ("add_to_cleared",
     lambda b, g, s: add_slices(b, put(b, g, 0.0, ROW), s, view=ROW, shape=(4, 3)), (X, S), 1),
    ("add_to_region", lambda b, g, s: add(b, padded(b, s, ROW), g), (X, S), 1),
    ("add_to_region", lambda b, s, t: add(b, padded(b, s, ROW), padded(b, t, EVEN)), (S, T), 2),
    ("subtract_region", lambda b, g, s: sub(b, g, padded(b, s, ROW)), (X, S), 2),
    ("add_twice", lambda b, s, t: add_slices(b, padded(b, s, ROW), t, view=ROW, shape=(4, 3)),
     (S, S), 2),
    ("reduce_nothing", lambda b, x: sum_(b, x, axes=()), (X,), 0),
    ("reduce_unit_axes", lambda b, x: sum_(b, x, axes=(1,)), ("f64[4, 1]",), 1),
]
ROUNDED: list[tuple[str, Build, tuple[str, ...], int]] = [
    ("reduce_of_reduction", lambda b, x: sum_(b, sum_(b, x, axes=(0,)), axes=(1,)),
     ("f64[2, 3, 4]",), 1),
    ("sum_of_expand", lambda b, x: sum_(b, as_view(b, x, Expand((3, 4))), axes=(0, 1)),
     ("f64[3, 1]",), 3),
    ("sum_of_expand", lambda b, x: sum_(b, as_view(b, x, Expand((3, 4))), axes=(1,)),
     ("i8[3, 1]",), 2),
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


def check_rule(name: str, build: Build, types: tuple[str, ...], left: int,
               signed_zeros: bool) -> None:
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
            graph = make(lambda b, x, m=middle, e=end: cast(b, cast(b, x, dtype=m), dtype=e),
                         f"{start}[40]")
            after = simplify(graph)
            shortened += len(after.nodes) < 2
            x = hard_array(rng, graph.inputs[0].type)
            same_numbers(evaluate(graph, [x])[0], evaluate(after, [x])[0], True)
    assert shortened > len(dtypes.ALL)


# ------------------------------------------------------- what IEEE arithmetic does not allow


@pytest.mark.parametrize("build", [
    lambda b, x: add(b, x, 0.0), lambda b, x: mul(b, x, 0.0), lambda b, x: sub(b, x, x),
    lambda b, x: sub(b, x, -0.0), lambda b, x: div(b, x, 3.0), lambda b, x: neg(b, sub(b, x, 1.0)),
    lambda b, x: mul(b, mul(b, x, 3.0), 5.0),
])
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


# ------------------------------------------------------------------------- driver and passes


def test_cse_merges_equal_nodes_and_only_those() -> None:
    g = make(lambda b, x, y: (add(b, x, y), add(b, y, x), sub(b, x, y), sub(b, y, x),
                              mul(b, x, 0.0), mul(b, x, -0.0)), X, X)
    after = cse(g)
    assert len(after.nodes) == 5
    assert after.outputs[0] is after.outputs[1]
    assert after.outputs[4] is not after.outputs[5]


def test_dead_nodes_go_and_checks_stay() -> None:
    def build(b: GraphBuilder, x: Value, i: Value) -> Operand:
        mul(b, x, 7.0)
        wrap_index(b, i, size=3, axis=0)
        return add(b, x, 1.0)

    after = remove_dead(make(build, X, "i64[2]"))
    assert wrap_index.has(Trait.CHECKED)
    assert [n.op for n in after.nodes] == [wrap_index, add]


def test_effects_are_kept_apart() -> None:
    note = _effect_op()

    def build(b: GraphBuilder, x: Value) -> Operand:
        b.emit(note, (x,))
        b.emit(note, (x,))
        return add(b, x, 1.0)

    after = simplify(make(build, X))
    assert [n.op for n in after.nodes] == [note, note, add]


def _effect_op() -> object:
    from tracegrad.graph.op import REGISTRY

    name = "note_for_tests"
    if name in REGISTRY:
        return REGISTRY[name]
    return declare(name=name, attrs=Attrs, infer=lambda a, x: (), reference=lambda a, x: None,
                   derivative=NoGradient("it has no results"), lowering=Special("a test"),
                   traits=frozenset({Trait.EFFECT}), samples=lambda rng: [])


def test_grafts_are_kept_until_dropped() -> None:
    g = make(lambda b, x, y: add(b, graft(b, x, y), stop_gradient(b, x)), X, X)
    assert len(simplify(g).nodes) == 3
    after = drop_grafts(g)
    assert [n.op for n in after.nodes] == [add]
    assert after.nodes[0].operands == (after.inputs[0], after.inputs[0])


def test_nodes_without_gradients_are_left_until_marks_are_dropped() -> None:
    def build(b: GraphBuilder, x: Value) -> Operand:
        b.grad = False
        once = neg(b, x)
        b.grad = True
        return neg(b, once)

    g = make(build, X)
    assert len(simplify(g).nodes) == 2
    assert simplify(drop_grafts(g)).outputs == (g.inputs[0],)


def test_replacements_have_the_place_of_the_root() -> None:
    b = GraphBuilder("f")
    x = b.input(typed(X), "x")
    with b.at(SourceLoc("a.py", 1, 0, 1)):
        inner = neg(b, x)
    with b.at(SourceLoc("a.py", 2, 0, 1)):
        out = mul(b, inner, 3.0)
    after = simplify(b.finish([out]))
    assert [n.loc.line for n in after.nodes] == [2]


def test_copy_slices_gradient_becomes_one_write() -> None:
    """The backward graph of ``v = y[1]; v *= 3``: the rule that gives PyTorch's CopySlices."""
    def build(b: GraphBuilder, ct: Value) -> Operand:
        g0 = as_view(b, ct, Index((NewAxis(), NewAxis())), Expand((4, 3)))
        g3 = mul(b, read(b, g0, ROW), 3.0)
        return mul(b, add(b, put(b, g0, 0.0, ROW), padded(b, g3, ROW)), 2.0)

    graph = make(build, "f64[]")
    after = simplify(graph)
    assert [n.op.name for n in after.nodes] == [
        "as_strided", "as_strided", "mul", "copy_slices", "mul"]
    np.testing.assert_array_equal(evaluate(after, [np.asarray(1.0)])[0],
                                  np.where(np.arange(4)[:, None] == 1, 6.0, 2.0) * np.ones((4, 3)))


def test_a_long_chain_is_rewritten_in_one_go() -> None:
    def build(b: GraphBuilder, x: Value) -> Operand:
        for _ in range(20_000):
            x = mul(b, neg(b, x), 1.0)
        return x

    assert simplify(make(build, "f64[2]")).outputs[0].hint == "x0"


def test_random_programs_keep_their_meaning() -> None:
    """Random graphs of arithmetic, views and writes, before and after."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = make(lambda b, *xs, r=rng: random_program(b, r, list(xs)), X, X, S)
        after = simplify(graph)
        verify(after)
        assert canonical(simplify(after)) == canonical(after), seed
        inputs = [rng.normal(size=v.shape) for v in graph.inputs]
        for a, b in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"seed {seed}")


def random_program(b: GraphBuilder, rng: np.random.Generator, xs: list[Operand]
                   ) -> tuple[Operand, ...]:
    views = [ROW, OTHER_ROW, EVEN, ODD, PART_OF_ROW, TURNED, View((Reshape((12,)),)), EMPTY,
             View((Index((Span(3, 4, -1), Pick(1))),)), View((Reshape((2, 6)), Permute((1, 0))))]
    by_shape: dict[tuple[int, ...], list[Operand]] = {}

    def keep(x: Operand) -> None:
        by_shape.setdefault(x.shape, []).append(x)

    def pick(shape: tuple[int, ...]) -> Operand:
        pool = by_shape.get(shape)
        if not pool:
            return fill(b, float(rng.choice([0.0, 1.0, 2.0])), shape)
        return pool[rng.integers(len(pool))]

    for x in xs:
        keep(x)
    for _ in range(25):
        view = views[rng.integers(len(views))]
        base, part = pick((4, 3)), view.shape((4, 3))
        shape = list(by_shape)[rng.integers(len(by_shape))]
        kind = rng.integers(7)
        if kind == 0:
            keep(read(b, base, view))
        elif kind == 1:
            keep(put(b, base, pick(part), view))
        elif kind == 2:
            keep(add(b, base, padded(b, pick(part), view)))
        elif kind == 3:
            keep(put(b, base, 0.0, view))
        elif kind == 4:
            op = (add, sub, mul)[rng.integers(3)]
            keep(op(b, pick(shape), pick(shape)))
        elif kind == 5:
            keep(mul(b, pick(shape), float(rng.choice([1.0, -1.0, 0.5]))))
        else:
            keep(neg(b, pick(shape)))
    return tuple(pool[-1] for pool in by_shape.values())


def test_traced_graphs_are_refused() -> None:
    from tracegrad.graph.ir import Stage

    b = GraphBuilder("f", Stage.TRACED)
    x = b.input(TensorType((2,), F32), "x")
    with pytest.raises(VerifyError, match="only functional graphs"):
        simplify(b.finish([x]))


