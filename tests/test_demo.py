"""The demo: what it prints is there, and what it claims is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.cli import demo_descent
from tracegrad.cli.demo_code import problem_module
from tracegrad.cli.demo_problem import make_problem
from tracegrad.cli.main import main
from tracegrad.cli.plot import bar, curves
from tracegrad.cli.screen import Screen

ROOT = Path(__file__).parent.parent
SECTIONS = [
    "The function",
    "The traced graph",
    "The functional graph",
    "The backward graph",
    "The C",
    "The gradient against finite differences",
    "The descent",
    "The recovered diffusivity",
    "The cost of a gradient",
    "The gradient as C source",
]


def test_the_demo_shows_every_part(tmp_path, capsys) -> None:
    assert main(["demo", "-o", str(tmp_path / "heat")]) == 0
    out = capsys.readouterr().out
    assert [m[1] for m in re.findall(r"^(\d+)\. (.*)$", out, re.M)] == SECTIONS
    assert "\x1b" not in out
    for text in (
        "u[1:-1] += flux[1:] - flux[:-1]",
        "writes s",
        "copy_slices",
        "as_strided",
        "add_slices",
        "static TG_NOINLINE void k",
        "agree with finite differences",
        "the initial temperatures are as they were",
    ):
        assert text in out, text
    assert max(map(len, out.splitlines())) <= 132
    if shutil.which("cc"):
        assert "all outputs agree" in out
        assert (tmp_path / "heat" / "heat_gradient.h").exists()
    assert main(["demo", "-o", str(tmp_path / "heat")]) == 0, "a second run replaces the folder"


def test_output_that_is_not_ours_is_kept(tmp_path, capsys) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years")
    assert main(["demo", "-o", str(folder)]) == 2
    assert "was not written by an export" in capsys.readouterr().err
    assert (folder / "thesis.txt").read_text() == "years"


def test_the_gradient_is_that_of_the_plain_function() -> None:
    misfit = problem_module().misfit
    p = make_problem(cells=13, times=2, steps=3)
    args = (p.start, p.initial, p.records, p.steps)
    value, slope = tg.value_and_grad(misfit)(*args)
    np.testing.assert_allclose(value, misfit(*args), rtol=1e-13)
    for cell in range(13):
        ends = []
        for h in (1e-6, -1e-6):
            moved = p.start.copy()
            moved[cell] += h
            ends.append(misfit(moved, *args[1:]))
        np.testing.assert_allclose(slope[cell], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("descend", [demo_descent._lbfgs, demo_descent._plain])
def test_both_descents_recover_the_field(descend, capsys) -> None:
    if descend is demo_descent._lbfgs:
        pytest.importorskip("scipy")
    p = make_problem()
    gradient = tg.value_and_grad(problem_module().misfit)

    def objective(q):
        value, slope = gradient(q, p.initial, p.records, p.steps)
        return float(value), slope

    first = objective(p.start)[0]
    progress = demo_descent.Progress(Screen(), first)
    q = descend(objective, p.start, progress)
    assert objective(q)[0] < 5e-3 * first
    assert np.abs(np.exp(q) - p.true_k)[2:-2].max() < 0.04
    assert progress.history[-1] <= min(progress.history) * 1.5


def test_readable_with_a_narrow_encoding(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tracegrad", "demo", "-o", str(tmp_path / "heat")],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    done.stdout.decode("ascii")
    assert b"?" * 10 not in done.stdout and b"#" * 20 in done.stdout


def test_plots() -> None:
    assert len(bar(1.0, 1e-3, 1.0, 40)) == 40
    assert len(bar(1e-9, 1e-3, 1.0, 40)) == 1
    rows = curves([(".", [0.0, 1.0]), ("o", [1.0, 1.0])], width=5, height=3)
    assert rows == ["  1.00 |ooooo", "       |", "  0.00 |..."]
