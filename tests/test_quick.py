"""The short way of a call is taken only where it is right: each call here follows one of another
kind, whose specialisation the short way would have used."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg

X, Y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])


def first(a, *rest, scale=1):
    return a[0] * scale + sum(rest)


def both(p):
    return (p["a"] * p["b"]).sum() if isinstance(p, dict) else p * 2.0


def named(a, /, b=2, c=3, *, d=4):
    return a * b + c * d


CALLS = [
    (first, [((X,), {}), (([X],), {}), ((X,), {}), (((X,),), {}), (([X, Y],), {})]),
    (first, [((X, 1), {}), ((X, 2), {}), ((X, True), {}), ((X, 1.0), {}), ((X,), {})]),
    (first, [((X,), {"scale": 2}), ((X,), {}), ((X, 2), {}), ((X,), {"scale": 3})]),
    (both, [(({"a": X, "b": Y},), {}), (({"b": X, "a": Y},), {}), ((X,), {})]),
    (
        named,
        [
            ((X,), {}),
            ((X, 5), {}),
            ((X,), {"c": 5}),
            ((X,), {"b": 5}),
            ((X, 5, 6), {}),
            ((X,), {"b": 5, "c": 6}),
            ((X,), {"c": 5, "b": 6}),
            ((X,), {"d": 9}),
            ((X, 5), {"c": 6}),
            ((X, 5), {"d": 6}),
        ],
    ),
]


@pytest.mark.parametrize("f, calls", CALLS)
def test_each_call_gets_its_own_answer(f, calls):
    compiled = tg.compile(f)
    for args, kwargs in calls * 2 + [c for c in calls for _ in range(2)]:
        np.testing.assert_array_equal(compiled(*args, **kwargs), f(*args, **kwargs))


def test_wrong_calls_are_refused_after_right_ones():
    compiled = tg.compile(named)
    compiled(X, 5)
    for args, kwargs in [((), {}), ((X, 5), {"b": 5}), ((), {"a": X}), ((X, 1, 2, 3), {})]:
        with pytest.raises(tg.errors.ArgumentError):
            compiled(*args, **kwargs)


def test_objects_are_told_apart_by_identity():
    class Model:
        def __init__(self, weight):
            self.weight = weight

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 0

        @tg.compile
        def __call__(self, x, power=1):
            return (x * self.weight) ** power

    one, two = Model(2.0), Model(3.0)
    for _ in range(2):
        for m in (one, one, two, one, two, two):
            for power in (1, 2):
                np.testing.assert_array_equal(m(X, power), (X * m.weight) ** power)
    one.weight = 7.0
    np.testing.assert_array_equal(one(X), X * 7.0)


def test_a_static_argument_that_can_change_is_looked_at_each_time():
    class Config:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __hash__(self):
            return hash(self.n)

    f = tg.compile(lambda x, c: x * c.n, static_argnums=1)
    config = Config(2)
    np.testing.assert_array_equal(f(X, config), X * 2)
    config.n = 3
    np.testing.assert_array_equal(f(X, config), X * 3)


def test_captured_arrays_are_fetched_each_time():
    scale = X.copy()
    f = tg.compile(lambda x: x * scale)
    np.testing.assert_array_equal(f(Y), Y * X)
    scale[...] = 2.0
    np.testing.assert_array_equal(f(Y), Y * 2)
    scale = np.ones(3)
    np.testing.assert_array_equal(f(Y), Y)
    scale = np.ones((2, 3))
    np.testing.assert_array_equal(f(Y), Y * scale)


def test_memory_shared_with_a_captured_array_is_seen():
    held = X.copy()

    def f(x):
        x[0] = 10.0
        return held * 2.0

    compiled = tg.compile(f)
    np.testing.assert_array_equal(compiled(Y.copy()), held * 2)
    np.testing.assert_array_equal(compiled(held), [20.0, 4.0, 6.0])
