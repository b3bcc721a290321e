"""`Array`: a traced ndarray or NumPy scalar, with ndarray's names and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import DTypeError, UnsupportedError
from tracegrad.graph.storage import Index, Span
from tracegrad.trace import complex_parts, concretize, inplace, layout, numpy_api, reduce, shape
from tracegrad.trace import numpy_reduce as nr
from tracegrad.trace.face import Face, install_methods
from tracegrad.trace.promote import as_int, trace_of, warn_of_parts
from tracegrad.trace.ragged import total
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tracer import Tracer

NO_VALUE: Any = np._NoValue


def _sizes(args: tuple[Any, ...]) -> Any:
    """Sizes given one by one or as one tuple."""
    return args[0] if len(args) == 1 else args


class Array(Face):
    """A traced array with ndarray's methods, and PyTorch's names that ndarray lacks."""

    __slots__ = ()
    numpy_scalars = True

    # -- attributes

    @property
    def size(self) -> int:
        return total(self.sizes)  # type: ignore[no-any-return]

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return shape.swapaxes(trace_of(self), self, -1, -2)

    @property
    def strides(self) -> tuple[int, ...]:
        """NumPy's strides, in bytes."""
        return tuple(s * self.itemsize for s in self.layout.stride)  # type: ignore[operator, misc]

    @property
    def flat(self) -> Any:
        raise UnsupportedError(
            "ndarray.flat is not supported",
            loc=source.here(),
            remedy="Use x.reshape(-1), or x.ravel().",
        )

    @property
    def data(self) -> Any:
        raise UnsupportedError("ndarray.data is not supported", loc=source.here())

    @property
    def flags(self) -> Any:
        return _Flags(self)

    def __hash__(self) -> int:
        if not self.scalar:
            raise UnsupportedError(
                "unhashable type: 'numpy.ndarray'", kind="unhashable", loc=source.here()
            )
        return hash(concretize.single(self, "hash()", "hash"))

    # -- shapes

    def reshape(self, *sizes: Any, order: str = "C", copy: Any = None) -> Any:
        return shape.reshape(trace_of(self), self, _sizes(sizes), order, copy)

    def ravel(self, order: str = "C") -> Any:
        return shape.ravel(trace_of(self), self, order)

    def flatten(self, order: str = "C") -> Any:
        return shape.flatten(trace_of(self), self, order)

    def transpose(self, *axes: Any) -> Any:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return shape.permute(trace_of(self), self, None if not axes else order, "transpose")

    def swapaxes(self, axis1: Any, axis2: Any) -> Any:
        return shape.swapaxes(trace_of(self), self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Any:
        return shape.squeeze(trace_of(self), self, axis, strict=True)

    def diagonal(self, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
        return shape.diagonal(trace_of(self), self, offset, axis1, axis2, readonly=True)

    def view(self, *args: Any, **keywords: Any) -> Any:
        """``view()`` and ``view(own dtype)`` share memory; so does another dtype, with no
        gradient."""
        trace = trace_of(self)
        target = args[0] if args else keywords.get("dtype")
        if target is np.ndarray or target is None:
            target = self.dtype
        if isinstance(target, int) or (isinstance(target, tuple) and len(args) == 1):
            return shape.torch_view(trace, self, _sizes(args))
        try:
            to = dtypes.of(target)
        except TypeError:
            raise UnsupportedError(
                f"ndarray.view({target!r}) is not supported yet",
                loc=source.here(),
                remedy="Use astype, which converts.",
            ) from None
        if to is not self.element_type:
            if self.scalar:
                raise UnsupportedError(
                    "a view of a NumPy scalar as another dtype is not supported",
                    loc=source.here(),
                    remedy="Use astype, which converts.",
                )
            return complex_parts.bitcast(trace, self, to)
        items = tuple(Span(0, n) for n in self.sizes)
        return shape.view(trace, self, Index(items))

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        return numpy_api.FUNCTIONS[np.repeat](self, repeats, axis)

    def resize(self, *args: Any, **keywords: Any) -> Any:
        raise UnsupportedError(
            "ndarray.resize is not supported: the size of a traced array is fixed",
            loc=source.here(),
            remedy="Make a new array.",
        )

    # -- copies and conversions

    def copy(self, order: str = "C") -> Any:
        trace = trace_of(self)
        if self.scalar:
            return trace.read(self, scalar=True)
        return shape.copy(trace, trace.lift(self), order)

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        trace = trace_of(self)
        x = trace.lift(self)
        to = dtypes.of(dtype)
        if not np.can_cast(self.dtype, to.np, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"Cannot cast array data from {self.dtype!r} to {to.np!r} according "
                f"to the rule '{casting}'",
                loc=source.here(),
            )
        warn_of_parts(x.element_type, to)
        if x.element_type is to:
            if not copy:
                return self
            return trace.read(x, layout=layout.copied(x.layout, order), scalar=x.scalar)
        from tracegrad.ops.cast import cast as cast_op

        return trace.apply(
            cast_op,
            (x,),
            cast_op.attrs(dtype=to),  # type: ignore[call-arg]
            layout=layout.copied(x.layout, order),
            scalar=x.scalar,
        )

    def byteswap(self, inplace: bool = False) -> Any:
        raise UnsupportedError("ndarray.byteswap is not supported", loc=source.here())

    # -- reductions

    def sum(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        return nr.sum(self, axis, dtype, out, keepdims, initial, where)

    def prod(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        return nr.prod(self, axis, dtype, out, keepdims, initial, where)

    def max(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        return nr.max(self, axis, out, keepdims, initial, where)

    def min(
        self,
        axis: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        return nr.min(self, axis, out, keepdims, initial, where)

    def mean(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
    ) -> Any:
        return nr.mean(self, axis, dtype, out, keepdims, where=where)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        **more: Any,
    ) -> Any:
        return nr.var(self, axis, dtype, out, ddof, keepdims, where=where, **more)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        **more: Any,
    ) -> Any:
        return nr.std(self, axis, dtype, out, ddof, keepdims, where=where, **more)

    def any(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        return nr.any(self, axis, out, keepdims, where=where)

    def all(
        self, axis: Any = None, out: Any = None, keepdims: Any = NO_VALUE, *, where: Any = NO_VALUE
    ) -> Any:
        return nr.all(self, axis, out, keepdims, where=where)

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: Any = NO_VALUE) -> Any:
        return nr.argmax(self, axis, out, keepdims=keepdims)

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: Any = NO_VALUE) -> Any:
        return nr.argmin(self, axis, out, keepdims=keepdims)

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return nr.cumsum(self, axis, dtype, out)

    def cumprod(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return nr.cumprod(self, axis, dtype, out)

    # -- the rest

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **keywords: Any) -> Any:
        return numpy_api.clip(self, min, max, out, **keywords)

    def round(self, decimals: Any = 0, out: Any = None) -> Any:
        return numpy_api.round(self, decimals, out)

    def __round__(self, ndigits: Any = None) -> Any:
        if ndigits is None:
            concretize.known(self, "round()", "int")
            return round(concretize.single(self, "round()", "int"))
        return numpy_api.round(self, ndigits)

    def dot(self, b: Any, out: Any = None) -> Any:
        return nr.dot(self, b, out)

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
        return numpy_api.take(self, indices, axis, out, mode)

    def fill(self, value: Any) -> None:
        inplace.fill(trace_of(self), self, value)

    # -- PyTorch's names that ndarray lacks

    def clone(self) -> Any:
        return self.copy()

    def contiguous(self) -> Any:
        x = trace_of(self).lift(self)
        if layout.is_c_ordered(x.sizes, x.layout.stride):  # type: ignore[arg-type]
            return self
        return self.copy()

    def unsqueeze(self, dim: Any) -> Any:
        return shape.expand_dims(trace_of(self), self, dim)

    def permute(self, *axes: Any) -> Any:
        return shape.permute(
            trace_of(self),
            self,
            _sizes(axes) if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes,
        )

    def movedim(self, source: Any, destination: Any) -> Any:
        return shape.moveaxis(trace_of(self), self, source, destination, "movedim")

    def expand(self, *sizes: Any) -> Any:
        return shape.expand(trace_of(self), self, _sizes(sizes))

    def narrow(self, dim: Any, start: Any, length: Any) -> Any:
        return shape.narrow(trace_of(self), self, dim, start, length)

    def select(self, dim: Any, index: Any) -> Any:
        trace = trace_of(self)
        k = shape.axis_of(trace, dim, len(self.shape))
        at = index if isinstance(index, SymbolicInt) else as_int(index, "index")
        return self[(*(slice(None),) * k, at, ...)]

    def unfold(self, dim: Any, size: Any, step: Any) -> Any:
        return shape.unfold(trace_of(self), self, dim, size, step)

    def logsumexp(self, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce.logsumexp(trace_of(self), self, axis, keepdims)

    nonzero = numpy_api.data_dependent("ndarray.nonzero")
    compress = numpy_api.data_dependent("ndarray.compress")

    @classmethod
    def _refused_names(cls) -> Mapping[str, str]:
        return dict.fromkeys(dir(np.ndarray), "")

    @classmethod
    def _origin(cls) -> str:
        return "ndarray"


class _Flags:
    """``x.flags`` as far as traced code asks."""

    def __init__(self, x: Tracer) -> None:
        strides: Any = x.layout.stride
        c, f = layout.is_c_ordered(x.sizes, strides), layout.is_f_ordered(x.sizes, strides)
        vars(self).update(
            c_contiguous=c,
            f_contiguous=f,
            contiguous=c,
            forc=c or f,
            writeable=not (x.readonly or x.scalar),
            owndata=not x.alias.is_view,
        )

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise UnsupportedError(
            f"the flag {name!r} of a traced array cannot be set", loc=source.here()
        )

    __setitem__ = __setattr__


install_methods(Array)
