"""NumPy's ufunc protocol (NEP 13) on tracers: calls, ``out=``, ``where=`` and the methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import DTypeError, ShapeError, UnsupportedError, ValueArgumentError
from tracegrad.graph.op import OpDef
from tracegrad.ops import accumulate
from tracegrad.ops import arithmetic as arith
from tracegrad.ops.transcendental import power
from tracegrad.trace import inplace, linalg, reduce
from tracegrad.trace.concretize import escape
from tracegrad.trace.creation import tracer
from tracegrad.trace.elementwise import apply_op, fast_power, store, write_op
from tracegrad.trace.promote import Arg, as_arg, cast, shape_of, trace_of, ufunc_of, ufunc_ops
from tracegrad.trace.shape import reshape
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder

_REDUCE: dict[Any, Any] = {
    np.add: reduce.sum,
    np.multiply: reduce.prod,
    np.maximum: reduce.max,
    np.minimum: reduce.min,
    np.logical_and: reduce.all,
    np.logical_or: reduce.any,
}
_SCAN: dict[Any, OpDef] = {np.add: accumulate.cumsum, np.multiply: accumulate.cumprod}
_MATRIX = {np.matmul: linalg.matmul}


def dispatch(ufunc: np.ufunc, method: str, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """``__array_ufunc__`` of both faces."""
    from tracegrad.trace.masked import MaskedRead

    outs = keywords.pop("out", None)
    trace = trace_of(*inputs, *(outs or ()))
    for x in inputs:
        if isinstance(x, MaskedRead):
            if outs is not None:
                x.refuse()
            return x.__array_ufunc__(ufunc, method, *inputs, **keywords)
    run = _METHODS.get(method)
    if run is None:
        raise _unsupported(f"np.{ufunc.__name__}.{method}")
    targets = (
        None
        if outs is None
        else tuple(_target(trace, o, f"out= of np.{ufunc.__name__}", inputs) for o in outs)
    )
    return run(trace, ufunc, list(inputs), targets, keywords)


def _unsupported(name: str, remedy: str = "") -> UnsupportedError:
    return UnsupportedError(f"{name} is not supported yet", loc=source.here(), remedy=remedy)


def _target(trace: Recorder, out: Any, route: str, inputs: Sequence[Any]) -> Tracer | None:
    """A tracer to write; a real array of the user's must be a known capture."""
    if out is None or isinstance(out, Tracer):
        return None if out is None else trace.lift(out)
    look = trace.lookup_array
    found = look(out) if look is not None and isinstance(out, np.ndarray) else None
    if found is None:
        escape(next(x for x in inputs if isinstance(x, Tracer)), route)
    return trace.lift(found)


# -------------------------------------------------------------------------------------- calls


def _call(
    trace: Recorder, ufunc: np.ufunc, inputs: list[Any], outs: Any, keywords: dict[str, Any]
) -> Any:
    dtype, casting, where = _options(ufunc, keywords)
    if (ufunc in _MATRIX or ufunc.nout == 2) and (dtype is not None or where is not True):
        name = "where" if dtype is None else "dtype"
        raise _unsupported(f"np.{ufunc.__name__} with {name}=")
    if ufunc in _MATRIX:
        return into(trace, _MATRIX[ufunc](trace, *inputs), outs)
    args = [as_arg(trace, x) for x in inputs]
    if ufunc.nout == 2:
        return _two(trace, ufunc, args, outs)
    op, args, ufunc = _op(trace, ufunc, args)
    if outs is not None and outs[0] is not None:
        condition = None if where is True else as_arg(trace, where)
        return write_op(
            trace, outs[0], op, args, where=condition, casting=casting, dtype=dtype, ufunc=ufunc
        )
    if where is not True:
        raise ValueArgumentError(
            f"np.{ufunc.__name__} with where= and without out= leaves elements undefined",
            loc=source.here(),
            remedy="Give out=, or use np.where(mask, value, other).",
        )
    return apply_op(trace, op, args, dtype=dtype, ufunc=ufunc)


def _op(trace: Recorder, ufunc: np.ufunc, args: list[Arg]) -> tuple[OpDef, list[Arg], np.ufunc]:
    if ufunc is np.float_power:
        return power, [cast(trace, x, dtypes.F64) for x in args], np.power
    simple = fast_power(*args) if ufunc is np.power else None
    if simple is not None:
        own = ufunc_of(simple)
        assert own is not None
        return simple, args[:1], own
    op = ufunc_ops().get(ufunc)
    if op is None:
        raise _unsupported(f"np.{ufunc.__name__}")
    return op, args, ufunc


