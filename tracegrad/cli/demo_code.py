"""`demo_problem` as code of the user's: what lies inside the package is not traced into, and is
not named in places, so its text is run under a file name of its own."""

from __future__ import annotations

import linecache
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FILE = "heat_problem.py"


@cache
def problem_module() -> ModuleType:
    """The module ``heat_problem`` with the text of `demo_problem`."""
    text = Path(__file__).with_name("demo_problem.py").read_text(encoding="utf-8")
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    module = ModuleType(Path(FILE).stem)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, FILE, "exec"), vars(module))
    return module
