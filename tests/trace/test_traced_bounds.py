"""Loops with bounds that are known only when the function runs, against NumPy and against the same
function with Python integers."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import tracegrad as tg
from tests.trace.traced_bound_programs import PROGRAMS
from tracegrad.errors import ConcretizationError, TracegradError, UnsupportedError
from tracegrad.graph.op import REGISTRY
from tracegrad.graph.parse import parse_graph
from tracegrad.graph.text import print_graph
from tracegrad.loops.parse_program import parse_program
from tracegrad.loops.text import print_program
from tracegrad.trace.leaves import flatten

COUNTS = [(0, 2), (-3, 1), (1, 0), (5, 2), (9, 3)]


@pytest.fixture
def x():
    return np.random.default_rng(7).random(9)


def run(made, plain, x, counts):
    """`made` gives and writes what `plain` does, whatever the counts."""
    for n in counts:
        args, again = [x.copy(), np.array(n)], [x.copy(), np.array(n)]
        want, got = plain(*args), made(*again)
        for g, w in zip(flatten((got, again))[0], flatten((want, args))[0], strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-13, err_msg=f"{n}")
            if isinstance(w, (np.ndarray, np.generic)):
                assert g.dtype == w.dtype


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_values_are_those_of_numpy(f, x):
    run(tg.compile(f, backend="numpy"), f, x, COUNTS)


def test_compiled_to_c_too(x):
    def together(x, n):
        return [f(x.copy(), n) for f in PROGRAMS]

    run(tg.compile(together), together, x, COUNTS)


def total(f):
    def g(x, n):
        s = np.sum(x) * 0.0
        for y in flatten(f(x, n))[0]:
            s = s + np.sum(y * y)
        return s + np.sum(x**2)

    return g


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_with_python_integers(f, x):
    g, way = total(f), np.cos(np.arange(9.0))

    @tg.compile(backend="numpy")
    def forward(x, n, way):
        return tg.jvp(lambda x: g(x, n), (x,), (way,))[1]

    reverse = tg.grad(g, backend="numpy")
    for n in ((0, 2), (5, 2)):
        got = reverse(x.copy(), np.array(n))
        moved = [g(x + s * way, np.array(n)) for s in (1e-6, -1e-6)]
        slope = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(np.sum(got * way), slope, rtol=2e-6, atol=1e-7, err_msg=f"{n}")
        np.testing.assert_allclose(forward(x.copy(), np.array(n), way), slope, rtol=2e-6, atol=1e-7)
    with_ints = tg.grad(g, backend="numpy")(x.copy(), [5, 2])
    np.testing.assert_allclose(got, with_ints, rtol=1e-11)


def test_gradients_of_gradients(x):
    def f(x, n):
        y, s = x * 1.0, 0.0
        for i in range(1, n[0]):
            y[i] = np.sin(y[i - 1]) * y[i]
            s = s * 0.5 + y[i] ** 3
        return s

    def twice(x, n):
        return np.sum(tg.grad(f)(x, n) ** 2)

    got = tg.grad(twice, backend="numpy")(x, np.array([6, 0]))
    np.testing.assert_allclose(got, tg.grad(twice, backend="numpy")(x, [6, 0]), rtol=1e-11)


# -------------------------------------------------------------------------------- the node


def test_one_loop_for_any_count_and_explain_says_so(x):
    def f(x, n):
        s = 0.0
        for i in range(2, n[0], 3):
            s += x[i]
        return s

    made = tg.compile(f, backend="numpy")
    text = made.graph(x, np.array([4, 2]))
    assert text.count("= while(") == 1
    assert "one loop, as many iterations as range(2, n[0], 3) says" in made.explain(
        x, np.array([4, 2])
    )
    run(made, f, x, COUNTS)
    assert made.graph(x, np.array([9, 2])) == text


@pytest.mark.parametrize("f", PROGRAMS[::3], ids=lambda f: f.__name__)
def test_graphs_and_programs_are_read_back_from_their_text(f, x):
    lowered = tg.compile(f, backend="numpy").lower(x, np.array([3, 1]))
    for stage in ("traced", "functional", "optimized"):
        text = str(lowered.graph(stage))
        assert print_graph(parse_graph(text)) == text
    text = str(lowered.graph("scheduled"))
    assert print_program(parse_program(text, REGISTRY.intrinsics())) == text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_exported(x, tmp_path):
    folder = tmp_path / "out"
    tg.export(PROGRAMS[9], (x, np.array([6, 1])), folder, name="f")
    subprocess.run(["make", "-s"], cwd=folder, check=True)
    done = subprocess.run(["./example"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "all outputs agree" in done.stdout, done.stdout
    with pytest.raises(TracegradError, match="as much as there are iterations") as e:
        tg.export(tg.grad(PROGRAMS[9]), (x, np.array([6, 1])), tmp_path / "gradient")
    assert "for i in range(1, n[0])" in str(e.value) and "tg.fori_loop" in e.value.remedy


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.int64])
def test_integers_of_any_width_and_arrays_without_axes(x, dtype):
    def f(x, n, m):
        s = 0.0
        for i in range(n):
            s += x[i]
        for i in range(m):
            s += 2.0 * x[i]
        return s

    n, m = dtype(4), np.array(6, dtype)
    np.testing.assert_allclose(tg.compile(f, backend="numpy")(x, n, m), f(x, n, m), rtol=1e-14)


@pytest.mark.parametrize("start", [0, 1.0, np.float32(0.5)])
def test_accumulators_take_the_narrow_type_of_what_is_added(x, start):
    def f(x, n):
        s = start
        for i in range(n[0]):
            s = s + x[i] * i
        return s

    made = tg.compile(f, backend="numpy")
    run(made, f, x.astype(np.float32), [(1, 0), (5, 0)])
    assert made(x.astype(np.float32), np.array([0, 0])).dtype == np.float32


def test_a_tensor_function(x):
    torch = pytest.importorskip("torch")

    def f(x, n):
        y = x * 1.0
        for i in range(1, n[0]):
            y[i] = y[i - 1].sin() * y[i]
            y[i - 1].mul_(2.0)
        return y.sum()

    def plain(x, n):
        return f(torch.tensor(x), torch.tensor(n)).numpy()

    for n in COUNTS:
        got = tg.compile(f, backend="numpy")(tg.tensor(x), tg.tensor(np.array(n)))
        np.testing.assert_allclose(got.numpy(), plain(x, np.array(n)), rtol=1e-12)


def test_an_index_out_of_range_is_numpys_error(x):
    def reads(x, n):
        s = 0.0
        for i in range(n[0] + 5):
            s += x[i]
        return s

    def writes(x, n):
        for i in range(n[0] + 5):
            x[-i] = 0.0
        return x

    for f, text in ((reads, "index 9 is out"), (writes, "index -10 is out")):
        for backend in ("numpy", "c"):
            options = {"backend": "numpy"} if backend == "numpy" else {}
            with pytest.raises(IndexError, match=f"{text} of bounds for axis 0 with size 9") as e:
                tg.compile(f, **options)(x.copy(), np.array([9, 0]))
            assert "x[" in e.value.loc.quote()


# ------------------------------------------------------- what is not known behind the loop


def test_a_name_that_only_the_body_binds_is_refused_where_it_is_used(x):
    def f(x, n):
        for i in range(n[0]):
            last = x[i]
        return last * 2.0

    with pytest.raises(UnsupportedError, match="last is bound by a loop that may run no time") as e:
        tg.compile(f)(x, np.array([3, 0]))
    assert "return last * 2.0" in str(e.value) and "range(n[0])" in str(e.value)


@pytest.mark.parametrize("which", ["the result", "the argument", "in a loop around it"])
def test_a_write_that_reaches_another_name_after_no_iterations_is_refused(x, which):
    def result(x, n):
        u = x
        for _ in range(n[0]):
            u = u * 2.0
        u[0] = 5.0
        return u

    def argument(x, n):
        u = x
        for _ in range(n[0]):
            u = u * 2.0
        x[0] = 5.0
        return u

    def around(x, n):
        u, s = x.copy(), 0.0
        for _ in range(10):
            x[0] += 1.0
            s += u[0]
            u = x
            for _ in range(n[0]):
                u = u * 2.0
        return s

    f = {"the result": result, "the argument": argument, "in a loop around it": around}[which]
    with pytest.raises(UnsupportedError, match="runs no time|the loop around it writes"):
        tg.compile(f)(x, np.array([3, 0]))


def test_a_copy_to_start_from_may_be_written(x):
    def f(x, n):
        u = x.copy()
        for _ in range(n[0]):
            u = u * 2.0
        u[0] = 5.0
        x[1] = 4.0
        return u

    run(tg.compile(f, backend="numpy"), f, x, COUNTS)


def test_arrays_of_others_that_names_pass_on_are_not_written(x):
    def counted(x, n):
        before, now = np.zeros(9), x
        for _ in range(n[0]):
            before[0] = 5.0
            before = now
            now = now * 2.0
        return before, now

    def known(x):
        before, now = np.zeros(9), x
        for _ in range(10):
            before[0] = 5.0
            before = now
            now = now * 2.0
        return before, now

    with pytest.raises(UnsupportedError, match="before comes to be an array of others"):
        tg.compile(counted)(x, np.array([3, 0]))
    plain, given = x.copy(), x.copy()
    for got, want in zip(tg.compile(known)(given), known(plain), strict=True):
        np.testing.assert_allclose(got, want)
    np.testing.assert_array_equal(given, plain)
    assert plain[0] == 5.0


# ------------------------------------------------------------------------------ refusals


def no_list(x, n):
    out = []
    for i in range(n[0]):
        out.append(x[i])
    return out


def leaves(x, n):
    s = 0.0
    for i in range(n[0]):
        if s is None:
            break
        s = s + x[i]
    return s


def first_differs(x, n):
    before, s = None, 0.0
    for i in range(n[0]):
        if before is not None:
            s += before
        before = x[i]
    return s


def inexact_start(x, n):
    s = 0.1
    for i in range(n[0]):
        s = s * x.astype(np.float32)[i]
    return s


def grows(x, n):
    y = x[:1]
    for i in range(n[0]):
        y = np.concatenate([y, x[i][None]])
    return y


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (no_list, "it changes the list out"),
        (leaves, "it holds a break or a return"),
        (first_differs, "before becomes a traced value and was None"),
        (inexact_start, "s becomes a traced value and was 0.1"),
        (grows, "y changes its shape"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_bodies_that_cannot_be_one_loop(f, why, x):
    with pytest.raises(UnsupportedError, match="known only when it runs, cannot be one") as e:
        tg.compile(f)(x, np.array([3, 0]))
    assert why in str(e.value) and "for i in range(n[0]):" in str(e.value)
    assert "pass the number of iterations as a Python int" in e.value.remedy


def test_unrolling_is_refused(x):
    with pytest.raises(UnsupportedError, match="loops='unroll' asks for a copy"):
        tg.compile(PROGRAMS[0], loops="unroll")(x, np.array([3, 0]))


def test_threads_are_refused(x):
    def f(x, n):
        for i in tg.range(n[0], parallel=True):
            x[i] = 0.0

    with pytest.raises(UnsupportedError, match="a loop on threads needs bounds"):
        tg.compile(f)(x, np.array([3, 0]))


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x, n: [x[i] for i in range(n[0])], "outside of a `for` statement"),
        (lambda x, n: list(range(n[0])), "outside of a `for` statement"),
        (lambda x, n: list(zip(x, range(n[0]), strict=False)), "outside of a `for` statement"),
        (lambda x, n: len(range(n[0])), "len() of a range"),
        (lambda x, n: range(n[0])[1], "an element of a range"),
        (lambda x, n: 3 in range(n[0]), "`in` asks a range"),
        (lambda x, n: x if range(n[0]) else 0.0, "the truth value of a range"),
        (lambda x, n: range(n[0]).stop, ".stop of a range"),
        (lambda x, n: range(0, 9, n[0]), "the step of a range is known only when"),
        (lambda x, n: range(x[0]), "a traced float64 cannot be interpreted as an integer"),
        (lambda x, n: range(n), "array of shape (2,) cannot be interpreted as an integer"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_other_uses_of_the_range(f, text, x):
    with pytest.raises(TracegradError) as e:
        tg.compile(f)(x, np.array([3, 0]))
    assert text in str(e.value) and "lambda x, n:" in str(e.value)


@pytest.mark.parametrize(
    "f", [lambda i: f"w{i}", lambda i: str(i), lambda i: f"{i:03}", lambda i: {0: 1}.get(i, 2)]
)
def test_the_index_as_text_or_key_is_refused(f, x):
    def g(x, n):
        s = 0.0
        for i in range(n[0]):
            s += x[i] * (f(i) == "w0")
        return s

    with pytest.raises(ConcretizationError):
        tg.compile(g)(x, np.array([3, 0]))


def test_questions_about_the_index_name_what_to_write(x):
    def decides(x, n):
        s = 0.0
        for i in range(n[0]):
            if i > 0:
                s += x[i]
        return s

    def slices(x, n):
        s = 0.0
        for i in range(n[0]):
            s += np.sum(x[:i])
        return s

    with pytest.raises(ConcretizationError, match="`if` needs the value") as e:
        tg.compile(decides)(x, np.array([3, 0]))
    assert "np.where" in e.value.remedy and "tg.cond" in e.value.remedy
    with pytest.raises(ConcretizationError) as e:
        tg.compile(slices)(x, np.array([3, 0]))
    assert "x[:i]" in e.value.loc.quote() and "np.arange(len(x)) < n" in e.value.remedy
