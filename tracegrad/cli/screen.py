"""Output: with rich in a terminal, plain text in a pipe, in a file or where rich is missing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

_LEXERS = {"python": "python", "c": "c", "ir": "llvm", "sh": "console"}


class Screen:
    """Writes titles, text, code and tables to stdout.

    `is_rich` is true when stdout is a terminal and rich is installed; everything else is plain
    text with no escape codes and no line folding.
    """

    def __init__(self) -> None:
        self.console = _console()
        self._section = 0

    @property
    def is_rich(self) -> bool:
        return self.console is not None

    @property
    def width(self) -> int:
        """Columns to use for plots and bars."""
        return min(100, shutil.get_terminal_size((100, 24)).columns)

    def section(self, title: str, about: str = "") -> None:
        """The title of the next numbered section, and a line or two about it."""
        self._section += 1
        head = f"{self._section}. {title}"
        if self.console is not None:
            from rich.rule import Rule
            from rich.text import Text

            self.console.print()
            self.console.print(Rule(Text(head, style="bold cyan"), align="left", style="cyan"))
        else:
            print(f"\n{head}\n{'-' * len(head)}")
        if about:
            self.text(about, style="dim")
        self.text("")

    def text(self, text: Any, style: str = "") -> None:
        """Text as it is, or what `styled` returned."""
        if self.console is None:
            print(text)
            return
        from rich.text import Text

        shown = Text(text, style=style) if isinstance(text, str) else text
        self.console.print(shown, soft_wrap=True)

    def styled(self, text: str, style: str) -> Any:
        """`text` in a style where there are styles, else `text`."""
        if self.console is None:
            return text
        from rich.text import Text

        return Text(text, style=style)

    def code(self, text: str, language: str) -> None:
        """Program text; `language` is ``python``, ``c``, ``ir`` or ``sh``."""
        text = text.rstrip("\n")
        if self.console is None:
            print(text)
            return
        from rich.syntax import Syntax

        self.console.print(
            Syntax(text, _LEXERS[language], theme="ansi_dark", background_color="default"),
            soft_wrap=True,
        )

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Any]], right: str = "") -> None:
        """Rows under `head`; columns whose titles are in the words of `right` are set right."""
        is_right = [title in right.split() for title in head]
        if self.console is None:
            _print_table(head, rows, is_right)
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for title, at_right in zip(head, is_right, strict=True):
            table.add_column(title, justify="right" if at_right else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)


def _console() -> Any:
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(highlight=False)


def _print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], is_right: Sequence[bool]
) -> None:
    lines = [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    lines.insert(1, ["-" * w for w in widths])
    for line in lines:
        cells = [
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(line, widths, is_right, strict=True)
        ]
        print("  ".join(cells).rstrip())
