"""Two hundred random programs, the same ones in every run; `soak` runs others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz import generate_numpy, judge_numpy
from tests.fuzz.laws import Disagreement, same
from tests.fuzz.program import Arg, Program, shrink
from tests.fuzz.soak import soak

CHUNK = 10


def run(face: str, start: int) -> None:
    """Ten programs, a quarter of them through compiled C; failures come shrunk."""
    found: list[str] = []
    counts = soak(face, CHUNK, start, 4, 1e9, say=found.append)
    if found:
        pytest.fail("\n".join(found), pytrace=False)
    assert counts["agreed"] >= CHUNK - 3, counts


@pytest.mark.parametrize("start", range(0, 140, CHUNK))
def test_programs_of_the_array_face_agree_with_numpy(start):
    run("numpy", start)


@pytest.mark.oracle
@pytest.mark.parametrize("start", range(0, 60, CHUNK))
def test_programs_of_the_tensor_face_agree_with_pytorch(start):
    pytest.importorskip("torch")
    run("torch", start)


# ------------------------------------------------------------------------- the judges can fail


def test_a_wrong_value_a_wrong_write_and_a_wrong_error_are_found(monkeypatch):
    text, arg = "def f(x):\n    x[0] = 2.0\n    return np.sin(x),\n", Arg("x", (3,))
    judge_numpy.check(text, arg)

    def planted(wrong):
        monkeypatch.setattr(judge_numpy.tg, "compile", lambda f, backend: wrong)
        with pytest.raises(Disagreement) as found:
            judge_numpy.check(text, arg)
        return found.value.where

    def other_value(x):
        x[0] = 2.0
        return (np.cos(x),)

    assert planted(other_value) == "result 0"
    assert planted(lambda x: (np.sin(np.array([2.0, *x[1:]])),)) == "argument x after the call"
    assert planted(lambda x: 1 / 0) == "crash"


def test_a_wrong_gradient_is_found(monkeypatch):
    real = judge_numpy.tg.value_and_grad

    def wrong(f, **options):
        run = real(f, **options)

        def off(*args):
            value, (d,) = run(*args)
            return value, (d * 1.001,)

        return off

    monkeypatch.setattr(judge_numpy.tg, "value_and_grad", wrong)
    with pytest.raises(Disagreement, match="finite differences"):
        judge_numpy.check("def f(x):\n    return x * x,\n", Arg("x", (3,)), laws=False)


@pytest.mark.parametrize(
    "got, want",
    [
        (np.ones(2), np.ones(3)),
        (np.ones(2), np.ones(2, np.float32)),
        (np.ones(2), np.zeros(2)),
        (np.array([np.nan]), np.array([1.0])),
        (np.array([1]), np.array([2])),
    ],
)
def test_values_that_differ_are_told_apart(got, want):
    same("here", want, want)
    with pytest.raises(Disagreement, match="here"):
        same("here", got, want)


def test_a_program_shrinks_to_what_matters():
    p = Program(
        (Arg("x", (3,), order="F"), Arg("y", (2,))),
        (
            "a = x * 2.0",
            "for _ in range(3):\n    a += 1.0\n    x[0] = np.sin(x[1])",
            "b = a + y[0]",
            "x *= 0.5",
        ),
        ("a", "b"),
    )
    small = shrink(p, lambda q: "np.sin" in q.text)
    assert small.statements == ("x[0] = np.sin(x[1])",)
    assert small.args == (Arg("x", (3,)),) and len(small.results) == 1


def test_a_failure_prints_as_a_test():
    p = Program((Arg("x", (2,), "float32", "F", 3),), ("x[0] = 1.0",), ("x",))
    space = {}
    exec(f"found = lambda check, Arg: {p.as_test('check')}", space)
    text, arg = space["found"](lambda *given: given, Arg)
    assert arg == p.args[0]
    judge_numpy.check(text, arg)


def test_programs_vary():
    texts = {generate_numpy.make(seed).text for seed in range(50)}
    assert len(texts) == 50
    assert generate_numpy.make(7).text == generate_numpy.make(7).text
