"""What may stand in a `for` statement and in its body: forms that roll, unroll or are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in
from tracegrad.errors import PerformanceWarning, UnsupportedError

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


def matrix(seed=0, n=N, m=4):
    return np.random.default_rng(seed).uniform(0.2, 1.2, (n, m))


# --------------------------------------------------------------------------- the iterables

HEADS = {
    "enumerate an array": "for i, e in enumerate(x)",
    "enumerate from 3": "for i, e in enumerate(x, 3)",
    "enumerate a range": "for i, e in enumerate(range(2, 14))",
    "zip of arrays": "for i, e in zip(x, y)",
    "zip with a range": "for i, e in zip(range(1, 30), y)",
    "enumerate a zip": "for i, (e, g) in enumerate(zip(x, y))",
    "reversed range": "for i in reversed(range(12))",
    "enumerate reversed": "for i, e in enumerate(reversed(x))",
    "negative steps": "for i in range(11, -1, -1)",
    "steps of three": "for i in range(0, 36, 3)",
    "slice of a range": "for i in range(100)[2:14]",
    "elements": "for e in x",
    "explicit": "for i in tg.range(12)",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_an_iterable_rolls(head):
    space = {"np": np, "tg": tg}
    exec(f"def f(x, y):\n    s, e, i = 0.0, 1.0, 0\n    {head}:\n"
         "        s = 0.5 * s + e * 0.1 + i * 0.01 + y[0]\n    return s, e, i", space)
    agrees(space["f"], vector(), vector(1), loops=1)
    gradients_agree(space["f"], vector(), vector(1))


def test_rows_are_views():
    def f(A, B):
        s = 0.0
        for row in A:
            row[1:] += 0.5 * row[:-1]
            s = s + row.sum()
        for a, b in zip(A, B, strict=True):
            b[...] = a * 2 + s
        for i, row in enumerate(B):
            row[0] = i
        for column in A.T:
            column *= 0.5
        return s, row

    agrees(f, matrix(), matrix(1))
    assert loops_in(f, matrix(), matrix(1)) == 3  # four columns are too few
    gradients_agree(f, matrix(), matrix(1))


def test_elements_are_read_when_their_turn_comes():
    def f(x):
        s = 0.0
        for i, e in enumerate(x):
            x[(i + 1) % N] = 0.5 * e + 0.1
            s = s + e
        return s

    agrees(f, vector())
    gradients_agree(f, vector())


UNROLLED = {
    "comprehension": "s = s + sum([x[j] * 0.1 for j in range(9)])",
    "generator": "s = s + sum(x[j] * i for j in range(9))",
    "dictionary": "s = s + {j: x[j] for j in range(9)}[3]",
    "nested comprehension": "s = s + sum([x[j] * x[k] for j in range(8) for k in range(8)])",
    "list": "s = s + x[list(range(9))[i % 9]]",
    "unpacking": "a, b, c = range(3)\n        s = s + x[a] + x[c]",
    "in": "s = s + (i in range(3)) * x[0]",
    "indexing": "s = s + x[range(4, 20)[i % 3]]",
    "sorted": "s = s + x[sorted(range(9))[2]]",
    "next": "it = iter(range(9))\n        next(it)\n        s = s + x[next(it)]",
    "map": "s = s + sum(map(lambda j: x[j], range(9)))",
}


@pytest.mark.parametrize("body", UNROLLED.values(), ids=UNROLLED.keys())
def test_a_range_elsewhere_is_the_real_sequence(body):
    space = {"np": np}
    exec(f"def f(x):\n    s = 0.0\n    for i in range({N}):\n        {body}\n    return s", space)
    agrees(space["f"], vector())


def test_an_iterator_from_before_the_loop_is_advanced():
    def f(x):
        it, s = iter(range(100)), 0.0
        for _ in range(N):
            s = s + x[next(it)]
        return s

    agrees(f, vector(), loops=0)


# ------------------------------------------------------------------------ leaving and ending


def test_break_return_and_else():
    def f(x):
        s = 0.0
        for i in range(N):
            s = s + x[i]
            if i == 7:
                break
        for i in range(N):
            s = s + x[i]
        else:
            s = s * 2
        for i in range(N):
            if i == 9:
                return s, i
            s = s - x[i]
        return s, 0

    agrees(f, vector(), loops=1)


def test_continue_skips_the_rest():
    def f(x):
        s, t = 0.0, 0.0
        for i in range(N):
            if i % 3 == 1:
                continue
            t = x[i]
            s = s + t
        return s, t

    agrees(f, vector(), loops=1)


def test_a_generator_of_the_users_unrolls():
    def halves(x):
        for i in range(N):
            yield x[i] * 0.5

    def f(x):
        s = 0.0
        for e in halves(x):
            s = s + e
        return s

    agrees(f, vector(), loops=0)


# -------------------------------------------------------------------------------- containers


def test_a_tuple_of_arrays_is_carried_leaf_by_leaf():
    def f(x, y):
        state = (x * 1.0, y * 1.0, 0.0)
        for i in range(N):
            a, b, s = state
            state = (np.sin(b), 0.5 * a, s + a[i])
        return state

    agrees(f, vector(), vector(1), loops=1)
    gradients_agree(f, vector(), vector(1))


def test_a_dictionary_and_a_list_are_carried_leaf_by_leaf():
    def f(x):
        p, q = {"w": x * 1.0, "b": x[0]}, [x[1], (x[2], 0.0)]
        for _ in range(N):
            p = {"w": p["w"] * 0.9, "b": p["b"] + q[0]}
            q = [q[1][0], (np.sin(q[0]), q[1][1] + p["b"])]
        return p, q

    agrees(f, vector(), loops=1)


def test_written_leaves_of_a_container_that_someone_else_holds():
    def f(x):
        state = [x * 1.0, x * 2.0]
        kept = state
        for i in range(N):
            state[0][i] = 5.0
            state = [state[1], state[0] * 0.5]
        return state, kept

    agrees(f, vector())


CHANGED = {
    "append": "out.append(x[i])",
    "append the index": "out.append(i)",
    "element": "out[0] = x[i]",
    "counted": "out[0] += 1",
    "dictionary": "d[i] = x[i]",
    "dictionary count": "d['n'] = d.get('n', 0) + 1",
    "nested": "box['list'].append(x[i])",
    "object": "obj.value = obj.value + x[i]",
    "method": "obj.add(x[i])",
    "set": "seen.add(i % 3)",
    "closure": "later.append(lambda: x[i])",
    "text": "names = names + str(i)",
    "formatted": "names = names + f'{i}'",
}


@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED.keys())
def test_what_a_body_changes_is_not_lost(body):
    space = {"np": np}
    exec("class Thing:\n    def __init__(self):\n        self.value = 0.0\n"
         "    def add(self, v):\n        self.value = self.value + v\n"
         "def f(x):\n    out, d, box, seen, later = [0.0], {}, {'list': [0.0]}, {9}, []\n"
         f"    obj, names, s = Thing(), '', 0.0\n    for i in range({N}):\n        {body}\n"
         "        s = s + x[i]\n"
         "    total = sum(out) + sum(d.values()) + sum(box['list']) + sum(seen) + obj.value\n"
         "    for g in later:\n        total = total + g()\n"
         "    return s, total, len(names), len(d), len(out)", space)
    agrees(space["f"], vector(), loops=0)


def test_a_list_outside_is_appended_to_as_often_as_without_tracing():
    log = []

    def f(x):
        s = 0.0
        log.append("start")
        for i in range(N):
            s = s + x[i]
            log.append(i)
        return s

    tg.compile(f, backend="numpy")(vector())
    assert log == ["start", *range(N)]


# --------------------------------------------------------------------------------- counters


def test_integers_that_python_counts():
    def f(x):
        k, back, s, t = 0, N - 1, 0.0, 0.0
        for i in range(N):  # noqa: B007 (returned)
            s = s + x[k] * x[back] * t
            k += 1
            back -= 1
            t += 0.1
        return s, k, back, t, i

    agrees(f, vector(), loops=1)


def test_a_counter_of_two_loops():
    def f(x):
        k, s = 0, 0.0
        for i in range(9):
            for _ in range(8):
                s = s + x[k % N] * i
                k = k + 1
        return s, k

    agrees(f, vector())


def test_a_count_that_is_needed_while_tracing():
    def f(x):
        t, k = 0.0, 0
        for i in range(N):
            t += 0.5
            k = k + i
        return x[int(t)] + x[k % N] + np.zeros(k).sum()

    agrees(f, vector())


# ------------------------------------------------------------------- gradients in the body


def test_gradients_inside_a_loop():
    def energy(v):
        total = 0
        for q in range(len(v)):
            total = total + v[q] ** 2 * v[q - 1]
        return total

    def f(x):
        for _ in range(N):
            x = x - 0.01 * tg.grad(energy)(x)
        return x

    agrees(f, vector(), loops=2)
    gradients_agree(f, vector())


def test_no_grad_in_a_body():
    def f(x):
        s = 0.0
        for i in range(N):
            with tg.no_grad():
                w = x[i] ** 2
            s = s + w * x[i]
        return s

    agrees(f, vector(), loops=1)
    rolled, unrolled = (tg.grad(f, backend="numpy", loops=way)(vector())
                        for way in ("auto", "unroll"))
    np.testing.assert_allclose(rolled, unrolled)
    np.testing.assert_allclose(rolled, vector() ** 2)


def test_methods_and_helpers_roll():
    class Model:
        def __init__(self):
            self.k = 0.1

        def step(self, u):
            for _ in range(9):
                u = u + self.k * np.sin(u)
            return u

    model = Model()

    def f(u):
        for _ in range(N):
            u = model.step(u) * 0.5
        return u

    agrees(f, vector(), loops=2)


def test_inner_loops_whose_length_depends_on_the_index():
    def f(A):
        s = 0.0
        for i in range(N):
            for j in range(i):
                s = s + A[i, j] * A[j, i]
            for j in range(i + 1, N):
                A[j, i] = A[j, i] * 0.5
        return s

    agrees(f, matrix(0, N, N))
    gradients_agree(f, matrix(0, N, N))


# ------------------------------------------------------------------------ options and errors


def test_roll_refuses_with_the_name_and_the_reason():
    def f(x):
        out = []
        for i in range(N):
            out.append(x[i])
        return out

    with pytest.raises(UnsupportedError, match="changes the list out") as caught:
        tg.compile(f, loops="roll")(vector())
    assert "for i in range(N)" in str(caught.value)
    assert caught.value.kind == "loop"

    def g(x):
        for _ in tg.range(N):
            x = x[:-1]
        return x

    with pytest.raises(UnsupportedError, match="x changes its shape"):
        tg.compile(g)(vector(n=40))


def test_roll_rolls_short_loops():
    def f(x):
        s = 0.0
        for i in range(4):
            s = s + x[i]
        return s

    assert loops_in(f, vector(), loops="roll") == 1
    assert loops_in(f, vector()) == 0


def test_break_is_refused_where_a_loop_is_required():
    def f(x):
        for i in tg.range(N):
            if i == 3:
                break
        return x[i]

    with pytest.raises(UnsupportedError, match="break"):
        tg.compile(f)(vector())
    assert f(vector()) == vector()[3]


def test_parallel_is_not_available_yet():
    def f(x):
        for i in tg.range(N, parallel=True):
            x[i] = 0.0
        return x

    with pytest.raises(UnsupportedError, match="parallel=True.* not available yet"):
        tg.compile(f)(vector())


def test_max_unrolled():
    def f(x):
        s = 0.0
        for i in range(N):
            if i > 20:
                break
            s = s + x[i]
        return s

    assert tg.compile(f, backend="numpy", max_unrolled=N)(vector()) == pytest.approx(
        vector().sum())
    with pytest.raises(UnsupportedError, match=f"max_unrolled={N - 1}.*break"):
        tg.compile(f, backend="numpy", max_unrolled=N - 1)(vector())


def test_many_copies_warn_once_at_the_line():
    def f(x):
        s = 0.0
        for i in range(1100):
            if i > 2000:
                break
            s = s + x[i % N]
        for i in range(1100):
            if i > 2000:
                break
            s = s + x[i % N]
        return s

    with pytest.warns(PerformanceWarning, match="1000 copies") as caught:
        tg.compile(f, backend="numpy").graph(vector())
    assert len(caught) == 1
    assert "for i in range(1100)" in str(caught[0].message)

    def plain(x):
        total = 0
        for i in range(5000):
            total = (total * 3 + i) % 7
        return x * total

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agrees(plain, vector())


def test_explain_says_what_became_of_each_loop():
    def f(x):
        s = 0.0
        for i in range(500):
            s = s + x[i % 3]
        out = []
        for i in range(9):
            out.append(x[i])
        return s, out

    text = tg.compile(f, backend="numpy").explain(vector())
    assert "one loop for 500 iterations" in text
    assert "unrolled into 9 copies, since it changes the list out" in text


def test_an_error_in_a_body_is_numpys_at_the_users_line():
    def f(x):
        for i in range(N + 3):
            x[i] = 0.5
        return x

    with pytest.raises(IndexError, match="index 12 is out of bounds") as caught:
        tg.compile(f, backend="numpy")(vector())
    assert "x[i] = 0.5" in str(caught.value)


def test_compile_time_does_not_depend_on_trips():
    def f(x, n):
        s = 0.0
        for i in range(n):
            s = s + x[i % 3]
        return s

    sizes = [len(str(tg.compile(f, backend="numpy").graph(vector(), n)).splitlines())
             for n in (30, 3_000_000)]
    assert sizes[0] == sizes[1]
