"""Arguments, results and captured arrays that share memory: one test for each row of the table
of traced functions (views specification, section 20), then the alias pattern itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import (
    ArgumentError,
    CaptureError,
    OptionError,
    TracegradError,
    ViewMutationError,
)
from tracegrad.graph.storage import View
from tracegrad.ops.views import apply_view
from tracegrad.trace.alias_pattern import copy_together, find_groups

CORPUS = Path(__file__).parent / "conformance"


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


# ------------------------------------------------------------------- rows of the specification


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


@pytest.mark.parametrize("order", [
    ["separate", "middle", "separate"], ["middle", "separate", "head", "middle"],
    ["itself", "every other", "separate", "reversed", "windows", "reshaped", "expanded"],
])
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
        tg.grad(on_local, argnums=(0, 1), arrays="torch")(x, x), [2 * x, np.zeros(3)])


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


@pytest.mark.parametrize("face, f", [
    *(("numpy", assigns(*pair)) for pair in [
        ("shape", (4,)), ("strides", (8, 16)), ("dtype", np.int64), ("data", b"")]),
    *(("torch", assigns(*pair)) for pair in [("data", np.zeros(4)), ("requires_grad", True)]),
    *(("torch", calls(*call)) for call in [
        ("t_",), ("unsqueeze_", 0), ("squeeze_",), ("transpose_", 0, 1), ("swapaxes_", 0, 1),
        ("set_",), ("resize_", 4), ("requires_grad_",)]),
    ("torch", lambda x: x.data.sum()),
    ("numpy", calls("resize", (4,))),
])
def test_changing_what_an_argument_is_is_refused(face, f):
    x = numbers(2, 2)
    with pytest.raises(TracegradError) as caught:
        tg.compile(f, arrays=face)(x)
    assert caught.value.loc is not None
    assert x.shape == (2, 2) and x.strides == (16, 8)


def test_donation_is_not_offered():
    with pytest.raises(OptionError, match="donate"):
        tg.compile(lambda x: x, donate=True)


# ---------------------------------------------------------------------- the corpus, by real aliases


class Spelled(np.ndarray):
    """An ndarray on which the corpus's way of making aliases works."""

    def permute(self, *order):
        return self.transpose(order)


class Corpus:
    """Cases of the corpus with arrays that share memory at the call, one compiled function a
    case function."""

    def __init__(self, monkeypatch):
        monkeypatch.syspath_prepend(str(CORPUS))
        for name in ("cases", "check"):
            sys.modules.pop(name, None)
        import cases
        import check

        self.check = check
        self.weight = cases.weight
        self.cases = [c for c in cases.load_dir(str(CORPUS)) if c.module == "aliasing_args"]
        self.expected = json.loads((CORPUS / "expected.json").read_text())["cases"]
        self.made = {}

    def arguments(self, case):
        args = []
        for p, s in enumerate(case.inputs):
            if s.is_alias:
                args.append(s.how(args[s.of].view(Spelled)).view(np.ndarray))
            else:
                args.append(np.array(s.flat(p)).reshape(s.shape))
            assert not s.is_alias or np.shares_memory(args[p], args[s.of])
        return args

    def function(self, case, diff):
        if (case.fn, diff) not in self.made:
            def objective(*args):
                found = case.fn(tg, *args)
                outs = list(found) if isinstance(found, tuple) else [found]
                total = 0.0
                for k, o in enumerate(outs):
                    size = int(np.prod(o.shape))
                    w = np.array([self.weight(k, i) for i in range(size)]).reshape(o.shape)
                    total = total + (o * w).sum()
                return total, outs

            self.made[case.fn, diff] = (
                tg.value_and_grad(objective, argnums=diff, has_aux=True, arrays="torch"),
                tg.compile(lambda *args: case.fn(tg, *args), arrays="torch"))
        return self.made[case.fn, diff]

    def run(self, case):
        """Messages of what differs from the recorded answer."""
        diff = tuple(case.diff_positions())
        with_grad, plain = self.function(case, diff)
        args = self.arguments(case)
        (_, outs), grads = with_grad(*args)
        want = self.expected[case.name]
        want = want.get("or_value", want)

        class Result:
            outputs = [np.asarray(o) for o in outs]
            grads_ = dict(zip(diff, grads, strict=True))
            finals = dict(enumerate(args))

        Result.grads = Result.grads_
        found = [self.check.compare(case, Result, want)]
        args = self.arguments(case)
        out = plain(*args)
        Result.outputs = list(out) if isinstance(out, tuple) else [out]
        Result.finals = dict(enumerate(args))
        found.append(self.check.compare(case, Result, want))
        return [f"{case.name}: {m}" for m in found if m]


