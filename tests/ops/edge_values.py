"""Values where elementwise functions tend to go wrong, for each dtype."""

from __future__ import annotations

import itertools

import numpy as np

from tracegrad.dtypes import DType

_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 2.0, 3.0, -3.0, 0.1, 0.7, -0.9, 7.25, 1e-8, -1e-8,
    1e-300, 100.0, -100.0, 709.0, -745.0, 88.5, -103.0, 1e5, -1e5, 1e10, 2.0**31, -(2.0**31) - 0.5,
    2.0**63, -(2.0**63), 2.0**64, 1e19, 1e30, -1e30, 300.7, -300.2, 3e9, -3e9,
    float("inf"), float("-inf"), float("nan"),
]  # fmt: skip


def edge_values(dtype: DType) -> np.ndarray:
    """A vector of edge values of `dtype`, with some ordinary ones."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.np)
        small = [0, 1, 2, 3, 5, 7, 8, 12, 31, 32, 33, 63, 64, 100]
        signed = [-1, -2, -3, -7, -8, -12, -64, -100] if info.min < 0 else []
        ends = [info.min, info.min + 1, info.max - 1, info.max, info.max // 2, info.max // 3]
        return np.array([*small, *signed, *ends], dtype.np)
    info = np.finfo(dtype.np)
    with np.errstate(over="ignore"):
        listed = np.array(_FLOATS).astype(dtype.np)
    tiny = [info.smallest_subnormal, -info.smallest_subnormal, info.tiny, info.tiny / 2]
    return np.concatenate([listed, np.array([*tiny, info.max, info.min, 1 + info.eps], dtype.np)])


def edge_operands(dtype: DType, arity: int) -> tuple[np.ndarray, ...]:
    """Every combination of edge values (thinned for three operands), one vector an operand."""
    values = edge_values(dtype)
    if arity == 3:
        values = values[:: max(1, len(values) // 14)]
    grid = np.array(list(itertools.product(range(len(values)), repeat=arity)))
    return tuple(values[grid[:, k]] for k in range(arity))


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Units in the last place between two float arrays; 0 for two NaNs, infinite for one."""
    unsigned = {4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    top = unsigned(1) << unsigned(8 * a.dtype.itemsize - 1)

    def ordered(x: np.ndarray) -> np.ndarray:
        bits = x.view(unsigned)
        return np.where(bits & top, ~bits, bits | top)

    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    exact = (a == b) | (np.isnan(a) & np.isnan(b))
    p, q = ordered(a), ordered(b)
    apart = np.where(p > q, p - q, q - p).astype(np.float64)
    apart = np.where(np.isnan(a) != np.isnan(b), np.inf, apart)
    return np.where(exact, 0.0, apart)
