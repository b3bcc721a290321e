"""The demo's last part: the gradient as C source, built and run without Python."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracegrad.cli.demo_problem import Problem
from tracegrad.cli.screen import Screen
from tracegrad.exporting import export
from tracegrad.transforms import value_and_grad


def show(screen: Screen, misfit: Callable[..., Any], problem: Problem, folder: Path) -> int:
    """Write the folder, build its example with the system's compiler, run it.

    Returns 0, or 1 when the example could not be built or disagrees.
    """
    screen.section("The gradient as C source", f"Written to {folder}; it needs no Python.")
    gradient = value_and_grad(functools.partial(misfit, steps=problem.steps))
    sample = [problem.start, problem.initial, problem.records]
    export(gradient, sample, folder, name="heat_gradient", overwrite=True)
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != "example":
            screen.text(f"{path.stat().st_size:>8} bytes  {path.name}")
    header = (folder / "heat_gradient.h").read_text()
    screen.text("")
    screen.code(_prototype(header), "c")
    return _build_and_run(screen, folder)


def _prototype(header: str) -> str:
    """The lines of the header that declare the function."""
    lines = header.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("int heat_gradient("))
    end = next(k for k in range(start, len(lines)) if lines[k].rstrip().endswith(";"))
    return "\n".join(lines[start : end + 1])


def _build_and_run(screen: Screen, folder: Path) -> int:
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        screen.text("\nno C compiler is here: the folder is complete, its example was not run")
        return 0
    build = [
        compiler,
        *("-std=c99", "-O2", "-ffp-contract=off"),
        *("example_main.c", "heat_gradient.c", "-lm", "-o", "example"),
    ]
    screen.text("")
    for command in (build, ["./example"]):
        screen.code(f"$ {' '.join(command)}", "sh")
        done = subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.stdout.strip():
            screen.text(done.stdout.rstrip())
        if done.returncode != 0:
            screen.text(f"exit code {done.returncode}")
            return 1
    return 0
