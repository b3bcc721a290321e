"""Pullbacks of `tg.vjp` that are used in other places of the trace than where they were made."""

# ruff: noqa: B023 (functions given to `tg.cond` run at once)

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, loops_in
from tracegrad.errors import LeakedTracerError

N = 12


def x():
    return np.random.default_rng(0).uniform(0.5, 1.5, 4)


def wave(x):
    return np.sin(x) * x


def bent(x):
    """The derivative of `wave`, whose Jacobian is diagonal."""
    return np.cos(x) * x + np.sin(x)


def in_cond(x):
    _, pull = tg.vjp(wave, x)
    return tg.cond(x[0] > 0.0, lambda: pull(x * x)[0], lambda: x)


def in_the_branch_not_taken(x):
    _, pull = tg.vjp(wave, x)
    return tg.cond(x[0] > 9.0, lambda: pull(x * x)[0], lambda: 2.0 * x)


def in_switch(x):
    _, pull = tg.vjp(wave, x)
    at = np.sum(x > 0.0)
    return tg.switch(at, [lambda: x, lambda: pull(x)[0], lambda: 3.0 * pull(x)[0]])


def in_fori(x):
    _, pull = tg.vjp(wave, x)
    return tg.fori_loop(0, N, lambda i, s: 0.5 * s + pull(s * (i + 1))[0] * 0.05, x)


def in_while(x):
    _, pull = tg.vjp(wave, x)
    return tg.while_loop(lambda s: np.sum(s) < 90.0, lambda s: 0.5 * s + pull(s)[0], x)


def in_the_test_of_while(x):
    _, pull = tg.vjp(wave, x)
    return tg.while_loop(lambda s: np.sum(pull(s)[0]) < 90.0, lambda s: 1.5 * s, x)


def in_scan(x):
    _, pull = tg.vjp(wave, x)

    def step(c, v):
        c = 0.5 * c + pull(c)[0]
        return c, np.sum(c) * v

    last, ys = tg.scan(step, x, x)
    return last + ys


def in_for(x):
    _, pull = tg.vjp(wave, x)
    s = x * 1.0
    for i in range(N):
        s = 0.5 * s + pull(s)[0] * 0.1 * i
    return s


def in_two_loops(x):
    _, pull = tg.vjp(wave, x)
    s = x * 1.0
    for i in range(N):
        for j in range(3):
            taken = tg.cond(s[0] > 1.0, lambda: pull(x)[0], lambda: pull(s)[0])
            s = 0.9 * s + taken * 0.01 * (i + j)
    return s


def plain(f):
    """`f` with a pullback that is written out."""

    def vjp(g, at):
        slope = bent(np.array(at))
        return g(at), lambda ct: (slope * ct,)

    def cond(holds, yes, no):
        return yes() if holds else no()

    def switch(k, branches):
        return branches[min(k, 2)]()

    scope = dict(f.__globals__)

    class Tg:
        scan, fori_loop, while_loop = tg.scan, tg.fori_loop, tg.while_loop

    Tg.vjp, Tg.cond, Tg.switch = staticmethod(vjp), staticmethod(cond), staticmethod(switch)
    scope["tg"] = Tg
    return type(f)(f.__code__, scope, f.__name__)


PROGRAMS = [
    in_cond,
    in_the_branch_not_taken,
    in_switch,
    in_fori,
    in_while,
    in_the_test_of_while,
    in_scan,
    in_for,
    in_two_loops,
]


@pytest.mark.parametrize("f", PROGRAMS)
def test_values_are_those_of_a_pullback_written_out(f):
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(x()), plain(f)(x()), rtol=1e-12)


@pytest.mark.parametrize("f", PROGRAMS)
def test_gradients_go_through_pullbacks(f):
    """Reverse and forward mode against central differences."""
    weights = np.array([0.3, -1.0, 0.7, 0.4])

    def loss(x):
        return np.sum(f(x) * weights)

    want = [
        (np.sum(plain(f)(x() + e) * weights) - np.sum(plain(f)(x() - e) * weights)) / 2e-6
        for e in 1e-6 * np.eye(4)
    ]
    np.testing.assert_allclose(tg.grad(loss, backend="numpy")(x()), want, rtol=1e-6, atol=1e-7)
    _, along = tg.jvp(tg.compile(loss, backend="numpy"), (x(),), (weights,))
    np.testing.assert_allclose(along, np.dot(want, weights), rtol=1e-6, atol=1e-7)


def test_for_loops_stay_loops():
    assert loops_in(in_for, x()) == 1
    agrees(in_for, x())


