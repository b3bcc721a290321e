"""Complex numbers as pairs of real ones: what ops mean on real and imaginary parts.

A complex tensor of shape S is a real one of shape ``(*S, 2)``, as it lies in memory.  The field
`OpDef.pairs` says how an op works on such tensors, ``pairs(b, op, attrs, *operands)``: a complex
operand is a `Pair`, a real one is an operand as usual.  A complex result is a `Pair` or a real
value with the last axis of 2.  Since everything behind is real, the gradient of a complex array
is ``dL/d(re) + i dL/d(im)``, PyTorch's convention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import DTypeError, ShapeError
from tracegrad.graph.attr_text import literal_parts
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, Linear, Nest, OpDef, Sample, Trait, declare
from tracegrad.types import Shape, TensorType

if TYPE_CHECKING:
    from tracegrad.graph.builder import GraphBuilder


class Pair:
    """Real and imaginary part, read from `whole` when they are asked for."""

    def __init__(self, re: Operand, im: Operand) -> None:
        self._parts: list[Operand | None] = [re, im]
        self._whole: tuple[GraphBuilder, Value, bool] | None = None

    @classmethod
    def of(cls, b: GraphBuilder, whole: Value, conjugate: bool = False) -> Pair:
        """The parts of a real value with a last axis of 2, or of its conjugate."""
        made = cls.__new__(cls)
        made._parts, made._whole = [None, None], (b, whole, conjugate)
        return made

    @classmethod
    def literal(cls, x: Literal) -> Pair:
        return cls(*literal_parts(x))

    @property
    def re(self) -> Operand:
        return self._part(0)

    @property
    def im(self) -> Operand:
        return self._part(1)

    @property
    def is_stored(self) -> bool:
        """Whether it is a value in memory as it stands."""
        return self._whole is not None and not self._whole[2]

    @property
    def shape(self) -> Shape:
        if self._whole is not None:
            return self._whole[1].type.shape[:-1]
        return self.re.shape or self.im.shape

    def whole(self, b: GraphBuilder) -> Value:
        """One real value with a last axis of 2; the shape () for two literals."""
        if self.is_stored:
            assert self._whole is not None
            return self._whole[1]
        return joined(b, self.re, self.im, self.shape)

    def _part(self, k: int) -> Operand:
        found = self._parts[k]
        if found is None:
            from tracegrad.ops.arithmetic import neg

            assert self._whole is not None
            b, whole, conjugate = self._whole
            found = part(b, whole, k)
            if conjugate and k:
                found = neg(b, found)
            self._parts[k] = found
        return found


def part(b: GraphBuilder, whole: Value, k: int) -> Operand:
    """Real (0) or imaginary (1) part of a value with a last axis of 2."""
    from tracegrad.graph.storage import Index, Pick, Span
    from tracegrad.ops.views import as_view

    *outer, _ = whole.type.shape
    return as_view(b, whole, Index((*(Span(0, n) for n in outer), Pick(k))))


def joined(b: GraphBuilder, re: Operand, im: Operand, shape: Shape) -> Value:
    """The pair as one value of shape ``(*shape, 2)``."""
    if isinstance(re, Literal) and re == im:
        from tracegrad.ops.create import full

        return full(b, shape=(*shape, 2), value=re)  # type: ignore[no-any-return]
    return b.emit(pair, (re, im), PairAttrs(shape))  # type: ignore[no-any-return]


# --------------------------------------------------------------------------- forms of rules

Part = Callable[..., Any]


def each_part(b: GraphBuilder, op: OpDef, attrs: Attrs, *xs: Any) -> Pair:
    """For ops that are linear in their complex operands with real coefficients: on the real
    parts, and on the imaginary parts."""
    return Pair(
        b.emit(op, [x.re if isinstance(x, Pair) else x for x in xs], attrs),
        b.emit(op, [x.im if isinstance(x, Pair) else x for x in xs], attrs),
    )


def as_whole(b: GraphBuilder, op: OpDef, attrs: Attrs, *xs: Any) -> Value:
    """For ops that do not look at shapes: on the values with the last axis of 2."""
    return b.emit(  # type: ignore[no-any-return]
        op, [x.whole(b) if isinstance(x, Pair) else x for x in xs], attrs
    )


def elementwise(rule: Part) -> Part:
    """``rule(b, *operands)`` for an op without attributes."""
    return lambda b, op, attrs, *xs: rule(b, *xs)


def either_part(b: GraphBuilder, op: OpDef, attrs: Attrs, x: Pair) -> Operand:
    """A question that is true of a complex number when it is true of a part."""
    from tracegrad.ops.compare import logical_or

    return logical_or(b, op(b, x.re), op(b, x.im))  # type: ignore[no-any-return]


def is_nonzero(b: GraphBuilder, x: Operand | Pair) -> Operand:
    """Whether a number is not zero."""
    from tracegrad.ops.compare import logical_or, ne

    if isinstance(x, Pair):
        return logical_or(b, ne(b, x.re, 0), ne(b, x.im, 0))  # type: ignore[no-any-return]
    return ne(b, x, 0)  # type: ignore[no-any-return]


# ----------------------------------------------------------------------------------- pair


@dataclass(frozen=True, slots=True)
class PairAttrs(Attrs):
    """`shape` is that of either part, which may be a literal."""

    shape: Shape


def _infer_pair(attrs: PairAttrs, re: TensorType, im: TensorType) -> TensorType:
    if re.dtype is not im.dtype:
        raise DTypeError(f"pair: dtypes differ: {re.dtype}, {im.dtype}")
    for t in (re, im):
        if t.shape not in ((), attrs.shape):
            raise ShapeError(f"pair: a part has shape {t.shape}, not {attrs.shape}")
    return TensorType((*attrs.shape, 2), re.dtype)


def _pair_reference(attrs: PairAttrs, re: np.ndarray, im: np.ndarray) -> np.ndarray:
    shape: Any = attrs.shape
    return np.stack([np.broadcast_to(re, shape), np.broadcast_to(im, shape)], axis=-1)


def _emit_pair(lb: Any, attrs: PairAttrs, outs: Any, re: Any, im: Any) -> None:
    with lb.loops(attrs.shape) as at:
        for k, value in enumerate((re(at), im(at))):
            outs[0].store((*at, k), value)


def _pair_transpose(b: GraphBuilder, attrs: PairAttrs, ct: Operand, xs: Sequence[Operand]) -> Any:
    if isinstance(ct, Literal):
        return ct, ct
    return part(b, ct, 0), part(b, ct, 1)


pair = declare(
    name="pair",
    attrs=PairAttrs,
    infer=_infer_pair,
    reference=_pair_reference,
    derivative=Linear(_pair_transpose),
    lowering=Nest(_emit_pair),
    traits=frozenset({Trait.READS_ONCE}),
    samples=lambda rng: [
        *(
            Sample((rng.standard_normal(s), rng.standard_normal(s)), PairAttrs(s))
            for s in ((3, 4), (2,), (0, 2), ())
        ),
        Sample(
            (rng.standard_normal(3).astype(np.float32), rng.standard_normal(3).astype(np.float32)),
            PairAttrs((3,)),
        ),
    ],
    doc="Real and imaginary parts side by side: a last axis of 2.",
)
