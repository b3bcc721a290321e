"""`Tracer`: a handle that stands for one array; `Memory`: the storage it is a view of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np

from tracegrad.dtypes import DType
from tracegrad.errors import UnsupportedError
from tracegrad.graph.ir import Value
from tracegrad.graph.storage import Geometry
from tracegrad.source import SourceLoc
from tracegrad.views import family
from tracegrad.views.family import Alias, Storage

if TYPE_CHECKING:
    from tracegrad.trace.tracking import Recorder
    from tracegrad.trace.windows import Window


@dataclass(slots=True, eq=False)
class Memory(Storage):
    """A storage of a trace: `base` is its handle in the graph, `array` its concrete contents.

    Exactly one of the two is set (at the prompt always `array`).  `layout` are NumPy's strides
    of the base, in elements.  `doubted`: a loop that may not run, after which another name may
    hold this storage or one of its own.  `window`: what it is kept equal to.
    """

    trace: Recorder = None  # type: ignore[assignment]
    base: Value | None = None
    array: np.ndarray | None = None
    layout: tuple[int, ...] = ()
    family: family.Family | None = None
    written_at: SourceLoc | None = None
    doubted: SourceLoc | None = None
    window: Window | None = None


def refuse_doubted(loop: SourceLoc, loc: SourceLoc | None) -> NoReturn:
    """A write to a storage that two names share if `loop` runs no time, and only then."""
    raise UnsupportedError(
        "this writes an array that a name may still hold which a loop binds anew, if that loop "
        "runs no time: what the write changes is known only when it runs",
        kind="loop",
        loc=loc,
        notes=(("the loop:", loop),),
        remedy="Give the loop a copy to start from (u = u.copy() in front of it).",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A base was detached in place at `version`: what replaces its family from the next write
    on."""

    family: family.Family
    base: Value | None
    version: int


class Tracer:
    """One traced array or scalar.  The faces `Array` and `Tensor` add operators and methods.

    `scalar`: a NumPy scalar or Python float of the traced code: immutable, never a view.
    `weak`: a Python float, which does not promote other dtypes (NEP 50).
    `readonly`: NumPy would refuse to write it (broadcast_to, diagonal).
    """

    __slots__ = (
        "trace",
        "alias",
        "layout",
        "scalar",
        "weak",
        "readonly",
        "_value",
        "_array",
        "__weakref__",
    )

    numpy_scalars: ClassVar[bool]  # whether the face has NumPy scalars apart from 0-d arrays

    def __init__(
        self,
        trace: Recorder,
        alias: Alias,
        layout: Geometry,
        value: Value | None,
        array: np.ndarray | None,
        *,
        scalar: bool = False,
        weak: bool = False,
        readonly: bool = False,
    ) -> None:
        self.trace = trace
        self.alias = alias
        self.layout = layout
        self.scalar = scalar
        self.weak = weak
        self.readonly = readonly
        self._value = value
        self._array = array

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape.  Inside a loop a size may be an expression in its index (a `Dim`): code
        that compares sizes asks `trace.ragged`; the faces' `shape` is for traced code.
        """
        return self.layout.size  # type: ignore[return-value]

    @property
    def element_type(self) -> DType:
        """The `DType` (the faces' `dtype` is NumPy's)."""
        return self.alias.dtype

    @property
    def memory(self) -> Memory:
        return self.alias.storage  # type: ignore[return-value]

    @property
    def concrete(self) -> np.ndarray | None:
        """The contents when they are known while tracing, else None.  Do not write it."""
        return self._array if self.memory.array is not None else None

    @property
    def contents(self) -> np.ndarray | None:
        """As `concrete`; at the prompt also of tensors that require a gradient."""
        return self._array if self.memory.array is not None else None
