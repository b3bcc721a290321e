"""NumPy's floating-point error state in traced code, where it has no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracegrad import source
from tracegrad.errors import TracegradWarning
from tracegrad.options import Options


def warn_errstate(state: Mapping[str, Any], spelling: str = "np.errstate") -> None:
    """Warn when `state` asks for floating-point errors to be raised, which compiled code does
    not do."""
    asked = [name for name, what in state.items() if what == "raise"]
    if not asked:
        return
    named = "all" if "all" in asked or len(asked) >= 4 else asked[0]
    advice = "Check the result with np.isfinite"
    if "debug_nans" in Options.__dataclass_fields__:
        advice += ", or compile with debug_nans=True"
    warning = TracegradWarning(
        f"{spelling}({named}='raise') has no effect on compiled code, which computes infinities "
        f"and NaN as IEEE does and raises nothing.  {advice}."
    )
    warning.kind = "errstate"
    source.warn(warning)


def errstate(**state: Any) -> Any:
    """``np.errstate`` in traced code."""
    warn_errstate(state)
    return np.errstate(**state)


def seterr(**state: Any) -> Any:
    """``np.seterr`` in traced code."""
    warn_errstate(state, "np.seterr")
    return np.seterr(**state)
