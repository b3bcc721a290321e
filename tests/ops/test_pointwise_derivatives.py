"""Derivatives of the elementwise ops: finite differences, kinks, PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad.ops.bitwise
import tracegrad.ops.integer
import tracegrad.ops.special  # noqa: F401
from tests.ops.derivative_laws import build, check_derivatives, check_samples, cotangents
from tracegrad import dtypes
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.op import REGISTRY, NoGradient, OpDef, Partials
from tracegrad.ops.arithmetic import mul
from tracegrad.ops.cast import cast

inf, nan = np.inf, np.nan

SMOOTH = [
    op
    for op in REGISTRY
    if isinstance(op.derivative, Partials) and op.attrs is REGISTRY["add"].attrs
]
# The derivative is one of the representation, which differences do not see.
STEPS = {"nextafter"}


@pytest.mark.parametrize(
    "op", [op for op in SMOOTH if op.name not in STEPS], ids=lambda op: op.name
)
def test_first_and_second_derivatives(op: OpDef) -> None:
    check_samples(op, np.random.default_rng(3))


def test_discrete_results_have_no_gradient() -> None:
    for name in ("eq", "lt", "isnan", "logical_and", "bitwise_or", "left_shift", "gcd", "iota"):
        assert isinstance(REGISTRY[name].derivative, NoGradient), name


def gradients(op: OpDef, *xs: Any, attrs: dict[str, Any] | None = None) -> list[np.ndarray]:
    """Gradient of the sum of ``op(*xs)`` with respect to each float operand."""
    arrays = [np.asarray(x) for x in xs]
    graph = build(lambda b, *values: op(b, *values, **(attrs or {})), *arrays)
    joint = cotangents(graph, range(len(arrays)), [1.0])
    return [np.broadcast_to(g, a.shape) for g, a in zip(evaluate(joint, arrays), arrays,
                                                       strict=True)]  # fmt: skip


# (op, operands, gradient of each operand); the table of docs/derivatives.md.
KINKS: list[tuple[str, list[list[float]], list[list[float]]]] = [
    ("abs", [[0.0, -0.0, -2]], [[0, 0, -1]]),
    ("sign", [[0.0, 3]], [[0, 0]]),
    ("relu", [[0.0, -1, 4, nan]], [[0, 0, 1, 1]]),
    ("floor", [[1.0, 1.5]], [[0, 0]]),
    ("sqrt", [[0.0, 4]], [[inf, 0.25]]),
    ("rsqrt", [[0.0]], [[-inf]]),
    ("asin", [[1.0, -1]], [[inf, inf]]),
    ("maximum", [[2.0, 1, 2, nan, 1], [1.0, 2, 2, 1, nan]], [[1, 0, 0.5, 1, 1], [0, 1, 0.5, 1, 1]]),
    ("minimum", [[2.0, 1, 2, nan, 1], [1.0, 2, 2, 1, nan]], [[0, 1, 0.5, 1, 1], [1, 0, 0.5, 1, 1]]),
    ("fmax", [[nan, 1, nan, 2, 1], [1, nan, nan, 2, 2]], [[0, 1, 1, 1, 0], [1, 0, 0, 0, 1]]),
    ("fmin", [[nan, 1, nan, 2, 1], [1, nan, nan, 2, 2]], [[0, 1, 1, 1, 1], [1, 0, 0, 0, 0]]),
    ("clamp_min", [[0.0, 1, 2, nan], [1.0, 1, 1, 1]], [[0, 1, 1, 0], [1, 0, 0, 0]]),
    ("clamp_max", [[0.0, 1, 2, nan], [1.0, 1, 1, 1]], [[1, 1, 0, 0], [0, 0, 1, 0]]),
    (
        "clip",
        [[0.0, 1, 2, 3, nan, 5, 5, 1], [1, 1, 1, 1, 1, 3, 3, 3], [2, 2, 2, 2, 2, 2, 3, 1]],
        [[0, 1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 1, 1, 1]],
    ),
    ("power", [[0.0, 0, 0, -2, 2, 0], [0.0, 1, 2, 2, 0, -1]],
     [[0, 1, 0, -4, 0, -inf], [0, 0, 0, nan, np.log(2), -inf]]),
    ("atan2", [[0.0, 1, 0], [0.0, 0, -1]], [[0, 0, -1], [0, -1, 0]]),
    ("hypot", [[0.0, 3], [0.0, 4]], [[nan, 0.6], [nan, 0.8]]),
    ("copysign", [[0.0, 1, -1, 2], [0.5, -0.5, 1, 0]], [[0, -1, -1, 1], [0, 0, 0, 0]]),
    ("nextafter", [[0.0, 1], [0.5, 0.5]], [[1, 1], [0, 0]]),
    ("remainder", [[5.0, -5, 5], [3.0, 3, 0]], [[1, 1, 1], [-1, 2, -inf]]),
    ("fmod", [[5.0, -5, 5], [3.0, 3, 0]], [[1, 1, 1], [-1, 1, -inf]]),
    ("heaviside", [[0.0, 1], [0.5, 0.5]], [[0, 0], [1, 0]]),
    ("logaddexp", [[-inf, -inf, inf, 800], [1.0, -inf, 1, 0]], [[0, 0.5, 1, 1], [1, 0.5, 0, 0]]),
    ("floor_divide", [[5.0], [2.0]], [[0], [0]]),
]  # fmt: skip
# Where PyTorch has no derivative, or NaN for a value that is clear.
NOT_TORCH = {"heaviside", "floor_divide", "logaddexp"}
# torch.ldexp with integer exponents takes 2 to a negative power as 0.
WRONG_IN_TORCH = {"ldexp"}
# Named otherwise in PyTorch, or not there.
NOT_THERE = {"fraction", "frexp_mantissa"}


@pytest.mark.parametrize(("name", "xs", "expected"), KINKS, ids=[k[0] for k in KINKS])
def test_kinks(name: str, xs: list[list[float]], expected: list[list[float]]) -> None:
    found = gradients(REGISTRY[name], *[np.array(x, float) for x in xs])
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-15)


def torch_function(name: str) -> Callable[..., Any]:
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    special = {
        "power": torch.pow, "clip": torch.clamp, "erf": torch.special.erf, "silu": nn.silu,
        "clamp_min": torch.clamp_min, "clamp_max": torch.clamp_max, "softplus": nn.softplus,
        "gelu": nn.gelu, "gelu_tanh": lambda x: nn.gelu(x, approximate="tanh"), "rint": torch.round,
        "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
        "where": lambda c, x, y: torch.where(c, x, y),
    }  # fmt: skip
    return special.get(name) or getattr(torch, name)  # type: ignore[no-any-return]


def torch_gradients(name: str, xs: list[np.ndarray]) -> list[np.ndarray | None]:
    torch = pytest.importorskip("torch")
    ts = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in xs]
    torch_function(name)(*ts).sum().backward()
    return [None if t.grad is None else t.grad.numpy() for t in ts]


@pytest.mark.oracle
@pytest.mark.parametrize("case", [k for k in KINKS if k[0] not in NOT_TORCH], ids=lambda k: k[0])
def test_kinks_are_those_of_torch(case: tuple[str, Any, Any]) -> None:
    name, xs, expected = case
    for theirs, e in zip(torch_gradients(name, [np.array(x, float) for x in xs]), expected,
                         strict=True):  # fmt: skip
        if theirs is not None:
            np.testing.assert_allclose(theirs, e, rtol=1e-15)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "op",
    [op for op in SMOOTH if op.name not in NOT_TORCH | WRONG_IN_TORCH | STEPS | NOT_THERE],
    ids=lambda op: op.name,
)
def test_gradients_are_those_of_torch(op: OpDef) -> None:
    compared = 0
    for sample in op.samples(np.random.default_rng(5)):
        arrays = [np.asarray(x) for x in sample.operands]
        kinds = {a.dtype for a in arrays}
        if np.dtype(np.float64) not in kinds:
            continue
        theirs = torch_gradients(op.name, arrays)
        for a, mine, their in zip(arrays, gradients(op, *arrays), theirs, strict=True):
            if a.dtype == np.float64 and their is not None:
                np.testing.assert_allclose(mine, their, rtol=1e-9, atol=1e-12)
                compared += 1
    assert compared


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -2.5])
def test_power_by_a_literal(exponent: float) -> None:
    graph = build(lambda b, x: REGISTRY["power"](b, x, exponent), np.array([0.3, 1.7, 2.0]))
    check_derivatives(graph, [np.array([0.3, 1.7, 2.0])])


def test_power_by_a_literal_at_zero() -> None:
    for exponent, slope in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (0.5, inf)):
        graph = build(lambda b, x, e=exponent: REGISTRY["power"](b, x, e), np.zeros(1))
        joint = cotangents(graph, [0], [1.0])
        (found,) = evaluate(joint, [np.zeros(1)])
        np.testing.assert_array_equal(np.broadcast_to(found, (1,)), [slope])


def test_masked_products_do_not_make_nan() -> None:
    """Branches not taken have infinite slopes; their share of the gradient is zero all the same."""
    where, sqrt, gt = REGISTRY["where"], REGISTRY["sqrt"], REGISTRY["gt"]

    def f(b: Any, x: Any) -> Any:
        safe = where(b, gt(b, x, 0.0), x, dtypes_one(x))
        return where(b, gt(b, x, 0.0), sqrt(b, safe), mul(b, x, 2.0))

    x = np.array([0.0, 4.0, -1.0])
    graph = build(f, x)
    joint = cotangents(graph, [0], [1.0])
    np.testing.assert_array_equal(evaluate(joint, [x])[0], [2, 0.25, 2])


def dtypes_one(x: Any) -> Any:
    from tracegrad.graph.ir import Literal

    return Literal(1, x.dtype)


def test_cast_sends_the_cotangent_back_in_the_operand_dtype() -> None:
    x = np.array([1.5, -2.0], np.float32)
    graph = build(lambda b, v: mul(b, cast(b, v, dtype=dtypes.F64), 3.0), x)
    joint = cotangents(graph, [0], [1.0])
    (found,) = evaluate(joint, [x])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.broadcast_to(found, (2,)), [3, 3])


def test_cast_to_integer_cuts_the_gradient() -> None:
    x = np.array([1.5, -2.0])

    def f(b: Any, v: Any) -> Any:
        whole = cast(b, v, dtype=dtypes.I32)
        return mul(b, cast(b, whole, dtype=dtypes.F64), v)

    graph = build(f, x)
    joint = cotangents(graph, [0], [1.0])
    np.testing.assert_array_equal(evaluate(joint, [x])[0], [1, -2])
