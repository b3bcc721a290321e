"""`pointwise`: declare an elementwise op from a scalar intrinsic and partial derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.ir import Operand
from tracegrad.graph.op import (
    Decompose,
    Derivative,
    NoGradient,
    OpDef,
    Partial,
    Partials,
    Point,
    Sample,
    declare,
)
from tracegrad.loops.ir import Apply, Expr, Intrinsic
from tracegrad.types import Shape, TensorType

# (lowest, highest) of test inputs; open at both ends where the function is singular there.
Domain = tuple[float, float]
REALS: Domain = (-2.5, 2.5)
POSITIVE: Domain = (0.2, 3.0)
UNIT: Domain = (-0.95, 0.95)

NUMBERS = dtypes.INTEGERS + dtypes.FLOATS

# What a float op that is piecewise constant declares: its gradient is zero, not absent.
FLAT: tuple[Partial | None, ...] = (None,)
INTEGER_RESULT = "the result is not a real number"
# As a result's dtype: that of the operands' real parts.
PARTS = "parts"

# A copy, so that results never share memory with operands; scalars stay scalars.
IDENTITY = Intrinsic("positive", 1, lambda x: np.array(x)[()], "{0}")


def common_shape(name: str, types: Sequence[TensorType]) -> Shape:
    """The one shape of operands that are equal in shape or scalar literals."""
    shapes = {t.shape for t in types if t.shape != ()}
    if len(shapes) > 1:
        raise ShapeError(f"{name}: operands have shapes {' and '.join(map(str, shapes))}")
    return shapes.pop() if shapes else ()


def common_dtype(name: str, types: Sequence[TensorType], accepts: Sequence[DType]) -> DType:
    """The one dtype of all operands; it must be among `accepts`."""
    found = {t.dtype for t in types}
    if len(found) != 1 or not found <= set(accepts):
        names = ", ".join(dict.fromkeys(t.dtype.name for t in types))
        raise DTypeError(f"{name}: not defined for {names}")
    return found.pop()


def pointwise(
    name: str,
    intrinsic: Intrinsic,
    partials: tuple[Partial | None, ...] | str,
    *,
    by_kind: Mapping[str, Intrinsic] | None = None,
    accepts: tuple[DType, ...] = dtypes.FLOATS,
    result: DType | str | None = None,
    domain: Domain | tuple[Domain, ...] = REALS,
    **public: Any,
) -> OpDef:
    """An elementwise op; all operands have one dtype out of `accepts`.

    `partials` is one `Partial` an operand, or a sentence saying why there is no derivative.
    `by_kind` gives another intrinsic for some kinds of dtype (``b i u f``).
    `result` is the result's dtype (default: that of the operands; PARTS: real for complex
    ones); `public` are the remaining fields of `OpDef`: traits, names, doc, and `pairs`, with
    which the op accepts complex operands too.
    """
    chosen = by_kind or {}
    takes = accepts + dtypes.COMPLEX if "pairs" in public else accepts

    def compute(*xs: Any) -> Any:
        return chosen.get(np.asarray(xs[0]).dtype.kind, intrinsic).numpy(*xs)

    def at(lb: object, attrs: object, out: TensorType, index: object, *xs: Any) -> Apply:
        args = tuple(x(index) for x in xs)
        return Apply(chosen.get(args[0].dtype.kind, intrinsic), args, out.dtype)

    shape_rule, reference = _meaning(name, intrinsic.arity, compute, takes, result)
    return declare(
        name=name,
        infer=shape_rule,
        reference=reference,
        derivative=_derivative(partials),
        lowering=Point(at),
        intrinsic=intrinsic,
        by_kind=chosen,
        samples=lambda rng: pointwise_samples(rng, intrinsic.arity, accepts, domain),
        **_names(public),
    )


def composite(
    name: str,
    compute: Callable[..., Any],
    build: Callable[..., Operand],
    partials: tuple[Partial | None, ...],
    *,
    accepts: tuple[DType, ...] = dtypes.FLOATS,
    **public: Any,
) -> OpDef:
    """An elementwise op that the tracer replaces by others: ``build(b, *operands)``.

    `compute` is its meaning on arrays.
    """
    arity = len(partials)
    takes = accepts + dtypes.COMPLEX if "pairs" in public else accepts
    shape_rule, reference = _meaning(name, arity, compute, takes, None)
    return declare(
        name=name,
        infer=shape_rule,
        reference=reference,
        derivative=_derivative(partials),
        lowering=Decompose(lambda b, attrs, *xs: build(b, *xs)),
        samples=lambda rng: pointwise_samples(rng, arity, accepts, REALS),
        **_names(public),
    )


def _meaning(
    name: str,
    arity: int,
    compute: Callable[..., Any],
    accepts: Sequence[DType],
    result: DType | str | None,
) -> tuple[Callable[..., TensorType], Callable[..., np.ndarray]]:
    """Shape rule and reference of an elementwise op."""

    def infer(attrs: object, *types: TensorType) -> TensorType:
        if len(types) != arity:
            raise ShapeError(f"{name} takes {arity} operands, not {len(types)}")
        dtype = common_dtype(name, types, accepts)
        return TensorType(common_shape(name, types), _result(result, dtype))

    def reference(attrs: object, *xs: np.ndarray) -> np.ndarray:
        dtype = dtypes.of(np.asarray(xs[0]).dtype)
        with np.errstate(all="ignore"):
            out = np.asarray(compute(*xs))
        return out.astype(_result(result, dtype).np, copy=False)

    return infer, reference


def _result(result: DType | str | None, dtype: DType) -> DType:
    if isinstance(result, DType):
        return result
    return dtype.parts if result == PARTS else dtype


def _derivative(partials: tuple[Partial | None, ...] | str) -> Derivative:
    return NoGradient(partials) if isinstance(partials, str) else Partials(tuple(partials))


def _names(public: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `OpDef`, with sequences as it wants them."""
    out = dict(public)
    out["traits"] = frozenset(out.get("traits", ()))
    for key in ("numpy", "methods"):
        out[key] = tuple(out.get(key, ()))
    return out