def _options(ufunc: np.ufunc, keywords: dict[str, Any]) -> tuple[Any, str, Any]:
    dtype = keywords.pop("dtype", None)
    casting = keywords.pop("casting", "same_kind")
    where = keywords.pop("where", True)
    keywords.pop("subok", None)
    if keywords.pop("order", "K") not in ("K", "C") or keywords:
        name = next(iter(keywords), "order")
        raise _unsupported(f"np.{ufunc.__name__} with {name}=")
    return (None if dtype is None else dtypes.of(dtype)), casting, where


def into(trace: Recorder, value: Tracer, outs: Any) -> Tracer:
    """`value`, stored in ``out`` if one was given (with same-kind casting)."""
    if outs is None or outs[0] is None:
        return value
    out = _target(trace, outs[0], "out= of a NumPy function", (value,))
    assert out is not None
    if not np.can_cast(value.element_type.np, out.element_type.np, "same_kind"):
        raise DTypeError(
            f"Cannot cast output from {value.element_type.np!r} to "
            f"{out.element_type.np!r} with casting rule 'same_kind'",
            loc=source.here(),
            kind="result_cast",
        )
    if value.sizes != out.sizes:
        raise ShapeError(
            f"output parameter has shape {out.sizes}, the result {value.sizes}",
            loc=source.here(),
        )
    return store(trace, out, value)


def _two(trace: Recorder, ufunc: np.ufunc, args: list[Arg], outs: Any) -> tuple[Tracer, ...]:
    """The ufuncs with two results that ops exist for."""
    if ufunc is np.divmod:
        pair = (apply_op(trace, arith.floor_divide, args), apply_op(trace, arith.remainder, args))
    else:
        raise _unsupported(f"np.{ufunc.__name__}")
    if outs is None:
        return pair
    return tuple(into(trace, v, (o,)) for v, o in zip(pair, outs, strict=True))


# ------------------------------------------------------------------------------------ methods


def _reduce(
    trace: Recorder, ufunc: np.ufunc, inputs: list[Any], outs: Any, keywords: dict[str, Any]
) -> Tracer:
    run = _REDUCE.get(ufunc)
    if run is None:
        raise _unsupported(f"np.{ufunc.__name__}.reduce")
    x = tracer(trace, inputs[0])
    names = ("axis", "dtype", "out", "keepdims", "initial", "where")
    given: dict[str, Any] = dict(zip(names, inputs[1:], strict=False)) | keywords
    given.pop("out", None)
    given.setdefault("axis", 0)
    if given.get("dtype") is None or ufunc not in (np.add, np.multiply):
        given.pop("dtype", None)
    given = {k: v for k, v in given.items() if v is not np._NoValue}
    return into(trace, run(trace, x, **given), outs)  # type: ignore[operator]


def _accumulate(
    trace: Recorder, ufunc: np.ufunc, inputs: list[Any], outs: Any, keywords: dict[str, Any]
) -> Tracer:
    op = _SCAN.get(ufunc)
    if op is None:
        raise _unsupported(f"np.{ufunc.__name__}.accumulate")
    given = dict(zip(("axis", "dtype"), inputs[1:], strict=False)) | keywords
    x = tracer(trace, inputs[0])
    return into(trace, reduce.scan(trace, op, x, given.get("axis", 0), given.get("dtype")), outs)


def _outer(
    trace: Recorder, ufunc: np.ufunc, inputs: list[Any], outs: Any, keywords: dict[str, Any]
) -> Any:
    a, b = (tracer(trace, x) if isinstance(x, (list, tuple)) else as_arg(trace, x) for x in inputs)
    if isinstance(a, Tracer) and shape_of(b):
        a = reshape(trace, a, (*a.sizes, *(1,) * len(shape_of(b))))
    return _call(trace, ufunc, [a, b], outs, keywords)


def _at(
    trace: Recorder, ufunc: np.ufunc, inputs: list[Any], outs: Any, keywords: dict[str, Any]
) -> None:
    target = _target(trace, inputs[0], f"np.{ufunc.__name__}.at", inputs[1:])
    assert target is not None
    if ufunc is np.subtract:
        minus = apply_op(trace, arith.neg, [as_arg(trace, inputs[2])])
        inplace.add_at(trace, target, inputs[1], minus, arith.add)
    elif ufunc is np.add:
        inplace.add_at(trace, target, inputs[1], inputs[2], arith.add)
    else:
        raise _unsupported(f"np.{ufunc.__name__}.at", "np.add.at and np.subtract.at are.")


_METHODS = {
    "__call__": _call,
    "reduce": _reduce,
    "accumulate": _accumulate,
    "outer": _outer,
    "at": _at,
}
