"""`Program`: buffers and the order of kernel launches; what schedule makes and codegen prints.

A program is one callable: inputs, then outputs, as flat row-major buffers, and one arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from tracegrad.dims import Dim, Symbol
from tracegrad.dtypes import DType
from tracegrad.loops.ir import Kernel
from tracegrad.source import SourceLoc


class Place(Enum):
    """Where a buffer lives."""

    INPUT = "input"  # passed by the caller; written only if `Buffer.written`
    OUTPUT = "output"  # passed by the caller
    ARENA = "arena"  # at `Buffer.offset` bytes of the workspace
    CONSTANT = "constant"  # `Buffer.data`
    GROWING = "growing"  # empty at first; `Grow` makes room; gone after the call


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """`size` elements of `dtype`.

    `index` counts among the buffers of the same place; `offset` is in bytes of the arena, a
    multiple of 64; `shape` and `hint` are what a header documents.
    """

    name: str
    dtype: DType
    size: Dim
    place: Place
    index: int = 0
    offset: int = 0
    written: bool = False
    data: np.ndarray | None = None
    shape: tuple[Dim, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CheckSite:
    """What Python raises when a launch stops: `message` may hold ``{value}``."""

    message: str
    loc: SourceLoc | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Run `kernel` on `args` (buffer names, in the order of its params).

    `indices` are the values of the kernel's indices, over the variables of enclosing loops.
    When the kernel returns status s > 0 the program returns ``check_base + s`` and
    ``Program.checks[check_base + s - 1]`` says what happened.
    """

    kernel: Kernel
    args: tuple[str, ...]
    check_base: int = 0
    indices: tuple[Dim, ...] = field(default=(), kw_only=True)
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Workers:
    """How the iterations of a loop run on up to `threads` threads.

    Chunk c of `chunks` is the iterations from ``trips*c // chunks`` on, counted in the order of
    the loop; its iterations run in order, the chunks in any.  Thread w has its own copies of the
    buffers `private`, ``w * stride`` bytes behind their offsets.  `sums` are pairs (buffer,
    parts): the iterations only add to the buffer; chunk c adds to part c of the `chunks` equal
    parts (each holds the buffer, and perhaps more) from nothing, and at the end the parts are
    added in pairs, those of neighbours first, and the total to the buffer.
    """

    chunks: int
    threads: int
    stride: int = 0
    private: tuple[str, ...] = ()
    sums: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class HostLoop:
    """Run `body` with `var` = 0 .. trips-1, or trips-1 .. 0 when `reverse`; in this order, unless
    `workers` say that the iterations are independent.

    `trips` may use the variables of enclosing loops; with `trips` <= 0 nothing runs.  `count`
    names a buffer whose first element (i64) says how many of the `trips` run, from 0 on; where
    `trips` is `GROWN` that is all there is to know.
    """

    var: Symbol
    trips: Dim
    reverse: bool
    body: tuple[Step, ...]
    loc: SourceLoc | None = field(default=None, compare=False)
    count: str | None = field(default=None, kw_only=True)
    workers: Workers | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WhileLoop:
    """Run `test`; while it leaves the first element of buffer `flag` (bool) true, run `body` and
    `test` again.

    `var`, which both may use, counts the iterations from 0; its range ends at the last one that
    is allowed (then it is over without another test), or is open.
    """

    var: Symbol
    flag: str
    test: tuple[Step, ...]
    body: tuple[Step, ...]
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Branch:
    """Run one of `cases`: the first element of buffer `selector` (i64, or bool for two) counts
    them, clamped to the first and the last."""

    selector: str
    cases: tuple[tuple[Step, ...], ...]
    loc: SourceLoc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Grow:
    """Let a GROWING buffer have room for `size` elements at least, keeping what it holds.

    Where there is no memory the program returns ``check``, and the value is the number of bytes.
    """

    buffer: str
    size: Dim
    check: int
    loc: SourceLoc | None = field(default=None, compare=False)


NO_MEMORY = "no memory for {value} bytes of what the iterations of a while_loop leave"
"""The message of the check of `Grow` and `Copy`."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Let one GROWING buffer have as much room as another and hold the same.

    Where there is no memory, as `Grow`.
    """

    source: str
    target: str
    check: int
    loc: SourceLoc | None = field(default=None, compare=False)


Step = Launch | HostLoop | WhileLoop | Branch | Grow | Copy


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A compiled function before it is text.

    With checks, the first 64 bytes of the arena are reserved: element 0 (int64) receives the
    offending value.  Kernels that check have a last param ``detail: i64[1]`` bound to the
    buffer named ``detail`` (place ARENA, offset 0), which `Grow` and `Copy` write too.
    """

    name: str
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arena_nbytes: int = 0
    checks: tuple[CheckSite, ...] = ()

    def at(self, place: Place) -> tuple[Buffer, ...]:
        """The buffers of one place, by index."""
        return tuple(sorted((b for b in self.buffers if b.place is place), key=lambda b: b.index))

    def launches(self) -> Iterator[Launch]:
        """Every launch in the order of the text, those inside loops once."""
        return launches(self.steps)

    def kernels(self) -> tuple[Kernel, ...]:
        """Each kernel once, in order of first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches()))


def launches(steps: Sequence[Step]) -> Iterator[Launch]:
    """Every launch in `steps`, loops and branches opened, in the order of the text."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        for block in blocks(step):
            yield from launches(block)


def blocks(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The steps inside a step, one tuple for each place where they stand."""
    if isinstance(step, HostLoop):
        return (step.body,)
    if isinstance(step, WhileLoop):
        return step.test, step.body
    return step.cases if isinstance(step, Branch) else ()


def named(step: Step) -> tuple[str, ...]:
    """The buffers that a step itself names: arguments, selectors, flags, counts."""
    if isinstance(step, Launch):
        return step.args
    if isinstance(step, Branch):
        return (step.selector,)
    if isinstance(step, WhileLoop):
        return (step.flag,)
    if isinstance(step, Grow):
        return step.buffer, "detail"
    if isinstance(step, Copy):
        return step.source, step.target, "detail"
    parts = () if step.workers is None else step.workers.sums
    return (*(() if step.count is None else (step.count,)), *(x for pair in parts for x in pair))


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step in `steps` and inside them, outer ones first."""
    for step in steps:
        yield step
        for block in blocks(step):
            yield from all_steps(block)


def first_growth(program: Program) -> Grow | None:
    """The first step that asks for memory while the program runs."""
    return next((s for s in all_steps(program.steps) if isinstance(s, Grow)), None)
