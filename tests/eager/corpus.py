"""Cases of the conformance corpus run at the prompt, those written for traces too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tracegrad as tg

HERE = Path(__file__).parent.parent / "conformance"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import cases  # noqa: E402
import check  # noqa: E402

EXPECTED = json.loads((HERE / "expected.json").read_text())["cases"]


class Result:
    def __init__(self, outputs: list[Any], grads: dict[int, Any], finals: dict[int, Any]) -> None:
        self.outputs, self.grads, self.finals = outputs, grads, finals


def values(x: Any) -> Any:
    return x.detach().numpy().copy() if isinstance(x, tg.Tensor) else x


class Adapter:
    """Arguments are clones of leaves; the gradient is that of the corpus's weighted sum."""

    def run(self, case: Any) -> Result:
        leaves, roots = {}, {}
        for p in case.roots():
            spec = case.inputs[p]
            dtype = np.int64 if spec.is_index else np.float64
            value = tg.tensor(np.array(spec.flat(p), dtype).reshape(spec.shape))
            if spec.diff and not spec.is_index:
                leaves[p] = value.requires_grad_()
                value = value.clone()
            roots[p] = value
        out = case.fn(tg, *case.args_from_roots(roots))
        outs = [] if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
        total: Any = None
        floats = [o for o in outs if o.dtype.kind == "f"]
        for k, o in enumerate(floats):
            w = np.array([cases.weight(k, i) for i in range(o.numel())]).reshape(o.shape)
            term = (o * w).sum()
            total = term if total is None else total + term
        finals = {p: values(v) for p, v in roots.items()}
        grads: dict[int, Any] = {}
        if leaves and total is not None and total.requires_grad:
            found = tg.autograd.grad(total, list(leaves.values()), allow_unused=True)
            grads = {p: None if g is None else values(g)
                     for p, g in zip(leaves, found, strict=True)}
        return Result([values(o) for o in outs], grads, finals)

    def classify(self, e: Exception) -> str:
        return getattr(e, "kind", "other")


def failure(case: Any) -> str:
    """Empty when the case agrees with the record."""
    status, message = check.check(Adapter(), case, EXPECTED[case.name], strict=False)
    return "" if status == "pass" else f"{status}: {message}"


adapter = check.load_adapter(str(HERE / "adapter.py"))
