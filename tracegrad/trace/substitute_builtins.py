"""`math` and the builtins `float`, `max`, `min`, `isinstance`, `type`, `super` on traced values.

Without a traced value among the arguments each is the real function.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import ConcretizationError, UnsupportedError
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.ops.select import where
from tracegrad.trace.collector import Collector
from tracegrad.trace.creation import python_float
from tracegrad.trace.elementwise import apply_op, prepared, truth
from tracegrad.trace.guards import Constant
from tracegrad.trace.masked import MaskedRead
from tracegrad.trace.promote import as_arg, result_type, trace_of, ufunc_ops
from tracegrad.trace.substitute_classes import SuperProxy
from tracegrad.trace.substitute_objects import ObjectProxy, unwrap_proxy
from tracegrad.trace.substitute_types import RANGE, is_range
from tracegrad.trace.symbolic import SymbolicInt, integer
from tracegrad.trace.tracer import Tracer


def is_traced(x: Any) -> bool:
    """Whether `x` is a tracer whose value is not known while tracing."""
    return isinstance(x, Tracer) and x.concrete is None


def as_int(*args: Any, **kwargs: Any) -> Any:
    """``int(x)``: the index of a loop stays symbolic."""
    if len(args) == 1 and isinstance(args[0], SymbolicInt) and not kwargs:
        return args[0]
    return int(*args, **kwargs)


def as_len(x: Any) -> Any:
    """``len(x)``; of a traced array it may depend on the index of a loop, of ``x[mask]`` on the
    mask."""
    if isinstance(x, MaskedRead):
        return x.shape[0]
    if type(x) is Collector:
        return x._length()
    return integer(x.sizes[0]) if isinstance(x, Tracer) and x.sizes else len(x)


def as_float(x: Any) -> Any:
    """``float(x)``: a weak scalar for a traced value of one element."""
    if isinstance(x, SymbolicInt):
        return python_float(x.value())
    if not is_traced(x):
        known: Any = x.concrete if isinstance(x, Tracer) else x
        return float(known)
    return python_float(x)


# ------------------------------------------------------------------------------------- math

_UFUNCS: dict[str, np.ufunc] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "pow": np.power,
    "fabs": np.absolute,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "degrees": np.rad2deg,
    "radians": np.deg2rad,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
_NAMED = ("erf", "erfc", "gamma", "lgamma")
_TO_INT = ("floor", "ceil", "trunc")


def math_functions() -> list[tuple[Any, Any]]:
    """``(function of math, its substitute)``."""
    ops = ufunc_ops()
    out = []
    for name, value in vars(math).items():
        if name.startswith("_") or not callable(value):
            continue
        op = ops.get(_UFUNCS.get(name)) or (
            REGISTRY[name] if name in _NAMED and name in REGISTRY else None
        )
        out.append((value, _math_function(name, value, op)))
    return out


def _math_function(name: str, real: Callable[..., Any], op: OpDef | None) -> Callable[..., Any]:
    own: Any = {"log": _log, "hypot": _hypot, "prod": _prod}.get(name)

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_has_traced, args)):
            return real(*[as_float(x) if isinstance(x, Tracer) else x for x in args], **kwargs)
        if own is not None:
            return own(*args, **kwargs)
        if op is not None:
            return _scalar_op(op, *args, weak=not name.startswith("is"))
        if name in _TO_INT:
            raise ConcretizationError(
                f"math.{name} of a traced value is a Python int, which is not known yet",
                loc=source.here(),
                remedy=f"Use np.{name}(x), which stays traced.",
            )
        raise UnsupportedError(
            f"math.{name} of a traced value is not supported",
            loc=source.here(),
            remedy="Write it with NumPy functions.",
        )

    return call


def _has_traced(x: Any) -> bool:
    return is_traced(x) or (type(x) in (list, tuple) and any(map(is_traced, x)))


def _scalar_op(op: OpDef, *args: Any, weak: bool = True) -> Tracer:
    values = [as_float(x) for x in args]
    return apply_op(trace_of(*values), op, values, weak=weak)


def _log(x: Any, base: Any = None) -> Any:
    log = ufunc_ops()[np.log]
    if base is None:
        return _scalar_op(log, x)
    below: Any = _scalar_op(log, base) if is_traced(base) else math.log(as_float(base))
    above: Any = _scalar_op(log, x) if is_traced(x) else math.log(as_float(x))
    return above / below


def _hypot(*args: Any) -> Any:
    ops = ufunc_ops()
    if len(args) == 1:
        return _scalar_op(ops[np.absolute], *args)
    return functools.reduce(functools.partial(_scalar_op, ops[np.hypot]), args)


def _prod(items: Any, *, start: Any = 1) -> Any:
    return functools.reduce(operator.mul, items, start)


# --------------------------------------------------------------------------------- builtins


def _extreme(
    name: str, real: Callable[..., Any], better: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        items = list(args[0]) if len(args) == 1 else list(args)
        if (
            "key" in kwargs
            or not any(map(is_traced, items))
            or any(isinstance(x, Tracer) and x.sizes != () for x in items)
        ):
            return real(items, **kwargs) if len(args) == 1 else real(*items, **kwargs)
        return functools.reduce(lambda a, b: _choose(better(b, a), b, a), items)

    return call


def _choose(cond: Any, x: Any, y: Any) -> Any:
    """The scalar `x` if `cond` holds, else `y`."""
    if not is_traced(cond):
        return x if cond else y
    trace = trace_of(cond)
    args = [as_arg(trace, v) for v in (cond, x, y)]
    dtype = result_type(trace, args[1:])
    weak = all(type(a) is float or (isinstance(a, Tracer) and a.weak) for a in args[1:])
    xs = prepared(trace, (truth(trace, args[0]), *args[1:]), (dtypes.BOOL, dtype, dtype), ())
    return trace.apply(where, xs, scalar=trace.face.numpy_scalars, weak=weak)  # type: ignore[attr-defined]


as_max = _extreme("max", max, operator.gt)
as_min = _extreme("min", min, operator.lt)


def type_seen(x: Any) -> type:
    """The type that `x` has in the run without tracing."""
    if type(x) is Collector:
        return list
    if not isinstance(x, Tracer) or not x.trace.face.numpy_scalars:  # type: ignore[attr-defined]
        return type(unwrap_proxy(x))
    if x.weak:
        return int if x.element_type.is_integer else type(x.element_type.np.type(0).item())
    return x.element_type.np.type if x.scalar else np.ndarray


def is_instance(x: Any, kinds: Any) -> bool:
    """``isinstance`` as without tracing: a traced array is an ndarray, a weak scalar a float."""
    if isinstance(x, SymbolicInt):
        return issubclass(int, kinds)
    if is_range(x):
        return issubclass(range, kinds)
    if isinstance(x, Tracer):
        return isinstance(x, kinds) or issubclass(type_seen(x), kinds)
    return builtins.isinstance(x, kinds)


def as_type(*args: Any, **kwargs: Any) -> Any:
    """``type(x)`` as without tracing; with three arguments the real `type`."""
    if len(args) != 1 or kwargs:
        return type(*args, **kwargs)
    if is_range(args[0]):
        return RANGE
    kind = type_seen(args[0])
    if issubclass(type(args[0]), ObjectProxy):
        sub = object.__getattribute__(args[0], "_sub")
        return sub.substitute(Constant(kind, kind.__name__), kind)
    return kind


def as_super(*args: Any) -> Any:
    """``super()`` in a rebuilt method: the class cell and first argument of the calling frame."""
    frame = sys._getframe(1)
    if not args:
        names = frame.f_locals
        args = (names["__class__"], names[frame.f_code.co_varnames[0]])
    found = super(*args)
    sub = getattr(frame.f_globals, "sub", None)
    return found if sub is None else SuperProxy(found, sub)