def pointwise_samples(
    rng: np.random.Generator,
    arity: int,
    accepts: Sequence[DType],
    domain: Domain | tuple[Domain, ...],
) -> list[Sample]:
    """Random operands of each accepted dtype within the domain, one an operand or one for all."""
    spans = domain if isinstance(domain[0], tuple) else (domain,) * arity
    out = []
    for dtype in accepts:
        for shape in ((3, 4), (), (0, 2)):
            out.append(Sample(tuple(random_array(rng, shape, dtype, span) for span in spans)))
    return out


def random_array(
    rng: np.random.Generator, shape: Sequence[int], dtype: DType, span: Domain = REALS
) -> np.ndarray:
    """Values within `span`; integers are spread over it, unsigned ones from 0."""
    lo, hi = span
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if dtype.is_integer:
        low = max(0, int(np.ceil(lo))) if dtype.kind == "u" else int(np.ceil(lo * 4))
        high = max(low, int(np.floor(hi * 4)))
        return np.asarray(rng.integers(low, high + 1, shape), dtype.np)
    return np.asarray(rng.uniform(lo, hi, shape), dtype.np)


def call(name: str, arity: int, numpy: Callable[..., Any], function: str = "") -> Intrinsic:
    """An intrinsic spelled as a call of the library's C function ``tg_<function>_<t>``."""
    function = f"{function or name}_{{t}}"
    args = ", ".join(f"{{{k}}}" for k in range(arity))
    return Intrinsic(name, arity, numpy, f"tg_{function}({args})", helpers=(function,))


def scalar(op: OpDef, dtype: DType, *args: Expr) -> Apply:
    """The scalar expression of an elementwise op, for lowerings."""
    assert op.intrinsic is not None
    return Apply(op.by_kind.get(args[0].dtype.kind, op.intrinsic), args, dtype)
