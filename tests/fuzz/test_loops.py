"""A few random programs with loops at each run of the tests; `loops_judge` runs thousands."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.fuzz import loops_judge
from tests.fuzz.draw import Draw
from tests.fuzz.judge_numpy import Outcome, Refused
from tests.fuzz.laws import Disagreement
from tests.fuzz.loops import Loops, make
from tests.fuzz.loops_judge import attempt, check_program, faces
from tests.fuzz.program import Arg, Program
from tracegrad.errors import IndexingError, UnsupportedError
from tracegrad.source import SourceLoc


@pytest.mark.parametrize("seed", range(16))
def test_rolled_is_unrolled_is_numpy(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_program(make(seed), gradients=seed % 2 == 0)
        except Refused as e:
            pytest.skip(f"refused: {e.kind}")


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(1, 6))
def test_rolled_is_unrolled_is_pytorch(seed):
    pytest.importorskip("torch")
    generate, check = faces("torch")
    found = attempt(generate(seed), "numpy", seed % 2 == 0, check)
    if isinstance(found, BaseException):
        raise found


def test_most_programs_roll():
    """The generator writes loops that become nodes, so that the law is about something."""
    found = []
    for seed in range(100, 112):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(check_program(make(seed), gradients=False))
            except Refused:
                continue
    assert found.count("rolled") >= 4


def test_programs_hold_what_the_law_is_about():
    """Triangular loops, parts of changing length, control flow by functions, errors."""
    texts = [Loops(Draw(seed)).make().text for seed in range(200)]
    for part in ("in range(i):", "in range(i + 1, n)", "[:i]", "[i + 1:", "tg.scan", "tg.cond"):
        assert sum(part in t for t in texts) >= 2, part
    programs = [make(seed) for seed in range(200)]
    runs = [Outcome(loops_judge.run(p), [a.make() for a in p.args]) for p in programs]
    assert 2 <= sum(r.error is not None for r in runs) <= 30


# ------------------------------------------------------------------------- the judge can fail

SUM = Program((Arg("x", (9,)),), ("s = 0.0", "for i in range(9):\n    s += x[i]"), ("s", "x"))
WRONG = Program(SUM.args, ("s = 0.0", "for i in range(12):\n    s += x[i]"), ("s",))


def planted(monkeypatch, p, rolled, unrolled=None):
    """Where the judge finds `p` to disagree, when these stand for its compiled functions."""
    fakes = {"auto": rolled, "unroll": unrolled or rolled}
    monkeypatch.setattr(loops_judge.tg, "compile", lambda f, backend, loops="auto": fakes[loops](f))
    with pytest.raises(Disagreement) as found:
        check_program(p, gradients=False)
    return found.value.where


def raising(e):
    def call(x):
        raise e

    return lambda f: call


def right(f):
    return f


def test_a_wrong_result_and_a_wrong_write_are_found(monkeypatch):
    assert check_program(SUM) == "rolled"
    assert planted(monkeypatch, SUM, lambda f: lambda x: (0.5, x)) == "rolled: result s"
    written = planted(monkeypatch, SUM, right, lambda f: lambda x: (np.sum(x), x.fill(0) or x))
    assert written == "unrolled: result x"


def test_a_lone_refusal_a_crash_and_a_missing_error_are_found(monkeypatch):
    assert check_program(WRONG) == "raised"
    refusal = UnsupportedError("no", kind="unsupported", loc=SourceLoc("f.py", 1, 0, 1))
    assert planted(monkeypatch, SUM, raising(refusal), right) == "rolled: refused alone"
    assert planted(monkeypatch, SUM, right, raising(refusal)) == "unrolled: refused alone"
    assert planted(monkeypatch, SUM, raising(KeyError("no"))) == "rolled: crash"
    assert planted(monkeypatch, WRONG, lambda f: lambda x: (1.0,)) == "rolled: error"
    unplaced = UnsupportedError("no", kind="unsupported")
    assert planted(monkeypatch, SUM, raising(unplaced)) == "rolled: error without a line"


def test_an_error_at_another_line_is_found(monkeypatch):
    elsewhere = IndexingError("out of range", loc=SourceLoc("f.py", 1, 0, 1))
    assert planted(monkeypatch, WRONG, raising(elsewhere)) == "rolled: line of an error"
