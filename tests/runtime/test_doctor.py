"""The report says what is here, what is missing and what it costs."""

import shutil

import pytest

from tracegrad.runtime.doctor import doctor, format_report


def by_item(rows):
    return {row.item: row for row in rows}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_lists_everything(cache_dir):
    rows = by_item(doctor())
    assert set(rows) == {
        "python", "numpy", "C compiler", "flags", "Python.h", "launcher", "threads", "cache",
        "BLAS", "nvcc",
    }  # fmt: skip
    assert rows["C compiler"].state == "ok" and "-ffp-contract=off" in rows["flags"].value
    assert str(cache_dir) in rows["cache"].value


def test_no_compiler_has_a_price(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "none")
    rows = doctor()
    found = by_item(rows)
    assert found["C compiler"].state == "missing" and found["launcher"].state == "missing"
    text = format_report(rows)
    assert "NumPy reference" in text and len(text.splitlines()) > len(rows)


def test_an_unsafe_cache_is_a_problem(cache_dir):
    cache_dir.mkdir()
    cache_dir.chmod(0o777)
    row = by_item(doctor())["cache"]
    assert row.state == "problem" and "others may write" in row.value
    assert "TRACEGRAD_CACHE_DIR" in row.cost


def test_a_broken_compiler_is_a_problem_not_an_exception(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CC", "no-such-compiler")
    assert by_item(doctor())["C compiler"].state == "problem"


def test_ctypes_is_said(cache_dir, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_LAUNCHER", "ctypes")
    assert by_item(doctor())["launcher"].state == "missing"
