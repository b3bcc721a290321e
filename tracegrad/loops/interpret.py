"""Reference interpreter of kernels and programs, in NumPy.

This is what emitted code is compared with, and what runs when there is no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from tracegrad.dims import evaluate, span_of
from tracegrad.errors import VerifyError
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import Kernel
from tracegrad.loops.machine import Machine, Memory, Stopped
from tracegrad.loops.program import (
    Branch,
    Buffer,
    Copy,
    Grow,
    HostLoop,
    Launch,
    Place,
    Program,
    Step,
    WhileLoop,
    Workers,
)

Arrays = MutableMapping[str, np.ndarray]


def run_kernel(
    kernel: Kernel, buffers: Mapping[str, np.ndarray], indices: Sequence[int] = ()
) -> int:
    """Run `kernel` on flat arrays by parameter name, written ones in place.

    `indices` are the values of the kernel's indices.

    Returns 0, or the code of the first check that failed; the offending value is then in
    ``buffers["detail"][0]`` where the kernel has that parameter.
    Raises VerifyError for an index out of bounds or outside its declared range, and for a
    buffer that does not fit its parameter.
    """
    memory = {}
    for p in kernel.params:
        array = buffers[p.name]
        if array.ndim != 1 or array.dtype != p.dtype.np:
            raise VerifyError(
                f"{kernel.name}: {p.name} needs a flat {p.dtype} array, "
                f"not {array.dtype} of rank {array.ndim}"
            )
        if isinstance(p.size, int) and array.size < p.size:
            raise VerifyError(f"{kernel.name}: {p.name} has {array.size} elements, not {p.size}")
        memory[p.name] = Memory(array, array.size)
    machine = Machine(kernel, memory)
    for s, value in zip(kernel.indices, indices, strict=True):
        lo, hi = span_of(s)
        if (lo is not None and value < lo) or (hi is not None and value > hi):
            raise VerifyError(f"{kernel.name}: index {s} = {value} leaves {lo}..{hi}")
        machine.env[s.name] = value
    with np.errstate(all="ignore"):
        try:
            machine.block(kernel.body)
        except Stopped as stop:
            if "detail" in memory:
                memory["detail"].array[0] = stop.value
            return stop.code
    return 0


def run_program(
    program: Program, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> tuple[int, int]:
    """Run the launches in order on flat row-major arrays; written inputs change in place.

    Returns (0, 0), or the status of the check that failed and the offending integer.
    """
    arena = np.full(program.arena_nbytes, 0xFF, np.uint8)

    def array_of(b: Buffer) -> np.ndarray:
        if b.place is Place.INPUT:
            return inputs[b.index]
        if b.place is Place.OUTPUT:
            return outputs[b.index]
        if b.place is Place.CONSTANT:
            assert b.data is not None, "a constant buffer has data"
            return np.ascontiguousarray(b.data).reshape(-1)
        if b.place is Place.GROWING:
            return np.empty(0, b.dtype.np)
        assert isinstance(b.size, int), "arena buffers have known sizes"
        return arena[b.offset : b.offset + b.size * b.dtype.nbytes].view(b.dtype.np)

    return _run_steps(program.steps, {b.name: array_of(b) for b in program.buffers}, {})


def _run_steps(steps: Sequence[Step], arrays: Arrays, env: dict[str, int]) -> tuple[int, int]:
    """`env` holds the variables of the loops around; result as of `run_program`."""
    for step in steps:
        if isinstance(step, HostLoop):
            status, detail = _run_loop(step, arrays, env)
        elif isinstance(step, WhileLoop):
            status, detail = _run_while(step, arrays, env)
        elif isinstance(step, Branch):
            at = min(max(int(arrays[step.selector][0]), 0), len(step.cases) - 1)
            status, detail = _run_steps(step.cases[at], arrays, env)
        elif isinstance(step, Grow):
            need = evaluate(step.size, env)
            status, detail = _make_room(step.buffer, need, step.check, arrays)
        elif isinstance(step, Copy):
            old = arrays[step.source]
            status, detail = _make_room(step.target, old.size, step.check, arrays)
            if not status:
                arrays[step.target][: old.size] = old
        else:
            status, detail = _run_launch(step, arrays, env)
        if status:
            return status, detail
    return 0, 0


def _make_room(name: str, need: int, check: int, arrays: Arrays) -> tuple[int, int]:
    old = arrays[name]
    if need <= old.size:
        return 0, 0
    try:
        new = np.empty(max(need, 2 * old.size), old.dtype)
    except MemoryError:
        return check, need * old.dtype.itemsize
    new.view(np.uint8)[:] = 0xFF
    new[: old.size] = old
    arrays[name] = new
    return 0, 0


def _run_loop(loop: HostLoop, arrays: Arrays, env: dict[str, int]) -> tuple[int, int]:
    if loop.workers is not None and loop.workers.sums:
        return _run_chunks(loop, loop.workers, arrays, env)
    counts = [] if loop.trips == GROWN else [evaluate(loop.trips, env)]
    counts += [] if loop.count is None else [int(arrays[loop.count][0])]
    trips = range(min(counts))
    for i in reversed(trips) if loop.reverse else trips:
        status, detail = _run_steps(loop.body, arrays, env | {loop.var.name: i})
        if status:
            return status, detail
    return 0, 0


def _run_chunks(
    loop: HostLoop, workers: Workers, arrays: Arrays, env: dict[str, int]
) -> tuple[int, int]:
    """A loop with sums, chunk by chunk: the same additions as on any number of threads."""
    trips, n = evaluate(loop.trips, env), workers.chunks
    parts = {s: arrays[p].reshape(n, -1)[:, : arrays[s].size] for s, p in workers.sums}
    for c in range(n):
        own = {s: part[c] for s, part in parts.items()}
        for part in own.values():
            part[...] = -0.0
        for k in range(trips * c // n, trips * (c + 1) // n):
            i = trips - 1 - k if loop.reverse else k
            status, detail = _run_steps(loop.body, {**arrays, **own}, env | {loop.var.name: i})
            if status:
                return status, detail
    for s, part in parts.items():
        step = 1
        while step < n:
            for c in range(0, n - step, 2 * step):
                part[c] += part[c + step]
            step *= 2
        arrays[s][...] += part[0]
    return 0, 0


def _run_while(loop: WhileLoop, arrays: Arrays, env: dict[str, int]) -> tuple[int, int]:
    i, last = 0, span_of(loop.var)[1]
    while last is None or i <= last:
        at = env | {loop.var.name: i}
        status, detail = _run_steps(loop.test, arrays, at)
        if status or not arrays[loop.flag][0]:
            return status, detail
        status, detail = _run_steps(loop.body, arrays, at)
        if status:
            return status, detail
        i += 1
    return 0, 0


def _run_launch(
    launch: Launch, arrays: Mapping[str, np.ndarray], env: Mapping[str, int]
) -> tuple[int, int]:
    names = (p.name for p in launch.kernel.params)
    bound = dict(zip(names, (arrays[a] for a in launch.args), strict=True))
    status = run_kernel(launch.kernel, bound, [evaluate(d, env) for d in launch.indices])
    if not status:
        return 0, 0
    return launch.check_base + status, int(bound["detail"][0]) if "detail" in bound else 0
