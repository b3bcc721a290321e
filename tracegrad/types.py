"""`TensorType`: the shape and dtype of a value; no strides, no device."""

from __future__ import annotations

from dataclasses import dataclass

from tracegrad.dims import Dim, Expr, format_dim, product
from tracegrad.dtypes import DType

Shape = tuple[Dim, ...]


def sizes(shape: Shape) -> tuple[int, ...]:
    """`shape`, known to be of an array, so that no size is an expression."""
    assert not any(isinstance(n, Expr) for n in shape), f"an array of shape {shape_text(shape)}"
    return shape  # type: ignore[return-value]


def shape_text(shape: Shape) -> str:
    """A shape as NumPy's errors spell it: ``(3,4)``, ``(3,)``."""
    return f"({','.join(map(format_dim, shape))}{',' * (len(shape) == 1)})"


@dataclass(frozen=True, slots=True)
class TensorType:
    """``f64[4, 3]``: `shape` in elements, `dtype` an interned `DType`."""

    shape: Shape
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(format_dim, self.shape))}]"
