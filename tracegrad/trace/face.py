"""What both faces share: operators, NumPy's protocols, conversions, in-place twins.

`Array` (ndarray's names and meaning) and `Tensor` (PyTorch's) derive from `Face`; one trace uses
one of them.  Methods that mean an elementwise op are bound from the registry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.errors import MissingAttributeError, UnsupportedError, ValueArgumentError
from tracegrad.graph.op import REGISTRY, Attrs, OpDef
from tracegrad.trace import (
    complex_parts,
    concretize,
    indexing,
    inplace,
    linalg,
    numpy_api,
    numpy_ufuncs,
)
from tracegrad.trace.elementwise import apply_op, fast_power, write_op
from tracegrad.trace.masked import MaskedRead
from tracegrad.trace.promote import Arg, as_arg, is_operand, trace_of, ufunc_ops
from tracegrad.trace.ragged import total
from tracegrad.trace.rolling import iterate, rows
from tracegrad.trace.symbolic import integer
from tracegrad.trace.tracer import Tracer


def _is_weak(args: list[Arg]) -> bool:
    """Whether all operands are Python numbers (traced ones included)."""
    return all(x.weak if isinstance(x, Tracer) else type(x) in (bool, int, float) for x in args)


def operate(op: OpDef, *xs: Any) -> Any:
    """An operator: arithmetic among Python numbers stays weak."""
    trace = trace_of(*xs)
    for x in xs:
        if isinstance(x, MaskedRead):
            return x.apply(op, xs)
    args = [as_arg(trace, x) for x in xs]
    weak = _is_weak(args)
    out = apply_op(trace, op, args, weak=weak)
    if weak and out.element_type.is_bool:
        out.weak = False
    return out


class Face(Tracer):
    """One traced array or scalar; see `Array` and `Tensor`."""

    __slots__ = ()
    __array_priority__ = 1000.0

    # Array: element reads and full reductions are NumPy scalars, promotion is NumPy's.
    numpy_scalars: ClassVar[bool]

    # -- what it is

    @property
    def dtype(self) -> np.dtype:
        return self.element_type.np

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes as integers; those that depend on the index of a loop as index expressions."""
        return tuple(map(integer, self.sizes))  # type: ignore[arg-type]

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    @property
    def itemsize(self) -> int:
        return self.element_type.np.itemsize

    @property
    def nbytes(self) -> int:
        return total(self.sizes) * self.itemsize  # type: ignore[no-any-return]

    def __len__(self) -> int:
        if not self.shape:
            raise UnsupportedError("len() of unsized object", kind="unsized", loc=source.here())
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise UnsupportedError("iteration over a 0-d array", kind="unsized", loc=source.here())
        return iterate(rows(self), sys._getframe(1))

    def __repr__(self) -> str:
        kind = type(self).__name__
        value = self.concrete
        if value is not None:
            return f"{kind}({np.array2string(value, separator=', ')}, dtype={value.dtype})"
        sizes = ", ".join(map(str, self.shape))
        return f"<traced {kind} {self.element_type.np}[{sizes}]>"

    def __str__(self) -> str:
        if self.weak and self.element_type.is_integer:  # the index of a loop, as in f"w{i}"
            return str(concretize.known(self, "str()", "format"))
        return repr(self)

    # -- values

    def __bool__(self) -> bool:
        return bool(concretize.known(self, "bool()", "bool"))

    def __int__(self) -> int:
        return int(concretize.known(self, "int()", "int"))

    def __float__(self) -> float:
        return float(concretize.known(self, "float()", "float"))

    def __complex__(self) -> complex:
        return complex(concretize.known(self, "complex()", "float"))

    def __index__(self) -> int:
        value = concretize.known(self, "use as a Python integer", "index")
        return value.__index__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        value = self.concrete
        if value is None:
            concretize.escape(self, "__array__")
        return np.array(value, dtype)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        value = concretize.known(self, f"formatting with {spec!r}", "format")
        return format(value[()], spec)

    def item(self, *args: Any) -> Any:
        value = concretize.known(self, ".item()", "number" if args else "item")
        return value.item(*args)

    def tolist(self) -> Any:
        return concretize.known(self, ".tolist()", "tolist").tolist()

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())  # type: ignore[attr-defined]

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError("a traced value cannot be pickled", loc=source.here())

    def __copy__(self) -> Any:
        return self.trace.read(self, scalar=self.scalar, weak=self.weak)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    # -- indexing

    def __getitem__(self, key: Any) -> Any:
        return indexing.get(trace_of(self), self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        inplace.setitem(trace_of(self), self, key, value)

    def __delitem__(self, key: Any) -> NoReturn:
        raise ValueArgumentError("cannot delete array elements", loc=source.here())

    # -- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return numpy_ufuncs.dispatch(ufunc, method, inputs, keywords)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_api.dispatch(func, args, kwargs)

    # -- real and imaginary parts

    @property
    def real(self) -> Any:
        return complex_parts.real(trace_of(self), self)

    @real.setter
    def real(self, value: Any) -> None:
        complex_parts.set_part(trace_of(self), self, 0, value)

    @property
    def imag(self) -> Any:
        return complex_parts.imag(trace_of(self), self)

    @imag.setter
    def imag(self, value: Any) -> None:
        complex_parts.set_part(trace_of(self), self, 1, value)

    # -- in-place operations that are not elementwise

    def copy_(self, src: Any) -> Any:
        inplace.copy_into(trace_of(self), self, src)
        return self

    def fill_(self, value: Any) -> Any:
        inplace.fill(trace_of(self), self, value)
        return self

    def zero_(self) -> Any:
        inplace.fill(trace_of(self), self, 0, allow_overlap=True)
        return self

    def masked_fill_(self, mask: Any, value: Any) -> Any:
        inplace.masked_fill(trace_of(self), self, mask, value)
        return self

    def index_add_(self, dim: Any, index: Any, source: Any, *, alpha: Any = 1) -> Any:
        inplace.index_add(trace_of(self), self, dim, index, source, alpha)
        return self

    def detach(self) -> Any:
        trace = trace_of(self)
        x = trace.lift(self)
        return trace.read(x, scalar=True, weak=x.weak) if x.scalar else trace.detach(x)

    def __matmul__(self, other: Any) -> Any:
        return linalg.matmul(trace_of(self), self, other) if is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return linalg.matmul(trace_of(self), other, self) if is_operand(other) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._refused_names():
            raise UnsupportedError(
                f"{self._origin()}.{name} is not supported yet",
                loc=source.here(),
                remedy=self._refused_names()[name],
            )
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingAttributeError(
            f"'{'numpy.' * self.numpy_scalars}{self._origin()}' object has no attribute {name!r}",  # type: ignore[attr-defined]
            loc=source.here(),
        )

    @classmethod
    def _refused_names(cls) -> Mapping[str, str]:
        """Names that the real class has and tracers lack, with remedies."""
        return {}

    @classmethod
    def _origin(cls) -> str:
        """What errors call the class that a tracer stands for."""
        return cls.__name__


def write_inplace(x: Any, op: OpDef, *others: Any) -> Any:
    """``x.op_(*others)``; returns `x`."""
    trace = trace_of(x, *others)
    args = [as_arg(trace, y) for y in others]
    target = trace.lift(x)
    write_op(trace, target, op, (target, *args))
    return x


# --------------------------------------------------------------------------------- operators

_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}


