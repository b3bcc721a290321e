"""A scanner over IR text: tokens, positions, and errors that quote the line with a caret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tracegrad import dims, dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import DType
from tracegrad.errors import DTypeError, ParseError
from tracegrad.loops.dim_text import parse_dim
from tracegrad.types import TensorType

_SPACE = re.compile(r"(?:\s|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r"%[A-Za-z_]\w*(?:\.\d+)?|%\d+")
_NUMBER = re.compile(r"-?(?:inf|nan(?:\(0x[0-9a-f]+\))?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_GRAPH_NAME = re.compile(r'@[^\s"(\[{]+')


class Scanner:
    """Reads `text` from `pos` on.  `symbols` are the size symbols in scope, by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.symbols: Mapping[str, dims.Expr] = {}

    def fail(self, message: str, at: int | None = None) -> ParseError:
        """An error that names line and column (from 1) and quotes the line with a caret."""
        at = min(self.pos if at is None else at, len(self.text))
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        source = self.text[start:] if end < 0 else self.text[start:end]
        gutter = f"{line:>5} | "
        caret = " " * (len(gutter) + at - start) + "^"
        return ParseError(
            f"line {line}, column {at - start + 1}: {message}\n{gutter}{source}\n{caret}"
        )

    def skip(self) -> None:
        m = _SPACE.match(self.text, self.pos)
        if m:
            self.pos = m.end()

    def peek(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.pos)

    def take(self, token: str) -> bool:
        """Read punctuation `token` if it is next."""
        if self.peek(token):
            self.pos += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"expected {token!r}")

    def peek_word(self) -> str:
        """The name that is next, or an empty string."""
        self.skip()
        m = _NAME.match(self.text, self.pos)
        return m.group() if m else ""

    def take_word(self, word: str) -> bool:
        """Read the keyword `word` if it is next."""
        if self.peek_word() == word:
            self.pos += len(word)
            return True
        return False

    def _token(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip()
        m = pattern.match(self.text, self.pos)
        if m is None:
            raise self.fail(f"expected {what}")
        self.pos = m.end()
        return m.group()

    def word(self) -> str:
        return self._token(_NAME, "a name")

    def value_name(self) -> str:
        return self._token(_VALUE, "a value such as %x")

    def graph_name(self) -> str:
        """``@f``, quoted (``@"a b"``) where it has unusual characters."""
        if self.take('@"'):
            self.pos -= 1
            return self.string()
        return self._token(_GRAPH_NAME, "a graph name such as @f")[1:]

    def string(self) -> str:
        token = self._token(_STRING, "a quoted string")
        return str(json.loads(token))

    def number(self) -> str:
        """The text of a number, ``inf`` and ``nan`` included."""
        return self._token(_NUMBER, "a number")

    def integer(self) -> int:
        self.skip()
        at = self.pos
        token = self.number()
        try:
            return int(token)
        except ValueError:
            raise self.fail("expected an integer", at) from None

    def dtype(self) -> DType:
        self.skip()
        at = self.pos
        name = self.word()
        try:
            return dtypes.parse(name)
        except DTypeError as e:
            raise self.fail(e.message, at) from None

    def type(self) -> TensorType:
        """``f64[4, 3]``"""
        dtype = self.dtype()
        self.expect("[")
        return TensorType(self.dims("]"), dtype)

    def dims(self, close: str) -> tuple[Dim, ...]:
        """Index expressions, separated by commas, up to and with `close`."""
        out: list[Dim] = []
        while not self.take(close):
            if out:
                self.expect(",")
            out.append(self.dim())
        return tuple(out)

    def dim(self) -> Dim:
        """An integer, or an index expression up to a comma, colon or closing bracket."""
        self.skip()
        at, depth = self.pos, 0
        while self.pos < len(self.text):
            c = self.text[self.pos]
            if c == "(":
                depth += 1
            elif depth and c == ")":
                depth -= 1
            elif not depth and c in ",:])}\n":
                break
            self.pos += 1
        source = self.text[at : self.pos].strip()
        if source.removeprefix("-").isdigit():
            return int(source)
        try:
            return parse_dim(source, self.symbols)
        except KeyError as e:
            raise self.fail(f"unknown size symbol {e.args[0]}", at) from None
        except ValueError:
            raise self.fail(f"not an integer expression: {source!r}", at) from None
