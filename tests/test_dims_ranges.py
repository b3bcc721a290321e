"""Dims over ranges that depend on each other, against all values of their symbols."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tracegrad import dims
from tracegrad.dims import Dim, Symbol

SEEDS = range(60)


def small(rng: random.Random, symbols: list[Symbol], terms: int) -> Dim:
    """A random polynomial, with quotients and remainders where `terms` allow it."""
    total: Dim = rng.randint(-4, 4)
    for _ in range(rng.randint(1, terms)):
        term: Dim = rng.choice((-3, -2, -1, 1, 1, 2, 3))
        for _ in range(rng.choice((1, 1, 1, 2))):
            atom: Dim = dims.of_atom(rng.choice(symbols))
            if terms > 2 and rng.random() < 0.25:
                k = rng.randint(2, 4)
                e = dims.add(dims.mul(atom, rng.randint(1, 3)), small(rng, symbols, 1))
                atom = rng.choice((dims.floordiv, dims.mod))(e, k)
            term = dims.mul(term, atom)
        total = dims.add(total, term)
    return total


def triangular(rng: random.Random) -> list[Symbol]:
    """Symbols of which each range may depend on those before it, and may be empty."""
    found: list[Symbol] = []
    for k in range(rng.randint(1, 3)):
        lo = rng.choice((0, 0, 1, -2))
        hi: Dim = lo + rng.randint(-1, 4)
        if found and rng.random() < 0.8:
            outer = dims.of_atom(rng.choice(found))
            hi = dims.add(dims.mul(outer, rng.choice((1, 1, -1, 2))), rng.randint(-1, 3))
            if len(found) > 1 and rng.random() < 0.3:
                hi = dims.add(hi, dims.of_atom(found[0]))
        found.append(Symbol(f"s{k}", lo, hi))
    return found


def assignments(symbols: list[Symbol]) -> Iterator[dict[str, int]]:
    """All values that the symbols can have together."""
    if not symbols:
        yield {}
        return
    for env in assignments(symbols[:-1]):
        last = symbols[-1]
        assert last.lo is not None and last.hi is not None
        for k in range(last.lo, dims.evaluate(last.hi, env) + 1):
            yield {**env, last.name: k}


def evaluated(d: Dim, every: list[dict[str, int]]) -> list[int]:
    return [dims.evaluate(d, env) for env in every]


@pytest.fixture(params=SEEDS)
def drawn(request):
    rng = random.Random(request.param)
    symbols = triangular(rng)
    return rng, symbols, list(assignments(symbols))


def test_bounds_hold_every_value(drawn):
    rng, symbols, every = drawn
    for _ in range(40):
        d = small(rng, symbols, 3)
        values, (lo, hi) = evaluated(d, every), dims.bounds(d)
        assert all((lo is None or lo <= v) and (hi is None or v <= hi) for v in values), d


def test_answers_hold_everywhere(drawn):
    rng, symbols, every = drawn
    for _ in range(40):
        a, b = small(rng, symbols, 2), small(rng, symbols, 2)
        pairs = list(zip(evaluated(a, every), evaluated(b, every), strict=True))
        if not pairs:
            continue  # of nothing every answer is true
        assert dims.is_at_most(a, b) in (None, all(x <= y for x, y in pairs)), (a, b)
        if dims.is_at_most(a, b) is False:
            assert all(x > y for x, y in pairs), (a, b)
        equal = dims.is_equal(a, b)
        assert equal is None or all((x == y) is equal for x, y in pairs), (a, b)


def test_quotients_and_remainders_are_those_of_python(drawn):
    rng, symbols, every = drawn
    for _ in range(40):
        e, k = small(rng, symbols, 3), rng.randint(1, 5)
        q, r = dims.floordiv(e, k), dims.mod(e, k)
        for env in every:
            v = dims.evaluate(e, env)
            assert (dims.evaluate(q, env), dims.evaluate(r, env)) == divmod(v, k), (e, k)
        assert dims.is_equal(dims.add(dims.mul(q, k), r), e) is not False or not every, (e, k)
        if dims.is_divisible(e, k) is not None and every:
            assert dims.is_divisible(e, k) is all(v % k == 0 for v in evaluated(e, every)), (e, k)


def test_substituted_values_are_evaluated_values(drawn):
    rng, symbols, every = drawn
    for _ in range(20):
        d = small(rng, symbols, 3)
        fixed = rng.choice(symbols)
        for env in rng.sample(every, min(len(every), 10)):
            known = dims.substitute(d, {fixed.name: env[fixed.name]})
            assert fixed.name not in {s.name for s in dims.symbols(known)}
            assert dims.evaluate(known, env) == dims.evaluate(d, env), (d, fixed)
            like = [e for e in every if e[fixed.name] == env[fixed.name]]
            lo, hi = dims.bounds(known)
            values = evaluated(d, like)
            assert all((lo is None or lo <= v) and (hi is None or v <= hi) for v in values), d


def test_moving_an_index_moves_the_ranges_that_depend_on_it(drawn):
    rng, symbols, every = drawn
    first = symbols[0]
    moved = Symbol("t", first.lo, first.hi)
    for _ in range(20):
        d = small(rng, symbols, 3)
        # t counts from the other end.
        at = dims.add(dims.add(first.lo, first.hi), dims.mul(dims.of_atom(moved), -1))
        e = dims.substitute(d, {first.name: at})
        lo, hi = dims.bounds(e)
        for env in every:
            there = {**env, "t": first.lo + first.hi - env[first.name]}
            v = dims.evaluate(d, env)
            assert dims.evaluate(e, there) == v
            assert (lo is None or lo <= v) and (hi is None or v <= hi), (d, e)


def test_the_normal_form_decides_equality(drawn):
    rng, symbols, every = drawn
    for _ in range(40):
        parts = [small(rng, symbols, 3) for _ in range(3)]
        one = dims.add(dims.mul(parts[0], parts[1]), parts[2])
        other = dims.add(parts[2], dims.mul(parts[1], parts[0]))
        assert one == other and hash(one) == hash(other)
        assert dims.add(one, dims.mul(other, -1)) == 0
        assert evaluated(one, every) == [
            a * b + c for a, b, c in zip(*(evaluated(p, every) for p in parts), strict=True)
        ]


def test_largest_and_widened_have_room(drawn):
    rng, symbols, every = drawn
    for _ in range(20):
        d = small(rng, symbols, 2)
        try:
            room = dims.largest(d)
        except ValueError:
            continue
        assert all(v <= room for v in evaluated(d, every)), d
        wide = dims.widened(d)
        assert evaluated(wide, every) == evaluated(d, every)
        assert not any(isinstance(s.hi, dims.Expr) for s in dims.symbols(wide))


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        (lambda i, j, k: i - j, (1, 9)),
        (lambda i, j, k: j - k, (1, 8)),
        (lambda i, j, k: i - k, (2, 9)),
        (lambda i, j, k: 9 - i + j, (0, 8)),
        (lambda i, j, k: i * 10 + j, (10, 98)),
    ],
)
def test_triangles_are_bounded_as_triangles(d, expected):
    """i in 1..9, j in 0..i-1, k in 0..j-1: no value is given up to boxes around them."""
    i = dims.symbol("i", 1, 9)
    j = dims.symbol("j", 0, i - 1)
    k = dims.symbol("k", 0, j - 1)
    assert dims.bounds(d(i, j, k)) == expected