def deepest(graph, around):
    """How many loops are inside each other; no two of them have one index."""
    found = len(around)
    for node in graph.nodes:
        index = getattr(node.attrs, "index", None)
        assert index is None or index not in around
        inside = around if index is None else (*around, index)
        found = max([found, *(deepest(r, inside) for r in node.regions)])
    return found


def test_loops_of_the_pulled_function_keep_their_own_index():
    """It is traced outside of the loops in which its pullback comes to stand."""

    def rectangle(x):
        s = x * 0.0
        for i in range(9):
            for j in range(8):
                s += x * 0.01 * (i - j) + np.sin(x) * s * 0.01
        return s

    def f(x):
        y, pull = tg.vjp(rectangle, x)
        s = 0.0 * x
        for i in range(8):
            for j in range(8):
                s = s + pull(y * 0.001 * (i + 2 * j) + 0.1 * s)[0] * 0.01
        return s

    def written_out(x):
        d = sum_of_slopes(x)
        s = 0.0 * x
        y = rectangle(x)
        for i in range(8):
            for j in range(8):
                s = s + d * (y * 0.001 * (i + 2 * j) + 0.1 * s) * 0.01
        return s

    def sum_of_slopes(x):
        s, d = 0.0 * x, 0.0 * x
        for i in range(9):
            for j in range(8):
                d = d + 0.01 * (i - j) + 0.01 * (np.cos(x) * s + np.sin(x) * d)
                s = s + x * 0.01 * (i - j) + np.sin(x) * s * 0.01
        return d

    graph = tg.compile(f).lower(x()).specialisation.traced.graph
    assert deepest(graph, ()) >= 4
    for backend in ("numpy", "c"):
        got = tg.compile(f, backend=backend)(x())
        np.testing.assert_allclose(got, written_out(x()), rtol=1e-12)
    got = tg.grad(lambda x: np.sum(f(x)), backend="numpy")(x())
    want = [
        (np.sum(written_out(x() + e)) - np.sum(written_out(x() - e))) / 2e-6
        for e in 1e-6 * np.eye(4)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_made_in_a_loop_and_used_further_in():
    def scaled(x, i):
        s = 0.0
        for j in range(i + 1):
            s = s + np.sin(x) * j + x * i
        return np.sum(s)

    def f(x):
        s = 0.0 * x
        for i in range(N):
            _, pull = tg.vjp(lambda x, i=i: scaled(x, i), x)
            for k in range(3):
                s = s + tg.cond(s[0] > 3.0, lambda: pull(1.0)[0], lambda: pull(2.0)[0]) * 0.1 * k
        return s

    want = 0.0 * x()
    for i in range(N):
        slope = sum(np.cos(x()) * j + i for j in range(i + 1))
        for k in range(3):
            want = want + slope * (1.0 if want[0] > 3.0 else 2.0) * 0.1 * k
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(x()), want, rtol=1e-12)
    assert loops_in(f, x()) > 0


def test_made_in_a_loop_and_used_behind_it():
    def f(x):
        _, pull = tg.vjp(np.sin, x)
        s = 0.0 * x
        for i in range(N):
            s = s + pull(x)[0]
            _, pull = tg.vjp(lambda x, i=i: np.sin(x) * i, x)
        return s, pull(x * 1.0)[0]

    got = tg.compile(f, backend="numpy")(x())
    each = np.cos(x()) * x()
    np.testing.assert_allclose(got[0], each * (1 + sum(range(N - 1))), rtol=1e-13)
    np.testing.assert_allclose(got[1], each * (N - 1), rtol=1e-13)


