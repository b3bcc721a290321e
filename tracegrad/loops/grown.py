"""`GROWN`: the length of an axis that is known once the loop that fills it has ended."""

from __future__ import annotations

from tracegrad.dims import Dim, symbol, symbols

GROWN = symbol("grown", 0)
"""Only the loops that are counted by the same number know it."""


def is_grown(d: Dim) -> bool:
    """Whether `d` counts elements of an array that grows with the iterations of a loop."""
    return not isinstance(d, int) and not symbols(GROWN).isdisjoint(symbols(d))
