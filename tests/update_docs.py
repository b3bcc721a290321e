"""Runs the code of the documentation and writes, or checks, the output that it shows.

    python tests/update_docs.py             every page: write the outputs into it
    python tests/update_docs.py --check P   compare only; exit code 1 and a diff where they differ

In a page, blocks share one namespace, one folder and one file of source, named after the page:

- ``python``            is executed; a ``text`` block that follows shows what it prints
- ``python error``      must raise a `TracegradError`; its output is type, kind and text
- ``python file=NAME``  is written to NAME in the page's folder and executed
- ``sh``                lines are run in the page's folder; `python` is this interpreter
- between ``<!-- output -->`` and ``<!-- end -->`` stands what the block before it prints, as it is
"""

from __future__ import annotations

import contextlib
import difflib
import io
import linecache
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
_OPEN, _CLOSE = "<!-- output -->", "<!-- end -->"


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass
class Block:
    """A fenced block; `shown` is the range of lines of its output in the page, if it has one."""

    info: str
    line: int
    text: str
    shown: tuple[int, int] | None = None


@dataclass
class Page:
    """One page while it is run."""

    name: str
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    source: list[str] = field(default_factory=list)

    def run(self, block: Block) -> str:
        """The output of a block, without trailing blanks."""
        words = block.info.split()
        if words[0] == "sh":
            return _run_shell(block.text)
        for word in words[1:]:
            if word.startswith("file="):
                Path(word[5:]).write_text(block.text, encoding="utf-8")
        return self._run_python(block, must_raise="error" in words)

    def _run_python(self, block: Block, must_raise: bool) -> str:
        from tracegrad.errors import TracegradError

        before = len(self.source)
        self.source += block.text.splitlines(keepends=True) + ["\n"]
        text = "".join(self.source)
        linecache.cache[self.name] = (len(text), None, self.source, self.name)
        code = compile("\n" * before + block.text, self.name, "exec")
        out = io.StringIO()
        raised = None
        with contextlib.redirect_stdout(out):
            try:
                exec(code, self.namespace)
            except TracegradError as error:
                if not must_raise:
                    raise
                raised = error
        if must_raise and raised is None:
            raise SystemExit(f"{self.name}: the block at line {block.line} raised nothing")
        shown = out.getvalue()
        if raised is not None:
            shown += f"{type(raised).__name__} [{raised.kind}]: {raised}\n"
        return _stripped(shown)


def _run_shell(text: str) -> str:
    out = ""
    for command in text.splitlines():
        line = re.sub(r"\bpython\b", sys.executable, command)
        done = subprocess.run(
            line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        out += done.stdout
    return _stripped(out)


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def blocks(lines: list[str]) -> Iterator[Block]:
    """The blocks of a page that are run, each with the place of its output."""
    k = 0
    while k < len(lines):
        fence = re.fullmatch(r"```(python.*|sh)", lines[k].rstrip())
        if fence is None:
            k = _skip_fence(lines, k)
            continue
        end = lines.index("```", k + 1)
        block = Block(fence.group(1), k + 1, "\n".join(lines[k + 1 : end]) + "\n")
        k = end + 1
        nxt = next((j for j in range(k, len(lines)) if lines[j].strip()), len(lines))
        if nxt < len(lines) and lines[nxt] == "```text":
            close = lines.index("```", nxt + 1)
            block.shown, k = (nxt + 1, close), close + 1
        elif nxt < len(lines) and lines[nxt] == _OPEN:
            close = lines.index(_CLOSE, nxt + 1)
            block.shown, k = (nxt + 1, close), close + 1
        yield block


def _skip_fence(lines: list[str], k: int) -> int:
    """The line after line k, or after the block that opens there and is not run."""
    if not lines[k].startswith("```"):
        return k + 1
    return lines.index("```", k + 1) + 1


def rendered(path: Path) -> str:
    """The text of a page with the outputs of this run."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page = Page(f"{path.stem.lower()}.py")
    here = Path.cwd()
    out: list[str] = []
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in blocks(lines):
                output = page.run(block)
                if block.shown is not None:
                    start, end = block.shown
                    blank = [""] if lines[start - 1] == _OPEN else []  # Markdown wants it
                    out += [*lines[done:start], *blank, *output.splitlines(), *blank]
                    done = end
        finally:
            os.chdir(here)
    return "\n".join([*out, *lines[done:]]) + "\n"


def main(argv: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = str(ROOT)
    check = "--check" in argv
    chosen = [Path(a) for a in argv if not a.startswith("-")] or pages()
    if len(chosen) > 1:  # each page in a process of its own: pages may register ops
        flags = [a for a in argv if a.startswith("-")]
        command = [sys.executable, __file__, *flags]
        return max(subprocess.run([*command, str(path)]).returncode for path in chosen)
    old = chosen[0].read_text(encoding="utf-8")
    new = rendered(chosen[0])
    if old == new:
        return 0
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), "shown", "run", lineterm="")
    print("\n".join(diff))
    if not check:
        chosen[0].write_text(new, encoding="utf-8")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
