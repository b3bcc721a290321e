"""Arguments, results and captured arrays that share memory: one test for each row of the table
of traced functions (views specification, section 20)."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import (
    CaptureError,
    OptionError,
    TracegradError,
    ViewMutationError,
)


def numbers(*shape):
    return np.sin(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def slope(f, arguments, x):
    """Central differences of ``f(*arguments(x))`` with respect to x."""
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * 1e-6
            out[at] += sign * f(*arguments(moved)) / 2e-6
    return out


# ----------------------------------------------------------------------- rows of the specification


def test_an_argument_that_is_written_is_written_back_after_the_last_read():
    @tg.compile
    def f(x, w):
        s = np.sum(x * w)
        x[1:3] *= 2.0
        return s + x[0]

    x, w = numbers(4), numbers(4)[::-1].copy()
    want, before = float(x @ w + x[0]), x.copy()
    assert f(x, w) == pytest.approx(want)
    np.testing.assert_array_equal(x, before * [1, 2, 2, 1])
    frozen = numbers(4)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only") as caught:
        f(frozen, w)
    assert isinstance(caught.value, TracegradError)
    np.testing.assert_array_equal(frozen, numbers(4))


def test_a_write_under_grad_differentiates_by_the_value_on_entry():
    def f(x):
        x[...] = np.sin(x)
        return np.sum(x * x)

    x = numbers(3)
    entry = x.copy()
    np.testing.assert_allclose(tg.grad(f)(x), 2 * np.sin(entry) * np.cos(entry))
    np.testing.assert_allclose(x, np.sin(entry))


@pytest.mark.parametrize("written", [False, True])
def test_a_view_of_an_argument_comes_back_as_a_view_of_the_callers_memory(written):
    def f(x):
        v = x[1:]
        if written:
            x *= 3.0
        return {"part": (v, v[::-1]), "sum": x.sum()}

    x = numbers(4)
    for _ in range(2):
        out = tg.compile(f)(x)
        part, back = out["part"]
        np.testing.assert_array_equal(part, x[1:])
        part[0] = 7.0
        assert x[1] == 7.0 == back[-1]
    out = tg.compile(f, copy_outputs=True)(x)["part"][0]
    np.testing.assert_array_equal(out, x[1:])
    assert not np.shares_memory(out, x)


def test_a_gradient_is_a_fresh_array():
    x = numbers(3)
    value, grad = tg.value_and_grad(lambda x: np.sum(x[1:] * x[1:]))(x)
    again = tg.grad(lambda x: np.sum(x))(x)
    assert value > 0
    assert not np.shares_memory(grad, x) and not np.shares_memory(again, x)
    grad[...] = again[...] = 5.0  # writable, and nobody else's
    np.testing.assert_array_equal(x, numbers(3))


def test_an_argument_that_is_returned_is_the_same_object():
    @tg.compile
    def f(x, y):
        x *= 2.0
        return x, [y, x[:]], x

    x, y = numbers(3), numbers(2)
    for _ in range(2):
        first, (second, whole), third = f(x, y)
        assert first is x and third is x and second is y
        assert whole is not x and np.shares_memory(whole, x) and whole.shape == x.shape
    out = tg.compile(f.fn, copy_outputs=True)(x, y)
    assert not np.shares_memory(out[0], x) and not np.shares_memory(out[1][0], y)


def test_results_that_view_one_intermediate_share_memory():
    @tg.compile
    def f(x):
        y = x * 2.0
        y[1:3] *= 3.0
        z = x + 1.0
        return y[:3], {"tail": (y[1:], [y]), "apart": (z[:2], z[2:])}, y, y.sum()

    for k in range(2):
        x = numbers(4) + k
        head, tree, whole, total = f(x)
        tail, (same,) = tree["tail"]
        want = x * [2.0, 6.0, 6.0, 2.0]
        np.testing.assert_array_equal(whole, want)
        np.testing.assert_array_equal(head, want[:3])
        np.testing.assert_array_equal(tail, want[1:])
        assert same is whole and total == pytest.approx(want.sum())
        head[1] = 100.0
        assert whole[1] == tail[0] == 100.0
        np.testing.assert_array_equal(np.concatenate(tree["apart"]), x + 1.0)
    copies = tg.compile(f.fn, copy_outputs=True)(numbers(4))
    assert not np.shares_memory(copies[0], copies[2])


def test_a_single_view_of_an_intermediate_is_an_array_of_its_own():
    out = tg.compile(lambda x: (x * 2.0)[1:3])(numbers(100))
    assert out.base is None and out.shape == (2,)


def test_overlapping_windows_of_an_intermediate_that_is_written_later():
    @tg.compile(arrays="torch")
    def f(x):
        y = x * 1.0
        w = y.unfold(0, 3, 1)
        y *= 2.0
        return w, y

    windows, y = f(numbers(5))
    np.testing.assert_array_equal(y, 2 * numbers(5))
    np.testing.assert_array_equal(windows, np.lib.stride_tricks.sliding_window_view(y, 3))
    y[2] = 9.0
    assert windows[0, 2] == windows[1, 1] == windows[2, 0] == 9.0

    def weighed(x):
        w, y = f.fn(x)
        return (w * np.arange(9.0).reshape(3, 3)).sum() + y.sum()

    got = tg.grad(weighed, arrays="torch")(numbers(5))
    np.testing.assert_allclose(got, 2 * (np.array([0.0, 1 + 3, 2 + 4 + 6, 5 + 7, 8]) + 1.0))


def double_then_read(a, b):
    a *= 2.0
    return np.sin(b).sum()


VIEWS = {
    "separate": lambda x: numbers(2),
    "head": lambda x: x[:2],
    "middle": lambda x: x[1:3],
    "every other": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2),
    "itself": lambda x: x,
    "reshaped": lambda x: x.reshape(2, 2),
    "expanded": lambda x: np.broadcast_to(x[1:2], (3,)),
}


@pytest.mark.parametrize(
    "order",
    [
        ["separate", "middle", "separate"],
        ["middle", "separate", "head", "middle"],
        ["itself", "every other", "separate", "reversed", "windows", "reshaped", "expanded"],
    ],
)
def test_one_function_called_with_every_alias_pattern_gives_right_values(order):
    f = tg.compile(double_then_read)
    for name in [*order, *order]:
        x, plain = numbers(4), numbers(4)
        second = VIEWS[name](plain)
        want = double_then_read(plain, second)
        assert f(x, VIEWS[name](x)) == pytest.approx(want, abs=1e-13), name
        np.testing.assert_array_equal(x, plain)
    assert f.cache_info().misses == len(set(order))
    assert f.cache_info().hits == 2 * len(order) - len(set(order))


def test_arguments_that_share_a_range_but_no_element_are_separate():
    @tg.compile
    def f(a, b):
        a += 1.0
        return a * b

    x = np.arange(8.0)
    evens, odds = x[::2], x[1::2]
    np.testing.assert_array_equal(f(evens, odds), [1 * 1, 3 * 3, 5 * 5, 7 * 7])
    np.testing.assert_array_equal(x, [1, 1, 3, 3, 5, 5, 7, 7])
    assert f.lower(evens, odds).specialisation.traced.groups == ()
    m = np.zeros((3, 4))
    f(m[:, :2], m[:, 2:])
    np.testing.assert_array_equal(m, [[1, 1, 0, 0]] * 3)
    _, grads = tg.value_and_grad(lambda a, b: np.sum(f.fn(a, b)), argnums=(0, 1))(evens, odds)
    np.testing.assert_array_equal(grads[0], x[1::2])
    np.testing.assert_array_equal(grads[1], x[::2])


def test_the_same_array_passed_twice():
    def f(x, y):
        x *= 2.0
        y += 1.0
        return np.sum(np.sin(x) * y)

    compiled = tg.compile(f)
    for _ in range(2):
        x, plain = numbers(3), numbers(3)
        assert compiled(x, x) == pytest.approx(f(plain, plain))
        np.testing.assert_array_equal(x, plain)
    x = numbers(3)
    whole, rest = tg.grad(f, argnums=(0, 1))(x, x)
    np.testing.assert_allclose(whole, slope(f, lambda x: (x, x), numbers(3)), atol=1e-8)
    np.testing.assert_array_equal(rest, np.zeros(3))


def test_read_only_aliases_have_a_partial_derivative_each():
    x = numbers(4)
    f = tg.grad(lambda a, b: np.sum(a * a * b), argnums=(0, 1))
    first, second = f(x, x)
    np.testing.assert_allclose(first, 2 * x * x)
    np.testing.assert_allclose(second, x * x)
    first, second = f(x[1:], x[:-1])
    np.testing.assert_allclose(first, 2 * x[1:] * x[:-1])
    np.testing.assert_allclose(second, x[1:] ** 2)


BUFFER = np.zeros(4)


def test_a_closed_over_array_is_written_back_and_has_no_gradient():
    local = np.zeros(2)

    @tg.compile
    def f(x):
        BUFFER[1:3] += 1.0
        with tg.no_grad():
            local[...] = x[:2]
        return np.sum(x * BUFFER)

    BUFFER[...] = 0.0
    x = numbers(4)
    assert f(x) == pytest.approx(x[1] + x[2])
    assert f(x) == pytest.approx(2 * (x[1] + x[2]))
    np.testing.assert_array_equal(BUFFER, [0, 2, 2, 0])
    np.testing.assert_array_equal(local, x[:2])
    np.testing.assert_array_equal(tg.grad(f)(x), [0, 3, 3, 0])

    def stores(x):
        local[...] = x[:2]
        return np.sum(x * x)

    with pytest.raises(CaptureError) as caught:
        tg.grad(stores)(x)
    assert caught.value.kind == "closure_mutation"


def test_a_closed_over_array_that_overlaps_an_argument():
    def f(x):
        x *= 2.0
        BUFFER[0] = 5.0
        return np.sum(x * BUFFER[:3])

    compiled = tg.compile(f)
    for call in (compiled, f, compiled):
        for argument in (lambda: BUFFER[1:], lambda: numbers(3), lambda: BUFFER[:3]):
            BUFFER[...] = [1.0, 2.0, 3.0, 4.0]
            got = call(argument())
            after = BUFFER.copy()
            BUFFER[...] = [1.0, 2.0, 3.0, 4.0]
            assert got == f(argument())
            np.testing.assert_array_equal(after, BUFFER)
    BUFFER[...] = [1.0, 2.0, 3.0, 4.0]
    # sum(2b * (5, 2b[:2])) with b = BUFFER[1:] on entry
    np.testing.assert_array_equal(tg.grad(f)(BUFFER[1:]), [10 + 4 * 3, 4 * (2 + 4), 4 * 3])


def test_two_closed_over_arrays_that_overlap():
    base = np.arange(4.0)
    tail = base[1:]

    @tg.compile
    def f(x):
        base[...] = base * x
        return tail.sum()

    assert f(2.0) == 12.0
    assert f(2.0) == 24.0
    np.testing.assert_array_equal(tail, [4.0, 8.0, 12.0])


def test_a_write_under_no_grad_replaces_the_value_and_keeps_the_gradients_path():
    def f(x):
        with tg.no_grad():
            x *= 2.0
        return np.sum(x * x)

    x = numbers(3)
    np.testing.assert_allclose(tg.grad(f)(x), 4 * numbers(3))
    np.testing.assert_array_equal(x, 2 * numbers(3))


def test_errors_of_creation_metadata_are_raised_while_tracing():
    def f(x):
        with tg.no_grad():
            v = x[1:]
        v *= 2.0
        return np.sum(x)

    x = numbers(3)
    with pytest.raises(ViewMutationError) as caught:
        tg.grad(f)(x)
    assert caught.value.kind == "no_grad_view_inplace"
    assert "v *= 2.0" in str(caught.value)
    np.testing.assert_array_equal(x, numbers(3))


def test_a_saved_value_may_be_overwritten():
    def f(x):
        s = np.sum(x * x)
        x[...] = 0.0
        return s

    x = numbers(3)
    np.testing.assert_allclose(tg.grad(f)(x), 2 * numbers(3))
    np.testing.assert_array_equal(x, np.zeros(3))


def test_a_write_to_an_array_whose_elements_overlap_is_refused():
    row = numbers(3)
    rows = np.lib.stride_tricks.as_strided(row, (2, 3), (0, 8))

    def f(x):
        x += 1.0
        return x.sum()

    for call in (tg.compile(f), tg.grad(f), tg.compile(f)):
        with pytest.raises(ViewMutationError) as caught:
            call(rows)
        assert caught.value.kind == "overlap"
        assert "x += 1.0" in str(caught.value)
    np.testing.assert_array_equal(row, numbers(3))

    @tg.compile
    def one_row(x):
        x[0] += 1.0
        return x[1].sum()

    assert one_row(rows) == pytest.approx(numbers(3).sum() + 3)
    np.testing.assert_array_equal(row, numbers(3) + 1.0)


def test_a_write_through_windows_with_gaps_leaves_the_gaps():
    @tg.compile(arrays="torch")
    def f(x):
        x.unfold(0, 2, 3).mul_(10.0)
        return x.sum()

    x = np.arange(1.0, 9.0)
    f(x)
    np.testing.assert_array_equal(x, [10, 20, 3, 40, 50, 6, 70, 80])


def test_operands_that_partly_overlap_are_copied_first():
    def f(x, y):
        x[1:] += x[:-1]
        y[...] = y[::-1]
        return np.sum(x * np.arange(4.0))

    x, plain = numbers(4), numbers(4)
    assert tg.compile(f)(x, x) == pytest.approx(f(plain, plain))
    np.testing.assert_array_equal(x, plain)


def test_detach_in_place_is_refused_on_arguments_and_allowed_on_locals():
    def on_argument(x, y):
        y.detach_()
        return x.sum()

    def on_local(x, y):
        z = y * 2.0
        z.detach_()
        return (x * z).sum()

    x = numbers(3)
    for call in (tg.compile(on_argument, arrays="torch"), tg.grad(on_argument, arrays="torch")):
        for y in (numbers(3), x, x[1:]):
            with pytest.raises(TracegradError):
                call(x, y)
    np.testing.assert_allclose(
        tg.grad(on_local, argnums=(0, 1), arrays="torch")(x, x), [2 * x, np.zeros(3)]
    )


def assigns(name, value):
    def f(x):
        setattr(x, name, value)
        return x.sum()

    return f


def calls(name, *args):
    def f(x):
        getattr(x, name)(*args)
        return x.sum()

    return f


@pytest.mark.parametrize(
    "face, f",
    [
        *(
            ("numpy", assigns(*pair))
            for pair in [("shape", (4,)), ("strides", (8, 16)), ("dtype", np.int64), ("data", b"")]
        ),
        *(("torch", assigns(*pair)) for pair in [("data", np.zeros(4))]),
        *(
            ("torch", calls(*call))
            for call in [
                ("t_",),
                ("unsqueeze_", 0),
                ("squeeze_",),
                ("transpose_", 0, 1),
                ("swapaxes_", 0, 1),
                ("set_",),
                ("resize_", 4),
            ]
        ),
        ("torch", lambda x: x.data.sum()),
        ("numpy", calls("resize", (4,))),
    ],
)
def test_changing_what_an_argument_is_is_refused(face, f):
    x = numbers(2, 2)
    with pytest.raises(TracegradError) as caught:
        tg.compile(f, arrays=face)(x)
    assert caught.value.loc is not None
    assert x.shape == (2, 2) and x.strides == (16, 8)


def test_donation_is_not_offered():
    with pytest.raises(OptionError, match="donate"):
        tg.compile(lambda x: x, donate=True)
