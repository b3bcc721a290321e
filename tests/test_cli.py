"""The command line, run as a shell would run it (in-process where only text matters)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tracegrad.cli.main import main
from tracegrad.graph.ir import Stage
from tracegrad.graph.text import parse_graph
from tracegrad.graph.verify import verify
from tracegrad.loops.text import parse_program

ROOT = Path(__file__).parent.parent

PROGRAM = '''\
import numpy as np
import tracegrad as tg


def smooth(u, k):
    """Three-point smoothing, in place."""
    for _ in range(2):
        u[1:-1] += k * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return np.sum(u**2)


def power(x, exponent):
    return np.sum(x**exponent)


@tg.compile
def ready(x):
    return x + 1.0


def branches(x):
    if x[0] > 0:
        return x
    return -x


class Group:
    @staticmethod
    def twice(x):
        return 2.0 * x


number = 3
'''

GRAPH = """\
graph @step(%u: f64[6] in s0 tracked, %c: f64[] in s1 tracked) -> (f64[]) stage=traced {
  %right = view(%u) {view = [2:6]} : f64[4] in s0
  %left = view(%u) {view = [0:4]} : f64[4] in s0
  %inner = view(%u) {view = [1:5]} : f64[4] in s0
  %s = add(%right, %left) : f64[4] in s2
  %k = view(%c) {view = [newaxis] expand(4)} : f64[4] in s1
  %d = mul(%s, %k) : f64[4] in s3
  add_(%inner, %d) writes s0
  %r = sum(%u) {axes = [0]} : f64[] in s4
  return %r
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heat_cli.py").write_text(PROGRAM)
    (tmp_path / "step.tg").write_text(GRAPH)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("heat_cli", "heat_cli_from_file"):
        sys.modules.pop(name, None)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """Standard output of a command that succeeds."""
    assert main(argv) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a command that fails says on stderr; it says nothing else."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and "Traceback" not in err
    return err


def spawn(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracegrad", *argv]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **options,  # type: ignore[call-overload]
    )


SMOOTH = ("heat_cli:smooth", "--spec", "f8[8]", "--spec", "f8")


# -------------------------------------------------------------------------------------- dump


@pytest.mark.parametrize("stage", ["traced", "functional", "joint", "optimized"])
def test_dumped_graphs_parse_back(stage, folder, capsys) -> None:
    text = run(capsys, "dump", *SMOOTH, "--stage", stage, "--transform", "value_and_grad")
    graph = parse_graph(text)
    verify(graph, Stage.TRACED if stage == "traced" else Stage.FUNCTIONAL)
    assert len(graph.outputs) >= 2 or stage in ("traced", "functional")
    assert 'heat_cli.py":8:' in text


def test_stages_show_what_they_are_about(folder, capsys) -> None:
    assert "writes s" in run(capsys, "dump", *SMOOTH, "--stage", "traced")
    functional = run(capsys, "dump", *SMOOTH, "--stage", "functional")
    assert "copy_slices" in functional and "writes s" not in functional
    backward = run(capsys, "dump", *SMOOTH, "--transform", "grad", "--argnums", "0,1")
    assert "add_slices" in backward


def test_loops_parse_back_and_scheduled_leaves_the_bodies_out(folder, capsys) -> None:
    from tracegrad.graph.op import REGISTRY

    loops = run(capsys, "dump", *SMOOTH, "--stage", "loops")
    program = parse_program(loops, REGISTRY.intrinsics())
    scheduled = run(capsys, "dump", *SMOOTH, "--stage", "scheduled")
    assert scheduled.count("launch @") == len(list(program.launches()))
    assert scheduled.count("kernel @") == len(program.kernels())
    assert "store" in loops and "store" not in scheduled


def test_source_is_c(folder, capsys) -> None:
    text = run(capsys, "dump", *SMOOTH, "--stage", "source")
    assert re.search(r"int \w*smooth\w*\(double \*u, const double \*k, double \*", text)


def test_json_and_dot(folder, capsys) -> None:
    data = json.loads(run(capsys, "dump", *SMOOTH, "--format", "json"))
    assert data["format"] == "tracegrad.graph" and data["name"] == "smooth"
    assert run(capsys, "dump", *SMOOTH, "--format", "dot").startswith('digraph "smooth" {')


def test_targets_by_file_attribute_and_decorated(folder, capsys) -> None:
    by_file = run(capsys, "dump", "heat_cli.py:smooth", *SMOOTH[1:], "--no-loc")
    assert by_file == run(capsys, "dump", *SMOOTH, "--no-loc")
    assert "mul(" in run(capsys, "dump", "heat_cli:Group.twice", "--spec", "f4[3]")
    assert "add(" in run(capsys, "dump", "heat_cli:ready", "--spec", "f8[3]")


def test_static_values(folder, capsys) -> None:
    text = run(capsys, "dump", "heat_cli:power", "--spec", "f8[3]", "--static", "exponent=3")
    assert "%exponent" not in text and "f64[3]" in text


@pytest.mark.parametrize(
    "argv, said",
    [
        (["nosuch:f"], "there is no module 'nosuch' here"),
        (["nosuch.py:f"], "there is no file nosuch.py"),
        (["heat_cli"], "'heat_cli' names no function"),
        (["heat_cli:smoth"], "heat_cli has no 'smoth'\n  It has: "),
        (["heat_cli:number"], "heat_cli:number is int, not a function"),
        (["heat_cli:smooth", "--spec", "f8[8"], "not a spec: 'f8[8'"),
        (["heat_cli:smooth", "--spec", "f8[n]", "--spec", "f8"], "size 'n' of f8[n]"),
        (["heat_cli:smooth", "--spec", "f8[8]"], "missing a required argument: 'k'"),
        (["heat_cli:branches", "--spec", "f8[8]"], "    if x[0] > 0:\n"),
        (["heat_cli:power", "--static", "exponent"], "--static 'exponent': write NAME=VALUE"),
        ([*SMOOTH, "--transform", "grad", "--argnums", "x"], "--argnums 'x': numbers"),
        ([*SMOOTH, "--stage", "source", "--format", "dot"], "stage source has no dot form"),
    ],
)
def test_refusals_are_one_message(argv, said, folder, capsys) -> None:
    assert said in refused(capsys, "dump", *argv)


def test_errors_of_the_users_module_name_its_line(folder, capsys) -> None:
    (folder / "broken_cli.py").write_text("x = 1\ny = x / 0\n")
    text = refused(capsys, "dump", "broken_cli.py:f")
    assert "importing broken_cli.py: ZeroDivisionError: division by zero" in text
    assert "broken_cli.py:2)" in text
    (folder / "unparsed_cli.py").write_text("x = 1\ny = (\n")
    assert "unparsed_cli.py:2)" in refused(capsys, "dump", "unparsed_cli.py:f")


# --------------------------------------------------------------------------------------- opt


def test_opt_without_a_pass_prints_the_normal_form(folder, capsys) -> None:
    assert run(capsys, "opt", "step.tg") == GRAPH


def test_opt_runs_passes_in_order(folder, capsys) -> None:
    functional = run(capsys, "opt", "step.tg", "--pass", "functionalize")
    assert "copy_slices" in functional
    (folder / "functional.tg").write_text(functional)
    passes = ["--pass", "value_and_grad:0,1", "--pass", "drop-grafts", "--pass", "simplify"]
    in_two = run(capsys, "opt", "functional.tg", *passes)
    assert in_two == run(capsys, "opt", "step.tg", "--pass", "functionalize", *passes)
    graph = parse_graph(in_two)
    verify(graph)
    assert [repr(x.type) for x in graph.outputs] == ["f64[]", "f64[6]", "f64[]", "f64[6]"]


@pytest.mark.parametrize("last", ["vjp:0", "jvp:0,1", "cse", "dce", "expand"])
def test_each_pass_gives_a_graph_that_verifies(last, folder, capsys) -> None:
    out = run(capsys, "opt", "step.tg", "--pass", "functionalize", "--pass", last)
    verify(parse_graph(out))


def test_opt_goes_down_to_c(folder, capsys) -> None:
    down = ["--pass", "functionalize", "--pass", "simplify", "--pass", "schedule"]
    program = run(capsys, "opt", "step.tg", *down)
    (folder / "program.tg").write_text(program)
    assert run(capsys, "opt", "program.tg") == program
    from_program = run(capsys, "opt", "program.tg", "--pass", "emit")
    assert re.search(
        r"int \w*step\w*\(double \*u, const double \*c, double \*r, void \*ws\)", from_program
    )


@pytest.mark.parametrize(
    "passes, said",
    [
        (["simplfy"], "unknown pass 'simplfy'\n  Passes are: functionalize, "),
        (["simplify:1"], "pass 'simplify:1' is written simplify"),
        (["functionalize", "vjp"], "pass 'vjp' is written vjp:0 or vjp:0,2"),
        (["functionalize", "vjp:5"], "pass 'vjp:5': the graph has inputs 0 to 1"),
        (["functionalize", "vjp:a"], "inputs are numbers"),
        (["emit"], "pass emit takes a loop program, not a graph"),
        (["simplify"], "only functional graphs are rewritten"),
    ],
)
def test_passes_are_refused_by_name(passes, said, folder, capsys) -> None:
    argv = [word for p in passes for word in ("--pass", p)]
    assert said in refused(capsys, "opt", "step.tg", *argv)


def test_opt_refuses_texts_that_are_wrong(folder, capsys) -> None:
    (folder / "wrong.tg").write_text(GRAPH.replace("add(", "ad("))
    assert "unknown op 'ad'" in refused(capsys, "opt", "wrong.tg")
    (folder / "wrong.tg").write_text(GRAPH.replace("[newaxis] expand(4)", "expand(4)"))
    assert "expand does not fit the shape ()" in refused(capsys, "opt", "wrong.tg")
    (folder / "wrong.tg").write_text("hello\n")
    assert "neither a graph nor a loop program" in refused(capsys, "opt", "wrong.tg")
    assert "missing.tg: No such file" in refused(capsys, "opt", "missing.tg")


# ---------------------------------------------------------------------------- build and others


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_build_writes_a_folder_that_runs_without_python(folder, capsys) -> None:
    out = run(
        capsys, "build", *SMOOTH, "--transform", "grad", "--argnums", "1", "-o", "made", "--name",
        "smooth_k",
    )  # fmt: skip
    assert "smooth_k.h" in out
    flags = ["-std=c99", "-O1", "example_main.c", "smooth_k.c", "-lm", "-o", "example"]
    subprocess.run(["cc", *flags], cwd=folder / "made", check=True)
    done = subprocess.run(["./example"], cwd=folder / "made", capture_output=True, text=True)
    assert done.returncode == 0 and "all outputs agree" in done.stdout
    again = ["build", *SMOOTH, "-o", "made", "--name", "smooth_k"]
    assert "made is not empty" in refused(capsys, *again)
    assert main([*again, "--overwrite"]) == 0


def test_doctor_reports_each_part(capsys) -> None:
    out = run(capsys, "doctor")
    for item in ("python", "numpy", "C compiler", "cache"):
        assert f"\n{item}" in "\n" + out


def test_cache_is_shown_and_emptied(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    out = run(capsys, "cache", "info")
    assert f"folder     {tmp_path / 'cache'}" in out and "libraries  0" in out
    (tmp_path / "cache" / "ab").mkdir(mode=0o700)
    (tmp_path / "cache" / "ab" / "ab12.so").write_bytes(b"12345")
    assert "libraries  1" in run(capsys, "cache", "info")
    assert "removed 1 files" in run(capsys, "cache", "clear")
    assert "libraries  0" in run(capsys, "cache", "info")


def test_stdin_and_exit_codes_of_the_module(folder) -> None:
    done = spawn("opt", "--pass", "functionalize", input=GRAPH)
    assert done.returncode == 0 and "copy_slices" in done.stdout and done.stderr == ""
    done = spawn("opt", input="graph")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("error: line 1")
    done = spawn("nonsense")
    assert done.returncode == 2 and "invalid choice" in done.stderr


def test_a_pipe_closed_early_is_no_error(folder) -> None:
    command = f"{sys.executable} -m tracegrad dump heat_cli:smooth --spec 'f8[8]' --spec f8"
    done = subprocess.run(
        ["bash", "-c", f"{command} --stage source | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")


def test_without_rich_a_terminal_gets_plain_text(monkeypatch, capsys) -> None:
    from tracegrad.cli.screen import Screen

    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    screen = Screen()
    assert not screen.is_rich
    screen.section("Title", "about")
    screen.table(("a", "b"), [("x", "10"), ("long", "2")], right="b")
    out = capsys.readouterr().out
    assert out == "\n1. Title\n--------\nabout\n\na      b\n----  --\nx     10\nlong   2\n"


def test_with_rich_a_terminal_gets_colours(monkeypatch, capsys) -> None:
    pytest.importorskip("rich")
    from tracegrad.cli.screen import Screen

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    assert screen.is_rich
    screen.section("Title")
    screen.code("x = 1", "python")
    screen.table(("a",), [("cell",)])
    out = capsys.readouterr().out
    assert "\x1b[" in out and "1. Title" in out and "cell" in out
