"""Triangular loops, and slices whose length depends on the index of a loop: each one loop."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tracegrad as tg
from tests.trace import ragged_programs
from tests.trace.rolling_laws import agrees, gradients_agree, loops_in
from tracegrad.errors import UnsupportedError, ViewMutationError
from tracegrad.graph.parse import parse_graph
from tracegrad.graph.text import print_graph

PROGRAMS = dict(inspect.getmembers(ragged_programs, inspect.isfunction))
# How many loop nodes the traced graph holds: what splits has several for one statement.
NODES = {
    "back_substitution": 1,
    "branch_on_both": 2,
    "correlation": 1,
    "covariance": 1,
    "durbin": 1,
    "gramschmidt": 2,
    "growing": 1,
    "lu": 3,
    "ludcmp": 5,
    "matvec": 1,
    "meanmax": 1,
    "new_arrays": 1,
    "normrow": 1,
    "overwrite": 1,
    "rank1": 1,
    "rank1b": 1,
    "rowsloop": 5,
    "running_and_joined": 1,
    "shapes": 1,
    "symm": 2,
    "syr2k": 2,
    "syrk": 2,
    "temporaries": 1,
    "three_deep": 3,
    "trisolv": 1,
    "trmm": 2,
}


@pytest.fixture
def matrix():
    rng = np.random.default_rng(3)
    return 0.3 * rng.standard_normal((11, 11)) + 3.0 * np.eye(11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rolled_is_unrolled_is_numpy(name, matrix):
    agrees(PROGRAMS[name], matrix)
    assert "unrolled" not in tg.compile(PROGRAMS[name], backend="numpy").explain(matrix)


@pytest.mark.parametrize("name", NODES)
def test_one_node_a_loop(name, matrix):
    assert loops_in(PROGRAMS[name], matrix) == NODES[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, matrix):
    gradients_agree(PROGRAMS[name], matrix)


@pytest.mark.parametrize("name", ["lu", "durbin", "gramschmidt", "overwrite", "matvec", "rank1"])
def test_compiled_gradients_are_those_of_the_interpreter(name, matrix):
    def total(a):
        return np.sum(np.sin(PROGRAMS[name](a)))

    want = tg.grad(total, backend="numpy")(matrix)
    np.testing.assert_allclose(tg.grad(total)(matrix), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["lu", "trisolv", "durbin", "meanmax", "three_deep"])
def test_forward_and_second_order(name, matrix):
    def total(a):
        return np.sum(np.sin(PROGRAMS[name](a)))

    way = np.cos(np.arange(121.0)).reshape(11, 11)
    gradient = tg.grad(total, backend="numpy")
    _, along = tg.jvp(total, (matrix,), (way,))
    assert np.isclose(along, np.sum(gradient(matrix) * way), rtol=1e-10)
    h = 1e-5
    near = (gradient(matrix + h * way) - gradient(matrix - h * way)) / (2 * h)
    twice = tg.hvp(total, (matrix,), (way,))
    np.testing.assert_allclose(twice, near, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stage", ["traced", "functional", "optimized"])
@pytest.mark.parametrize("name", ["lu", "rowsloop", "branch_on_both", "durbin"])
def test_text_parses_and_prints_back(name, stage, matrix):
    def total(a):
        return np.sum(PROGRAMS[name](a))

    text = str(tg.compile(tg.grad(total), backend="numpy").graph(matrix, stage=stage))
    assert print_graph(parse_graph(text)) == text


def test_the_size_of_the_graph_does_not_depend_on_the_trip_count():
    def lines(n):
        return len(tg.compile(PROGRAMS["lu"], backend="numpy").graph(np.eye(n)).splitlines())

    assert lines(10) == lines(500)


# ---------------------------------------------------------------------------------- boundaries


def ends(x):
    s = 0.0
    for i in range(len(x)):
        s = s + np.sum(x[:i]) * 1.5 + np.sum(x[i:]) + np.sum(x[:-i]) * 0.25
        s = s + np.sum(x[i : i + 3]) * 2.0 + np.sum(x[i - 1 : i + 1]) + np.sum(x[-i:]) * 0.5
        s = s + np.sum(x[i::2]) + np.sum(x[::-1][:i]) * 3.0 + np.sum(x[i::-1]) * 0.1
        s = s + np.sum(x[:i][::-1][: i // 2 + 1]) + np.sum(x[2 * i :])
    return s


def test_slices_at_every_end():
    x = np.arange(1.0, 12.0)
    agrees(ends, x)
    gradients_agree(ends, x)


def test_an_inner_slice_of_a_slice():
    def f(x):
        y = np.zeros_like(x)
        for i in range(2, len(x)):
            part = x[:i]
            y[i] = part[-1] + part[i - 1] * part[0] + np.sum(part[1:] * part[:-1])
        return y

    x = np.linspace(0.5, 2.0, 11)
    agrees(f, x, loops=1)
    gradients_agree(f, x)


def test_writes_through_a_slice_of_a_slice():
    def f(x):
        y = x * 1.0
        for i in range(3, len(x)):
            part = y[:i]
            part[1:] += 0.5 * part[:-1]
            part[::2] *= 1.1
            part[-1] = part[0]
        return y

    x = np.linspace(0.5, 2.0, 11)
    agrees(f, x, loops=1)
    gradients_agree(f, x)


def test_shapes_that_agree_in_one_iteration_only_unroll():
    def f(x):
        y = x * 1.0
        for i in range(1, len(x)):
            if i in (1, 5):
                y[:5] += x[:i]  # one element, then five
        return y

    agrees(f, np.linspace(0.5, 2.0, 11))


def test_shapes_that_do_not_agree_raise_as_numpy():
    def f(x):
        y = x * 1.0
        for i in range(1, len(x)):
            y[:i] += x[: i + 1]
        return y

    with pytest.raises(ValueError, match=r"could not be broadcast|non-broadcastable"):
        tg.compile(f, backend="numpy")(np.arange(10.0))


def test_out_of_range_in_the_last_iteration():
    def f(x):
        s = 0.0
        for i in range(len(x)):
            for j in range(i, len(x) + 1):
                s = s + x[j]
        return s

    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        tg.compile(f, backend="numpy")(np.arange(10.0))


def test_empty_reductions_raise_as_numpy():
    def f(x):
        s = 0.0
        for i in range(len(x)):
            s = s + np.max(x[:i])
        return s

    with pytest.raises(ValueError, match="zero-size array"):
        tg.compile(f, backend="numpy")(np.arange(10.0))


def test_squeeze_drops_an_axis_in_the_iteration_in_which_it_has_one_element():
    def f(x):
        y = np.zeros((len(x), len(x)))
        for i in range(1, len(x)):
            y[:i, i] = np.squeeze(x[:i])
        return y

    agrees(f, np.linspace(0.5, 2.0, 11))


def test_ranges_that_depend_on_two_indices_may_be_empty():
    def f(a):
        s = 0.0
        for i in range(len(a)):
            for j in range(i, len(a)):
                for k in range(i, j):
                    s = s + a[i, k] * a[k, j]
        return s

    a = np.cos(np.arange(81.0)).reshape(9, 9)
    agrees(f, a, loops=3)
    gradients_agree(f, a)


def test_backwards_and_with_steps():
    def f(a):
        s = 0.0
        for i in range(len(a) - 1, -1, -2):
            for j in range(i, -1, -1):
                s = s * 0.9 + a[i, j]
            for j in reversed(range(i)):
                s = s + a[j, i] * j
            for j in range(0, i + 1, 3):
                s = s + a[j, j]
        return s

    a = np.cos(np.arange(19.0 * 19)).reshape(19, 19)
    agrees(f, a, loops=4)
    gradients_agree(f, a)


def test_a_loop_variable_keeps_its_value_where_the_inner_loop_does_not_run():
    def f(a):
        s = 0.0
        j = 7
        for i in range(len(a)):
            for j in range(i):
                s = s + a[i, j]
            s = s + j
        return s

    agrees(f, np.cos(np.arange(81.0)).reshape(9, 9))


def test_an_array_of_another_size_in_each_iteration_used_behind_the_loop():
    def f(x):
        for i in range(1, len(x)):
            t = x[:i] * 2.0
        return t

    agrees(f, np.arange(10.0))


def test_explicit_ranges():
    def f(a):
        s = 0.0
        for i in tg.range(len(a)):
            for j in tg.range(i):
                s = s + a[i, j] * a[j, i]
        return s

    agrees(f, np.cos(np.arange(81.0)).reshape(9, 9), loops=2)


def test_explicit_ranges_say_why_they_cannot():
    def f(x):
        s = 0.0
        for i in tg.range(len(x)):
            s = s + float(np.argmax(x[: i + 1]))
        return s

    with pytest.raises(UnsupportedError) as e:
        tg.compile(f, backend="numpy")(np.arange(10.0))
    assert "for i in tg.range(len(x))" in str(e.value)


def test_exact_types_of_what_is_built():
    def f(x):
        out = np.zeros((len(x), 3))
        for i in range(1, len(x)):
            part = x[:i]
            out[i, 0] = np.mean(part)
            out[i, 1] = part.size + len(part) + part.shape[0]
            out[i, 2] = np.var(part) + np.linalg.norm(part)
        return out

    agrees(f, np.linspace(0.5, 2.0, 11), loops=1)
    gradients_agree(f, np.linspace(0.5, 2.0, 11))
    agrees(f, np.linspace(0.5, 2.0, 11, dtype=np.float32))


def test_a_write_through_a_view_that_repeats_an_element_is_refused():
    def repeated(x):
        y = x * 1.0
        for i in range(2, len(x)):
            y[i : i + 1].expand(i).add_(1.0)
        return y.sum()

    with pytest.raises(ViewMutationError, match="single memory location") as e:
        tg.compile(repeated, arrays="torch")(np.ones(9))
    assert "expand(i)" in str(e.value)


def rebound(x):
    for i in range(len(x)):
        s = x
        for j in range(i):
            s = s + 0.1 * j
        x = s * 0.5
    return x


def orthonormal(x):
    a = np.outer(x, x) + np.eye(len(x))
    q = np.zeros(a.shape)
    for i in range(len(x)):
        v = a[:, i].copy()
        for j in range(i):
            v = v - (v @ q[j]) * q[j]
        q[i] = v / np.sqrt(v @ v)
    return q


def kept_where_the_inner_loop_does_not_run(x):
    y = x * 1.0
    for i in range(len(x)):
        s = y
        for _ in range(i):
            s = s * 0.9
        s[0] = 5.0 + i  # writes y in the first iteration only
    return y


def passed_on(x):
    y, total = x * 1.0, 0.0
    for i in range(len(x)):
        a, b = y, x * 2.0
        for _ in range(i):
            a, b = b, b * 0.5
        a[1] = i * 1.0
        total = total + np.sum(a * b) + np.sum(y)
    return total


def exchanged(x):
    a, b = x * 1.0, x * 2.0
    for i in range(len(x)):
        for _ in range(i):
            a, b = b, 0.5 * b + 0.1 * a
    return a - b


@pytest.mark.parametrize(
    "f", [rebound, orthonormal, kept_where_the_inner_loop_does_not_run, passed_on, exchanged]
)
def test_arrays_that_inner_loops_bind_anew(f):
    x = np.linspace(0.5, 2.0, 12)
    agrees(f, x)
    gradients_agree(f, x)


@pytest.mark.parametrize("f", [rebound, orthonormal, passed_on])
def test_arrays_that_inner_loops_bind_anew_are_carried(f):
    assert "unrolled" not in tg.compile(f, backend="numpy").explain(np.linspace(0.5, 2.0, 12))


METHODS = [
    lambda v: v.view(-1),
    lambda v: v.view(1, -1)[0],
    lambda v: v.flip(0),
    lambda v: v.flatten(),
    lambda v: v.unsqueeze(0)[0],
    lambda v: v.unsqueeze(-1).expand(v.shape[0], 2)[:, 1],
    lambda v: v.expand_as(v),
    lambda v: v.view_as(v),
    lambda v: v.reshape_as(v.clone()),
    lambda v: v.contiguous(),
    lambda v: v.t() if v.dim() > 1 else v,
    lambda v: v.clone().view(v.size(0)),
    lambda v: v.narrow(0, 0, v.shape[0] - 1),
    lambda v: v.chunk(2)[0],
    lambda v: v.split(2)[0],
    lambda v: v.unbind()[0],
    lambda v: v.cumsum(0),
    lambda v: v.repeat(2),
    lambda v: v.roll(1),
    lambda v: v.detach() + v,
    lambda v: v.to(np.float32),
    lambda v: v.unflatten(0, (v.shape[0], 1)),
    lambda v: v.squeeze(),
    lambda v: v.diagonal() if v.dim() > 1 else v,
]


@pytest.mark.parametrize("k", range(len(METHODS)))
def test_methods_of_tensors_of_changing_sizes(k):
    def f(x):
        y = x * 1.0
        for i in range(2, len(x)):
            y[i] += (METHODS[k](y[:i]) * 0.1).sum()
        return y.sum()

    x = np.linspace(0.5, 2.0, 12)
    rolled, unrolled = (
        tg.value_and_grad(f, arrays="torch", backend="numpy", loops=way)(x)
        for way in ("auto", "unroll")
    )
    np.testing.assert_allclose(rolled[0], unrolled[0], rtol=1e-6)
    np.testing.assert_allclose(rolled[1], unrolled[1], rtol=1e-6)


def columns_first(a):
    s = 0.0
    for i in range(2, len(a)):
        t = np.zeros((i, 3), order="F")
        flat = t.ravel()  # a copy
        flat[:] = 1.0
        s = s + np.sum(t) * a[i, 0]
    return s


def like_columns_first(a):
    s = 0.0
    for i in range(2, len(a)):
        for make in (np.zeros_like, np.ones_like):
            u = make(a[:i, :3].T)
            v = u.T.ravel()  # a view
            v += 1.0
            s = s + np.sum(u) * a[i, 0]
    return s


@pytest.mark.parametrize("f", [columns_first, like_columns_first])
def test_layouts_of_new_arrays(f):
    agrees(f, np.arange(144.0).reshape(12, 12))
