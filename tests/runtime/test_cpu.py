"""Executables: launcher, ctypes and reference behave alike; caching across processes."""

import os
import shutil
import subprocess
import sys
import textwrap
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracegrad import errors
from tracegrad.options import Options
from tracegrad.runtime import cpu, toolchain
from tracegrad.runtime.artifact import Accept, Returns
from tracegrad.runtime.cpu import load

HAS_CC = shutil.which("cc") is not None
HAS_HEADERS = toolchain.python_include() is not None
needs_cc = pytest.mark.skipif(not HAS_CC, reason="no C compiler")
needs_launcher = pytest.mark.skipif(not (HAS_CC and HAS_HEADERS), reason="no C compiler, Python.h")

KINDS = [
    pytest.param("launcher", marks=needs_launcher),
    pytest.param("ctypes", marks=needs_cc),
    "reference",
]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "tracegrad"


@pytest.fixture(params=KINDS)
def kind(request, cache_dir, shared_cache, monkeypatch):
    # One cache for all of these, so that each text is built once.
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(shared_cache))
    if request.param == "ctypes":
        monkeypatch.setenv("TRACEGRAD_LAUNCHER", "ctypes")
    return request.param


@pytest.fixture
def run(kind):
    def load_kind(made):
        backend = "numpy" if kind == "reference" else "c"
        executable = load(*made, Options(backend=backend))
        assert executable.kind == kind
        return executable

    return load_kind


X = np.array([[1.0, 2.0], [3.0, 4.0]])


def test_computes_and_writes_in_place(run, scale_add):
    x = X.copy()
    (out,) = run(scale_add)(x, 0.5)
    np.testing.assert_array_equal(out, X + 0.5)
    np.testing.assert_array_equal(x, 2 * X)


def test_keeps_the_source_and_the_path(run, kind, scale_add):
    executable = run(scale_add)
    assert executable.source == scale_add[1].text
    assert (executable.library is None) == (kind == "reference")


@pytest.mark.parametrize("scalar", [0.5, np.float64(0.5), np.array(0.5)])
def test_scalars_of_all_three_kinds(run, scale_add, scalar):
    launch = run(scale_add).bind()
    np.testing.assert_array_equal(launch(X.copy(), scalar), X + 0.5)


def test_accept_narrows_what_is_taken(run, scale_add):
    launch = run(scale_add).bind([Accept.ARRAY, Accept.FLOAT])
    assert launch(X.copy(), np.float64(0.5)) is NotImplemented
    assert launch(X.copy(), np.array(0.5)) is NotImplemented
    np.testing.assert_array_equal(launch(X.copy(), 0.5), X + 0.5)


class Sub(np.ndarray):
    pass


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


def misaligned():
    raw = np.zeros(X.nbytes + 1, np.uint8)[1:]
    x = raw.view(np.float64).reshape(2, 2)
    x[...] = X
    return x


@pytest.mark.parametrize(
    "x",
    [
        X.astype(np.float32),
        X.astype(">f8"),
        X.reshape(4),
        X[:1].copy(),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X.copy().view(Sub),
        read_only(),
        misaligned(),
        X.tolist(),
    ],
    ids=[
        "f32",
        "swapped",
        "rank",
        "shape",
        "fortran",
        "strided",
        "subclass",
        "readonly",
        "misaligned",
        "list",
    ],
)
def test_whatever_is_not_exact_is_handed_back_untouched(run, scale_add, x):
    before = np.array(x)
    assert run(scale_add).bind()(x, 0.5) is NotImplemented
    np.testing.assert_array_equal(before, np.array(x))


@pytest.mark.parametrize("args", [(), (X,), (X, 0.5, 0.5), (X, 1), (X, "a"), (X, np.float32(1))])
def test_wrong_arguments_are_handed_back(run, scale_add, args):
    assert run(scale_add).bind()(*args) is NotImplemented


def test_a_written_input_that_overlaps_another_is_handed_back(run, scale_add):
    x = X.copy()
    assert run(scale_add).bind()(x, x[1, 1, ...]) is NotImplemented
    with pytest.raises(errors.ArgumentError, match="shares memory"):
        run(scale_add)(x, x[1, 1, ...])
    np.testing.assert_array_equal(x, X)


def test_any_layout_is_computed_and_written_back(run, scale_add):
    executable = run(scale_add)
    for x in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], misaligned()):
        (out,) = executable(x, 0.5)
        np.testing.assert_array_equal(out, X + 0.5)
        np.testing.assert_array_equal(x, 2 * X)


