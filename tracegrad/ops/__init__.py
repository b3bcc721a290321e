"""One file per op family; importing this package fills the registry."""

from tracegrad.ops import (
    accumulate,
    arithmetic,
    bitcast,
    bitwise,
    branch,
    cast,
    compare,
    control,
    create,
    custom,
    einsum,
    handles,
    index,
    integer,
    linalg,
    order,
    pairs,
    pointwise,
    reduce,
    rounding,
    scatter,
    select,
    shape,
    special,
    transcendental,
    views,
)

__all__ = [
    "accumulate", "arithmetic", "bitcast", "bitwise", "branch", "cast", "compare", "control",
    "create", "custom", "einsum", "handles", "index", "integer", "linalg", "order", "pairs",
    "pointwise", "reduce", "rounding", "scatter", "select", "shape", "special", "transcendental",
    "views",
]
