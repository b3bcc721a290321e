"""`Tensor`: a traced `tg.Tensor`, with PyTorch's names and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import ViewMutationError
from tracegrad.graph.storage import Index, Span
from tracegrad.trace import complex_parts, layout, linalg, numpy_api, shape
from tracegrad.trace.elementwise import select
from tracegrad.trace.face import Face, install_methods, with_alpha
from tracegrad.trace.promote import as_arg, as_int, cast, trace_of
from tracegrad.trace.ragged import is_empty, total
from tracegrad.trace.shape import axis_of
from tracegrad.trace.symbolic import SymbolicInt
from tracegrad.trace.tensor_grad import TensorGradients
from tracegrad.trace.tensor_inplace import TensorInplace
from tracegrad.trace.tensor_names import REFUSED
from tracegrad.trace.tensor_reduce import TensorReductions
from tracegrad.trace.tracer import Tracer


def sizes(args: tuple[Any, ...]) -> Any:
    """Sizes given one by one or as one sequence."""
    return args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


class Tensor(TensorReductions, TensorInplace, TensorGradients, Face):
    """A traced tensor with PyTorch's methods, and ndarray's names that PyTorch lacks."""

    __slots__ = ()
    numpy_scalars = False
    __hash__ = object.__hash__

    # -- what it is

    def size(self, dim: Any = None) -> Any:
        if dim is None:
            return self.shape
        return self.shape[axis_of(trace_of(self), dim, len(self.shape))]

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return total(self.sizes)  # type: ignore[no-any-return]

    nelement = numel

    def stride(self, dim: Any = None) -> Any:
        strides = self.layout.stride
        return strides if dim is None else strides[axis_of(trace_of(self), dim, len(strides))]

    def storage_offset(self) -> Any:
        return self.layout.offset

    def is_contiguous(self) -> bool:
        return layout.is_c_ordered(self.sizes, self.layout.stride)  # type: ignore[arg-type]

    def is_floating_point(self) -> bool:
        return self.element_type.is_float

    def _is_view(self) -> bool:
        return self.alias.is_view

    @property
    def T(self) -> Any:
        return shape.permute(trace_of(self), self, None)

    @property
    def mT(self) -> Any:
        return shape.swapaxes(trace_of(self), self, -1, -2)

    def conj(self) -> Any:
        return complex_parts.conjugate_view(trace_of(self), self)

    def is_complex(self) -> bool:
        return self.element_type.is_complex

    # -- views

    def view(self, *args: Any) -> Any:
        """``view(*sizes)``; ``view(own dtype)`` is an ordinary view, ``view(other dtype)`` an
        alias without gradient."""
        trace = trace_of(self)
        if len(args) == 1 and isinstance(args[0], (np.dtype, type)):
            to = dtypes.of(args[0])
            if to is not self.element_type:
                return complex_parts.bitcast(trace, self, to)
            return trace.view(self, Index(tuple(Span(0, n) for n in self.sizes)))
        return shape.torch_view(trace, self, sizes(args))

    def view_as(self, other: Any) -> Any:
        return self.view(*other.shape)

    def reshape(self, *args: Any) -> Any:
        return shape.reshape(trace_of(self), self, sizes(args))

    def reshape_as(self, other: Any) -> Any:
        return self.reshape(*other.shape)

    def flatten(self, start_dim: Any = 0, end_dim: Any = -1) -> Any:
        trace, rank = trace_of(self), len(self.shape)
        if not rank:
            return shape.reshape(trace, self, (1,))
        a, b = axis_of(trace, start_dim, rank), axis_of(trace, end_dim, rank)
        if a == b:
            return self
        middle = total(self.sizes[a : b + 1])
        return shape.reshape(trace, self, (*self.shape[:a], middle, *self.shape[b + 1 :]))

    def ravel(self) -> Any:
        return shape.ravel(trace_of(self), self)

    def unflatten(self, dim: Any, to: Any) -> Any:
        k = axis_of(trace_of(self), dim, len(self.shape))
        return self.view(*self.shape[:k], *to, *self.shape[k + 1 :])

    def permute(self, *dims: Any) -> Any:
        return shape.permute(trace_of(self), self, sizes(dims))

    def transpose(self, dim0: Any, dim1: Any) -> Any:
        return shape.swapaxes(trace_of(self), self, dim0, dim1, "transpose")

    swapaxes = swapdims = transpose

    def t(self) -> Any:
        if len(self.shape) > 2:
            raise ViewMutationError(
                "t() expects a tensor with at most 2 dimensions",
                kind="bad_geometry",
                loc=source.here(),
            )
        return shape.permute(trace_of(self), self, None)

    def movedim(self, source: Any, destination: Any) -> Any:
        return shape.moveaxis(trace_of(self), self, source, destination, "movedim")

    moveaxis = movedim

    def squeeze(self, dim: Any = None) -> Any:
        return shape.squeeze(trace_of(self), self, dim, strict=False)

    def unsqueeze(self, dim: Any) -> Any:
        return shape.expand_dims(trace_of(self), self, dim)

    def expand(self, *args: Any) -> Any:
        return shape.expand(trace_of(self), self, sizes(args))

    def expand_as(self, other: Any) -> Any:
        return self.expand(*other.shape)

    broadcast_to = expand

    def narrow(self, dim: Any, start: Any, length: Any) -> Any:
        return shape.narrow(trace_of(self), self, dim, start, length)

    def select(self, dim: Any, index: Any) -> Any:
        k = axis_of(trace_of(self), dim, len(self.shape))
        at = index if isinstance(index, SymbolicInt) else as_int(index, "index")
        return self[(*(slice(None),) * k, at)]

    def unfold(self, dim: Any, size: Any, step: Any) -> Any:
        return shape.unfold(trace_of(self), self, dim, size, step)

    def diagonal(self, offset: Any = 0, dim1: Any = 0, dim2: Any = 1) -> Any:
        return shape.diagonal(trace_of(self), self, offset, dim1, dim2, readonly=False)

    def as_strided(self, size: Any, stride: Any, storage_offset: Any = None) -> Any:
        from tracegrad.trace.strided import as_strided

        return as_strided(self, size, stride, storage_offset)

    # -- several views

    def split(self, split_size: Any, dim: Any = 0) -> tuple[Any, ...]:
        k = axis_of(trace_of(self), dim, len(self.shape))
        n = self.shape[k]
        if isinstance(split_size, (tuple, list)):
            parts = [as_int(s, "a size") for s in split_size]
        else:
            step = as_int(split_size, "split_size")
            parts = [min(step, n - at) for at in range(0, n, step)] if step > 0 and n else [0]
        if sum(parts) != n or any(p < 0 for p in parts):
            raise ViewMutationError(
                f"split: sizes {parts} do not sum to {n}",
                kind="out_of_bounds",
                loc=source.here(),
                op_name="split",
            )
        return self._pieces(parts, k, "split")

    def chunk(self, chunks: Any, dim: Any = 0) -> tuple[Any, ...]:
        k = axis_of(trace_of(self), dim, len(self.shape))
        count, n = as_int(chunks, "chunks"), self.shape[k]
        step = max(1, -(-n // count))
        parts = [min(step, n - at) for at in range(0, n, step)] or [0] * count
        return self._pieces(parts, k, "chunk")

    def _pieces(self, parts: list[int], axis: int, origin: str) -> tuple[Any, ...]:
        trace = trace_of(self)
        x = trace.lift(self)
        out, at = [], 0
        for number, size in enumerate(parts):
            out.append(shape.span(trace, x, axis, at, size, origin=origin, output=number))
            at += size
        return tuple(out)

    def unbind(self, dim: Any = 0) -> tuple[Any, ...]:
        from tracegrad.graph.storage import Pick

        trace = trace_of(self)
        x = trace.lift(self)
        k = axis_of(trace, dim, len(self.shape))
        rest = [Span(0, n) for n in self.sizes]
        return tuple(
            trace.view(x, Index((*rest[:k], Pick(i), *rest[k + 1 :])), origin="unbind", output=i)
            for i in range(self.shape[k])
        )

    def tensor_split(self, indices_or_sections: Any, dim: Any = 0) -> tuple[Any, ...]:
        return tuple(numpy_api.FUNCTIONS[np.array_split](self, indices_or_sections, dim))

    # -- copies

    def clone(self, **_: Any) -> Any:
        trace = trace_of(self)
        x = trace.lift(self)
        return shape.copy(trace, x, "K")

    def contiguous(self) -> Any:
        return self if self.is_contiguous() else shape.copy(trace_of(self), self, "C")

    def copy(self) -> Any:
        return shape.copy(trace_of(self), self, "C")

    def to(self, dtype: Any, **_: Any) -> Any:
        if isinstance(dtype, Tracer):
            dtype = dtype.element_type
        return cast(trace_of(self), trace_of(self).lift(self), dtypes.of(dtype))

    astype = type = to

    def double(self) -> Any:
        return self.to(np.float64)

    def float(self) -> Any:
        return self.to(np.float32)

    def long(self) -> Any:
        return self.to(np.int64)

    def int(self) -> Any:
        return self.to(np.int32)

    def bool(self) -> Any:
        return self.to(np.bool_)

    def flip(self, *dims: Any) -> Any:
        """A copy with axes reversed (PyTorch has no negative strides)."""
        trace = trace_of(self)
        axes = shape.axes_of(trace, tuple(sizes(dims)), len(self.shape))
        items = tuple(
            Span(n - 1, n, -1) if k in axes and not is_empty((n,)) else Span(0, n)
            for k, n in enumerate(self.sizes)
        )
        return trace.read(self, Index(items))

    def repeat(self, *counts: Any) -> Any:
        return numpy_api.FUNCTIONS[np.tile](self, sizes(counts))

    def repeat_interleave(self, repeats: Any, dim: Any = None) -> Any:
        return numpy_api.FUNCTIONS[np.repeat](self, repeats, dim)

    def roll(self, shifts: Any, dims: Any = None) -> Any:
        return numpy_api.FUNCTIONS[np.roll](self, shifts, dims)

    def index_select(self, dim: Any, index: Any) -> Any:
        return numpy_api.take(self, index, dim)

    def gather(self, dim: Any, index: Any) -> Any:
        return numpy_api.take_along_axis(self, index, dim)

    def take(self, index: Any) -> Any:
        return numpy_api.take(self, index)

    def where(self, condition: Any, other: Any) -> Any:
        trace = trace_of(self)
        return select(trace, *(as_arg(trace, x) for x in (condition, self, other)))

    def masked_fill(self, mask: Any, value: Any) -> Any:
        return self.clone().masked_fill_(mask, value)

    def index_add(self, dim: Any, index: Any, source: Any, *, alpha: Any = 1) -> Any:
        return self.clone().index_add_(dim, index, source, alpha=alpha)

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        trace = trace_of(self)
        return numpy_api.clipped(trace, trace.lift(self), min, max)

    clip = clamp

    def round(self, decimals: Any = 0) -> Any:
        return numpy_api.round(self, decimals)

    # -- products

    def matmul(self, other: Any) -> Any:
        return linalg.matmul(trace_of(self), self, other)

    mm = mv = bmm = matmul

    def dot(self, other: Any) -> Any:
        return linalg.dot(trace_of(self), self, other)

    def outer(self, other: Any) -> Any:
        return linalg.outer(trace_of(self), self, other)

    add = with_alpha("add", inplace_=False)
    sub = subtract = with_alpha("sub", inplace_=False)
    add_ = with_alpha("add", inplace_=True)
    sub_ = subtract_ = with_alpha("sub", inplace_=True)

    @classmethod
    def _refused_names(cls) -> Mapping[str, str]:
        return dict.fromkeys(dir(np.ndarray), "") | REFUSED

    @classmethod
    def _origin(cls) -> str:
        return "Tensor"


install_methods(Tensor)