def test_the_corpus_with_arrays_that_really_alias(monkeypatch):
    corpus = Corpus(monkeypatch)
    assert len(corpus.cases) >= 29
    assert any(s.is_alias for c in corpus.cases for s in c.inputs)
    problems = [m for case in [*corpus.cases, *reversed(corpus.cases)] for m in corpus.run(case)]
    assert problems == []


# --------------------------------------------------------------------------------- transforms


def overlap_loss(a, b):
    a *= 2.0
    b[...] = b * a[0]
    return np.sum(np.sin(a)) + np.sum(b * b)


@pytest.mark.parametrize("arguments", [
    lambda x: (x, x[1:]), lambda x: (x[:3], x[1:]), lambda x: (x[::-1], x[1:3]),
    lambda x: (x[:2], x), lambda x: (x, x),
], ids=["view", "partly", "reversed", "base second", "same"])
def test_every_element_of_shared_memory_is_reported_once(arguments):
    x = numbers(4)
    want = slope(overlap_loss, arguments, numbers(4))
    a, b = arguments(x)
    first, second = tg.grad(overlap_loss, argnums=(0, 1))(a, b)
    places = arguments(np.arange(4))
    total = np.zeros(4)
    np.add.at(total, places[0], first)
    np.add.at(total, places[1], second)
    np.testing.assert_allclose(total, want, atol=1e-7)
    root = 0 if a.size >= b.size else 1
    covers = set(places[1 - root]) <= set(places[root])
    assert not covers or not (first, second)[1 - root].any()

    plain = numbers(4)
    overlap_loss(*arguments(plain))
    np.testing.assert_allclose(x, plain)

    # Each alone: the whole gradient of what it reads.
    for n in (0, 1):
        got = tg.grad(overlap_loss, argnums=n)(*arguments(numbers(4)))
        np.testing.assert_allclose(got, want[places[n]], atol=1e-7)

    # Forward mode is the transpose.
    x = numbers(4)
    t = [np.cos(np.arange(1.0, 1 + p.size)) for p in places]
    _, moved = tg.jvp(overlap_loss, arguments(x), tuple(t))
    assert moved == pytest.approx(first @ t[0] + second @ t[1])

    x = numbers(4)
    value, pull = tg.vjp(overlap_loss, *arguments(x))
    np.testing.assert_allclose(x, plain)
    again = pull(1.0)
    np.testing.assert_allclose(again[0], first)
    np.testing.assert_allclose(again[1], second)


def test_jacobians_and_hessians_of_shared_memory():
    def f(a, b):
        a *= 2.0
        return a * b

    def of(x):
        return (x, x[::-1])

    x = numbers(3)
    want = np.array([slope(lambda a, b, k=k: f(a, b)[k], of, x) for k in range(3)])
    for jacobian in (tg.jacrev, tg.jacfwd):
        whole, rest = jacobian(f, argnums=(0, 1))(*of(numbers(3)))
        np.testing.assert_allclose(whole, want, atol=1e-7)
        np.testing.assert_array_equal(rest, np.zeros((3, 3)))
        np.testing.assert_allclose(
            jacobian(f, argnums=1)(*of(numbers(3))), want[:, ::-1], atol=1e-7)
    x = numbers(3)
    want = tg.hessian(lambda x: np.sum(4 * x * x[::-1]))(x)
    np.testing.assert_allclose(tg.hessian(lambda a, b: np.sum(f(a, b)))(*of(x)), 0.5 * want)


def test_views_of_one_array_stay_views_in_a_transform_inside_a_trace():
    @tg.compile
    def outer(x):
        z = x * 1.0
        grads = tg.grad(overlap_loss, argnums=(0, 1))(z, z[1:])
        return grads, z

    (first, second), z = outer(numbers(4))
    plain = numbers(4)
    want = slope(overlap_loss, lambda x: (x, x[1:]), plain)
    overlap_loss(plain, plain[1:])
    np.testing.assert_allclose(first, want, atol=1e-7)
    np.testing.assert_array_equal(second, np.zeros(3))
    np.testing.assert_allclose(z, plain)


