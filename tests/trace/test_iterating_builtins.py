"""`range`, `enumerate`, `zip`, `reversed`, `map` and `iter` that code hands on, and iterators that
it uses more than once."""

# ruff: noqa: B905, C417, E721, SIM113 (the spellings are what is tested)

from __future__ import annotations

import builtins
import collections.abc
import functools

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree
from tracegrad.errors import UnsupportedError

N = 12
TWELVE = range(N)
OVER = range
TABLE = {"over": range, "twelve": range(N)}
FROM_THREE = functools.partial(range, 3)


class Holder:
    over = range
    twelve = range(N)

    def __init__(self):
        self.mine = range
        self.mine_twelve = range(N)


HOLDER = Holder()


def x():
    return np.random.default_rng(0).uniform(0.2, 1.2, N)


# ----------------------------------------------------------------------------- handed on


def by_local_name(x):
    over, n = range, len
    s = 0.0
    for i in over(n(x)):
        s = s + x[i] * i
    return s


def by_argument(x):
    def total(over, *parts):
        s = 0.0
        for a, b in over(*parts):
            s = s + a * b
        return s

    return total(zip, x, x[::-1]) + total(enumerate, x)


def by_default(x, over=range):
    s = 0.0
    for i in over(len(x)):
        s = s * 0.5 + x[i]
    return s


def by_global(x):
    s = 0.0
    for i in OVER(N):
        s = s * 0.5 + x[i]
    return s


def by_item(x):
    s = 0.0
    for i in TABLE["over"](N):
        s = s * 0.5 + x[i]
    for i in {"over": range}["over"](N):
        s = s * 0.5 + x[i]
    return s


def by_attribute(x):
    s = 0.0
    for i in Holder.over(N):
        s = s * 0.5 + x[i]
    for i in HOLDER.over(N):
        s = s * 0.5 + x[i]
    for i in HOLDER.mine(N):
        s = s * 0.5 + x[i]
    for i in builtins.range(N):
        s = s * 0.5 + x[i]
    return s


def by_partial(x):
    s = 0.0
    for i in functools.partial(range, 3)(N):
        s = s * 0.5 + x[i]
    for i in FROM_THREE(N):
        s = s * 0.5 + x[i]
    return s


def a_range_from_outside(x, here=range(N)):
    s = 0.0
    for i in TWELVE:
        s = s * 0.5 + x[i]
    for i in here:
        s = s * 0.5 + x[i]
    for i in TABLE["twelve"]:
        s = s * 0.5 + x[i]
    for i in HOLDER.mine_twelve:
        s = s * 0.5 + x[i]
    for i in Holder.twelve:
        s = s * 0.5 + x[i]
    return s


def mapped(x):
    s = 0.0
    for v in map(lambda i: x[i] * i, range(N)):
        s = s * 0.5 + v
    for v in map(lambda a, b: a * b, x, x[2:]):
        s = s * 0.5 + v
    for v in map(float, x):
        s = s * 0.5 + v
    for k, (a, b) in enumerate(zip(map(np.sin, x), reversed(x))):
        s = s * 0.5 + a * b * k
    return s


def begun_by_iter(x):
    s = 0.0
    for v in iter(x):
        s = s * 0.5 + v
    for i in iter(range(N)):
        s = s * 0.5 + x[i]
    return s


@pytest.mark.parametrize(
    "f, loops",
    [
        (by_local_name, 1),
        (by_argument, 2),
        (by_default, 1),
        (by_global, 1),
        (by_item, 2),
        (by_attribute, 4),
        (by_partial, 2),
        (a_range_from_outside, 5),
        (mapped, 4),
        (begun_by_iter, 2),
    ],
)
def test_loops_roll(f, loops):
    agrees(f, x(), loops=loops)


def test_gradients_go_through_mapped_functions():
    gradients_agree(mapped, x())


def test_a_type_given_as_a_static_argument_rolls():
    def f(x, over):
        s = 0.0
        for i in over(N):
            s = s * 0.5 + x[i]
        return s

    made = tg.compile(f, static_argnames="over")
    np.testing.assert_allclose(made(x(), range), f(x(), range), rtol=1e-14)
    assert "one loop for 12 iterations" in made.explain(x(), range)


