"""Operands of an op: what may be one, which dtypes meet, casts and broadcasts put in explicitly.

With the Array face the dtypes are NumPy's own (`numpy.ufunc.resolve_dtypes`, so NEP 50 with weak
Python numbers); with the Tensor face they follow PyTorch's categories.  Casts and broadcasts are
recorded before an op, so that ops see operands of one shape.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from functools import cache, lru_cache, reduce
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.dtypes import BOOL, F32, F64, DType
from tracegrad.errors import (
    CaptureError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
)
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import REGISTRY, OpDef
from tracegrad.graph.storage import Expand, Index, NewAxis, Span
from tracegrad.ops.cast import cast as cast_op
from tracegrad.trace.known import leaked
from tracegrad.trace.modes import current_trace
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tracking import Recorder
from tracegrad.types import shape_text

Number = bool | int | float | complex
Arg = Tracer | Literal | bool | int | float | complex

# Python numbers are weak; `resolve_dtypes` takes their types in place of a dtype.
Kind = Any


def trace_of(*xs: Any) -> Recorder:
    """The trace that records now: the innermost open one, else that of the first tracer."""
    trace: Recorder | None = current_trace()
    if trace is None:
        first = next(x for x in xs if isinstance(x, Tracer))
        if not first.trace.eager and not first.trace.open:
            raise leaked(first)
        trace = first.trace
    return trace


def as_arg(trace: Recorder, x: Any) -> Arg:
    """`x` as an operand of `trace`.

    Tracers are lifted, NumPy scalars and 0-d arrays become strong literals, Python numbers stay
    (weak), lists become arrays.  Raises CaptureError for an ndarray of unknown origin and
    DTypeError for what is no number.
    """
    if isinstance(x, Tracer):
        return trace.lift(x)
    if isinstance(x, (np.generic, np.ndarray)):
        return _from_numpy(trace, x)
    if isinstance(x, (bool, int, float, complex)):
        return x
    if isinstance(x, SymbolicInt):
        return x.value()  # type: ignore[no-any-return]
    if isinstance(x, Literal):
        return x
    if isinstance(x, (list, tuple)):
        from tracegrad.trace.creation_data import array

        return array(x)
    refuse = getattr(x, "refuse", None)
    if callable(refuse):
        refuse()
    raise DTypeError(f"an operand of type {type(x).__name__} is not supported", loc=source.here())


def is_operand(x: Any) -> bool:
    """Whether operators should take `x` (others answer NotImplemented)."""
    return isinstance(
        x, (Tracer, np.generic, np.ndarray, bool, int, float, complex, list, tuple, SymbolicInt)
    )


def _from_numpy(trace: Recorder, x: Any) -> Tracer | Literal:
    if x.ndim == 0:
        return Literal(x.item(), dtypes.of(x.dtype))
    found: Recorder | None = trace
    while found is not None:
        if found.lookup_array is not None:
            known = found.lookup_array(x)
            if known is not None:
                return trace.lift(known)
        found = found.parent
    raise CaptureError(
        f"an array of shape {x.shape} that is no argument of the traced function meets a traced "
        "value, and it is not known where the array comes from",
        loc=source.here(),
        remedy="Pass it as an argument.",
    )


# ------------------------------------------------------------------------------- which dtypes


def kind_of(x: Arg) -> Kind:
    """A NumPy dtype, or `int`, `float` or `complex` for weak numbers."""
    if isinstance(x, Tracer):
        if x.weak:
            if x.element_type.is_integer:
                return int  # the index of a loop
            return complex if x.element_type.is_complex else float
        return x.element_type.np
    if isinstance(x, Literal):
        return x.dtype.np
    return BOOL.np if isinstance(x, bool) else type(x)


def result_type(trace: Recorder, args: Sequence[Arg]) -> DType:
    """The dtype of operands that meet without arithmetic (`where`, `concatenate`, ...)."""
    if not trace.face.numpy_scalars:  # type: ignore[attr-defined]
        return _torch_type(args)
    kinds = [kind_of(x) for x in args]
    given = [
        {int: 0, float: 0.0, complex: 0j}.get(k, k) if isinstance(k, type) else k for k in kinds
    ]
    return dtypes.of(np.result_type(*given))


_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_WEAK = {int: dtypes.I64, float: F64, complex: dtypes.C128}


def _torch_type(args: Sequence[Arg]) -> DType:
    """PyTorch's rule: tensors with axes decide, 0-d ones and numbers only by their category."""
    groups: list[list[DType]] = [[], [], []]
    for x in args:
        if isinstance(x, Tracer) and not x.weak:
            groups[0 if x.sizes else 1].append(x.element_type)
        elif isinstance(x, Literal):
            groups[1].append(x.dtype)
        else:
            kind = kind_of(x)
            groups[2].append(_WEAK.get(kind, BOOL))
    best: DType | None = None
    for group in groups:
        if group:
            met = reduce(_promote_categories, group)
            if best is None:
                best = met
            elif _category(met) > _category(best):
                # A float tensor decides how wide a complex number of lower rank is.
                wide = best.is_float and met.is_complex
                best = dtypes.complex_of(best) if wide else met
    assert best is not None
    return best