def test_an_argument_and_a_closed_over_view_of_it_in_a_transform_inside_a_trace():
    def inner_of(z):
        def inner(a):
            a *= 2.0
            return np.sum(a * a * z[: a.size])

        return inner

    @tg.compile
    def outer(x):
        z = x * 1.0
        return tg.grad(inner_of(z))(z[:3]), z

    grad, z = outer(numbers(4))
    np.testing.assert_allclose(grad, 24 * numbers(4)[:3] ** 2)
    np.testing.assert_allclose(z, numbers(4) * [2, 2, 2, 1])


def test_an_array_passed_to_a_transform_inside_a_trace_that_only_reads_it_is_apart():
    @tg.compile
    def outer(x):
        return tg.grad(lambda a, b: np.sum(a * b * x), argnums=(0, 1))(x, x)

    for got in outer(numbers(3)):
        np.testing.assert_allclose(got, numbers(3) ** 2)


def test_second_derivatives_through_shared_memory_inside_a_trace():
    def inner(a, b):
        a *= a
        return np.sum(a[1:] * b)

    def outer(x):
        z = x * 1.0
        return np.sum(tg.grad(inner)(z, z[1:]) ** 2)

    x = numbers(3)
    # inner is the sum of x_k ** 4 over k >= 1
    np.testing.assert_allclose(tg.grad(outer)(x), 2 * 4 * x**3 * 12 * x**2 * [0, 1, 1])


def test_a_tangent_that_is_the_primal_itself():
    def f(x):
        x *= 3.0
        return np.sum(x * x)

    x = numbers(3)
    value, moved = tg.jvp(f, (x,), (x,))
    assert value == pytest.approx(9 * (numbers(3) ** 2).sum())
    assert moved == pytest.approx(18 * (numbers(3) ** 2).sum())


# --------------------------------------------------------------------------- the call and its paths


def test_arguments_of_different_dtypes_that_share_written_memory_are_refused():
    @tg.compile
    def f(x, y):
        x[0] = 1.0
        return x.sum() + y.sum()

    x = numbers(4)
    shifted = np.ndarray((3,), np.float64, x.data, 4)
    for other in (x.view(np.int64), x.view(np.float32), shifted):
        with pytest.raises(ArgumentError, match="x, y") as caught:
            f(x, other)
        assert caught.value.kind == "aliasing_args"
        np.testing.assert_array_equal(x, numbers(4))
    assert np.isfinite(f(x, numbers(2)))
    reads = tg.compile(lambda x, y: x.sum() + y.sum())
    assert reads(x, x.view(np.int64)) == x.sum() + x.view(np.int64).sum()


@pytest.mark.parametrize("backend", ["c", "numpy"])
def test_arguments_written_late_share_memory_too(backend):
    @tg.compile(backend=backend)
    def f(x, y, i):
        x *= 2.0
        x[i] = y[0]
        return y.sum()

    for i in (1, 1, 7):
        x, plain = numbers(4), numbers(4)
        if i == 7:
            with pytest.raises(IndexError):
                f(x, x[1:], np.int64(i))
            np.testing.assert_array_equal(x, plain)
            continue
        plain *= 2.0
        plain[i] = plain[1:][0]
        assert f(x, x[1:], np.int64(i)) == pytest.approx(plain[1:].sum())
        np.testing.assert_array_equal(x, plain)
        apart = numbers(3)
        assert f(x, apart, np.int64(i)) == pytest.approx(apart.sum())


def test_a_fast_call_never_takes_arrays_that_share_memory():
    @tg.compile
    def f(x, y):
        x += y
        return x.sum()

    for shared in (False, False, True, True, False, True):
        x = numbers(5)
        y = x[1:] if shared else numbers(4)
        plain = x.copy()
        other = plain[1:] if shared else y
        plain[:4] += other
        assert f(x[:4], y) == pytest.approx(plain[:4].sum())
        np.testing.assert_array_equal(x, plain)


