"""Rules that call their own function: each order of derivative needs one level more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Regions are finite: a function called this deep within its own rules gets none there, so that
# derivatives of higher order are refused.
LIMIT = 4


class _Open(threading.local):
    def __init__(self) -> None:
        self.levels: dict[int, int] = {}


_OPEN = _Open()


@contextmanager
def level(function: object) -> Iterator[bool]:
    """While `function` is recorded; the answer is whether its rules are to be recorded too."""
    key, levels = id(function), _OPEN.levels
    before = levels.get(key, 0)
    levels[key] = before + 1
    try:
        yield before < LIMIT
    finally:
        levels[key] = before
        if not before:
            del levels[key]


def inner_name(name: str) -> str:
    """The name of a function that is recorded without its rules."""
    return f"{name} ({LIMIT} times within its own rules)"
