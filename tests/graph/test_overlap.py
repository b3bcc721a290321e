"""Whether elements of a view share memory, where sizes depend on indices."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tracegrad.dims import Dim, add, evaluate, mul, symbol
from tracegrad.graph.geometry import Geometry, dense_strides, overlaps_itself

I = symbol("i", 0, 5)  # noqa: E741
J = symbol("j", 0, add(I, -1))


def shared(g: Geometry, env: dict[str, int]) -> bool:
    """By all addresses, for these values of the symbols."""
    size = [evaluate(n, env) for n in g.size]
    stride = [evaluate(s, env) for s in g.stride]
    found = [
        sum(k * s for k, s in zip(at, stride, strict=True))
        for at in itertools.product(*map(range, size))
    ]
    return len(set(found)) < len(found)


def anywhere(g: Geometry) -> bool:
    return any(shared(g, {"i": i, "j": j}) for i in range(6) for j in range(i))


DENSE: list[tuple[Dim, ...]] = [(3, I), (I, 3), (I, J), (J, I), (I, I, 2), (2, J, I), (I, 1, J)]


@pytest.mark.parametrize("shape", DENSE)
def test_dense_arrays_and_their_parts_do_not_overlap(shape):
    stride = dense_strides(shape)
    assert not overlaps_itself(Geometry(0, shape, stride))
    backwards = tuple(mul(s, -1) for s in stride)
    assert not overlaps_itself(Geometry(0, shape[::-1], backwards[::-1]))


@pytest.mark.parametrize(
    ("size", "stride"),
    [((I,), (0,)), ((I, 3), (1, 1)), ((3, I), (1, 1)), ((2, J), (I, 0)), ((I, 2), (2, I))],
)
def test_what_is_repeated_overlaps(size, stride):
    g = Geometry(0, size, stride)
    assert anywhere(g) and overlaps_itself(g)


@pytest.mark.parametrize("seed", range(40))
def test_never_silent(seed):
    rng = random.Random(seed)
    for _ in range(20):
        rank = rng.randint(1, 3)
        size = tuple(rng.choice((I, J, 1, 2, 3)) for _ in range(rank))
        stride = tuple(rng.choice((0, 1, -1, 2, 3, 7, I, J, mul(I, J), add(I, 1))) for _ in size)
        g = Geometry(0, size, stride)
        if not overlaps_itself(g):
            assert not anywhere(g), g


def test_numbers_are_decided_exactly():
    rng = np.random.default_rng(1)
    for _ in range(200):
        size, stride = (tuple(map(int, rng.integers(lo, 5, 3))) for lo in (0, -4))
        g = Geometry(0, size, stride)
        assert overlaps_itself(g) is shared(g, {})
