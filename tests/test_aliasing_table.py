"""The table of `docs/aliasing.md` names tests that exist."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "aliasing.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("| behaviour | shown by |")[2]
NAMES = re.findall(r"`(tests/[\w/]+\.py::\w+|[a-z_]+\.[a-z_0-9]+)`", TABLE)
CASES = json.loads((ROOT / "tests" / "conformance" / "expected.json").read_text())["cases"]


def test_every_row_names_a_test() -> None:
    rows = [row for row in TABLE.splitlines() if row.startswith("| ")]
    assert len(rows) >= 30
    assert all(re.search(r"\| `[^`]+`", row) for row in rows), "a row without a test"


@pytest.mark.parametrize("name", NAMES)
def test_it_exists(name: str) -> None:
    if "::" not in name:
        assert name in CASES
        return
    path, function = name.split("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert function in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