WRAPS = {
    "grad": tg.grad,
    "value_and_grad": lambda f: lambda v: tg.value_and_grad(f)(v)[1],
    "compile": tg.compile,
    "checkpoint": tg.checkpoint,
    "jacrev": tg.jacrev,
    "vjp": lambda f: lambda v: tg.vjp(f, v)[1](1.0)[0],
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_transforms_made_in_a_loop_and_used_behind_it(wrap):
    """What they hold of the last iteration is found."""

    def scaled_by(y):
        return lambda v: np.sum(v * v * y)

    def f(x):
        s = 0.0
        for i in range(N):
            g = wrap(scaled_by(x * i))
            s = s + x * i
        return s + g(x)

    def want(x):
        return sum(x * i for i in range(N)) + wrap(scaled_by(x * (N - 1)))(x)

    np.testing.assert_allclose(tg.compile(f, backend="numpy")(x()), want(x()), rtol=1e-13)


def test_a_custom_rule_made_in_a_loop_and_used_behind_it():
    def halved(y):
        @tg.custom_vjp
        def f(v):
            return v * y

        f.defvjp(lambda v: (v * y, None), lambda _, ct: (0.5 * ct * y,))
        return f

    def f(x):
        for i in range(N):
            g = halved(x * i)
        return tg.grad(lambda v: np.sum(g(v)))(x)

    np.testing.assert_allclose(tg.compile(f, backend="numpy")(x()), 0.5 * x() * (N - 1), rtol=1e-13)


def test_inside_other_transforms():
    def f(x):
        _, pull = tg.vjp(wave, x)
        slope = tg.grad(lambda ct: np.sum(pull(ct)[0] ** 2))(2.0 * x)
        _, moved = tg.jvp(lambda ct: pull(ct)[0], (x,), (x * x,))
        matrix = tg.jacrev(lambda ct: pull(ct)[0])(x)
        again = tg.grad(lambda v: np.sum(tg.checkpoint(lambda v: pull(v)[0] * v)(v)))(x)
        return slope, moved, matrix, again

    slope, moved, matrix, again = tg.compile(f, backend="numpy")(x())
    d = bent(x())
    np.testing.assert_allclose(slope, 4.0 * d * d * x(), rtol=1e-13)
    np.testing.assert_allclose(moved, d * x() ** 2, rtol=1e-13)
    np.testing.assert_allclose(matrix, np.diag(d), rtol=1e-13)
    np.testing.assert_allclose(again, 2.0 * x() * d, rtol=1e-13)


def test_structures_and_auxiliary_results():
    @tg.compile
    def f(x):
        _, pull, aux = tg.vjp(
            lambda d, z: ((d["a"] * z, z * z), d["a"] + 1.0), {"a": x}, 3.0, has_aux=True
        )
        return tg.cond(x[0] > 0.0, lambda: pull((x, 1.0)), lambda: pull((None, 2.0))), aux

    (da, dz), aux = f(x())
    np.testing.assert_allclose(da["a"], 3.0 * x())
    np.testing.assert_allclose(dz, np.sum(x() ** 2) + 6.0)
    np.testing.assert_allclose(aux, x() + 1.0)


# ------------------------------------------------------------------ values on entry


def test_later_writes_do_not_reach_a_pullback():
    """Those of arrays with contents that are known while tracing, too."""

    def known(x):
        c = np.ones(4)
        _, pull = tg.vjp(lambda c: np.sum(c**2 * x), c)
        c[0] = 5.0
        return pull(1.0)[0], c

    def made_traced(x):
        c = np.ones(4)
        _, pull = tg.vjp(lambda c: np.sum(c**2 * x), c)
        c[0] = x[0]
        return pull(1.0)[0], c

    def in_a_body(x):
        c = x * 1.0
        _, pull = tg.vjp(lambda c: np.sum(c**2), c)
        s = x * 0.0
        for _ in range(N):
            c[0] += 1.0
            s = s + pull(1.0)[0] / N
        return s, c

    for f, c in ((known, np.ones(4)), (made_traced, np.ones(4)), (in_a_body, x())):
        got, after = tg.compile(f, backend="numpy")(x())
        np.testing.assert_allclose(got, 2.0 * c * (1.0 if f is in_a_body else x()), rtol=1e-13)
        assert after[0] != c[0]


def test_a_function_that_writes_its_argument_does_so_once():
    def powers(u):
        u[1:] *= u[:-1]
        return np.sum(u)

    @tg.compile
    def f(u):
        _, pull = tg.vjp(powers, u)
        s = np.zeros(4)
        for _ in range(N):
            s = s + pull(1.0)[0]
        return s + tg.cond(u[0] > 0.0, lambda: pull(1.0)[0], lambda: u)

    u = np.arange(1.0, 5.0)
    got = f(u)
    after = np.arange(1.0, 5.0)
    want = tg.vjp(powers, after)[1](1.0)[0]
    np.testing.assert_allclose(got, (N + 1) * want)
    np.testing.assert_array_equal(u, after)


# ------------------------------------------------------------------------ out of reach


def test_a_pullback_that_left_its_trace_is_refused():
    box = []

    @tg.compile
    def f(x):
        y, pull = tg.vjp(wave, x)
        box.append(pull)
        return y

    f(x())
    with pytest.raises(LeakedTracerError, match="outside the call that made it") as e:
        box[0](x())
    assert "box[0](x())" in str(e.value) and "tg.vjp(wave, x)" in str(e.value)
    with pytest.raises(LeakedTracerError, match="outside the call that made it"):
        tg.compile(lambda x: box[0](x)[0])(x())
