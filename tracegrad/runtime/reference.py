"""The engine without a compiler: the same program, run by the interpreter of the loop IR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracegrad.loops.interpret import run_program
from tracegrad.loops.program import Program


class ReferenceEngine:
    """Runs a program with `tracegrad.loops.interpret`; some hundred times slower than C."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> tuple[int, int]:
        # Contiguous, so that reshape gives views and writes arrive.
        return run_program(
            self._program,
            [array.reshape(-1) for array in inputs],
            [array.reshape(-1) for array in outputs],
        )
