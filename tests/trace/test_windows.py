"""``A[k]`` for an integer `k` that is known only when the function runs is a view, as in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.rolling_laws import agrees, copied, gradients_agree
from tracegrad.errors import UnsupportedError
from tracegrad.trace.leaves import flatten


def writes_the_view(A, k):
    row = A[k[0]]
    row[0] = 5.0
    row *= A[0, 1]
    return row


def writes_the_array(A, k):
    row = A[k[0]]
    A[k[0], 0] = 5.0
    A *= 2.0
    return row * 1.0


def in_turns(A, k):
    row, same = A[k[0]], A[k[0]]
    row[1] = 2.0
    A[:, 2] = 7.0
    same[0] = row[1] + same[2]
    return row + A[k[0]]


def views_of_views(A, k):
    row = A[1:][k[1]]
    part = row[1:]
    part[0] = 3.0
    A[:, 2] += 1.0
    return part * 2.0


def along_other_axes(A, k):
    column = A[:, k[0]]
    column += 1.0
    A[1:, k[1]] = column[1:] * 2.0
    return column.copy()


def element_of_a_view(A, k):
    A[k[0]][1] = 7.0
    A[k[0]][k[1]] -= 1.0
    return A[k[0]][1]


def out_argument(A, k):
    np.add(A[0], A[1], out=A[k[0]])
    return A


def of_a_view_at_an_index(A, k):
    B = np.zeros((2, 3, 4))
    block = B[k[0] % 2]
    row = block[k[1]]
    row[:] = A[0]
    block[0] += 1.0
    B[:, :, 1] *= 3.0
    return B, row * 1.0


def of_known_contents(A, k):
    table = np.arange(12.0).reshape(3, 4)
    row = table[k[0]]
    row[0] = A[0, 0]
    table[k[0], 1] = A[1, 1]
    return table, row + 0.0


def in_a_loop(A, k):
    for i in range(9):
        row = A[(k[0] + i) % 3]
        row += 0.1 * A[i % 3]
        row[0] = row[1]
    return A


def copies(A, k):
    index = np.array([k[0]])
    rows, row = A[index], A[k[0]].copy()
    rows[0, 0] = 9.0
    row[1] = 9.0
    return rows, row


PROGRAMS = [
    writes_the_view,
    writes_the_array,
    in_turns,
    views_of_views,
    along_other_axes,
    element_of_a_view,
    out_argument,
    of_a_view_at_an_index,
    of_known_contents,
    in_a_loop,
    copies,
]


@pytest.fixture
def A():
    return np.random.default_rng(3).random((3, 4))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_writes_are_seen_on_both_sides(f, A):
    made = tg.compile(f, backend="numpy")
    for k in ((1, 0), (2, 1), (-1, -2)):
        plain, given = copied((A, np.array(k))), copied((A, np.array(k)))
        want, got = flatten((f(*plain), plain))[0], flatten((made(*given), given))[0]
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-14, err_msg=f"{k}")


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(f, A):
    gradients_agree(lambda A: (f(A := A * 1.0, np.array([2, 1]) + np.sum(A > 9.0)), A), A)


def test_a_stored_view_is_not_written_twice(A):
    def f(A, k):
        A[k[0]] += 1.0
        return A

    text = tg.compile(f).graph(A, np.array([1, 0]), stage="functional")
    assert text.count("scatter_set(") == 1


def test_a_tensor_of_one_element_is_a_view_as_in_pytorch():
    torch = pytest.importorskip("torch")

    def f(x, k):
        y = x * 2.0
        element = y[k[0]]
        element.add_(1.0)
        y.mul_(3.0)
        return y, element * 1.0

    x, k = np.arange(4.0), np.array([2, 0])
    want = f(torch.tensor(x), torch.tensor(k))
    got = tg.compile(f, backend="numpy")(tg.tensor(x), tg.tensor(k))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy())


# --------------------------------------------------------------------- regions of the graph


def test_a_loop_that_sees_both_sides_unrolls(A):
    def f(A, k):
        row, s = A[k[0]], 0.0
        for i in range(9):
            A[1, i % 4] += 1.0
            s += row[i % 4]
        return s

    agrees(f, A, np.array([1, 0]), loops=0)


def test_a_loop_writes_the_view_alone(A):
    def f(A, k):
        row = A[k[0]]
        for i in range(1, 4):
            row[i] = row[i - 1] * 0.5
        return A

    agrees(f, A, np.array([1, 0]))


def test_a_view_that_goes_on_to_the_next_iteration_unrolls(A):
    def f(A, k):
        before = A[0]
        for i in range(9):
            A[:, 1] += before[2]
            before = A[(k[0] + i) % 3]
        return before

    agrees(f, A, np.array([1, 0]), loops=0)


def test_a_view_behind_its_loop_unrolls(A):
    def f(A, k):
        for i in range(9):
            row = A[(k[0] + i) % 3]
            row[0] += 1.0
        row[1] = 8.0
        return A

    agrees(f, A, np.array([1, 0]), loops=0)


def test_functions_that_see_both_sides_are_refused(A):
    def f(A, k):
        row = A[k[0]]

        def body(i, s):
            A[1, 0] = i * 1.0
            return s + row[0]

        return tg.fori_loop(0, 4, body, 0.0)

    with pytest.raises(UnsupportedError, match="it has a view at a traced index") as e:
        tg.compile(f)(A, np.array([1, 0]))
    assert "tg.fori_loop(0, 4, body, 0.0)" in e.value.loc.quote()


def test_a_view_read_without_gradients_keeps_the_path_of_what_was_written():
    torch = pytest.importorskip("torch")

    def f(lib, x, k):
        y = x * 2.0
        row = y[k[0]]
        y.mul_(x)
        with lib.no_grad():
            seen = row.sum()
        return (row * row).sum() + seen

    x, k = np.arange(1.0, 7.0).reshape(3, 2), np.array([1])
    given = torch.tensor(x, requires_grad=True)
    f(torch, given, torch.tensor(k)).backward()
    got = tg.grad(lambda x: f(tg, x, tg.tensor(k)), backend="numpy")(tg.tensor(x))
    np.testing.assert_allclose(got.numpy(), given.grad.numpy())