def _power(self: Any, other: Any, modulo: None = None) -> Any:
    if modulo is not None:
        return NotImplemented
    op = fast_power(self, other)
    if op is not None:
        return operate(op, self)
    if not is_operand(other) and not isinstance(other, MaskedRead):
        return NotImplemented
    return operate(ufunc_ops()[np.power], self, other)


def _power_inplace(self: Any, other: Any) -> Any:
    op = fast_power(self, other)
    if self.scalar or not is_operand(other):
        return _power(self, other)
    if op is not None:
        return write_inplace(self, op)
    return write_inplace(self, ufunc_ops()[np.power], other)


def _binary(op: OpDef) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def forward(self: Any, other: Any) -> Any:
        if not is_operand(other) and not isinstance(other, MaskedRead):
            return NotImplemented
        return operate(op, self, other)

    def reflected(self: Any, other: Any) -> Any:
        return operate(op, other, self) if is_operand(other) else NotImplemented

    def inplace_(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        if self.scalar:
            return operate(op, self, other)
        return write_inplace(self, op, other)

    return forward, reflected, inplace_


def _install_operators() -> None:
    ops = ufunc_ops()
    for name, ufunc in _BINARY.items():
        forward, reflected, inplace_ = _binary(ops[ufunc])
        setattr(Face, f"__{name}__", forward)
        setattr(Face, f"__r{name}__", reflected)
        setattr(Face, f"__i{name}__", inplace_)
    for name, method in (("pow", _power), ("ipow", _power_inplace)):
        setattr(Face, f"__{name}__", method)
    for name, ufunc in _COMPARE.items():
        setattr(Face, f"__{name}__", _compare(ops[ufunc], name))
    for name, one in _UNARY.items():
        setattr(Face, f"__{name}__", lambda self, op=ops[one]: operate(op, self))


def _compare(op: OpDef, name: str) -> Callable[..., Any]:
    def compare(self: Any, other: Any) -> Any:
        if other is None and name in ("eq", "ne"):
            return operate(op, self, np.nan) if self.element_type.is_inexact else NotImplemented
        return operate(op, self, other) if is_operand(other) else NotImplemented

    return compare


# ------------------------------------------------------------------------ methods of the ops


def _method(op: OpDef) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        trace = trace_of(self, *others)
        return apply_op(trace, op, [as_arg(trace, x) for x in (self, *others)])

    return _named(method, op)


def _twin(op: OpDef) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        return write_inplace(self, op, *others)

    return _named(method, op)


def _named(method: Any, op: OpDef) -> Any:
    method.__doc__ = op.doc or f"The op `{op.name}`."
    return method


def install_methods(face: type[Face]) -> None:
    """Bind the names of the registry's elementwise ops that `face` does not define itself."""
    for op in REGISTRY:
        if op.attrs is not Attrs:
            continue
        for name in op.methods:
            if name not in vars(face) and not hasattr(Tracer, name):
                setattr(face, name, _method(op))
            twin = f"{name}_"
            if op.inplace and twin not in vars(face) and twin not in vars(Face):
                setattr(face, twin, _twin(op))


def with_alpha(op_name: str, inplace_: bool) -> Callable[..., Any]:
    """PyTorch's ``add`` and ``sub`` with ``alpha=``."""
    op, scale = REGISTRY[op_name], REGISTRY["mul"]

    def method(self: Any, other: Any, *, alpha: Any = 1) -> Any:
        if not (isinstance(alpha, int) and alpha == 1):
            other = operate(scale, other, alpha) if isinstance(other, Tracer) else other * alpha
        return write_inplace(self, op, other) if inplace_ else _method(op)(self, other)

    return method


_install_operators()
