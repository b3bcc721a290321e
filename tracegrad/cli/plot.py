"""Small plots in characters."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def can_print(text: str) -> bool:
    """Whether stdout's encoding has the characters of `text`."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def bar(value: float, low: float, high: float, width: int) -> str:
    """A bar of up to `width` characters, on a logarithmic scale from `low` to `high`."""
    share = math.log(max(value, low) / low) / math.log(high / low)
    return ("█" if can_print("█") else "#") * max(1, round(width * min(share, 1.0)))


def curves(
    lines: Sequence[tuple[str, ArrayLike]], *, width: int = 61, height: int = 12
) -> list[str]:
    """Rows of a plot of several curves, each ``(mark, values)``; later ones are on top.

    The vertical scale is labelled with the range of all values; values are sampled evenly.
    """
    drawn = [(mark, np.asarray(line, np.float64)) for mark, line in lines]
    values = np.concatenate([line for _, line in drawn])
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 1.0
    rows = [[" "] * width for _ in range(height)]
    for mark, line in drawn:
        for column in range(width):
            v = line[round(column * (len(line) - 1) / (width - 1))]
            rows[height - 1 - round((v - low) / span * (height - 1))][column] = mark
    labels = {0: f"{high:.2f}", height - 1: f"{low:.2f}"}
    return [f"{labels.get(k, ''):>6} |{''.join(row).rstrip()}" for k, row in enumerate(rows)]
