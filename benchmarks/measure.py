"""Times and sizes of compiled functions, each measured beside NumPy in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tracegrad.graph.walk import all_nodes

# Everyone on one thread, so that ratios mean the same on a busy machine.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def seconds_of(
    function: Callable[..., Any],
    arguments: Callable[[], Sequence[Any]],
    least: float = 0.3,
    most: int = 1000,
) -> float:
    """The shortest of repeated calls that take `least` seconds together; each gets fresh
    arguments, whose making is not timed."""
    best, spent, count = float("inf"), 0.0, 0
    while count < 3 or (spent < least and count < most):
        given = arguments()
        start = time.perf_counter()
        function(*given)
        took = time.perf_counter() - start
        best, spent, count = min(best, took), spent + took, count + 1
    return best


def seconds_together(
    calls: Sequence[tuple[Callable[..., Any], Callable[[], Sequence[Any]]]], spent: float
) -> list[float]:
    """The shortest times of several calls that take turns for `spent` seconds (each runs five
    times at least), so that they are compared under the same load of the machine."""
    best = [float("inf")] * len(calls)
    begin, rounds = time.perf_counter(), 0
    while rounds < 5 or time.perf_counter() - begin < spent:
        for k, (function, arguments) in enumerate(calls):
            given = arguments()
            start = time.perf_counter()
            function(*given)
            best[k] = min(best[k], time.perf_counter() - start)
        rounds += 1
    return best


def shape_of(compiled: Any, arguments: Sequence[Any]) -> dict[str, int]:
    """Loop nodes and nodes of the optimized graph, and bytes of the arena."""
    lowering = compiled.lower(*arguments).specialisation.lowering
    nodes = list(all_nodes(lowering.graph("optimized")))
    return {
        "loops": sum(n.op.name == "loop" for n in nodes),
        "nodes": len(nodes),
        "arena": lowering.plan.program.arena_nbytes,
    }


def in_a_process(script: str, arguments: Sequence[str], timeout: float) -> dict[str, Any]:
    """The JSON on the last line that a script prints; ``{"failed": why}`` without one.

    The process has one thread and an empty cache of compiled programs.
    """
    command = [sys.executable, script, *arguments]
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
                env={**os.environ, **ONE_THREAD, "TRACEGRAD_CACHE_DIR": cache},
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {timeout:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = done.stderr.strip().splitlines()
        return {"failed": last[-1] if last else f"exit status {done.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
