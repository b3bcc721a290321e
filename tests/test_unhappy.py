"""Calls that go wrong while they run: checks, warnings, compilers, caches.

A call that fails has written nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tests.refusals.case import caught, marked
from tracegrad import errors

X = np.array([1.0, 2.0, 3.0])
TABLE = np.zeros(3)


def double(x):
    return 2.0 * x


# ---------------------------------------------------- run-time checks; nothing has been written


def write_and_pick(x, at):
    x[0] = 9.0
    TABLE[:] = 7.0
    return np.sum(x[at])


def write_at(x, at):
    x[:] = 0.0
    x[at] = 1.0
    return np.sum(x)


def write_row(x, at):
    x[:] = 0.0
    np.add.at(x, at, 2.0)
    return np.sum(x)


def write_and_take(x, at):
    x += 1.0
    return np.sum(np.take(x, at))


RUN_TIME = {
    write_and_pick: "x[at]",
    write_at: "x[at]",
    write_row: "np.add.at(x, at, 2.0)",
    write_and_take: "np.take(x, at)",
}


@pytest.mark.parametrize("backend", ["c", "numpy"])
@pytest.mark.parametrize("transform", [tg.compile, tg.value_and_grad], ids=["compile", "grad"])
@pytest.mark.parametrize("f", RUN_TIME, ids=lambda f: f.__name__)
def test_an_index_out_of_range(f, transform, backend):
    compiled = transform(f, backend=backend)
    x = X.copy()
    compiled(x.copy(), np.array([0, -3]))  # in range
    TABLE[:] = 0.0
    for bad, value in ((np.array([0, 3]), 3), (np.array([-4, 1]), -4)):
        for _ in range(2):  # the second call takes the short way
            e = caught(lambda: compiled(x, bad))  # noqa: B023
            assert type(e) is errors.RuntimeIndexError and isinstance(e, IndexError)
            assert e.kind == "out_of_bounds"
            assert e.message == f"index {value} is out of bounds for axis 0 with size 3"
            assert marked(str(e)) == RUN_TIME[f] and f"in {f.__name__}" in str(e)
            np.testing.assert_array_equal(x, X)
            np.testing.assert_array_equal(TABLE, np.zeros(3))


def test_the_axis_and_size_of_an_index():
    e = caught(lambda: tg.compile(lambda a, at: a[:, at])(np.ones((2, 5)), np.array([5])))
    assert e.message == "index 5 is out of bounds for axis 1 with size 5"
    assert marked(str(e)) == "a[:, at]"
    e = caught(lambda: tg.compile(lambda a, at: a[at])(np.ones(0), np.array([0])))
    assert e.message == "index 0 is out of bounds for axis 0 with size 0"


def test_negative_integer_powers():
    def power(base, exponent):
        base[0] = 5
        return base**exponent

    base = np.array([2, 3])
    e = caught(lambda: tg.compile(power)(base, np.array([1, -1])))
    assert type(e) is errors.RuntimeValueError and isinstance(e, ValueError)
    assert e.message == "Integers to negative integer powers are not allowed."
    assert marked(str(e)) == "base**exponent"
    np.testing.assert_array_equal(base, [2, 3])


def test_numbers_that_do_not_raise_are_numpys():
    with np.errstate(all="ignore"):
        x = np.array([-1.0, 0.0, 4.0])
        np.testing.assert_array_equal(tg.compile(lambda x: np.sqrt(x))(x), np.sqrt(x))
        np.testing.assert_array_equal(tg.compile(lambda x: np.log(x))(x), np.log(x))
        np.testing.assert_array_equal(tg.compile(lambda x: 1.0 / x)(x), 1.0 / x)
        n = np.array([4, 9, -3])
        got = tg.compile(lambda n: np.sqrt(n))(n)
        np.testing.assert_array_equal(got, np.sqrt(n))
        assert got.dtype == np.float64
        zero = np.array([0, 2, 0])
        np.testing.assert_array_equal(tg.compile(lambda n, d: n // d)(n, zero), n // zero)
        np.testing.assert_array_equal(tg.compile(lambda n, d: n % d)(n, zero), n % zero)


def overwrite_and_branch(x):
    x[:] = 0.0
    TABLE[:] = 7.0
    if x[0] > 0:
        return np.sum(x)
    return np.sum(x * 2.0)


def overwrite_and_return(x):
    x[:] = 0.0
    TABLE[:] = 7.0
    return x


def overwrite(x):
    x[:] = 0.0
    TABLE[:] = 7.0
    return np.sum(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tg.compile(overwrite_and_branch)(x),
        lambda x: tg.grad(overwrite_and_branch)(x),
        lambda x: tg.grad(overwrite_and_return)(x),
        lambda x: tg.grad(overwrite, argnums=2)(x),
        lambda x: tg.vjp(overwrite_and_branch, x),
        lambda x: tg.jvp(overwrite_and_branch, (x,), (x,)),
        lambda x: tg.compile(overwrite)(x, x),
    ],
    ids=["branch", "grad", "vector", "argnums", "vjp", "jvp", "count"],
)
def test_a_refused_call_has_written_nothing(call):
    TABLE[:] = 0.0
    x = X.copy()
    caught(lambda: call(x))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(TABLE, np.zeros(3))


def test_a_read_only_argument():
    x = X.copy()
    x.flags.writeable = False
    e = caught(lambda: tg.compile(overwrite)(x))
    assert isinstance(e, ValueError) and e.kind == "read_only"
    assert e.message == "assignment destination is read-only"
    assert marked(str(e)) == "x[:]" and "x.copy()" in e.remedy
    np.testing.assert_array_equal(x, X)


# ------------------------------------------------------------------------------------- warnings


def warned(call: Any) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(w.filename == __file__ for w in found), "warnings are the user's"
    return [w.message for w in found]


def test_recompile_warning():
    def power(x, n):
        return x**n

    f = tg.compile(power)
    (w,) = warned(lambda: [f(X, n) for n in range(10)])
    assert type(w) is errors.RecompileWarning and w.kind == "recompile"
    first, *_ = str(w).splitlines()
    assert (
        first == "power was specialised for 8 values of args[1] (n), the last ones 5, 6, 7.  "
        "Pass it as a float or an array, which are traced."
    )
    assert marked(str(w)) == "f(X, n)"


def test_no_grad_view_warning():
    def tail(x):
        with tg.no_grad():
            v = x[1:]
        return np.sum(v * 2.0)

    (w,) = warned(lambda: tg.grad(tail)(X))
    assert type(w) is errors.GradientWarning and w.kind == "gradient"
    assert str(w).startswith("a view made inside no_grad is used with gradients on: it carries no")
    assert marked(str(w)) == "v * 2.0"


def test_errstate_that_raises():
    def logarithm(x):
        with np.errstate(divide="raise"):
            return np.log(x)

    (w,) = warned(lambda: tg.compile(logarithm)(np.zeros(2)))
    assert type(w) is errors.TracegradWarning and w.kind == "errstate"
    assert str(w).startswith("np.errstate(divide='raise') has no effect on compiled code")
    assert "np.isfinite" in str(w) and marked(str(w)) == 'np.errstate(divide="raise")'

    def around():
        with np.errstate(all="raise"):
            tg.compile(lambda x: np.log(x))(np.zeros(2))

    (w,) = warned(around)
    assert str(w).startswith("np.errstate(all='raise') has no effect on compiled code")
    assert marked(str(w)) == "tg.compile(lambda x: np.log(x))(np.zeros(2))"


def test_errstate_that_does_not_raise():
    def logarithm(x):
        with np.errstate(divide="ignore"):
            return np.log(x)

    assert warned(lambda: tg.compile(logarithm)(np.zeros(2))) == []


# ------------------------------------------------------------------------ compilers and caches

PROGRAM = """
import warnings

