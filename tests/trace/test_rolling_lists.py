"""Loops whose bodies append to lists: one stack for all iterations."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


def matrix(seed=0, n=N, m=4):
    return np.random.default_rng(seed).uniform(0.2, 1.2, (n, m))


def nodes(f, *args):
    """The names of the ops of the functional graph, without those in loops."""
    text = tg.compile(f, backend="numpy").graph(*args, stage="functional")
    return [r.split("= ")[1].split("(")[0] for r in text.splitlines() if r.startswith("  %")]


# ----------------------------------------------------------------------- reading what was collected


@pytest.mark.parametrize(
    "read", [np.array, np.stack, np.asarray, np.vstack, np.hstack, list, tuple]
)
def test_scalars_and_arrays(read):
    def scalars(x):
        out = []
        for v in x:
            out.append(2.0 * v)
        return read(out)

    def arrays(x):
        out = []
        for i in range(N):
            out.append(np.sin(x * x[i]))
        return read(out)

    agrees(arrays, vector(), loops=1)
    gradients_agree(arrays, vector())
    if read is not np.hstack and read is not np.vstack:
        agrees(scalars, vector(), loops=1)
        gradients_agree(scalars, vector())


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_stacks_along_other_axes(axis):
    def f(x):
        out = [x[:, :2] * 1.0]
        for i in range(N):
            out.append(x[:, :2] * x[i, 0])
        return np.stack(out, axis=axis), np.concatenate(out, axis=axis), np.stack(out[1:], axis)

    agrees(f, matrix(), loops=1)
    gradients_agree(f, matrix())


def test_the_stack_itself_is_read():
    def f(x):
        out = []
        for i in range(1000):
            out.append(x * i)
        return np.array(out)

    def joined(x):
        out = []
        for i in range(1000):
            out.append(x[:2] * i)
        return np.concatenate(out)

    agrees(f, vector())
    assert len(nodes(f, vector())) <= 3
    assert len(nodes(joined, vector())) <= 5


def test_elements_before_and_behind():
    def f(x):
        out = [x[0], 3.0]
        for v in x:
            out.append(v * v)
        out.append(x[1])
        out += [x[2], 1]
        return np.array(out), out[0] + out[5], len(out), sum(out), out[-1]

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[:2], vector())

    def around(x):
        out = [x[0], 3.0]
        for v in x:
            out.append(v * v)
        out.append(x[1])
        return np.array(out)

    agrees(around, vector(), loops=1)
    assert nodes(around, vector()).count("as_strided") < 8


def test_rows_are_used_one_by_one():
    def f(x):
        us = []
        u = x
        for i in range(N):
            u = u * 0.9 + x[i]
            us.append(u.copy())
        s = 0.0
        for a, b in zip(us[1:], us[:-1], strict=True):
            s = s + np.sum((a - b) ** 2) * us[3][0]
        return s, max(len(a) for a in us)

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[0], vector())


def test_rows_in_an_order_of_their_own():
    def f(x):
        out = []
        for v in x:
            out.append(v * x[:3])
        out.reverse()
        out[2], out[5] = out[5], out[2]
        return np.array(out), np.array(out[::2]), np.array(out[4:9])

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_views_of_one_array_that_lie_one_behind_the_other():
    def f(A):
        rows = [A[i] for i in range(N)]
        cells = [A[i, j] for i in range(N) for j in range(4)]
        turned = [A.T[j] for j in range(4)]
        return np.array(rows), np.array(cells), np.array(turned), np.stack(rows[2:9] + rows[:1])

    agrees(f, matrix())
    gradients_agree(f, matrix())


# ------------------------------------------------------------------------------ what is appended


def test_tuples_indices_and_constants():
    def f(x):
        out, k = [], 3
        for i, v in enumerate(x):
            k += 2
            out.append((i, v * 2.0, (k, "text", None), x[:2] * v))
        return out

    agrees(f, vector(), loops=1)


def test_several_a_time_and_several_lists():
    def f(x):
        a, b = [], []
        for v in x:
            a.append(v)
            t = x[:3] * v
            a.append(v * v)
            b.append(t)
            a.extend([1.0, v + 1.0])
            b.append(t * 2.0)
        return np.array(a), np.array(b), len(a), len(b)

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[:2], vector())


def test_the_length_in_the_body():
    def f(x):
        out = [x[0]]
        for v in x:
            out.append(v * len(out))
            out.append(v * len(out) + x[len(out) // 2 - 1])
        return out, len(out)

    agrees(f, vector(), loops=1)


def test_numbers_that_python_knows():
    def f(x):
        out, t = [], 0.0
        for _ in range(N):
            out.append(t)
            t += 0.25
        return out, t, x[0]

    agrees(f, vector(), loops=1)


def test_the_first_number_is_a_python_number():
    def f(x):
        s, out, also = 0.0, [], []
        for v in x:
            out.append(s)
            also.append((s * 2.0, v))
            s = s + v
        return out, also

    agrees(f, vector(), loops=1)


def test_known_arrays():
    def f(x):
        out = []
        for i in range(N):
            z = np.zeros(3)
            out.append(z)
            out.append(np.ones(2) * i)
        out[0][1] = x[0]
        z[2] = x[1]
        return out, z

    agrees(f, vector())


def test_float32_and_integers():
    def f(x):
        out, n = [], []
        for i, v in enumerate(x):
            out.append(v)
            n.append(np.int32(3) * i)
        return np.array(out), np.array(n), out, n

    agrees(f, vector().astype(np.float32), loops=1)


# -------------------------------------------------------------------------------------- aliasing


def test_the_carry_is_appended_and_bound_anew():
    def f(x):
        u, out = x, []
        for i in range(N):
            u = u * 0.9 + x[i]
            out.append(u)
        u[0] = 7.0
        out[3][1] = 5.0
        out[-1][2] = 4.0
        return np.array(out), u, out

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_the_carry_is_appended_before_it_is_bound_anew():
    def f(x):
        u, out = x, []
        for i in range(N):
            out.append(u[1:])
            u = u * 0.9 + x[i]
        out[0][0] = 5.0
        u[0] = 7.0
        return np.array(out), u, x

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_an_array_that_is_written_in_place_afterwards():
    def f(x):
        u, out = x * 1.0, []
        for _ in range(N):
            out.append(u)
            u += 1.0
        return np.array(out), u

    def g(x):
        u, out = x * 1.0, []
        for _ in range(N):
            u = u * 0.5
            out.append(u)
            u += 1.0
        return np.array(out), u

    def h(x):
        u, out = x * 1.0, []
        for i in range(N):
            u[i] = 2.0
            u = u * 0.5
            out.append(u)
        return np.array(out), u

    agrees(f, vector(), loops=1)
    agrees(g, vector(), loops=1)
    agrees(h, vector(), loops=0)
    for k in (f, g, h):
        gradients_agree(k, vector())


def test_the_iteration_before_keeps_and_writes_it():
    def f(x):
        u, old, out = x * 1.0, x * 2.0, []
        for i in range(N):
            old = u
            u = u * 0.5 + x[i]
            out.append(u)
        old[0], u[1] = 5.0, 6.0
        out[-2][2] = 7.0
        return np.array(out), u, old

    def g(x):
        u, old, out = x * 1.0, x * 2.0, []
        for i in range(N):
            old[i] = 9.0
            old = u
            u = u * 0.5 + x[i]
            out.append(u)
        return np.array(out), u, old

    agrees(f, vector(), loops=1)
    agrees(g, vector())
    gradients_agree(f, vector())
    gradients_agree(g, vector())


def test_arrays_that_change_places():
    def f(x, y):
        a, b, out = x, y, []
        for _ in range(N + 1):
            b[1:-1] = 0.5 * (a[2:] + a[:-2])
            a, b = b, a
            out.append(a)
        return np.array(out), a, b

    def g(x, y):
        a, b, out = x, y, []
        for _ in range(N + 1):
            b[1:-1] = 0.5 * (a[2:] + a[:-2])
            a, b = b, a
            out.append(a.copy())
        return np.array(out), a, b

    for k in (f, g):
        agrees(k, vector(), vector(1))
        gradients_agree(k, vector(), vector(1))
    assert loops_in(g, vector(), vector(1)) == 1


def test_one_array_in_two_lists_and_under_a_name():
    def f(x):
        a, b = [], []
        for v in x:
            t = x[:4] * v
            a.append(t)
            b.append(t[1:3])
            a.append(t)
        a[4][1] = 5.0
        b[3][1] = 6.0
        t[2] = 7.0
        return np.array(a), np.array(b), t

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_one_array_in_the_lists_of_two_iterations():
    def f(x):
        u, a, b = x, [], []
        for v in x:
            a.append(u)
            u = u * 0.9 + v
            b.append(u)
        b[0][0] = 5.0
        return np.array(a), np.array(b)

    def g(x):
        u, out = x, []
        for v in x:
            out.append(u)
            u = u * 0.9 + v
            out.append(u)
        out[1][0] = 5.0
        return np.array(out)

    for k in (f, g):
        agrees(k, vector(), loops=0)
        gradients_agree(k, vector())


def test_writes_in_the_iteration_that_appends():
    def f(x):
        out = []
        for v in x:
            t = x[:3] * v
            out.append(t)
            t[0] = 5.0
            t = t * 2.0
            out.append(t[1:])
            t[1] = v
        return out, t

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_arrays_from_outside_the_loop():
    def f(A, y):
        rows, same, w = [], [], y * 1.0
        for i in range(N):
            rows.append(A[i])
            same.append(w)
            same.append(y)
            A[i, 0] = 2.0 * A[i - 1, 0]
        rows[2][1] = 3.0
        same[4][0] = 9.0
        return np.array(rows), np.array(same), A, y

    agrees(f, matrix(), vector(), loops=1)
    gradients_agree(f, matrix(), vector())


def test_an_array_that_an_object_holds():
    class State:
        def __init__(self, u):
            self.u, self.history = u, []

        def step(self, v):
            self.u = self.u * 0.9 + v
            self.history.append(self.u)

    def f(x):
        s = State(x)
        for v in x:
            s.step(v)
        s.u[0] = 7.0
        return np.array(s.history), s.u

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_a_row_is_no_number_of_another():
    def f(x):
        out, s = [], 0.0
        for v in x:
            s = s + v
            out.append(s)
        first = out[0]
        out[0] = out[1]
        return np.array(out), first, s

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


# -------------------------------------------------------------------------- several bodies, parts


def test_every_tenth_iteration():
    def f(x):
        u, history = x, []
        for n in range(43):
            if n % 10 == 0:
                history.append(u.copy())
            u = u * 0.9 + 0.1
        return np.array(history), u, len(history)

    agrees(f, vector())
    gradients_agree(lambda x: f(x)[:2], vector())
    assert loops_in(f, vector()) == 1


def test_some_iterations_only():
    def f(x):
        out = []
        for i, v in enumerate(x):
            if i > 3:
                out.append(v * 2.0)
            if i == 6:
                out.append(v * 3.0)
        return np.array(out)

    agrees(f, vector())
    gradients_agree(f, vector())


def test_nested_loops():
    def f(x):
        out, sums = [], []
        for i in range(N):
            for v in x:
                out.append(v * x[i])
            sums.append(x[i] * len(out))
        return np.array(out), np.array(sums)

    def inner(x):
        rows = []
        for i in range(N):
            row = []
            for v in x:
                row.append(v * x[i])
            rows.append(np.array(row))
        return np.array(rows)

    def ragged(x):
        out = []
        for i in range(N):
            for j in range(i):
                out.append(x[i] * x[j])
        return np.array(out)

    agrees(f, vector(), loops=2)
    agrees(inner, vector(), loops=2)
    agrees(ragged, vector())
    for k in (f, inner, ragged):
        gradients_agree(k, vector())


def test_rows_of_rows():
    def f(x):
        rows = []
        for i in range(N):
            row = []
            for v in x:
                row.append(v * x[i])
            rows.append(row)
        return np.array(rows)

    agrees(f, vector())
    gradients_agree(f, vector())


# --------------------------------------------------------------------------------- where lists are


def test_lists_in_objects_dictionaries_closures_and_callers():
    class Log:
        def __init__(self):
            self.values = []

        def add(self, v):
            self.values.append(v)

    def collect(into, x):
        for v in x:
            into.append(v * 2.0)

    def f(x):
        log, d, mine, given = Log(), {"a": []}, [], [x[0]]

        def keep(v):
            mine.append(v + 1.0)

        for v in x:
            log.add(v * v)
            d["a"].append(v)
            keep(v)
        collect(given, x)
        collect(given, x)
        return np.array(log.values), np.array(d["a"]), np.array(mine), np.array(given)

    agrees(f, vector(), loops=3)
    gradients_agree(f, vector())


def test_one_list_under_two_names():
    def f(x):
        a = []
        b = a
        for v in x:
            a.append(v)
            b.append(v * 2.0)
        return np.array(a), a is b, len(b)

    agrees(f, vector(), loops=1)


def bodies():
    def reads_the_last(x):
        out = [x[0]]
        for v in x:
            out.append(out[-1] * 0.5 + v)
        return out

    def reads_all(x):
        out = [x[0]]
        for v in x:
            out.append(sum(out) * 0.1 + v)
        return out

    def asks_whether_it_is_empty(x):
        out = []
        for v in x:
            out.append(v * 2.0 if out else v)
        return out

    def pops(x):
        out = [x[0], x[1]]
        for v in x:
            out.append(out.pop(0) + v)
        return out

    def takes_a_method(x):
        out = []
        add = out.append
        for v in x:
            add(v)
            add(v * 2.0)
        return out

    def names_it_anew(x):
        out = []
        for v in x:
            also = out
            also.append(v)
        also.append(x[0])
        return out

    def keeps_it(x):
        out, box = [], {}
        for v in x:
            out.append(v)
            box["out"] = out
        box["out"].append(x[0])
        return out

    def in_a_tuple(x):
        both = ([], [])
        for v in x:
            both[0].append(v)
            both[1].append(v * 2.0)
        return both

    def adds(x):
        out = []
        for v in x:
            out += [v, v * 2.0]
        return out

    def binds_anew(x):
        out = []
        for v in x:
            out = [*out, v]
        return out

    def collects_lists(x):
        out = []
        for v in x:
            part = [v]
            out.append(part)
            part.append(v * 2.0)
        out[3].append(x[0])
        part.append(x[1])
        return out

    def catches(x):
        out = []
        for v in x:
            try:
                out.append(v * 2.0)
                raise KeyError
            except KeyError:
                out.append(v)
        return out

    def leaves(x):
        out = []
        try:
            for v in x:
                out.append(v)
                if len(out) == 9:
                    raise KeyError
        except KeyError:
            out.append(x[0])
        return out

    def prints_it(x):
        out, text = [], ""
        for v in x:
            out.append(v)
            text = str(len(out))
        return out, text

    def asks_for_its_type(x):
        out, s = [], 0.0
        for v in x:
            out.append(v)
            if type(out) is list and isinstance(out, list):
                s = s + v
        return out, s

    return list(locals().values())


@pytest.mark.parametrize("f", bodies(), ids=lambda f: f.__name__)
def test_other_uses_of_the_list(f):
    agrees(f, vector())


def test_a_list_outside_the_function():
    kept = []

    def f(x):
        for _ in range(len(x)):
            kept.append(1.0)
        return x * len(kept)

    want = f(vector())
    kept.clear()
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(vector()), want)
    assert kept == [1.0] * N


# ------------------------------------------------------------------------------ what is built on it


def test_memory_limits_and_jvps():
    def f(x):
        u, out = x, []
        for i in range(200):
            u = np.sin(u) * 0.9 + x[i % 3]
            out.append(u)
        return np.sum(np.array(out) ** 2) + np.sum(u)

    want = tg.grad(f)(vector())
    got = tg.grad(f, memory_limit="44kB")(vector())
    np.testing.assert_allclose(got, want, rtol=1e-12)
    value, slope = tg.jvp(f, (vector(),), (np.ones(N),))
    np.testing.assert_allclose(slope, want.sum(), rtol=1e-10)


def test_threads():
    def f(x):
        out = []
        for i in tg.range(len(x), parallel=True):
            out.append(np.sin(x[i]))
        return np.array(out)

    x = vector(n=400)
    np.testing.assert_array_equal(tg.compile(f, threads=2)(x), tg.compile(lambda x: np.sin(x))(x))


def test_detached_tensors():
    def f(x):
        out, u = [], x
        for i in range(N):
            u = u * 0.9 + x[i]
            out.append(u.detach())
        return tg.stack(out).sum() + u.sum()

    grads = []
    for call in (f, tg.compile(f)):
        x = tg.tensor(vector(), requires_grad=True)
        call(x).backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-12)


def test_tensors():
    def f(x):
        out = []
        u = x
        for i in range(N):
            u = u * 0.9 + x[i]
            out.append(u)
        return tg.stack(out)

    x = tg.tensor(vector(), requires_grad=True)
    want = f(x)
    want.sum().backward()
    y = tg.tensor(vector(), requires_grad=True)
    got = tg.compile(f)(y)
    got.sum().backward()
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-13)
    np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-12)
    assert "= loop(" in tg.compile(f).graph(y)
