"""The documentation is true: its code runs, and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.update_docs import ROOT, blocks, pages

SCRIPT = ROOT / "tests" / "update_docs.py"
PAGES = [p for p in pages() if list(blocks(p.read_text(encoding="utf-8").splitlines()))]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_code_prints_what_the_page_shows(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check", str(page)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "-3" in done.stdout and "+2" in done.stdout


@pytest.mark.parametrize("path", pages(), ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_error_is_shown() -> None:
    """Each class of `tracegrad.errors` is what a block of errors.md raises, or explained there."""
    from tracegrad import errors

    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    kinds = [c for c in vars(errors).values() if isinstance(c, type)]
    for c in kinds:
        if issubclass(c, errors.TracegradError) and c is not errors.TracegradError:
            assert re.search(rf"^{c.__name__} \[|`{c.__name__} \[", text, re.M), c.__name__


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "index.md" or f"]({path.name})" in index, path.name


def test_every_example_is_in_its_list() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f"`{path.name}`" in listed, path.name