import numpy as np

import tracegrad as tg


def energy(x):
    x[0] = 2.0
    return np.sum(np.sin(x) * x)


x = np.ones(3)
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    try:
        print("value", round(float(tg.compile(energy)(x)), 6))
        print("gradient", np.round(tg.grad(energy)(np.ones(3)), 6).tolist())
        tg.compile(lambda x: x * 2.0)(x)
    except tg.errors.TracegradError as e:
        print(type(e).__name__, isinstance(e, RuntimeError))
        print(e)
print("x", x.tolist())
for w in found:
    print(type(w.message).__name__, w.filename.rpartition("/")[2], w.message)
"""

RIGHT = ["value 3.501537", "gradient [0.0, 1.381773, 1.381773]", "x [2.0, 1.0, 1.0]"]


def run(tmp_path, **env) -> str:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {"TRACEGRAD_CACHE_DIR": str(tmp_path / "cache"), **env}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRACEGRAD_")}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=True,
        env={**inherited, **env, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.stdout


def test_flags_that_the_compiler_refuses(tmp_path):
    text = run(tmp_path, TRACEGRAD_CFLAGS="-nonsense")
    lines = text.splitlines()
    assert lines[0] == "ToolchainError True"
    assert "the C compiler failed with status 1" in lines[1] and "kernel" in lines[1]
    assert lines[2].startswith("  tool: ") and lines[3].startswith("  flags: ")
    assert lines[3].endswith(" -nonsense")
    assert "-nonsense" in lines[4], "what the compiler said"
    assert "program.py:10 in energy" in text and "    x[0] = 2.0" in text
    kept = next(x for x in lines if x.startswith("  The C text is kept in "))
    source = kept.removeprefix("  The C text is kept in ").rstrip(".")
    with open(source) as f:
        assert "int energy" in f.read()
    assert lines[-1] == "x [1.0, 1.0, 1.0]", "a call that failed has written nothing"


@pytest.mark.skipif(os.name != "posix", reason="a stub compiler is a shell script")
def test_a_compiler_that_fails(tmp_path):
    stub = tmp_path / "cc"
    stub.write_text(
        textwrap.dedent("""\
        #!/bin/sh
        case "$*" in
          *--version*) echo "stub 1.0"; exit 0;;
          *unit.c*) line=$(grep -n "^static.*k0" unit.c | tail -1 | cut -d: -f1)
                    echo "unit.c:$line:1: error: the moon is wrong" >&2; exit 3;;
        esac
        exit 0
    """)
    )
    stub.chmod(0o755)
    text = run(tmp_path, TRACEGRAD_CC=str(stub))
    assert "in kernel k0: the C compiler failed with status 3" in text
    assert f"  tool: {stub}" in text and "error: the moon is wrong" in text
    assert "program.py:1" in text and "^" in text
    assert "x [1.0, 1.0, 1.0]" in text


def test_no_compiler(tmp_path):
    lines = run(tmp_path, TRACEGRAD_CC="none").splitlines()
    assert lines[:3] == RIGHT
    (warning,) = lines[3:]
    assert warning.startswith("NoCompilerWarning program.py no C compiler was found")
    assert "python -m tracegrad doctor" in warning


def test_a_compiler_that_is_not_there(tmp_path):
    lines = run(tmp_path, TRACEGRAD_CC="/no/such/cc").splitlines()
    assert lines[:2] == [
        "ToolchainError True",
        "TRACEGRAD_CC='/no/such/cc' does not name a program",
    ]
    assert "Correct or unset TRACEGRAD_CC." in lines[2:][-2]


def test_ctypes_calls(tmp_path):
    assert run(tmp_path, TRACEGRAD_LAUNCHER="ctypes").splitlines() == RIGHT


def test_a_cache_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(tmp_path, TRACEGRAD_CACHE_DIR=str(blocked)).splitlines() == RIGHT


def test_strict_without_a_compiler(monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "none")
    x = X.copy()
    e = caught(lambda: tg.compile(lambda x: x.fill(1.0), strict=True)(x))
    assert type(e) is errors.ToolchainError and e.message == "no C compiler was found"
    assert "python -m tracegrad doctor" in e.remedy
    np.testing.assert_array_equal(x, X)


def test_export_of_something_else(tmp_path):
    e = caught(lambda: tg.export(double, [3], tmp_path / "out", name="double_it"))
    assert type(e) is errors.ExportError and isinstance(e, ValueError)
    assert e.message == "specs[0] is of type int" and "tg.spec(shape)" in e.remedy
