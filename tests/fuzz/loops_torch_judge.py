"""The judge of loops of the Tensor face: rolled = unrolled = PyTorch, which runs them in Python."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import tracegrad as tg
from tests.fuzz.judge_numpy import Outcome, Refused, objective
from tests.fuzz.judge_torch import ODD, Answer
from tests.fuzz.laws import Disagreement, same
from tests.fuzz.loops_judge import check_refusals, line_of
from tests.fuzz.program import Program, function
from tracegrad.errors import TracegradError


def check_program(p: Program, *, backend: str = "numpy", gradients: bool = True) -> str:
    """All ways of running `p`; "rolled", "unrolled" or "raised" says what became of it.

    Values, arguments after the call and, with `gradients`, derivatives are PyTorch's.
    Raises Disagreement, or Refused where there is nothing to compare with.
    """
    want = Answer(p.copied_text, p.args)
    gradients = gradients or want.kind is not None  # some errors are those of what is tracked
    f = function(p.text, tg=tg)

    def with_results(*xs: Any) -> Any:
        found = f(*xs)
        return objective(lambda *_: found)(), found

    wrt = tuple(range(len(p.args)))
    found = {}
    for way, loops in (("rolled", "auto"), ("unrolled", "unroll")):
        options: dict[str, Any] = {"arrays": "torch", "backend": backend, "loops": loops}
        call = (
            tg.value_and_grad(with_results, argnums=wrt, has_aux=True, **options)
            if gradients
            else tg.compile(f, **options)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[way] = Outcome(call, [a.make() for a in p.args])
    check_refusals({way: got.error for way, got in found.items()})
    for way, got in found.items():
        if _agree_on_error(way, got, want):
            _compare(way, got, want, p, gradients)
    if want.kind is not None:
        return "raised"
    traced = tg.compile(f, arrays="torch", backend=backend).graph(*[a.make() for a in p.args])
    return "rolled" if "loop(" in traced else "unrolled"


def _agree_on_error(way: str, got: Outcome, want: Answer) -> bool:
    e = got.error
    if e is None and want.kind is None:
        return True
    if e is None:
        if want.kind in ODD:
            raise Refused(f"PyTorch says {want.kind}")
        raise Disagreement(f"{way}: error", f"nothing raised, PyTorch: {want.error}")
    if not isinstance(e, TracegradError):
        if want.kind is None or type(e) is not type(want.error):
            raise Disagreement(f"{way}: crash", f"{type(e).__name__}: {e}") from e
    elif want.kind is None:
        raise Disagreement(f"{way}: refusal", f"[{e.kind}] {e}") from e
    elif want.kind not in (e.kind, "other", *ODD) and e.kind not in ("shape", "index"):
        raise Disagreement(f"{way}: error", f"[{e.kind}] {e}\n[{want.kind}] {want.error}") from e
    if want.kind not in ODD and line_of(e) != line_of(want.error):
        lines = f"{line_of(e)}, PyTorch: {line_of(want.error)} {want.error}"
        raise Disagreement(f"{way}: line of an error", f"{lines}\n{e}") from e
    return False


def _compare(way: str, got: Outcome, want: Answer, p: Program, gradients: bool) -> None:
    results = got.results[0][1] if gradients else got.results
    for name, g, w in zip(p.results, results, want.results, strict=True):
        same(f"{way}: result {name}", np.asarray(g), w)
    for a, g, w in zip(p.args, got.args, want.args, strict=True):
        same(f"{way}: argument {a.name} after the call", g, w)
    if gradients and want.grads is not None:
        for a, g, w in zip(p.args, got.results[1], want.grads, strict=True):
            same(f"{way}: gradient of {a.name}", g, w, 1e-8)
