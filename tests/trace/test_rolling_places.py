"""Loops whose bodies change attributes of objects and items of lists and dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in
from tracegrad.errors import UnsupportedError

N = 12


def vector(seed=0, n=N):
    return np.random.default_rng(seed).uniform(0.2, 1.2, n)


class Heat:
    """A solver as people write them: state in attributes, a method for one step."""

    def __init__(self, u, k, dt):
        self.u, self.k, self.dt = u, k, dt
        self.t, self.steps = 0.0, 0

    def rate(self, u):
        out = np.zeros_like(u)
        out[1:-1] = self.k * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        return out

    def step(self):
        self.u = self.u + self.dt * self.rate(self.u)
        self.t += self.dt
        self.steps += 1

    def run(self, n):
        for _ in range(n):
            self.step()
        return self.u


@dataclass
class Particle:
    x: Any
    v: Any
    age: int = 0
    tags: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = ("a", "_b", "__c")

    def __init__(self, a, b, c):
        self.a, self._b, self.__c = a, b, c

    @property
    def b(self):
        return self._b

    @b.setter
    def b(self, value):
        self._b = value

    def shift(self):
        self.a, self.b, self.__c = self.b, self.__c * 0.9, self.a

    def all(self):
        return self.a, self._b, self.__c


# ------------------------------------------------------------------------------- attributes


def test_a_solver_with_its_state_in_attributes():
    def f(u, k):
        solver = Heat(u, k, 0.01)
        solver.run(20)
        return solver.u, solver.t, solver.steps

    agrees(f, vector(), 0.3, loops=1)
    gradients_agree(lambda u, k: Heat(u, k[0], 0.01).run(20), vector(), vector(1))


def test_the_loop_is_outside_of_the_method():
    def f(u, k):
        solver = Heat(u * 1.0, k, 0.01)
        for i in range(N):
            solver.step()
            solver.u[i] += 0.5
        return solver.u, solver.steps, solver.t

    agrees(f, vector(), 0.3, loops=1)
    gradients_agree(lambda u, k: f(u, k[0])[0], vector(), vector(1))


def test_dataclasses_and_objects_in_objects():
    class World:
        def __init__(self, x):
            self.p, self.q = Particle(x, x * 0.0), Particle(x * 2, 1.0)
            self.clock = SimpleNamespace(t=0.0, ticks=0)

    def f(x):
        w = World(x)
        for i in range(N):
            w.p.v = w.p.v - 0.1 * w.p.x
            w.p.x = w.p.x + 0.1 * w.p.v
            w.q.v *= 0.9
            w.q.x = w.q.x + w.p.x[i] * w.q.v
            w.clock.t += 0.1
            w.clock.ticks += 2
            w.p.age = w.clock.ticks
        return w.p.x, w.p.v, w.q.x, w.q.v, w.clock.t, w.clock.ticks, w.p.age

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[:4], vector())


def test_slots_properties_and_private_names():
    def f(x):
        s = Slotted(x, x * 2.0, x + 1.0)
        for _ in range(14):
            s.shift()
        return s.all()

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_one_object_under_two_names():
    def f(x):
        p = Particle(x * 1.0, 0.0)
        q = p
        for i in range(N):
            p.x = p.x * 0.9
            q.x = q.x + x[i]
            q.v += 1.0
            p.v = p.v * q.x[0]
        return p.x, q.x, p.v

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_an_object_that_only_a_closure_and_a_method_hold():
    def stepper(x):
        p = Particle(x * 1.0, 0.0)

        def step(v):
            p.x = p.x * 0.5 + v
            p.age += 1
            return p

        return step

    def f(x):
        step = stepper(x)
        move = Heat(x, 0.2, 0.1).step
        for v in x:
            p = step(v)
            move()
        return p.x, p.age, move.__self__.u

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[::2], vector())


def test_an_object_of_a_caller():
    def inner(step, n):
        for _ in range(n):
            step()

    def f(x):
        p = Particle(x, 1.0)

        def step():
            p.x = p.x * 0.5 + p.v
            p.v = p.v * 0.9

        inner(step, N)
        inner(step, N + 3)
        return p.x, p.v

    agrees(f, vector(), loops=2)
    gradients_agree(f, vector())


def test_the_same_loop_with_other_types_in_the_attribute():
    def advance(p, x):
        for v in x:
            p.v = p.v * 0.5 + v

    def f(x):
        a, b, c = Particle(x, 0), Particle(x, x[0]), Particle(x, x)
        for p in (a, b, c):
            advance(p, x)
        return a.v, b.v, c.v

    agrees(f, vector(), loops=3)
    gradients_agree(f, vector())


def test_attributes_that_the_first_iteration_makes():
    class Maker:
        total = 0.0
        count = 0

        def add(self, v):
            if not hasattr(self, "last"):
                self.last = v * 2.0
            self.total += v * self.last
            self.count += 1
            self.last = v

    def f(x):
        m = Maker()
        for v in x:
            m.add(v)
        return m.total, m.count, m.last, Maker.total

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[0], vector())


def test_none_at_first():
    def f(x):
        p = Particle(None, 0.0)
        for v in x:
            if p.x is not None:
                p.v = p.v + p.x * v
            p.x = v
        return p.x, p.v

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_a_tuple_in_an_attribute():
    def f(x):
        p = Particle((x, x[::-1] * 2.0), 0.0)
        for _ in range(N):
            u, v = p.x
            p.x = (v, 0.5 * u + v)
        return p.x

    agrees(f, vector())
    gradients_agree(f, vector())


def test_an_attribute_counts_and_decides():
    def f(x):
        p = Particle(0.0, 1.0)
        for v in x:
            p.x = p.x + v * (2.0 if p.age < 4 else 3.0)
            p.age += 1
        return p.x, p.age

    agrees(f, vector(), loops=2)
    gradients_agree(lambda x: f(x)[0], vector())


def test_an_object_made_anew_unrolls():
    def f(x):
        p = Particle(x, 0.0)
        for v in x:
            p = Particle(p.x * 0.5 + v, p.v + v)
        return p.x, p.v

    agrees(f, vector(), loops=0)


# ----------------------------------------------------------------------- items under constants


def test_dictionaries():
    def f(x):
        d = {"a": x, "n": 0, 3: x[0]}
        for v in x:
            d["a"] = d["a"] * 0.9
            d["n"] += 1
            d[3] = d[3] + d["a"][0] * v
        return d["a"], d["n"], d[3]

    agrees(f, vector(), loops=1)
    gradients_agree(lambda x: f(x)[::2], vector())


def test_a_dictionary_that_the_first_iteration_fills():
    def f(x):
        d = {}
        for v in x:
            d["sum"] = d.get("sum", 0.5) + v
        return d["sum"], list(d)

    agrees(f, vector(), loops=1)


def test_a_dictionary_that_grows_unrolls():
    def f(x):
        d = {}
        for v in x:
            d[len(d)] = v * 2.0
        return list(d.values())

    agrees(f, vector(), loops=0)


def test_a_dictionary_whose_order_changes_unrolls():
    def f(x):
        d = {"a": x[0], "b": x[1]}
        for v in x:
            d["a"] = d.pop("a") * v
        return list(d.items())

    agrees(f, vector(), loops=0)


def test_swaps_in_a_list():
    def f(x, y):
        state = [x * 1.0, y * 1.0]
        for _ in range(13):
            state[1][1:-1] = 0.5 * (state[0][2:] + state[0][:-2])
            state[0], state[1] = state[1], state[0]
        return state

    agrees(f, vector(), vector(1), loops=1)
    gradients_agree(f, vector(), vector(1))


def test_swaps_between_a_name_and_a_place():
    def f(x, y):
        u, d = x, {"v": y}
        for _ in range(N + 1):
            d["v"][1:-1] = 0.5 * (u[2:] + u[:-2])
            u, d["v"] = d["v"], u
        return u, d["v"]

    agrees(f, vector(), vector(1), loops=1)
    gradients_agree(f, vector(), vector(1))


def test_scalars_that_move_through_a_list():
    def f(x):
        s = [x[0], x[1], x[2]]
        for v in x:
            s[0], s[1], s[2] = s[1], s[2], s[0] * v + s[1]
        return s

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_a_list_in_a_dictionary_in_an_object():
    def f(x):
        p = Particle({"s": [x[0], [x * 1.0, 0]]}, 0.0)
        for v in x:
            p.x["s"][0] = p.x["s"][0] * v
            p.x["s"][1][0] = p.x["s"][1][0] + p.x["s"][0]
            p.x["s"][1][1] += 1
        return p.x

    agrees(f, vector(), loops=1)


def test_a_container_in_a_place_is_rebound_and_changed():
    def f(x):
        d = {"s": [x, x * 2.0]}
        for v in x:
            d["s"] = [d["s"][1], d["s"][0] * 0.5]
            d["s"][0] = d["s"][0] + v
        return d["s"]

    agrees(f, vector())


# ------------------------------------------------------------------------------------ aliasing


def test_a_name_and_a_place_share_an_array():
    def f(x):
        u = x * 1.0
        d = {"u": u}
        for i in range(N):
            d["u"][i] *= 2.0
            u = u * 0.5
        return u, d["u"]

    agrees(f, vector())
    gradients_agree(f, vector())


def test_two_places_share_an_array_all_the_time():
    def f(x):
        u = x * 1.0
        p, q = Particle(u, 0.0), Particle(u[2:], 0.0)
        for i in range(N):
            fresh = p.x * 0.9
            p.x, q.x = fresh, fresh[2:]
            q.x[0] += 1.0
            p.v = p.v + p.x[i]
        return p.x, q.x, p.v, u

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


def test_a_place_keeps_the_array_of_the_iteration_before():
    def f(x):
        p = Particle(x * 1.0, x * 1.0)
        for i in range(N):
            p.v = p.x
            p.x = p.x * 0.5 + 1.0
            p.v[i] = 7.0
        p.x[0] = 3.0
        return p.x, p.v

    agrees(f, vector())
    gradients_agree(f, vector())


def test_in_place_in_an_attribute_of_the_callers_array():
    def f(x):
        p = Particle(x, 0.0)
        for i in range(N):
            p.x += 0.5
            if i > 1:
                p.x = p.x * 0.5
        return p.x

    agrees(f, vector())


def test_an_initial_value_under_another_name():
    def f(x):
        p = Particle(x[0], 0.0)
        s0 = p.x
        for _ in range(N):
            p.x = p.x * 0.5 + s0
            p.v += s0
        return p.x, p.v

    agrees(f, vector(), loops=1)
    gradients_agree(f, vector())


# ---------------------------------------------------------------------------- loops in loops


def test_nested_loops_over_one_object():
    def f(x):
        p = Particle(x * 1.0, 0.0)
        for i in range(N):
            for j in range(i):
                p.x[i] = p.x[i] * 0.9 + p.x[j]
                p.v = p.v + p.x[i]
                p.age += 1
            p.v = p.v * 0.5
        return p.x, p.v, p.age

    agrees(f, vector())
    gradients_agree(lambda x: f(x)[:2], vector())
    assert loops_in(f, vector()) >= 2


def test_nested_loops_with_an_object_for_each_outer_iteration():
    def f(x):
        s = 0.0
        for v in x:
            p = Particle(x * v, 0.0)
            for w in x:
                p.v = p.v * 0.3 + p.x @ x * w
                p.age += 1
            s = s + p.v * p.age
        return s

    agrees(f, vector(), loops=2)
    gradients_agree(f, vector())


def test_a_loop_counted_at_run_time():
    def f(x, n):
        p = Particle(x, 0.0)
        d = {"s": 0.5}
        for _ in range(n[0]):
            p.x = p.x * 0.5 + d["s"]
            d["s"] = d["s"] + p.x[0]
            p.v += 1.0
        return p.x, p.v, d["s"]

    made = tg.compile(f, backend="numpy")
    for n in (0, 1, 5):
        for g, w in zip(made(vector(), np.array([n])), f(vector(), np.array([n])), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-13)
    slope = tg.grad(lambda x, n: np.sum(f(x, n)[0]) + f(x, n)[2], backend="numpy")
    np.testing.assert_allclose(slope(vector(), np.array([0])), np.ones(N))


# -------------------------------------------------------------------- what lives outside, errors


class Counter:
    calls = 0


COUNTER = Counter()
TABLE = {"n": 0}


def called():
    called.times += 1
    return called.times


called.times = 0


def test_objects_outside_stay_as_they_are_handled():
    def f(x):
        s = 0.0
        for v in x:
            COUNTER.calls = COUNTER.calls + 1
            TABLE["n"] += 1
            s = s + v * TABLE["n"]
        return s

    COUNTER.calls, TABLE["n"] = 0, 0
    want = f(vector())
    COUNTER.calls, TABLE["n"] = 0, 0
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(vector()), want)
    assert COUNTER.calls == N and TABLE["n"] == N
    COUNTER.calls = TABLE["n"] = 0


def test_attributes_of_classes_and_functions():
    def f(x):
        class Own:
            n = 0

        def g(v):
            g.times += 1
            return v * g.times

        g.times, s = 0, 0.0
        for v in x:
            Own.n += 2
            s = s + g(v) * Own.n
        return s, Own.n, g.times

    agrees(f, vector(), loops=0)


def test_attributes_of_classes_and_functions_outside():
    def f(x):
        s = 0.0
        for v in x:
            Counter.calls += 1
            s = s + v * Counter.calls * called()
        return s

    Counter.calls = called.times = 0
    want = f(vector())
    Counter.calls = called.times = 0
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(vector()), want)


def test_bytes_that_change():
    def f(x):
        counts, s = bytearray(3), 0.0
        for v in x:
            counts[1] += 1
            s = s + v * counts[1]
        return s

    agrees(f, vector(), loops=0)


def test_nothing_of_a_failed_trial_survives():
    made = []

    def f(x):
        p = Particle(x, 0.0)
        made.append(p)
        for i in range(N):
            p.x = p.x * 0.5
            p.v = str(i)
        return p.x

    with pytest.raises(UnsupportedError):
        tg.compile(f, backend="numpy", loops="roll")(vector())

    def g(x):
        d = {"u": x, "why": ""}
        for v in x:
            try:
                d["u"] = d["u"] * v
                d["none"]
            except KeyError as e:
                d["why"] = str(e)
        return d["u"], d["why"]

    agrees(g, vector())


def test_an_exception_that_leaves_the_loop():
    def f(x):
        p = Particle(x * 1.0, 0.0)
        try:
            for v in x:
                p.x = p.x * v
                p.age += 1
                if p.age == 9:
                    raise ValueError
        except ValueError:
            p.v = p.x[0]
        return p.x, p.v, p.age

    agrees(f, vector())


def test_the_report_says_what_keeps_it_from_rolling():
    def f(x):
        p = Particle(x, 0.0)
        for i in range(N):
            p.x = p.x[: N - i]
        return p.x

    text = tg.compile(f, backend="numpy").explain(vector())
    assert "since p.x changes its shape, dtype, memory order or view" in text
