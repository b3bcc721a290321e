"""An exported folder: whole or absent, strict C99, checked by its own example program."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracegrad.aot.export import export_program
from tracegrad.aot.names import check_name
from tracegrad.aot.view import Signature
from tracegrad.dims import Symbol, of_atom
from tracegrad.dtypes import BOOL, F32, F64, I64, U8
from tracegrad.errors import ExportError
from tracegrad.loops.ir import (
    Access,
    Apply,
    Check,
    Const,
    For,
    Intrinsic,
    Kernel,
    Load,
    LoopTag,
    Param,
    Store,
)
from tracegrad.loops.program import Buffer, CheckSite, Launch, Place, Program

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

ADD = Intrinsic("add", 2, np.add, "{0} + {1}", precedence=12)
LESS = Intrinsic("less", 2, np.less, "{0} < {1}", precedence=10)


def elementwise(dtype=F64, shape=(2, 3), written=False):
    """``out = x + c`` with a constant c of the same shape."""
    n = int(np.prod(shape))
    i = Symbol("i", 0, max(0, n - 1))
    at = of_atom(i)
    total = Apply(ADD, (Load("x", at, dtype), Load("c", at, dtype)), dtype)
    body = (For(i, n, LoopTag.PARALLEL, (Store("out", at, total),)),)
    access = Access.INOUT if written else Access.IN
    params = (
        Param("x", dtype, n, access),
        Param("c", dtype, n, Access.IN),
        Param("out", dtype, n, Access.OUT),
    )
    c = np.arange(n).astype(dtype.np).reshape(shape)
    return Program(
        "p",
        (
            Buffer("x", dtype, n, Place.INPUT, 0, written=written, shape=shape, hint="x"),
            Buffer("c", dtype, n, Place.CONSTANT, 0, data=c, shape=shape),
            Buffer("out", dtype, n, Place.OUTPUT, 0, shape=shape, hint="out"),
        ),
        (Launch(Kernel("p_1", params, body), ("x", "c", "out")),),
    ), c


def checked():
    """``out = x[0]`` when ``k < 4``, else status 1."""
    k = Load("k", 0, I64)
    kernel = Kernel(
        "pick",
        (
            Param("x", F64, 4, Access.IN),
            Param("k", I64, 1, Access.IN),
            Param("out", F64, 1, Access.OUT),
            Param("detail", I64, 1, Access.OUT),
        ),
        (Check(Apply(LESS, (k, Const(4, I64)), BOOL), 1, k), Store("out", 0, Load("x", 0, F64))),
    )
    return Program(
        "p",
        (
            Buffer("x", F64, 4, Place.INPUT, 0, shape=(4,)),
            Buffer("k", I64, 1, Place.INPUT, 1, shape=()),
            Buffer("out", F64, 1, Place.OUTPUT, 0, shape=()),
            Buffer("detail", I64, 1, Place.ARENA, offset=0),
        ),
        (Launch(kernel, ("x", "k", "out", "detail")),),
        arena_nbytes=64,
        checks=(CheckSite("index {value} is out of bounds */ for axis 0"),),
    )


def export(made, folder, name="add_c", *, x=None, want=None, **options):
    program, c = made
    x = np.ones(c.shape, c.dtype) if x is None else x
    want = x + c if want is None else want
    signature = Signature("x + c, elementwise", ("what is added to",), ("the sum",))
    return export_program(program, signature, folder, name, [x], [want], version="1", **options)


def make(folder, *targets):
    """Run make there; warnings are errors."""
    environment = dict(os.environ)
    environment.pop("MAKEFLAGS", None)
    return subprocess.run(
        ["make", *targets], cwd=folder, capture_output=True, text=True, env=environment
    )


FILES = {"add_c.c", "add_c.h", "example_main.c", "Makefile", "README.md", "manifest.json"}


def test_has_all_files_and_facts(tmp_path):
    folder = export(elementwise(), tmp_path / "new" / "out")
    assert {p.name for p in folder.iterdir()} == FILES
    assert {p.name for p in folder.parent.iterdir()} == {"out"}
    facts = json.loads((folder / "manifest.json").read_text())
    assert facts["abi"] == 1 and facts["name"] == "add_c" and facts["licence"] == "0BSD"
    assert facts["inputs"][0]["type"] == "f64[2, 3]" and facts["inputs"][0]["shape"] == [2, 3]
    assert facts["prototype"].startswith("int add_c(const double *") and set(facts["sha256"]) == (
        FILES - {"manifest.json"}
    )
    header = (folder / "add_c.h").read_text()
    assert "#define ADD_C_WORKSPACE_BYTES 0" in header and "what is added to" in header
    assert 'extern "C"' in header and "restrict" not in header


def test_equal_programs_give_equal_bytes_without_paths(tmp_path):
    one, two = (export(elementwise(), tmp_path / n) for n in ("one", "two"))
    for name in FILES:
        data = (one / name).read_bytes()
        assert data == (two / name).read_bytes()
        assert str(tmp_path).encode() not in data


@needs_cc
@pytest.mark.parametrize(
    "dtype, shape, written",
    [(F64, (2, 3), False), (F32, (7,), True), (I64, (), False), (U8, (3, 0), False)],
)
def test_example_agrees_under_strict_flags(tmp_path, dtype, shape, written):
    folder = export(elementwise(dtype, shape, written), tmp_path / "out")
    done = make(folder, "check")
    assert done.returncode == 0, done.stderr
    assert "all outputs agree" in done.stdout and "warning" not in done.stderr
    assert (folder / "libadd_c.a").exists() or make(folder).returncode == 0


@needs_cc
def test_example_notices_a_wrong_value(tmp_path):
    x = np.ones((2, 3))
    made = elementwise()
    want = x + made[1]
    want[1, 2] += 1e-6
    done = make(export(made, tmp_path / "out", x=x, want=want), "check")
    assert done.returncode != 0 and "1 of 6 wrong" in done.stdout and "FAILED" in done.stdout


@needs_cc
@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf, 0.0])
def test_values_that_are_not_finite_are_compared_exactly(tmp_path, spoil):
    x = np.array([[np.nan, np.inf, -np.inf], [-0.0, 5e-324, 1e308]])
    made = elementwise()
    assert make(export(made, tmp_path / "right", x=x), "check").returncode == 0
    for at in range(3):
        want = (x + made[1]).copy()
        if np.array_equal(want.flat[at], spoil, equal_nan=True):
            continue
        want.flat[at] = spoil
        folder = export(made, tmp_path / f"wrong{at}", x=x, want=want)
        assert "1 of 6 wrong" in make(folder, "check").stdout


@needs_cc
def test_extreme_integers_are_exact(tmp_path):
    x = np.array([-(2**63), 2**63 - 2, 2**53 + 1])
    made = elementwise(I64, (3,))
    c = np.array([0, 1, 0])
    buffers = tuple(replace(b, data=c) if b.name == "c" else b for b in made[0].buffers)
    made = replace(made[0], buffers=buffers), c
    assert make(export(made, tmp_path / "right", x=x), "check").returncode == 0
    wrong = export(made, tmp_path / "wrong", x=x, want=x + c - np.array([0, 0, 1]))
    assert "1 of 3 wrong" in make(wrong, "check").stdout


@needs_cc
def test_status_and_workspace(tmp_path):
    samples = [np.arange(4.0) + 7, np.array(1)]
    folder = export_program(
        checked(), Signature("picks"), tmp_path / "o", "pick_it", samples, [np.array(7.0)],
        version="1",
    )  # fmt: skip
    header = (folder / "pick_it.h").read_text()
    assert "#define PICK_IT_WORKSPACE_BYTES 64" in header
    assert "1: index {value} is out of bounds * / for axis 0" in header
    assert make(folder, "check").returncode == 0
    main = folder / "example_main.c"
    main.write_text(main.read_text().replace("INT64_C(1)", "INT64_C(9)"))
    assert "returned status 1" in make(folder, "check").stdout


@needs_cc
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_header_serves_cxx(tmp_path):
    folder = export(elementwise(), tmp_path / "out")
    (folder / "user.cpp").write_text(
        '#include "add_c.h"\n'
        "int main() { double x[6] = {1}, y[6]; return add_c(x, y, nullptr) || y[0] != 1; }\n"
    )
    subprocess.run(["cc", "-std=c99", "-c", "add_c.c"], cwd=folder, check=True)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["c++", *flags, "user.cpp", "add_c.o", "-o", "user"], cwd=folder, check=True)
    assert subprocess.run([folder / "user"]).returncode == 0


@needs_cc
def test_two_exports_link_into_one_program(tmp_path):
    for name in ("first", "second"):
        folder = export(elementwise(), tmp_path / name, name)
        subprocess.run(["cc", "-c", f"{name}.c", "-o", f"../{name}.o"], cwd=folder, check=True)
    (tmp_path / "main.c").write_text(
        '#include "first/first.h"\n#include "second/second.h"\n'
        "int main(void) { double x[6] = {0}, y[6]; return first(x, y, 0) + second(x, y, 0); }\n"
    )
    command = ["cc", "main.c", "first.o", "second.o", "-lm", "-o", "both"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "both"]).returncode == 0


def has_sanitizers(folder):
    (folder / "t.c").write_text("int main(void) { return 0; }")
    command = ["cc", "-fsanitize=address,undefined", "t.c", "-o", "t"]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


@needs_cc
def test_example_is_clean_under_sanitizers(tmp_path):
    if not has_sanitizers(tmp_path):
        pytest.skip("no sanitizers")
    folder = export(elementwise(written=True), tmp_path / "out")
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover"
    done = make(folder, "check", f"CFLAGS={flags}")
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "name, text",
    [
        ("int", "a word of C"),
        ("class", r"a word of C\+\+"),
        ("exp", "the C library"),
        ("main", "the C library"),
        ("expf", "the C library"),
        ("example_main", "another file"),
        ("../up", "not a C identifier"),
        ("a/b", "not a C identifier"),
        ("a\n", "not a C identifier"),
        ("", "not a C identifier"),
        ("1x", "not a C identifier"),
        ("_x", "not a C identifier"),
        ("gr\u00e4d", "not a C identifier"),
        ("a__b", "reserved"),
        ("tg_x", "reserved"),
        ("x" * 64, "longer than 63"),
        (None, "not a C identifier"),
    ],
)
def test_names_that_c_cannot_have(tmp_path, name, text):
    with pytest.raises(ExportError, match=text):
        export(elementwise(), tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_the_text_uses_itself(tmp_path):
    assert check_name("bufs") == "bufs"
    with pytest.raises(ExportError, match="used inside"):
        export(elementwise(), tmp_path / "out", "bufs")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match="is not empty"):
        export(elementwise(), tmp_path / "out")
    with pytest.raises(ExportError, match="was not written by an export"):
        export(elementwise(), tmp_path / "out", overwrite=True)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    assert {p.name for p in export(elementwise(), tmp_path / "out").iterdir()} == FILES


def test_overwrite_replaces_an_export_and_keeps_other_files(tmp_path):
    folder = export(elementwise(), tmp_path / "out", "old_name")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match="overwrite=True"):
        export(elementwise(), folder)
    export(elementwise(), folder, overwrite=True)
    assert {p.name for p in folder.iterdir()} == FILES | {"notes.txt"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["file", "link", "below_file"])
def test_paths_that_are_no_folder(tmp_path, kind):
    target = tmp_path / "out"
    if kind == "link":
        (tmp_path / "real").mkdir()
        target.symlink_to(tmp_path / "real")
    else:
        target.write_text("")
    if kind == "below_file":
        target = target / "below"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError):
        export(elementwise(), target)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_half_way_leaves_nothing(tmp_path, monkeypatch):
    written = Path.write_text

    def full(self, *args, **keywords):
        if self.name == "README.md":
            raise OSError(28, "No space left on device")
        return written(self, *args, **keywords)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ExportError, match="No space left"):
        export(elementwise(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("x", [np.ones((3, 2)), np.ones((2, 3), np.float32)])
def test_samples_that_do_not_fit(tmp_path, x):
    with pytest.raises(ExportError, match=r"must be f64\[2, 3\]"):
        export(elementwise(), tmp_path / "out", x=x, want=np.ones((2, 3)))
    program, c = elementwise()
    with pytest.raises(ExportError, match="1 sample inputs needed, 2 given"):
        export_program(program, Signature(""), tmp_path / "o", "f", [c, c], [c], version="1")
