"""Sets of elements that views read and updates write: when they are certainly apart."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.autodiff.footprint import Footprints, are_apart, element, moved
from tracegrad.dims import add, mul, symbol
from tracegrad.graph.array_views import flat_positions
from tracegrad.graph.storage import Diagonal, Index, Permute, Pick, Reshape, Span, View
from tracegrad.graph.symbols import bind_symbols

I = symbol("i", 0, 9)  # noqa: E741
J = symbol("j", 0, add(I, -1))  # a triangular loop's
LATER = add(add(I, 1), symbol("d", 0, add(8, mul(I, -1))))


def at(*items):
    return View((Index(tuple(items)),))


def apart(x, y, shape):
    fresh = count()
    return are_apart(element(x, shape, fresh), element(y, shape, fresh))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (at(Pick(I)), at(Pick(LATER)), True),
        (at(Pick(add(I, 1))), at(Pick(LATER)), False),
        (at(Pick(mul(I, 2))), at(Pick(add(mul(LATER, 2), 1))), True),
        (at(Pick(mul(I, 2))), at(Pick(LATER)), False),
        (at(Span(0, I)), at(Pick(I)), True),
        (at(Span(0, add(I, 1))), at(Pick(I)), False),
        (at(Span(I, 2)), at(Pick(add(LATER, 1))), True),
        (at(Span(0, 5, 2)), at(Span(1, 5, 2)), True),
        (at(Span(9, 5, -2)), at(Span(0, 5, 2)), True),
        (at(Span(9, 5, -2)), at(Span(1, 5, 2)), False),
        (at(Pick(I % 3)), at(Pick(LATER % 3)), False),
        (at(Pick(I % 3)), at(Span(3, 4)), True),
        (at(Pick(add(9, mul(I, -1)))), at(Pick(add(9, mul(LATER, -1)))), True),
    ],
)
def test_in_one_dimension(x, y, expected):
    assert apart(x, y, (21,)) is expected


def test_in_two_dimensions():
    shape, row = (10, 10), at(Pick(I), Span(0, 10))
    assert apart(at(Pick(J), Span(0, J)), row, shape)
    assert apart(at(Span(0, J), Pick(J)), at(Pick(I), Pick(J)), shape)
    assert not apart(at(Span(0, add(J, 2)), Pick(J)), row, shape)
    assert apart(View((Diagonal(1, 0, 1),)), View((Diagonal(0, 0, 1),)), shape)
    turned = View((Permute((1, 0)), Index((Pick(3), Span(0, 10)))))
    assert apart(turned, at(Span(0, 10), Pick(4)), shape)
    assert not apart(turned, at(Pick(4), Span(0, 10)), shape)
    flat = View((Reshape((100,)), Index((Span(20, 10),))))
    assert apart(flat, at(Span(0, 2), Span(0, 10)), shape)


def test_what_is_apart_shares_no_position():
    """Random views of random indices: a proof holds for every pair of iterations."""
    rng, proved = np.random.default_rng(3), 0
    for _ in range(300):
        x, y = (_random(rng) for _ in range(2))
        later = bind_symbols(y, {"i": LATER})
        if not apart(x, later, (12, 12)):
            continue
        proved += 1
        for i in range(4):
            for k in range(i + 1, 4):
                reads = flat_positions(bind_symbols(x, {"i": i}), (12, 12))
                writes = flat_positions(bind_symbols(y, {"i": k}), (12, 12))
                assert not np.intersect1d(reads, writes).size, (x, y, i, k)
    assert proved > 30


def _random(rng):
    def item():
        base = add(mul(int(rng.integers(-1, 2)), symbol("i", 0, 9)), int(rng.integers(3, 6)))
        if rng.integers(2):
            return Pick(base)
        return Span(base, int(rng.integers(1, 4)))

    return at(item(), item())


def test_element_types_are_not_looked_through():
    from tracegrad.graph.storage import AsReal

    assert element(View((AsReal(),)), (4,), count()) is None


def test_history_of_a_nested_loop():
    """What the inner loop writes is meant for all its indices; the outer index is kept."""

    def f(a):
        b = a * 1.0
        for i in range(9):
            b[i, 0] = 1.0
            for j in range(8):
                b[i, j + 1] = b[i, j] * 0.5
        return b

    graph = tg.compile(f).lower(np.ones((9, 10))).specialisation.lowering.functional
    loop = next(n for n in graph.nodes if n.op.name == "loop")
    history = Footprints(loop.regions[0], count(), {}).history(0)
    assert history.root == 0
    first, *rest = [w for step in history.writes for w in step]
    assert first[1] == 0
    assert len(rest) == 1 and str(rest[0][0]) == "i0" and "i1" not in str(rest[0][1]).split()
    assert are_apart(first, rest[0])
    assert not are_apart(first, moved(rest[0], {str(rest[0][1]).split(" ")[0]: -1}))