def _category(d: DType) -> int:
    return _CATEGORY[d.kind]


def _promote_categories(a: DType, b: DType) -> DType:
    """Of two categories the higher dtype as it is; within one, NumPy's promotion."""
    if _category(a) != _category(b) and not (a.is_inexact and b.is_inexact):
        return a if _category(a) > _category(b) else b
    return dtypes.promote(a, b)


@cache
def ufunc_ops() -> dict[Any, OpDef]:
    """The op that each NumPy ufunc means."""
    return {f: op for op in REGISTRY for f in op.numpy if isinstance(f, np.ufunc)}


@cache
def ufunc_of(op: OpDef) -> np.ufunc | None:
    """The NumPy ufunc whose dtype rule the op follows, if NumPy has it."""
    found = [f for f in op.numpy if isinstance(f, np.ufunc) and f.nout == 1]
    return found[0] if found else None


# What NumPy means on bool by ops that are not defined for it.
_ON_BOOL = {"abs": "copy"}

COMPARISONS = frozenset(
    {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
)


@lru_cache(maxsize=4096)
def _numpy_loop(
    ufunc: np.ufunc, kinds: tuple[Kind, ...], out: np.dtype | None
) -> tuple[np.dtype, ...]:
    types = (*kinds, *(None,) * ufunc.nout)
    if out is None:
        return ufunc.resolve_dtypes(types)  # type: ignore[no-any-return]
    return ufunc.resolve_dtypes(  # type: ignore[no-any-return]
        types, signature=(*(None,) * ufunc.nin, out)
    )


def loop_of(
    trace: Recorder,
    op: OpDef,
    args: Sequence[Arg],
    dtype: DType | None = None,
    ufunc: np.ufunc | None = None,
) -> tuple[OpDef, tuple[DType, ...], DType]:
    """The op to run, the dtype of each operand and of the result; `dtype` forces the result's.

    `ufunc` is the function called, where several mean the op.

    Raises DTypeError with NumPy's text when there is no loop for these dtypes.
    """
    ufunc = ufunc or ufunc_of(op)
    torch = not trace.face.numpy_scalars  # type: ignore[attr-defined]
    kinds = (_torch_type(args).np,) * len(args) if torch else tuple(kind_of(x) for x in args)
    if ufunc is None:
        return op, *_plain_loop(trace, op, args, dtype)
    if all(k is int for k in kinds):
        kinds = (dtypes.I64.np,) * len(kinds)  # NumPy would compare Python's ints as objects
    try:
        found = _numpy_loop(ufunc, kinds, None if dtype is None else dtype.np)
    except TypeError as e:
        raise DTypeError(str(e), loc=source.here()) from None
    if torch and found[-1].kind == "f" and kinds[0].kind in "biu":
        found = (np.dtype(np.float64),) * len(found)
    out = dtypes.of(found[-1])
    # NumPy asks small integers the float questions (signbit, isnan) in float16.
    ins = tuple(F32 if d == np.float16 else dtypes.of(d) for d in found[:-1])
    if out.is_inexact and not any(d.is_inexact for d in ins):
        ins = (out,) * len(ins)
    if ins[0].is_bool and op.name in _ON_BOOL:
        op = REGISTRY[_ON_BOOL[op.name]]
    if len(set(ins)) > 1 and op.name in ("eq", "ne", "lt", "le", "gt", "ge"):
        raise DTypeError(
            "comparison of int64 with uint64 arrays is not supported",
            loc=source.here(),
            remedy="Convert one of them with astype first.",
        )
    return op, ins, out


def _plain_loop(
    trace: Recorder, op: OpDef, args: Sequence[Arg], dtype: DType | None
) -> tuple[tuple[DType, ...], DType]:
    """Ops that NumPy lacks: one dtype for all; integers become float64 where the op wants it."""
    from tracegrad.types import TensorType

    common = dtype or result_type(trace, args)
    for d in (common, F64) if not common.is_inexact else (common,):
        try:
            out = op.infer(op.attrs(), *[TensorType((), d)] * len(args))
        except DTypeError:
            continue
        return (d,) * len(args), out.dtype  # type: ignore[union-attr]
    raise DTypeError(f"{op.name} is not defined for {common.np}", loc=source.here())


# ------------------------------------------------------------------------------------- casts


def literal(x: Number, dtype: DType) -> Literal:
    """A Python number as a literal.  Raises OutOfRangeError as NumPy does (OverflowError)."""
    if dtype.is_integer and isinstance(x, int) and not isinstance(x, bool):
        info = np.iinfo(dtype.np)
        if not info.min <= x <= info.max:
            raise OutOfRangeError(
                f"Python integer {x} out of bounds for {dtype.np}", loc=source.here()
            )
    if isinstance(x, complex) and not (dtype.is_complex or dtype.is_bool):
        raise DTypeError(
            f"the complex number {x} cannot become {dtype.np}",
            loc=source.here(),
            remedy="Take its real part, or make the array complex.",
        )
    if dtype.is_integer and isinstance(x, float):
        x = int(cast_op.reference(cast_op.attrs(dtype=dtype), np.asarray(x)))
    return Literal(bool(x) if dtype.is_bool else x, dtype)  # type: ignore[arg-type]


def warn_of_parts(before: DType, to: DType) -> None:
    """NumPy's warning where a conversion drops imaginary parts."""
    if before.is_complex and not (to.is_complex or to.is_bool):
        warnings.warn(
            "Casting complex values to real discards the imaginary part",
            np.exceptions.ComplexWarning,
            stacklevel=2,
        )


def cast(trace: Recorder, x: Arg, dtype: DType) -> Tracer | Literal:
    """`x` in `dtype`: itself, a converted literal, or a recorded cast."""
    if isinstance(x, Literal):
        if x.dtype is dtype:
            return x
        value = cast_op.reference(cast_op.attrs(dtype=dtype), np.asarray(x.value, x.dtype.np))
        return Literal(value.item(), dtype)
    if not isinstance(x, Tracer):
        return literal(x, dtype)
    if x.element_type is dtype:
        return x
    warn_of_parts(x.element_type, dtype)
    return trace.apply(
        cast_op,
        (x,),
        cast_op.attrs(dtype=dtype),  # type: ignore[no-any-return]
        scalar=x.scalar,
    )


# -------------------------------------------------------------------------------- broadcasts


def shape_of(x: Arg) -> tuple[int, ...]:
    return x.sizes if isinstance(x, Tracer) else ()


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's broadcast of shapes.  Raises ShapeError with NumPy's text."""
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(len(s) for s in shapes)
    out = [1] * rank
    for shape in shapes:
        for k, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if out[k] not in (1, n):
                    listed = " ".join(map(shape_text, shapes))
                    raise ShapeError(
                        f"operands could not be broadcast together with shapes {listed}",
                        loc=source.here(),
                    )
                out[k] = n
    return tuple(out)


def spread_steps(shape: tuple[int, ...], to: tuple[int, ...]) -> tuple[Index, Expand]:
    """View steps that repeat a tensor of `shape` to the broadcast shape `to`."""
    added = (NewAxis(),) * (len(to) - len(shape))
    return Index((*added, *(Span(0, n) for n in shape))), Expand(to)


def is_known(args: Sequence[Arg]) -> bool:
    """Whether every operand's value is known while tracing."""
    return all(not isinstance(x, Tracer) or x.concrete is not None for x in args)


def broadcast(
    trace: Recorder, x: Tracer | Literal, to: tuple[int, ...], known: bool
) -> Tracer | Literal:
    """`x` with shape `to`; literals stand for every shape.

    `known`: all operands are known while tracing; else a known array enters the graph small.
    """
    if isinstance(x, Literal) or x.sizes == to:
        return x
    if trace.eager:  # what a node keeps of a repeated operand is its memory, not a copy
        return trace.view(x, *spread_steps(x.sizes, to), origin="expand")
    steps = spread_steps(x.sizes, to)
    if x.concrete is not None:
        if known:
            return trace.view(x, *steps)
        if x.concrete.ndim == 0:
            return Literal(x.concrete.item(), x.element_type)
        x = trace.embed(x)
    return trace.read(x, *steps)


def as_int(x: Any, what: str) -> int:
    """A Python int of an axis, a size or a count; traced values raise by their `__index__`."""
    try:
        return operator.index(x)
    except TypeError:
        if isinstance(x, Tracer):
            raise
        raise DTypeError(
            f"{what} must be an integer, not {type(x).__name__}", loc=source.here()
        ) from None
