"""Ranges and grids inside a trace, and the joining objects ``np.r_`` and ``np.c_``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tracegrad import dims, dtypes, source
from tracegrad.dtypes import F64, I64
from tracegrad.errors import DataDependentShapeError, UnsupportedError, ValueArgumentError
from tracegrad.graph.ir import Literal
from tracegrad.ops import arithmetic
from tracegrad.ops.create import iota
from tracegrad.trace.creation_data import array, made, the_trace, tracer
from tracegrad.trace.elementwise import apply_op, select
from tracegrad.trace.promote import Arg, as_arg, cast, is_known, shape_of, spread_steps
from tracegrad.trace.shape import concatenate, reshape
from tracegrad.trace.symbolic import SymbolicInt, Unrollable, dim_of, integer
from tracegrad.trace.symbolic_index import trips
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder


def arange(*args: Any, dtype: Any = None, **keywords: Any) -> Tracer:
    """``np.arange``; its length may depend on the index of a loop, not on traced values."""
    if any(isinstance(a, SymbolicInt) for a in args) and not keywords:
        return _symbolic_arange(args, dtype)
    return made(
        np.arange(
            *[_bound(a) for a in args],
            dtype=_given(dtype),
            **{k: _bound(v) for k, v in keywords.items() if k in ("start", "stop", "step")},
        )
    )


def _symbolic_arange(args: tuple[Any, ...], dtype: Any) -> Tracer:
    """``np.arange`` of integers that depend on the index of a loop."""
    ends = [dim_of(a) for a in args]
    step = ends[2] if len(ends) == 3 else 1
    if None in ends or step != 1:
        raise Unrollable("the bounds of an arange depend on the index")
    first, end = (0, ends[0]) if len(ends) == 1 else ends[:2]
    assert first is not None and end is not None
    length = trips(dims.add(end, dims.mul(first, -1)))
    trace = the_trace()
    at = trace.apply(iota, (), iota.attrs((length,), 0, I64))  # type: ignore[call-arg]
    found = at
    if first != 0:
        found = apply_op(trace, arithmetic.add, (at, as_arg(trace, integer(first))))
    return found if dtype is None else cast(trace, found, dtypes.of(dtype))  # type: ignore


def _given(dtype: Any) -> Any:
    return None if dtype is None else dtypes.of(dtype).np


def _bound(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    if x.concrete is None:
        raise DataDependentShapeError(
            "the length of arange would depend on a traced value",
            loc=source.here(),
            remedy="Pass the bound as a Python int, or use np.linspace(a, b, n) or a + h * "
            "np.arange(n) with a fixed n.",
        )
    return x.concrete[()]


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """``np.linspace``; traced end points must be scalars."""
    trace = the_trace(start, stop)
    a, b = as_arg(trace, start), as_arg(trace, stop)
    n = operator.index(num)
    if is_known((a, b)):
        ends: Any = (_value(a), _value(b))
        out: Any = np.linspace(  # type: ignore[call-overload]  # known for literal flags alone
            *ends, n, endpoint, retstep, _given(dtype), axis
        )
        return (made(out[0]), made(out[1])) if retstep else made(out)
    if shape_of(a) != () or shape_of(b) != () or retstep:
        raise UnsupportedError(
            "np.linspace of traced arrays, or with retstep, is not supported", loc=source.here()
        )
    div = max(n - 1 if endpoint else n, 1)
    step = apply_op(trace, arithmetic.div, (apply_op(trace, arithmetic.sub, (b, a)), float(div)))
    at = trace.apply(iota, (), iota.attrs((n,), 0, F64))  # type: ignore[call-arg]
    out = apply_op(trace, arithmetic.add, (apply_op(trace, arithmetic.mul, (at, step)), a))
    if endpoint and n > 1:
        out = select(trace, made(np.arange(n) == n - 1), b, out)
    return out if dtype is None else cast(trace, out, dtypes.of(dtype))


def _value(x: Arg) -> Any:
    if isinstance(x, Tracer):
        assert x.concrete is not None
        return x.concrete[()]
    return x.value if isinstance(x, Literal) else x


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Tracer, ...]:
    """Coordinate arrays of 1-d arrays; always copies."""
    if indexing not in ("xy", "ij"):
        raise ValueArgumentError(
            "Valid values for `indexing` are 'xy' and 'ij'.", loc=source.here()
        )
    trace = the_trace(*xi)
    xs = [reshape(trace, tracer(trace, x), (-1,)) for x in xi]
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    shape = [1] * len(xs)
    for k, x in enumerate(xs):
        shape[order[k]] = x.sizes[0]
    out = []
    for k, x in enumerate(xs):
        own = tuple(n if d == order[k] else 1 for d, n in enumerate(shape))
        thin = reshape(trace, x, own, copy=True)
        out.append(thin if sparse else trace.read(thin, *spread_steps(own, tuple(shape))))
    return tuple(out)


class _Joiner:
    """``np.r_`` (`columns` false) and ``np.c_``: slices, numbers and arrays joined."""

    def __init__(self, columns: bool) -> None:
        self._columns = columns

    def __getitem__(self, key: Any) -> Tracer:
        parts = key if isinstance(key, tuple) else (key,)
        trace = the_trace(*parts)
        xs = [self._part(trace, p) for p in parts]
        if not self._columns:
            return concatenate(trace, xs, 0)
        wide = [reshape(trace, x, (-1, 1)) if len(x.sizes) == 1 else x for x in xs]
        return concatenate(trace, wide, len(wide[0].sizes) - 1)

    def _part(self, trace: Recorder, p: Any) -> Tracer:
        if isinstance(p, str):
            raise UnsupportedError(
                f"np.r_ with the directive {p!r} is not supported", loc=source.here()
            )
        if isinstance(p, slice):
            start = 0 if p.start is None else p.start
            if isinstance(p.step, complex):
                return linspace(start, p.stop, int(abs(p.step)))  # type: ignore[no-any-return]
            return arange(start, p.stop, 1 if p.step is None else p.step)
        x = array(p) if isinstance(p, (list, tuple)) else tracer(trace, p)
        return x if x.sizes else trace.read(reshape(trace, x, (1,)))


r_ = _Joiner(False)
c_ = _Joiner(True)
