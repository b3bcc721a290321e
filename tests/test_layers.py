"""Imports go one way: each package may import only what stands before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "tracegrad"
ORDER = [
    "errors",
    "source",
    "dtypes",
    "dims",
    "types",
    "options",
    "loops",
    "graph",
    "ops",
    "views",
    "trace",
    "aliasing",
    "autodiff",
    "rewrite",
    "eager",
    "schedule",
    "codegen",
    "runtime",
    "aot",
    "pipeline",
    "derived",
    "tensor_calls",
    "inspect",
    "specialise",
    "quick",
    "region_memory",
    "nested",
    "control",
    "custom",
    "compiled",
    "differentiated",
    "transforms",
    "pullbacks",
    "checkpointing",
    "jacobians",
    "checks",
    "spec",
    "exporting",
    "namespace",
    "debug",
    "__init__",
    "cli",
    "__main__",
]
SIBLINGS = {"trace", "aliasing", "autodiff", "rewrite"}
CODEGEN_KNOWS = {"errors", "source", "dtypes", "dims", "types", "loops", "codegen"}
FILES = sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[tuple[str, int]]:
    """(package of tracegrad, line) for each import that runs, type checking apart."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for n in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{a.name}" if node.module == "tracegrad" else node.module
                for a in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tracegrad" and len(parts) > 1:
                found.add((parts[1], node.lineno))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    here = part_of(path)
    assert here in ORDER, f"{here} has no place in the order"
    for part, line in imported_parts(path):
        if part == here:
            continue
        assert ORDER.index(part) < ORDER.index(here), f"{path}:{line} imports {part}"
        assert not (here in SIBLINGS and part in SIBLINGS), f"{path}:{line} imports {part}"
        if here == "codegen":
            assert part in CODEGEN_KNOWS, f"{path}:{line} imports {part}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_and_named(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 420, "split it by op family or by pass"
    assert path.stem not in {"utils", "util", "helpers", "common", "misc"}


FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for old in [m for m in sys.modules if m.partition(".")[0] == "tracegrad"]:
        del sys.modules[old]
    importlib.import_module(name)
"""


def test_any_part_can_be_imported_first() -> None:
    parts = [f"tracegrad.{p}" for p in ORDER if not p.startswith("__")]
    parts += ["tracegrad.graph.export", "tracegrad.graph.text", "tracegrad.trace.array"]
    subprocess.run([sys.executable, "-c", FIRST, *parts], check=True)
