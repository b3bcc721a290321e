"""`pointwise`: declare an elementwise op from a scalar intrinsic and partial derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.op import (
    Derivative, NoGradient, OpDef, Partial, Partials, Point, Sample, Trait, declare,
)
from tracegrad.loops.ir import Apply, Intrinsic
from tracegrad.types import TensorType

# (lowest, highest) of test inputs; open at both ends where the function is singular there.
Domain = tuple[float, float]
REALS: Domain = (-2.5, 2.5)
POSITIVE: Domain = (0.2, 3.0)
UNIT: Domain = (-0.95, 0.95)


def common_shape(name: str, types: Sequence[TensorType]) -> tuple:  # type: ignore[type-arg]
    """The one shape of operands that are equal in shape or scalar literals."""
    shapes = {t.shape for t in types if t.shape != ()}
    if len(shapes) > 1:
        raise ShapeError(f"{name}: operands have shapes {' and '.join(map(str, shapes))}")
    return shapes.pop() if shapes else ()


def pointwise(
    name: str,
    intrinsic: Intrinsic,
    partials: tuple[Partial | None, ...] | str,
    *,
    accepts: tuple[DType, ...] = dtypes.FLOATS,
    result: DType | None = None,
    domain: Domain | tuple[Domain, ...] = REALS,
    traits: Sequence[Trait] = (),
    numpy: Sequence[Callable[..., Any]] = (),
    methods: Sequence[str] = (),
    inplace: bool = False,
    tg: str = "",
    doc: str = "",
) -> OpDef:
    """An elementwise op; all operands have one dtype out of `accepts`.

    `partials` is one `Partial` an operand, or a sentence saying why there is no derivative.
    `result` is the result's dtype (default: that of the operands).
    """

    def infer(attrs: object, *types: TensorType) -> TensorType:
        if len(types) != intrinsic.arity:
            raise ShapeError(f"{name} takes {intrinsic.arity} operands, not {len(types)}")
        kinds = {t.dtype for t in types}
        if len(kinds) != 1 or not kinds <= set(accepts):
            raise DTypeError(f"{name}: not defined for {', '.join(d.name for d in kinds)}")
        return TensorType(common_shape(name, types), result or types[0].dtype)

    def reference(attrs: object, *xs: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            out = np.asarray(intrinsic.numpy(*xs))
        return out.astype((result or dtypes.of(np.asarray(xs[0]).dtype)).np, copy=False)

    def at(lb: object, attrs: object, out: TensorType, index: object, *xs: Any) -> Apply:
        return Apply(intrinsic, tuple(x(index) for x in xs), out.dtype)

    derivative: Derivative = (
        NoGradient(partials) if isinstance(partials, str) else Partials(tuple(partials)))
    return declare(
        name=name, infer=infer, reference=reference, derivative=derivative, lowering=Point(at),
        traits=frozenset(traits), intrinsic=intrinsic, numpy=tuple(numpy),
        methods=tuple(methods), inplace=inplace, tg=tg, doc=doc,
        samples=lambda rng: pointwise_samples(rng, intrinsic.arity, accepts, domain))


def pointwise_samples(rng: np.random.Generator, arity: int, accepts: Sequence[DType],
                      domain: Domain | tuple[Domain, ...]) -> list[Sample]:
    """Random operands of each accepted dtype within the domain, one an operand or one for all."""
    spans = domain if isinstance(domain[0], tuple) else (domain,) * arity
    out = []
    for dtype in accepts:
        for shape in ((3, 4), (), (0, 2)):
            out.append(Sample(tuple(random_array(rng, shape, dtype, span) for span in spans)))
    return out


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: DType,
                 span: Domain = REALS) -> np.ndarray:
    """Values within `span`; integers are spread over it, unsigned ones from 0."""
    lo, hi = span
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if dtype.is_integer:
        low = max(0, int(np.ceil(lo))) if dtype.kind == "u" else int(np.ceil(lo * 4))
        return np.asarray(rng.integers(low, int(hi * 4) + 1, shape), dtype.np)
    return np.asarray(rng.uniform(lo, hi, shape), dtype.np)
