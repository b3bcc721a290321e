"""The compiler: finding it, its identity, its flags, its failures."""

import ctypes
import os
import shutil
import sys

import pytest

from tracegrad.errors import ToolchainError
from tracegrad.runtime import toolchain

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def fake_compiler(folder, body):
    path = folder / "fakecc"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o755)
    return path


@needs_cc
def test_finds_the_system_compiler_once(cache_dir):
    compiler = toolchain.find_compiler()
    assert compiler is toolchain.find_compiler()
    assert compiler.family in ("gcc", "clang", "other") and compiler.version in compiler.identity


@needs_cc
def test_facts_of_the_compiler_are_asked_once_per_binary(cache_dir, tmp_path, monkeypatch):
    log = tmp_path / "log"
    body = f"open({str(log)!r}, 'a').write('asked\\n'); print('fake 1.0')"
    monkeypatch.setenv("TRACEGRAD_CC", str(fake_compiler(tmp_path, body)))
    toolchain._find.cache_clear()
    first = toolchain.find_compiler()
    toolchain._find.cache_clear()  # as a new process
    assert toolchain.find_compiler() == first
    assert log.read_text() == "asked\n"
    os.utime(tmp_path / "fakecc", (5, 5))  # another binary
    toolchain._find.cache_clear()
    assert toolchain.find_compiler().identity != first.identity
    assert log.read_text() == "asked\nasked\n"


def test_none_says_that_there_is_none(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "none")
    assert toolchain.find_compiler() is None


def test_an_empty_path_has_none(cache_dir, tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_compiler() is None


def test_a_name_that_does_not_exist_is_an_error(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "no-such-compiler")
    with pytest.raises(ToolchainError, match="TRACEGRAD_CC='no-such-compiler'"):
        toolchain.find_compiler()


def test_a_compiler_that_fails_to_answer_is_an_error(cache_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", str(fake_compiler(tmp_path, "sys.exit(3)")))
    with pytest.raises(ToolchainError, match="--version failed with status 3"):
        toolchain.find_compiler()


@needs_cc
def test_words_after_the_compiler_are_kept(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "cc -DX=3")
    assert toolchain.find_compiler().command[1:] == ("-DX=3",)


def gcc():
    return toolchain.Compiler(("gcc",), "gcc", "gcc 12", "id")


def test_strict_flags_keep_ieee_meaning():
    flags = toolchain.build_flags(gcc(), fastmath=False)
    assert flags[0] == "-O2" and "-ffp-contract=off" in flags and "-fno-tree-pre" in flags
    assert not set(flags) & {"-ffast-math", "-Ofast", "-fassociative-math", "-O3"}


def test_fastmath_flags_never_reorder_sums():
    flags = toolchain.build_flags(gcc(), fastmath=True)
    wanted = {"-ffp-contract=fast", "-fno-signed-zeros", "-freciprocal-math"}
    assert wanted <= set(flags) and "-ffp-contract=off" not in flags
    assert not set(flags) & {"-ffast-math", "-Ofast", "-fassociative-math"}


def test_long_units_are_built_with_less_optimisation():
    assert toolchain.build_flags(gcc(), fastmath=False, statements=2001)[0] == "-O1"


def test_clang_gets_no_gcc_parameters():
    clang = toolchain.Compiler(("clang",), "clang", "clang 14", "id")
    flags = toolchain.build_flags(clang, fastmath=False)
    assert "--param" not in flags and "-fno-tree-pre" not in flags


@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-fassociative-math", "@file"])
def test_flags_that_change_numbers_are_refused(flag, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CFLAGS", f"-g {flag}")
    with pytest.raises(ToolchainError, match=f"may not contain {flag}"):
        toolchain.build_flags(gcc(), fastmath=True)


def test_other_user_flags_are_added(monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CFLAGS", "-g -DA='b c'")
    assert toolchain.build_flags(gcc(), fastmath=False)[-2:] == ("-g", "-DA=b c")


@needs_cc
def test_builds_a_library_and_leaves_subnormals_alone(cache_dir, tmp_path):
    compiler = toolchain.find_compiler()
    for fastmath in (False, True):
        out = tmp_path / f"f{fastmath}.so"
        flags = toolchain.build_flags(compiler, fastmath=fastmath)
        toolchain.build_shared("double half(double x) { return x * 0.5; }", flags, out, compiler)
        half = ctypes.CDLL(str(out)).half
        half.restype, half.argtypes = ctypes.c_double, [ctypes.c_double]
        assert half(1e-310) == 1e-310 * 0.5 != 0.0


@needs_cc
def test_a_failure_has_tool_flags_message_and_line(cache_dir, tmp_path):
    compiler = toolchain.find_compiler()
    with pytest.raises(ToolchainError) as caught:
        toolchain.build_shared("int a;\nint b = c;\n", ("-shared",), tmp_path / "x.so", compiler)
    error = caught.value
    assert error.line == 2 and error.flags == ("-shared",) and "'c'" in error.stderr
    assert error.tool in str(error) and "flags: -shared" in str(error)
    assert (tmp_path / "unit.c").read_text() == "int a;\nint b = c;\n"
    assert error.kind == "toolchain" and isinstance(error, RuntimeError)
