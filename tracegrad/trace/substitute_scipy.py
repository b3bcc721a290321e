"""Functions of `scipy.special` on traced values: recognised by identity, never imported here."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.errors import UnsupportedError
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.trace import reduce
from tracegrad.trace.elementwise import apply_op
from tracegrad.trace.leaves import tree_leaves
from tracegrad.trace.promote import as_arg, trace_of
from tracegrad.trace.tracer import Tracer

# SciPy's name -> op, where they differ.
_NAMES = {"expit": "sigmoid", "gammaln": "lgamma", "psi": "digamma"}


def special_functions(concrete: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """``(function of scipy.special, its substitute)``; SciPy has been imported by the user.

    `concrete` makes arrays computed from constants alone constants of the trace.
    """
    own: dict[str, Callable[..., Any]] = {
        "logsumexp": _logsumexp,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
    }
    for name, value in list(vars(sys.modules["scipy.special"]).items()):
        if name.startswith("_") or not callable(value) or isinstance(value, type):
            continue
        op = _NAMES.get(name, name)
        on_traced = own.get(name)
        if on_traced is None and isinstance(value, np.ufunc) and op in REGISTRY:
            on_traced = functools.partial(_elementwise, REGISTRY[op], name)
        yield value, _function(name, value, on_traced, concrete)


def _function(
    name: str,
    real: Callable[..., Any],
    on_traced: Callable[..., Any] | None,
    concrete: Callable[[Any], Any],
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(x, Tracer) for x in tree_leaves((args, kwargs))):
            return concrete(real(*args, **kwargs))
        if on_traced is None:
            _refuse(name)
        return on_traced(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = real.__doc__
    return call


def _refuse(name: str, what: str = "of a traced value") -> NoReturn:
    raise UnsupportedError(
        f"scipy.special.{name} {what} is not supported",
        loc=source.here(),
        remedy="Write it with NumPy functions.",
    )


def _elementwise(op: OpDef, name: str, *args: Any, **kwargs: Any) -> Any:
    if kwargs:
        _refuse(name, f"with {', '.join(kwargs)}=")
    trace = trace_of(*args)
    return apply_op(trace, op, [as_arg(trace, x) for x in args])


def _array(x: Any) -> Tracer:
    out: Any = np.stack(x) if isinstance(x, (list, tuple)) else x
    return trace_of(out).lift(out)


def _logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    if b is not None or return_sign:
        _refuse("logsumexp", "with b= or return_sign=")
    x = _array(a)
    return reduce.logsumexp(trace_of(x), x, axis, keepdims)


def _softmax(x: Any, axis: Any = None) -> Any:
    y = _array(x)
    e = np.exp(y - np.max(y, axis=axis, keepdims=True))  # type: ignore[operator, arg-type, call-overload]
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: Any = None) -> Any:
    y = _array(x)
    return y - _logsumexp(y, axis=axis, keepdims=True)  # type: ignore[operator]