def test_the_types_are_themselves_in_other_uses():
    found = []

    def f(x):
        r = range(3)
        match r:
            case range():
                matched = True
            case _:
                matched = False
        return x[0], [
            matched,
            isinstance(r, range),
            isinstance(r, int | range),
            isinstance(r, collections.abc.Sequence),
            isinstance(TWELVE, range),
            not isinstance(r, (list, enumerate)),
            not isinstance(3, range),
            isinstance(range, type),
            issubclass(range, range),
            issubclass(range, collections.abc.Sequence),
            not issubclass(int, range),
            type(r) is range,
            type(TWELVE) is range,
            range is OVER,
            zip != range,
            {range: 1}[range] == 1,
            range.__name__ == "range",
            repr(zip) == "<class 'zip'>",
            r == range(3) and range(12) == TWELVE and TWELVE[2:4] == range(2, 4),
        ]

    found = tg.compile(f)(x())[1]
    assert found == f(x())[1] == [True] * len(found)


def test_what_leaves_the_function_is_the_builtin():
    class Box:
        pass

    box = Box()

    def f(x):
        box.kind, box.count, box.part = range, len, range(3)
        return x[0], range, zip, len, range(2), TWELVE

    got = tg.compile(f)(x())
    assert got[1:4] == (range, zip, len)
    assert got[1] is range and got[2] is zip and got[3] is len
    assert box.kind is range and box.count is len
    assert type(box.part) is range and type(got[4]) is range and got[5] is TWELVE


def test_a_range_from_outside_that_changes_is_seen():
    box = Holder()

    def f(x):
        s = 0.0
        for i in box.mine_twelve:
            s = s + x[i]
        return s

    made = tg.compile(f)
    first = made(x())
    box.mine_twelve = range(2)
    assert np.isclose(first, f(x()) + np.sum(x()[2:])) and np.isclose(made(x()), f(x()))


# ------------------------------------------------------------------- each element once


def twice(x):
    e = enumerate(x)
    s = 0.0
    for i, v in e:
        s = s + v * i
    for i, v in e:
        s = s + 2.0 * v * i
    return s


def advanced_by_name(x):
    e = enumerate(x)
    s = 0.0
    for i, v in e:
        s = s + v * i
        next(e, None)
    return s


def advanced_by_a_function(x):
    e = zip(x, range(N))

    def skip():
        return next(e, (0.0, 0))[0]

    s = 0.0
    for v, i in e:
        s = s + v * i - skip()
    return s


def drained_in_the_body(x):
    e = iter(x)

    def rest():
        return len(list(e))

    s = 0.0
    for v in e:
        s = s + v * (1.0 + rest())
    return s


def left_by_break(x):
    e = reversed(x)
    s = 0.0
    for k, v in enumerate(x):
        s = s + v
        if k == 3:
            break
    for v in e:
        s = s * 0.5 + v
    return s + len(list(e))


def broken_off(x):
    e = map(np.sin, x)
    k = 0
    s = 0.0
    for v in e:
        s = s + v
        k += 1
        if k == 5:
            break
    for v in e:
        s = s * 0.5 - v
    return s


def begun_and_zipped(x):
    e = enumerate(x)
    next(e)
    s = 0.0
    for (i, u), v in zip(e, x):
        s = s + i * u * v
    return s + len(list(e))


@pytest.mark.parametrize(
    "f",
    [
        twice,
        advanced_by_name,
        advanced_by_a_function,
        drained_in_the_body,
        left_by_break,
        broken_off,
        begun_and_zipped,
    ],
)
def test_iterators_give_each_element_once(f):
    agrees(f, x())


def test_an_iterator_taken_by_another_one_is_refused():
    @tg.compile
    def f(x):
        e = enumerate(x)
        s = 0.0
        for (i, u), v in zip(e, x):
            s = s + i * u * v
        return s + len(list(e))

    with pytest.raises(UnsupportedError, match="after enumerate, zip, map or iter took it") as e:
        f(x())
    assert "len(list(e))" in str(e.value) and "Make a second one" in str(e.value)
