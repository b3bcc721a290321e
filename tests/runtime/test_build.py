"""Building and falling back: compiler failures, no compiler, no headers, several processes."""

import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracegrad import errors
from tracegrad.codegen.unit import render
from tracegrad.options import Options
from tracegrad.runtime import cpu
from tracegrad.runtime.cpu import load

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

X = np.array([[1.0, 2.0], [3.0, 4.0]])


@needs_cc
def test_a_failure_in_rendered_text_names_its_kernel(cache_dir, table_lookup):
    program = table_lookup(5)
    unit = render(program, shim=True, embed_all=False)
    broken = replace(unit, text=unit.text.replace(" + table", " + nowhere"))
    assert broken.text != unit.text
    with pytest.raises(errors.ToolchainError, match="in kernel look_up"):
        load(program, broken, Options())


@needs_cc
def test_a_compiler_failure_names_kernel_and_users_line(cache_dir, scale_add):
    program, unit = scale_add
    text = unit.text.replace("x[i] + s[0]", "x[i] + nowhere")
    with pytest.raises(errors.ToolchainError) as caught:
        load(program, replace(unit, text=text), Options())
    error = caught.value
    assert "in kernel scale_add" in error.message and "nowhere" in error.stderr
    assert error.loc.file.endswith("conftest.py") and "flags: -O2" in error.message
    assert Path(error.source).is_file() and error.source in str(error)
    assert str(cache_dir) in error.source


@pytest.fixture
def no_compiler(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "none")
    cpu._warn_no_compiler.cache_clear()


def test_no_compiler_warns_once_at_the_users_line_and_runs(no_compiler, scale_add):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = load(*scale_add, Options()), load(*scale_add, Options())
    assert first.kind == second.kind == "reference"
    (warning,) = caught
    assert warning.category is errors.NoCompilerWarning and warning.filename == __file__
    assert "doctor" in str(warning.message)
    np.testing.assert_array_equal(first(X.copy(), 0.5)[0], X + 0.5)


def test_no_compiler_is_an_error_when_strict(no_compiler, scale_add):
    with pytest.raises(errors.ToolchainError, match="no C compiler was found"):
        load(*scale_add, Options(strict=True))


def test_no_compiler_does_not_matter_to_the_numpy_backend(no_compiler, scale_add):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(*scale_add, Options(backend="numpy")).kind == "reference"


@needs_cc
def test_without_headers_calls_go_through_ctypes(cache_dir, scale_add, monkeypatch):
    monkeypatch.setattr("tracegrad.runtime.launch.python_include", lambda: None)
    cpu.launcher_module.__globals__["_load_launcher"].cache_clear()
    try:
        assert load(*scale_add, Options()).kind == "ctypes"
    finally:
        cpu.launcher_module.__globals__["_load_launcher"].cache_clear()


@needs_cc
def test_an_unknown_launcher_is_refused(cache_dir, scale_add, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_LAUNCHER", "cffi")
    with pytest.raises(errors.OptionError, match="TRACEGRAD_LAUNCHER cannot be 'cffi'"):
        load(*scale_add, Options())


SCRIPT = """
    import importlib.util, numpy as np
    spec = importlib.util.spec_from_file_location("programs", {conftest!r})
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    from tracegrad.options import Options
    from tracegrad.runtime.cpu import load
    executable = load(*programs.make_scale_add(), Options())
    print(executable.kind, executable(np.ones((2, 2)), 0.5)[0].sum())
"""


def spawn(tmp_path, shared):
    """A process with a compiler that logs each call, and what it printed."""
    real = shutil.which("cc")
    logging_cc = tmp_path / "logging-cc"
    if not logging_cc.exists():
        logging_cc.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nexec {real} "$@"\n')
        logging_cc.chmod(0o755)
    script = textwrap.dedent(SCRIPT).format(conftest=str(Path(__file__).with_name("conftest.py")))
    environment = dict(os.environ, TRACEGRAD_CC=str(logging_cc), TRACEGRAD_CACHE_DIR=str(shared))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    )


@needs_cc
def test_a_second_process_does_not_call_the_compiler(tmp_path):
    outputs = []
    for _ in range(2):
        outputs.append(spawn(tmp_path, tmp_path / "c").communicate()[0].split())
        log = tmp_path / "log"
        calls = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        outputs[-1].append(len(calls))
    first, second = outputs
    assert first[1] == second[1] == "6.0" and first[0] == second[0]
    assert first[2] > 0 and second[2] == 0


@needs_cc
def test_processes_at_once_build_one_library(tmp_path):
    spawn(tmp_path, tmp_path / "c").communicate()  # the launcher and the compiler's facts
    for so in (tmp_path / "c").glob("??/*.so"):
        if b"scale_add" in so.read_bytes() or b"launcher" not in so.read_bytes():
            so.unlink()
    (tmp_path / "log").write_text("")
    racing = [spawn(tmp_path, tmp_path / "c") for _ in range(3)]
    assert [p.communicate()[0].split()[1] for p in racing] == ["6.0"] * 3
    builds = (tmp_path / "log").read_text().splitlines()
    assert len([line for line in builds if "unit.c" in line]) == 1