def test_interleaved_arrays_do_not_overlap(run, scale_add):
    both = np.array([[1.0, 9.0, 2.0, 9.0], [3.0, 9.0, 4.0, 9.0]])
    run(scale_add)(both[:, ::2], both[0, 1, ...])
    np.testing.assert_array_equal(both, [[2.0, 9.0, 4.0, 9.0], [6.0, 9.0, 8.0, 9.0]])


@pytest.mark.parametrize(
    "args, error, text",
    [
        ((X,), errors.ArgumentError, "2 inputs needed, 1 given"),
        ((X.astype(np.float32), 0.5), errors.ArgumentError, r"x must be f64\[2, 2\], not float32"),
        ((X.reshape(4), 0.5), errors.ArgumentError, r"of shape \(4,\)"),
        ((read_only(), 0.5), errors.ValueArgumentError, "read-only"),
        ((X.tolist(), 0.5), errors.ValueArgumentError, "read-only"),
    ],
)
def test_the_checked_call_says_what_is_wrong(run, scale_add, args, error, text):
    with pytest.raises(error, match=text):
        run(scale_add)(*args)


def test_outputs_without_axes_as_array_scalar_or_float(run, pick):
    executable = run(pick)
    x = np.arange(4.0)
    for returns, kind_of in [
        (Returns.ARRAY, np.ndarray),
        (Returns.SCALAR, np.float64),
        (Returns.FLOAT, float),
    ]:
        result = executable.bind(returns=[returns])(x, np.int64(1))
        assert type(result) is kind_of and result == 3.0
    (result,) = executable(x, np.int64(1))
    assert result.shape == ()


def test_a_failed_check_raises_at_the_users_line(run, pick):
    for call in (run(pick), run(pick).bind()):
        with pytest.raises(errors.RuntimeIndexError) as caught:
            call(np.arange(4.0), np.int64(7))
        assert caught.value.message == "index 7 is out of bounds for axis 0 with size 4"
        assert caught.value.loc.line == 1 and isinstance(caught.value, IndexError)


def test_other_checks_are_value_errors(run, make_pick_with):
    executable = run(make_pick_with("Integers to negative integer powers are not allowed."))
    with pytest.raises(errors.RuntimeValueError, match="negative integer powers"):
        executable(np.arange(4.0), np.int64(4))


def test_call_into_given_outputs(run, scale_add):
    executable = run(scale_add)
    x, s, out = X.copy(), np.array(0.5), np.empty((2, 2))
    assert executable.call_into([x, s], [out]) is None
    np.testing.assert_array_equal(out, X + 0.5)
    for inputs, outputs, text in [
        ([x], [out], "2 inputs needed"),
        ([x, s], [out.T], "C-ordered"),
        ([x, s], [x], "shares memory"),
        ([x, s], [read_only()], "read-only"),
    ]:
        with pytest.raises(errors.ArgumentError, match=text):
            executable.call_into(inputs, outputs)


def test_threads_may_call_at_once(run, kind, busy):
    if kind == "reference":
        pytest.skip("has no arena of its own")
    executable = run(busy)
    results, size = {}, executable.inputs[0].shape

    def work(n):
        launch = executable.bind() if n % 2 else executable
        x = np.full(size, float(n))
        results[n] = [launch(x) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    shared = executable.bind()
    threads += [
        threading.Thread(
            target=lambda n=n: results.setdefault(
                n, [shared(np.full(size, float(n))) for _ in range(10)]
            )
        )
        for n in (5, 6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n, found in results.items():
        for result in found:
            np.testing.assert_allclose(np.asarray(result).reshape(size), 3.0 * n)


def test_many_calls_leak_nothing(run, scale_add):
    launch = run(scale_add).bind()
    x, s = np.ones((2, 2)), np.array(0.5)
    before = sys.getrefcount(x), sys.getrefcount(s), sys.getrefcount(NotImplemented)
    for _ in range(100):
        launch(x, s)
        launch(x, 1)
    assert (sys.getrefcount(x), sys.getrefcount(s)) == before[:2]
    made, fresh = launch(x, s), np.empty(1)
    assert sys.getrefcount(made) == sys.getrefcount(fresh)
    assert sys.getrefcount(NotImplemented) - before[2] < 10


# ----------------------------------------------------------------- building and falling back


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
