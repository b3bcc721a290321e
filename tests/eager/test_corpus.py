"""The conformance corpus at the prompt: its eager cases, and those written for traces."""

from __future__ import annotations

import warnings

import pytest

from tests.eager import corpus

ALL = corpus.cases.load_dir(str(corpus.HERE))
TRACED = [c for c in ALL if c.mode == "trace" and c.module != "dtype_views"]
EAGER = [c for c in ALL if c.mode == "eager"]


@pytest.mark.parametrize("case", TRACED, ids=lambda c: c.name)
def test_trace_case_at_the_prompt(case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert corpus.failure(case) == ""


@pytest.mark.parametrize("case", EAGER, ids=lambda c: c.name)
def test_eager_case(case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status, message = corpus.check.check(
            corpus.adapter, case, corpus.EXPECTED[case.name], strict=True
        )
    assert status == "pass", message


def test_what_pytorch_refuses_because_memory_was_overwritten_is_refused() -> None:
    """Cases where a compiler may return the value: at the prompt memory is real."""
    saved = [c for c in TRACED if c.error == "saved_modified"]
    assert len(saved) >= 8
    for case in saved:
        status, message = corpus.check.check(
            corpus.adapter.prompt, case, corpus.EXPECTED[case.name], strict=True
        )
        assert status == "pass", f"{case.name}: {message}"
