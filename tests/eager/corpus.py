"""Cases of the conformance corpus run at the prompt, those written for traces too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent / "conformance"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import check  # noqa: E402

cases = check.cases

EXPECTED = json.loads((HERE / "expected.json").read_text())["cases"]
adapter = check.load_adapter(str(HERE / "adapter.py"))


def failure(case: Any) -> str:
    """Empty when the case agrees with the record."""
    status, message = check.check(adapter.prompt, case, EXPECTED[case.name], strict=False)
    return "" if status == "pass" else f"{status}: {message}"
