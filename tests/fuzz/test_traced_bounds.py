"""Random programs with loops whose bounds are known only when they run, beside NumPy.

The programs are those of `tests.fuzz.loops`, with an integer of an array, which is 0, added to
bounds of ranges.  Gradients are compared with those of the same program with the number 0.
``python -m tests.fuzz.test_traced_bounds --programs 500 --seed 0`` runs many.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import tracegrad as tg
from tests.fuzz.judge_numpy import Outcome, Refused, is_single
from tests.fuzz.laws import Disagreement, same
from tests.fuzz.loops import make, run
from tests.fuzz.loops_judge import ALLOWED, _compare, _is_allowed, _objective, agree_on_error
from tests.fuzz.program import Program
from tracegrad.errors import TracegradError

HEADER = re.compile(r"(for \w+ in )range\(((?:[^()]|\([^()]*\))*)\):")


def with_traced_bounds(p: Program, seed: int, zero: str) -> Program:
    """`p` with ``+ zero`` in most of the headers of its loops; `zero` is its definition."""
    rng = random.Random(seed)

    def header(m: re.Match[str]) -> str:
        if rng.random() < 0.3:
            return m[0]
        ends = re.split(r",\s*(?![^()]*\))", m[2])
        at = min(len(ends) - 1, rng.choice([0, 1, 1]))
        ends[at] = f"({ends[at]}) + zero"
        return f"{m[1]}range({', '.join(ends)}):"

    lines = (HEADER.sub(header, s) for s in p.statements)
    return replace(p, statements=(f"zero = {zero}", *lines))


def check(seed: int, *, gradients: bool = True) -> str:
    """What became of the program of one seed.  Raises Disagreement."""
    made = make(seed)
    p = with_traced_bounds(made, seed, "k[0] * 0")
    f = run(p)
    want = Outcome(f, [a.make() for a in p.args])
    counted = tg.compile(f, backend="numpy")
    got = Outcome(counted, [a.make() for a in p.args])
    if isinstance(got.error, TracegradError) and _is_refusal(got.error):
        return "refused"
    if not agree_on_error("counted", got, want, p):
        return "raised"
    try:
        _compare("counted", got, want, p)
    except Disagreement as e:
        # A sum of nothing: 0 in Python, of the type of the sum here.
        if "dtype" not in str(e):
            raise
        return "another type"
    if "while(" not in counted.graph(*[a.make() for a in p.args]):
        return "no such loop"
    if gradients:
        _check_gradients(p, with_traced_bounds(made, seed, "0"))
    return "counted"


def _is_refusal(e: TracegradError) -> bool:
    # A body that does not run is traced all the same.
    return _is_allowed(e) or "zero-size" in str(e)


def _check_gradients(p: Program, with_numbers: Program) -> None:
    wrt = tuple(k for k, a in enumerate(p.args) if np.dtype(a.dtype).kind == "f")
    found = []
    for q in (p, with_numbers):
        try:
            with np.errstate(all="ignore"):
                g = tg.grad(_objective(run(q)), argnums=wrt, backend="numpy")
                found.append(g(*[a.make() for a in p.args]))
        except TracegradError as e:
            if e.kind not in ALLOWED:
                raise Disagreement("gradient refused", f"[{e.kind}] {e}") from e
            return
    for k, g, w in zip(wrt, *found, strict=True):
        same(f"gradient of {p.args[k].name}", g, w, 2e-3 if is_single(p.text, p.args) else 1e-8)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs(first):
    kinds = Counter(check(seed) for seed in range(first, first + 20))
    assert kinds["counted"], kinds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    kinds: Counter[str] = Counter()
    for seed in range(args.seed, args.seed + args.programs):
        try:
            kinds[check(seed)] += 1
        except Refused:
            kinds["refused"] += 1
        except Disagreement as e:
            kinds["DIFFERS"] += 1
            print(f"seed {seed}: {e}\n{with_traced_bounds(make(seed), seed, 'k[0] * 0').text}")
    print(dict(kinds))


if __name__ == "__main__":
    main()
