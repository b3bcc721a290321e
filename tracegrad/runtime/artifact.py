"""`Executable`: a program that can be called, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Literal, Protocol

import numpy as np

from tracegrad import errors
from tracegrad.dtypes import DType
from tracegrad.loops.program import NO_MEMORY, Buffer, CheckSite, Place, Program

NO_MEMORY_REMEDY = (
    "Give tg.while_loop(..., max_trips=n) to stop a loop that does not end, or use tg.jvp, which "
    "keeps nothing."
)
Kind = Literal["launcher", "ctypes", "reference"]


class Accept(IntFlag):
    """What may stand for an input; the values are those of launcher.c."""

    ARRAY = 1  # exactly an ndarray
    FLOAT = 2  # exactly a Python float, for f32 and f64 without axes
    SCALAR = 4  # a NumPy scalar of the input's dtype


class Returns(IntEnum):
    """How an output without axes comes back; the values are those of launcher.c."""

    ARRAY = 0
    SCALAR = 1
    FLOAT = 2


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input or output of a program: `shape` in elements, `written` for inputs."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    written: bool = False

    def describe(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def leaf_of(buffer: Buffer) -> Leaf:
    """The leaf of an INPUT or OUTPUT buffer.

    Raises:
        UnsupportedError: a size that is known only at run time.
    """
    sizes = [size for size in buffer.shape if isinstance(size, int)]
    if len(sizes) != len(buffer.shape):
        raise errors.UnsupportedError(
            f"{buffer.name} has a size that is not a number", remedy="Give sizes as numbers."
        )
    return Leaf(buffer.name, buffer.dtype, tuple(sizes), buffer.written)


class Engine(Protocol):
    """Runs a program once on C-contiguous arrays; returns status (0 is success) and detail."""

    def __call__(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> tuple[int, int]: ...


Binder = Callable[[Sequence[Accept], Sequence[Returns]], Callable[..., Any]]


class Executable:
    """A program bound to what runs it.

    `kind` is ``launcher`` (C extension), ``ctypes``, or ``reference`` (interpreter of the loop
    IR); `source` is the C text, also where the reference runs; `library` the path of the built
    file, None for the reference.  Calls from several threads at once are safe.
    """

    def __init__(
        self,
        program: Program,
        source: str,
        kind: Kind,
        engine: Engine,
        binder: Binder,
        library: str | None = None,
    ) -> None:
        self.program = program
        self.source = source
        self.kind: Kind = kind
        self.library = library
        self.inputs = tuple(leaf_of(b) for b in program.at(Place.INPUT))
        self.outputs = tuple(leaf_of(b) for b in program.at(Place.OUTPUT))
        self._engine = engine
        self._binder = binder
        self._exact = self.bind()

    def bind(
        self, accepts: Sequence[Accept] | None = None, returns: Sequence[Returns] | None = None
    ) -> Callable[..., Any]:
        """The fast call: ``f(*leaves)`` gives one result, or a tuple when there are not one.

        `accepts` says per input what may be passed (default: arrays, and numbers for inputs
        without axes), `returns` per output what comes back (default: arrays).  An argument that
        is not exactly as the program wants it (dtype, shape, C order, aligned, writable and
        apart from the others where it is written) gives NotImplemented and nothing has been done.
        A check that fails raises, see `raise_check`.
        """
        if accepts is None:
            accepts = [_default_accept(leaf) for leaf in self.inputs]
        if returns is None:
            returns = [Returns.ARRAY] * len(self.outputs)
        return self._binder(accepts, returns)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Results as fresh arrays.  Any layout is accepted; dtype and shape must be exact.

        Raises:
            ArgumentError: wrong number, dtype or shape; a written input that shares memory.
            RuntimeIndexError, RuntimeValueError: a check of the program failed.
        """
        found = self._exact(*inputs)
        if found is NotImplemented:
            return self._call_any_layout(inputs)
        return list(found) if isinstance(found, tuple) else [found]

    def call_into(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run on arrays that are exactly right, results into `outputs`.

        Raises:
            ArgumentError: an array that does not fit, or outputs that share memory.
        """
        _check_count("input", inputs, self.inputs)
        _check_count("output", outputs, self.outputs)
        for leaf, array in zip(self.inputs, inputs, strict=True):
            _check_exact(leaf, array, must_write=leaf.written)
        for leaf, array in zip(self.outputs, outputs, strict=True):
            _check_exact(leaf, array, must_write=True)
        writes = [leaf.written for leaf in self.inputs] + [True] * len(outputs)
        _check_apart([*inputs, *outputs], writes)
        status, detail = self._engine(inputs, outputs)
        if status:
            self.raise_check(status, detail)

    def raise_check(self, status: int, detail: int) -> None:
        """Raise what status (> 0) of a launch means; `detail` is the offending integer."""
        raise_check(self.program.checks, status, detail)

    def _call_any_layout(self, inputs: Sequence[Any]) -> list[np.ndarray]:
        _check_count("input", inputs, self.inputs)
        given, used = [], []
        for leaf, value in zip(self.inputs, inputs, strict=True):
            array = as_leaf(leaf, value)
            exact = array if is_exact(leaf, array) else np.array(array, order="C", copy=True)
            given.append(array)
            used.append(exact)
        outputs = [np.empty(leaf.shape, leaf.dtype.np) for leaf in self.outputs]
        _check_apart(given, [leaf.written for leaf in self.inputs])
        status, detail = self._engine(used, outputs)
        if status:
            self.raise_check(status, detail)
        for leaf, array, exact in zip(self.inputs, given, used, strict=True):
            if leaf.written and exact is not array:
                array[...] = exact
        return outputs


def raise_check(checks: Sequence[CheckSite], status: int, detail: int) -> None:
    """Raise the error of check `status`, counted from 1, placed at the user's line."""
    if not 1 <= status <= len(checks):
        raise errors.VerifyError(f"a program stopped with status {status}, which means nothing")
    site = checks[status - 1]
    message = site.message.replace("{value}", str(detail))
    if site.message == NO_MEMORY:
        raise errors.RuntimeMemoryError(message, loc=site.loc, remedy=NO_MEMORY_REMEDY)
    # NumPy's two wordings: "index 7 is out of bounds ..." is an IndexError, the rest ValueErrors.
    is_index = site.message.startswith("index ")
    kind = errors.RuntimeIndexError if is_index else errors.RuntimeValueError
    raise kind(message, loc=site.loc)


def _default_accept(leaf: Leaf) -> Accept:
    if leaf.shape or leaf.written:
        return Accept.ARRAY
    return Accept.ARRAY | Accept.SCALAR | (Accept.FLOAT if leaf.dtype.is_float else Accept(0))


def is_exact(leaf: Leaf, array: np.ndarray) -> bool:
    """Whether `array` can be passed as it is."""
    flags = array.flags
    return (
        array.dtype == leaf.dtype.np
        and array.shape == leaf.shape
        and flags.c_contiguous
        and flags.aligned
        and (flags.writeable or not leaf.written)
    )


def as_leaf(leaf: Leaf, value: Any) -> np.ndarray:
    """`value` as an array of the leaf's dtype and shape, without a copy where it is one."""
    if type(value) is float and leaf.dtype.is_float and not leaf.shape:
        return np.array(value, leaf.dtype.np)
    array = np.asarray(value)
    if array.dtype != leaf.dtype.np or array.shape != leaf.shape:
        raise errors.ArgumentError(
            f"{leaf.name} must be {leaf.describe()}, not {array.dtype} of shape {array.shape}"
        )
    if leaf.written and not (isinstance(value, np.ndarray) and array.flags.writeable):
        raise errors.ValueArgumentError(
            f"{leaf.name}: assignment destination is read-only",
            remedy="Pass an array that may be written, for example a copy.",
        )
    return array


def _check_count(what: str, given: Sequence[Any], wanted: Sequence[Leaf]) -> None:
    if len(given) != len(wanted):
        plural = "" if len(wanted) == 1 else "s"
        raise errors.ArgumentError(f"{len(wanted)} {what}{plural} needed, {len(given)} given")


def _check_exact(leaf: Leaf, array: np.ndarray, *, must_write: bool) -> None:
    if not (isinstance(array, np.ndarray) and is_exact(leaf, array)):
        raise errors.ArgumentError(f"{leaf.name} must be a C-ordered array {leaf.describe()}")
    if must_write and not array.flags.writeable:
        raise errors.ArgumentError(f"{leaf.name} is written: it may not be read-only")


def has_overlap(arrays: Sequence[np.ndarray], writes: Sequence[bool]) -> bool:
    """Whether an array that is written shares an element with another one."""
    return any(
        is_written and i != j and _shares(a, b)
        for i, (a, is_written) in enumerate(zip(arrays, writes, strict=True))
        for j, b in enumerate(arrays)
    )


def _shares(a: np.ndarray, b: np.ndarray) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True  # refusing is safe


def _check_apart(arrays: Sequence[np.ndarray], writes: Sequence[bool]) -> None:
    if any(writes) and has_overlap(arrays, writes):
        raise errors.ArgumentError(
            "an array that is written shares memory with another one",
            remedy="Pass a copy of one of them.",
        )
