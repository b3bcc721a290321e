"""What both generators need: random choices, and a live run that says what a statement does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

LIMIT = 50.0  # larger elements are not kept: they grow out of what differences can resolve


class Live:
    """The variables of a program while it is being written, by running each statement."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.count = 0

    def fresh(self, letter: str = "v") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def run(self, statement: str) -> None:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(statement, self.names)

    def value(self, expression: str) -> Any:
        """The value of an expression, or None when it fails."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return eval(expression, self.names)
        except Exception:
            return None


class Draw:
    """Random choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def of(self, *choices: T) -> T:
        return self.random.choice(choices)

    def pick(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def weighted(self, table: Sequence[tuple[int, Callable[[], T]]]) -> T:
        make = self.random.choices([f for _, f in table], [w for w, _ in table])[0]
        return make()

    def number(self) -> str:
        return self.of("0.5", "2.0", "-0.7", "1.3", "0.1", "-1.5")

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Small; now and then an axis of size 0 or 1."""
        rank = self.pick((0, 1, 1, 1, 2, 2, 2, 3)) if rank is None else rank
        return tuple(
            self.pick((0, 1, 2, 2, 3, 3, 3, 4, 4)) if self.chance(0.25) else self.between(2, 4)
            for _ in range(rank)
        )

    def slice(self, n: int) -> str:
        """A slice of an axis of size `n`; out-of-range ends are clipped as Python does."""
        if n == 0 or self.chance(0.15):
            return ":"
        step = self.pick((1, 1, 1, 2, -1, -2)) if self.chance(0.5) else 1
        start = "" if self.chance(0.4) else str(self.between(-n - 1, n))
        stop = "" if self.chance(0.4) else str(self.between(-n - 1, n + 2))
        return f"{start}:{stop}" + ("" if step == 1 else f":{step}")

    def basic(self, shape: Sequence[int], ints: float = 0.25, more: bool = True) -> str:
        """A basic index of slices, ints, ``...`` and None."""
        items: list[str] = []
        for n in shape[: self.between(1, len(shape))] if shape else ():
            if n and self.chance(ints):
                items.append(str(self.between(-n, n - 1)))
            else:
                items.append(self.slice(n))
        if more and self.chance(0.12):
            items.insert(self.between(0, len(items)), "None")
        if not items or self.chance(0.12):
            items.insert(self.pick((0, len(items))), "...")
        return ", ".join(items)


def is_small(x: Any) -> bool:
    """Whether all elements are finite and within bounds."""
    array = np.asarray(x)
    if array.dtype.kind == "b" or not array.size:
        return True
    return bool(np.all(np.isfinite(array)) and np.all(np.abs(array) <= LIMIT))
