"""Where in the user's source something happened: frames, columns, quoted lines with a caret."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import warnings
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType

import numpy as np

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
# Between user code and the package there may be frames of these.
_BETWEEN = (functools.__file__, contextlib.__file__)


@dataclass(frozen=True, slots=True)
class SourceLoc:
    """A range of one line: `line` counts from 1, `col` and `end_col` from 0 (characters)."""

    file: str
    line: int
    col: int
    end_col: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"

    @property
    def text(self) -> str:
        """The line without its newline; empty when the source is not to be had."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def quote(self) -> str:
        where = f" in {self.function}" if self.function else ""
        head = f"  {self.file}:{self.line}{where}"
        text = self.text
        if not text.strip():
            return head
        gutter = f"  {self.line:>5} | "
        width = max(1, min(self.end_col, len(text)) - self.col)
        return f"{head}\n{gutter}{text}\n{' ' * (len(gutter) + self.col)}{'^' * width}"


_cache: dict[tuple[CodeType, int], SourceLoc] = {}


def is_user_file(name: str) -> bool:
    """True for source outside tracegrad, NumPy and the interpreter."""
    return not name.startswith((_PACKAGE, _NUMPY, "<frozen ", *_BETWEEN))


def user_frame() -> FrameType | None:
    """The innermost frame outside tracegrad and NumPy."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def here() -> SourceLoc | None:
    """The place in user code that is executing now (cached by code and instruction)."""
    frame = user_frame()
    return None if frame is None else of_frame(frame)


def warn(warning: Warning) -> None:
    """Give a warning at the user's line, which is added to its text."""
    frame = user_frame()
    if frame is None:
        warnings.warn(warning, stacklevel=2)
        return
    warning.args = (f"{warning}\n{of_frame(frame).quote()}",)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        warning, type(warning), frame.f_code.co_filename, frame.f_lineno, registry=registry
    )


def of_code(code: CodeType) -> SourceLoc:
    """The line on which a function is defined: ``def``, below its decorators."""
    line = code.co_firstlineno
    for at in range(line, line + 20):
        if linecache.getline(code.co_filename, at).lstrip().startswith(("def ", "async def ")):
            line = at
            break
        if "lambda" in linecache.getline(code.co_filename, at):
            break
    text = linecache.getline(code.co_filename, line)
    indent = len(text) - len(text.lstrip())
    return SourceLoc(code.co_filename, line, indent, 10**6, code.co_qualname)


def of_frame(frame: FrameType) -> SourceLoc:
    """The place `frame` is executing."""
    return at(frame, frame.f_lasti)


def at(frame: FrameType, lasti: int) -> SourceLoc:
    """The place of instruction `lasti` of `frame` (a traceback's ``tb_lasti``)."""
    code = frame.f_code
    key = (code, lasti)
    found = _cache.get(key)
    if found is None:
        line, end_line, col, end_col = _position(code, lasti, frame.f_lineno)
        if end_line != line:
            end_col = 10**6
        found = SourceLoc(code.co_filename, line, col, end_col, code.co_qualname)
        if len(_cache) > 200_000:
            _cache.clear()
        _cache[key] = found
    return found


def _position(code: CodeType, at: int, lineno: int) -> tuple[int, int, int, int]:
    line, end_line, col, end_col = next(islice(code.co_positions(), at // 2, None))
    if line is None:
        return lineno, lineno, 0, 10**6
    return line, end_line or line, col or 0, end_col or 10**6
