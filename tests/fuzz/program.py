"""A random program: the source text of a function, and how its arguments are made.

Text comes first, so that what fails is printed as it would stand in a test.
"""

from __future__ import annotations

import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: `order` is C, F, strided (every second element) or reversed."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"
    order: str = "C"
    seed: int = 0

    def make(self) -> np.ndarray:
        rng = np.random.default_rng(1000 + self.seed)
        if self.dtype == "bool":
            values = rng.integers(0, 2, self.shape) > 0
        elif np.dtype(self.dtype).kind in "iu":
            values = rng.integers(0, 5, self.shape)
        else:
            values = rng.uniform(-1.2, 1.2, self.shape)
        return self.laid_out(np.asarray(values, self.dtype))

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        """A fresh array of these values in this argument's memory order."""
        if self.order == "F":
            return np.array(values, order="F")
        if self.order == "strided" and values.ndim:
            room = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
            room[..., ::2] = values
            return room[..., ::2]
        if self.order == "reversed" and values.ndim:
            return np.ascontiguousarray(values[::-1])[::-1]
        return np.array(values, order="C")

    def __repr__(self) -> str:
        parts = [repr(self.name), repr(self.shape)]
        if self.dtype != "float64":
            parts.append(f"dtype={self.dtype!r}")
        if self.order != "C":
            parts.append(f"order={self.order!r}")
        if self.seed:
            parts.append(f"seed={self.seed}")
        return f"Arg({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Program:
    """`statements` are lines, or blocks of lines (``for``, ``with``); `results` are returned."""

    args: tuple[Arg, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    #: The same statements with operands copied before each write; only where it differs.
    copied: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        return ", ".join(a.name for a in self.args)

    def _text(self, statements: tuple[str, ...]) -> str:
        returned = ", ".join(self.results) + ("," if len(self.results) == 1 else "")
        body = [*statements, f"return {returned}" if self.results else "return None"]
        return f"def f({self.names}):\n" + textwrap.indent("\n".join(body), "    ") + "\n"

    @property
    def text(self) -> str:
        return self._text(self.statements)

    @property
    def copied_text(self) -> str:
        return self._text(self.copied or self.statements)

    def as_test(self, check: str) -> str:
        """A test of this program, ready to paste: a call of the judge named `check`."""
        lines = [f"{check}('''", textwrap.indent(self.text, "    ").rstrip("\n")]
        return "\n".join([*lines, f"''', {', '.join(map(repr, self.args))})"])


def function(text: str, **names: Any) -> Callable[..., Any]:
    """The function `f` that `text` defines, with its source known to tracebacks and errors."""
    text = textwrap.dedent(text)
    file = f"<program {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"np": np, "__name__": "program", **names}
    exec(compile(text, file, "exec"), space)
    return space["f"]  # type: ignore[no-any-return]


class TooLong(BaseException):
    """A program ran more lines than it may."""


def run_short(call: Callable[[], Any], limit: int) -> Any:
    """What `call` returns; TooLong once it has run more than `limit` lines of programs."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith("<program"):
            return None
        count += event == "line"
        if count > limit:
            raise TooLong
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


# ---------------------------------------------------------------------------------- shrinking


def smaller(p: Program) -> Iterator[Program]:
    """Programs with one thing less, the largest cuts first."""
    n = len(p.statements)
    width = n // 2
    while width:
        for k in range(0, n, width):
            yield _without(p, k, k + width)
        width //= 2
    for k, statement in enumerate(p.statements):
        for block in _smaller_block(statement):
            yield _with(p, k, block)
    if len(p.results) > 1:
        for k in range(len(p.results)):
            yield replace(p, results=p.results[:k] + p.results[k + 1 :])
    for k, arg in enumerate(p.args):
        if not any(arg.name in s for s in (*p.statements, *p.results)) and len(p.args) > 1:
            yield replace(p, args=p.args[:k] + p.args[k + 1 :])
        if arg.order != "C":
            yield replace(p, args=(*p.args[:k], replace(arg, order="C"), *p.args[k + 1 :]))
        if arg.dtype == "float32":
            yield replace(p, args=(*p.args[:k], replace(arg, dtype="float64"), *p.args[k + 1 :]))


def _without(p: Program, start: int, end: int) -> Program:
    copied = p.copied[:start] + p.copied[end:] if p.copied else ()
    return replace(p, statements=p.statements[:start] + p.statements[end:], copied=copied)


def _with(p: Program, k: int, block: str) -> Program:
    copied = (*p.copied[:k], block, *p.copied[k + 1 :]) if p.copied else ()
    return replace(p, statements=(*p.statements[:k], block, *p.statements[k + 1 :]), copied=copied)


def _smaller_block(statement: str) -> Iterator[str]:
    """The body of a block in its place, or lines left out, in blocks of any depth."""
    lines = statement.split("\n")
    if len(lines) == 1:
        return
    for k, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        end = k + 1
        while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > indent:
            end += 1
        body = textwrap.indent(textwrap.dedent("\n".join(lines[k + 1 : end])), " " * indent)
        if end - k > 1:
            yield "\n".join([*lines[:k], body, *lines[end:]])
        if end - k < len(lines):
            yield "\n".join([*lines[:k], *lines[end:]])


def shrink(p: Program, fails: Callable[[Program], bool], tries: int = 300) -> Program:
    """A smaller program that still `fails`."""
    while tries > 0:
        for candidate in smaller(p):
            tries -= 1
            if fails(candidate):
                p = candidate
                break
            if tries <= 0:
                return p
        else:
            return p
    return p
