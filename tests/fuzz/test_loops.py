"""A few random programs with loops at each run of the tests; `loops_judge` runs thousands."""

from __future__ import annotations

import warnings

import pytest

from tests.fuzz.judge_numpy import Refused
from tests.fuzz.loops import make
from tests.fuzz.loops_judge import check_program


@pytest.mark.parametrize("seed", range(16))
def test_rolled_is_unrolled_is_numpy(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check_program(make(seed), gradients=seed % 2 == 0)
        except Refused as e:
            pytest.skip(f"refused: {e.kind}")


def test_most_programs_roll():
    """The generator writes loops that become nodes, so that the law is about something."""
    found = []
    for seed in range(100, 112):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(check_program(make(seed), gradients=False))
            except Refused:
                continue
    assert found.count("rolled") >= 4