def test_without_write_back_the_function_still_sees_that_arguments_alias():
    f = tg.compile(double_then_read, write_back=False)
    for shared in (False, True, False, True):
        x = numbers(4)
        y = x[1:3] if shared else numbers(2)
        want = np.sin((2 if shared else 1) * y).sum()
        assert f(x, y) == pytest.approx(want)
        np.testing.assert_array_equal(x, numbers(4))


def test_a_read_only_view_sees_what_is_written_through_another():
    x = numbers(4)
    view = x[1:]
    view.flags.writeable = False
    f = tg.compile(lambda a, b: (a.__imul__(2.0), b.sum(), b)[1:])
    total, back = f(x, view)
    assert total == pytest.approx(2 * numbers(4)[1:].sum()) and back is view
    with pytest.raises(ValueError, match="read-only"):
        f(view, x)
    whole = np.broadcast_to(x, (4,))
    assert f(x[:2], whole)[0] == pytest.approx((numbers(4) * [4, 4, 2, 2]).sum())


def test_the_graph_shows_one_input_for_shared_memory():
    x = numbers(4)
    text = str(tg.compile(double_then_read).graph(x, x[1:3]))
    assert text.count("f64[4] in s0)") == 1 and 'origin = "argument"' in text
    apart = str(tg.compile(double_then_read).graph(x, numbers(2)))
    assert 'origin = "argument"' not in apart


# ---------------------------------------------------------------------------- groups of arrays


def random_view(rng, x):
    for _ in range(rng.integers(0, 4)):
        kind = rng.integers(0, 5)
        if kind == 0 and x.ndim:
            axis = int(rng.integers(x.ndim))
            low, high = np.sort(rng.integers(0, x.shape[axis] + 1, 2))
            step = int(rng.choice([1, 2, -1, -2]))
            x = x[(slice(None),) * axis + (slice(low, high),)]
            x = x[(slice(None),) * axis + (slice(None, None, step),)]
        elif kind == 1:
            x = x.T
        elif kind == 2 and x.ndim > 1 and len(x):
            x = x[rng.integers(len(x))]
        elif kind == 3:
            x = x[None]
        elif kind == 4 and x.flags.c_contiguous:
            x = x.reshape(-1)
    return x


def test_groups_cover_what_shares_memory_and_nothing_is_in_two():
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(600):
        x = np.arange(float(rng.integers(1, 60)))
        sizes = [n for n in (1, 2, 3, 4) if x.size % n == 0]
        x = x.reshape(int(rng.choice(sizes)), -1)
        arrays = [random_view(rng, x) for _ in range(rng.integers(2, 5))]
        groups = find_groups(arrays, range(len(arrays)))
        inside = [m.position for g in groups for m in g.members]
        assert len(set(inside)) == len(inside)
        for i, a in enumerate(arrays):
            for j, b in enumerate(arrays[:i]):
                assert not np.shares_memory(a, b) or any(
                    {i, j} <= {m.position for m in g.members} for g in groups)
        for g in groups:
            base = g.base(arrays)
            assert (base.shape, base.strides) == (g.shape, g.strides)
            seen.add(g.root is None)
            for m in g.members:
                view = apply_view(m.view, base)
                np.testing.assert_array_equal(view, arrays[m.position])
                assert g.root != m.position or m.view == View()
        copies = copy_together(arrays)
        for i, (a, c) in enumerate(zip(arrays, copies, strict=True)):
            np.testing.assert_array_equal(a, c)
            assert not np.shares_memory(a, c)
            for b, d in zip(arrays[:i], copies[:i], strict=True):
                assert np.shares_memory(a, b) == np.shares_memory(c, d)
    assert seen == {True, False}


def test_only_groups_with_a_written_array_are_formed():
    x, y = numbers(6), numbers(4)
    arrays = [x, x[1:], y, y[::2], None, 3.0, numbers(0)]
    assert find_groups(arrays, ()) == ()
    assert [[m.position for m in g.members] for g in find_groups(arrays, {3})] == [[2, 3]]
    assert [g.root for g in find_groups(arrays, {1, 2})] == [0, 2]


def test_many_arguments_are_compared_by_their_ranges():
    x = numbers(400)
    arrays = [x[k : k + 1] for k in range(400)]
    assert find_groups(arrays, range(400)) == ()
    arrays[7] = x[3:9]
    (group,) = find_groups(arrays, range(400))
    assert [m.position for m in group.members] == [3, 4, 5, 6, 7, 8] and group.root == 7
