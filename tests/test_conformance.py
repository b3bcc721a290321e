"""The conformance corpus through its own checker, case by case."""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "conformance"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import check  # noqa: E402

adapter = check.load_adapter(str(HERE / "adapter.py"))
OTHER = Path(os.environ.get("TRACEGRAD_CONFORMANCE", HERE.parents[2] / "shared" / "conformance"))


# Not cases: what runs, records and checks them.
OURS = {"adapter.py", "strict_adapter.py", "check.py", "record.py", "torch_adapter.py"}


def load(folder: Path) -> list[Any]:
    """The cases of a folder with their records."""
    expected = json.loads((folder / "expected.json").read_text())["cases"]
    return [(c, expected[c.name]) for c in cases.load_dir(str(folder))]


def is_another(folder: Path) -> bool:
    """Whether the folder has cases that differ from the copy in this repository."""
    if not (folder / "expected.json").exists():
        return False
    files = [f.name for f in HERE.glob("*.py") if f.name not in OURS]
    same, _, _ = filecmp.cmpfiles(HERE, folder, [*files, "expected.json"], shallow=False)
    listed = {f.name for f in folder.glob("*.py")} - OURS
    return not listed <= set(same) or "expected.json" not in same


ALL = load(HERE)


def status_of(case: Any, want: Any, strict: bool) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = adapter.strict if strict else adapter
        return check.check(chosen, case, want, strict)  # type: ignore[no-any-return]


def test_the_corpus_is_whole() -> None:
    assert len(ALL) == len({c.name for c, _ in ALL}) == 317


@pytest.mark.parametrize("case, want", ALL, ids=[c.name for c, _ in ALL])
def test_case(case: Any, want: Any) -> None:
    status, message = status_of(case, want, strict=False)
    assert status == "pass", message


REFUSABLE = [(c, w) for c, w in ALL if "or_value" in w]


@pytest.mark.parametrize("case, want", REFUSABLE, ids=[c.name for c, _ in REFUSABLE])
def test_strict_refuses_what_pytorch_refuses(case: Any, want: Any) -> None:
    status, message = status_of(case, want, strict=True)
    assert status == "pass", message


def test_the_command_line_counts_317() -> None:
    done = subprocess.run(
        [sys.executable, "check.py", "adapter.py", "--quiet"], cwd=HERE, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.strip().splitlines()[-1] == "317 passed, 0 failed", done.stdout


@pytest.mark.skipif(not is_another(OTHER), reason="no other copy of the corpus")
def test_the_other_copy() -> None:
    failed = []
    for case, want in load(OTHER):
        status, message = status_of(case, want, strict=False)
        if status != "pass":
            failed.append(f"{case.name}: {message}")
    assert not failed, "\n".join(failed)
