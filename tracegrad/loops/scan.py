"""The tokens of text IR, taken on demand."""

from __future__ import annotations

import json
import re

from tracegrad.errors import ParseError
from tracegrad.source import SourceLoc

NAME = r"[A-Za-z_][\w.]*"


class Scanner:
    """Tokens on demand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def fail(self, why: str) -> ParseError:
        line = self.text.count("\n", 0, self.pos) + 1
        col = self.pos - self.text.rfind("\n", 0, self.pos)
        quoted = self.text.split("\n")[line - 1]
        return ParseError(f"loop IR, line {line}, column {col}: {why}\n  {quoted.strip()}")

    def match(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(r"\s*(" + pattern + ")").match(self.text, self.pos)
        if found:
            self.pos = found.end()
        return found

    def take(self, pattern: str, what: str) -> str:
        found = self.match(pattern)
        if not found:
            raise self.fail(f"expected {what}")
        return found.group(1)

    def skip(self, literal: str) -> bool:
        """Consume a symbol or a whole word if it comes next."""
        return self.match(re.escape(literal) + (r"\b" if literal[-1].isalpha() else "")) is not None

    def expect(self, literal: str) -> None:
        if not self.skip(literal):
            raise self.fail(f"expected {literal!r}")

    def integer(self) -> int:
        return int(self.take(r"-?\d+", "an integer"))

    def string(self) -> str:
        return json.loads(self.take(r'"(?:[^"\\]|\\.)*"', "a string"))

    def end(self) -> None:
        if self.text[self.pos :].strip():
            raise self.fail("unexpected text after the end")

    def raw_until(self, stops: str) -> str:
        """Text up to one of `stops` outside parentheses; the stop is left."""
        depth = 0
        for at in range(self.pos, len(self.text)):
            c = self.text[at]
            if depth == 0 and c in stops:
                start, self.pos = self.pos, at
                return self.text[start:at].strip()
            depth += (c == "(") - (c == ")")
            if c == "\n" or depth < 0:
                break
        raise self.fail(f"expected one of {stops!r}")

    def name(self) -> str:
        return self.take(NAME, "a name")

    def local(self) -> str:
        self.expect("%")
        return self.name()

    def loc(self) -> SourceLoc | None:
        if not self.skip("loc"):
            return None
        self.expect("(")
        file = self.string()
        self.expect(":")
        line = self.integer()
        self.expect(":")
        col = self.integer() - 1
        self.expect(")")
        return SourceLoc(file, line, col, col)
