"""`Kernel`: one program of the suite with its data, found by name in `KERNELS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arguments = tuple[Any, ...]
Make = Callable[..., Arguments]

KERNELS: dict[str, Kernel] = {}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A NumPy function that returns a scalar, and what it is run on.

    `make` draws the arguments for a size; `small` is for tests, `large` for timings.  `changed`
    says what had to change for tracegrad in an otherwise natural NumPy program ("" is nothing).
    `steps` are arguments in which the value has jumps, so that differences say nothing; `slack`
    is the relative error of differences near kinks, where `minimum` and the like change sides.
    `natural` is what one would write for NumPy alone, where that is another function.
    """

    name: str
    function: Callable[..., Any]
    make: Make
    small: Mapping[str, int]
    large: Mapping[str, int]
    changed: str = ""
    group: str = field(default="", compare=False)
    steps: tuple[int, ...] = ()
    slack: float = 1e-6
    natural: Callable[..., Any] | None = None

    def arguments(self, size: Mapping[str, int], seed: int = 0) -> Arguments:
        """Fresh arguments for `size`; equal for equal seeds."""
        return self.make(np.random.default_rng(seed), **size)


def kernel(
    make: Make,
    *,
    small: Mapping[str, int],
    large: Mapping[str, int],
    changed: str = "",
    steps: tuple[int, ...] = (),
    slack: float = 1e-6,
    natural: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated function in `KERNELS` under its own name."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        group = function.__module__.rsplit(".", 1)[-1]
        KERNELS[name] = Kernel(
            name, function, make, small, large, changed, group, steps, slack, natural
        )
        return function

    return enter


def differentiable(kernel: Kernel, arguments: Arguments) -> tuple[int, ...]:
    """The positions of float and complex arguments without jumps: those a gradient is taken of."""
    return tuple(
        k
        for k, x in enumerate(arguments)
        if k not in kernel.steps
        and (isinstance(x, float) or (isinstance(x, np.ndarray) and x.dtype.kind in "fc"))
    )


def fresh(arguments: Arguments) -> Arguments:
    """The arguments with arrays copied, since most programs write theirs."""
    return tuple(x.copy() if isinstance(x, np.ndarray) else x for x in arguments)
