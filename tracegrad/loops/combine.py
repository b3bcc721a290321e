"""What the combinations of `Reduce` and `Update` mean: ufunc and neutral element."""

from __future__ import annotations

import numpy as np

from tracegrad.dtypes import DType
from tracegrad.loops.ir import Combine

UFUNCS: dict[Combine, np.ufunc] = {
    Combine.ADD: np.add,
    Combine.MUL: np.multiply,
    Combine.MAX: np.maximum,
    Combine.MIN: np.minimum,
    Combine.AND: np.bitwise_and,
    Combine.OR: np.bitwise_or,
}


def identity(combine: Combine, dtype: DType) -> np.generic:
    """The value that leaves every other unchanged; -0.0 for float sums."""
    if combine in (Combine.ADD, Combine.OR):
        return dtype.np.type(-0.0 if dtype.is_float else 0)
    if combine is Combine.MUL:
        return dtype.np.type(1)
    if dtype.is_bool:
        return dtype.np.type(combine is not Combine.MAX)
    if combine is Combine.AND:
        return np.invert(dtype.np.type(0))
    lowest = combine is Combine.MAX
    if dtype.is_float:
        return dtype.np.type(-np.inf if lowest else np.inf)
    info = np.iinfo(dtype.np)
    return dtype.np.type(info.min if lowest else info.max)
