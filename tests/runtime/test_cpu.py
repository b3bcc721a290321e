"""Executables: launcher, ctypes and reference behave alike; caching across processes."""

import shutil
import sys
import threading

import numpy as np
import pytest

from tracegrad import errors
from tracegrad.codegen.unit import render
from tracegrad.dtypes import F64
from tracegrad.loops.ir import (
    Access,
    Kernel,
    Load,
    Param,
    Store,
)
from tracegrad.loops.program import Buffer, Launch, Place, Program
from tracegrad.options import Options
from tracegrad.runtime import toolchain
from tracegrad.runtime.artifact import Accept, Returns
from tracegrad.runtime.cpu import load

HAS_CC = shutil.which("cc") is not None
HAS_HEADERS = toolchain.python_include() is not None
needs_cc = pytest.mark.skipif(not HAS_CC, reason="no C compiler")
needs_launcher = pytest.mark.skipif(not (HAS_CC and HAS_HEADERS), reason="no C compiler, Python.h")

KINDS = [
    pytest.param("launcher", marks=needs_launcher),
    pytest.param("ctypes", marks=needs_cc),
    "reference",
]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "tracegrad"


@pytest.fixture(params=KINDS)
def kind(request, cache_dir, shared_cache, monkeypatch):
    # One cache for all of these, so that each text is built once.
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(shared_cache))
    if request.param == "ctypes":
        monkeypatch.setenv("TRACEGRAD_LAUNCHER", "ctypes")
    return request.param


@pytest.fixture
def run(kind):
    def load_kind(made):
        backend = "numpy" if kind == "reference" else "c"
        executable = load(*made, Options(backend=backend))
        assert executable.kind == kind
        return executable

    return load_kind


X = np.array([[1.0, 2.0], [3.0, 4.0]])


def test_computes_and_writes_in_place(run, scale_add):
    x = X.copy()
    (out,) = run(scale_add)(x, 0.5)
    np.testing.assert_array_equal(out, X + 0.5)
    np.testing.assert_array_equal(x, 2 * X)


def test_keeps_the_source_and_the_path(run, kind, scale_add):
    executable = run(scale_add)
    assert executable.source == scale_add[1].text
    assert (executable.library is None) == (kind == "reference")


@pytest.mark.parametrize("scalar", [0.5, np.float64(0.5), np.array(0.5)])
def test_scalars_of_all_three_kinds(run, scale_add, scalar):
    launch = run(scale_add).bind()
    np.testing.assert_array_equal(launch(X.copy(), scalar), X + 0.5)


def test_accept_narrows_what_is_taken(run, scale_add):
    launch = run(scale_add).bind([Accept.ARRAY, Accept.FLOAT])
    assert launch(X.copy(), np.float64(0.5)) is NotImplemented
    assert launch(X.copy(), np.array(0.5)) is NotImplemented
    np.testing.assert_array_equal(launch(X.copy(), 0.5), X + 0.5)


class Sub(np.ndarray):
    pass


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


def misaligned():
    raw = np.zeros(X.nbytes + 1, np.uint8)[1:]
    x = raw.view(np.float64).reshape(2, 2)
    x[...] = X
    return x


@pytest.mark.parametrize(
    "x",
    [
        X.astype(np.float32),
        X.astype(">f8"),
        X.reshape(4),
        X[:1].copy(),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X.copy().view(Sub),
        read_only(),
        misaligned(),
        X.tolist(),
    ],
    ids=[
        "f32",
        "swapped",
        "rank",
        "shape",
        "fortran",
        "strided",
        "subclass",
        "readonly",
        "misaligned",
        "list",
    ],
)
def test_whatever_is_not_exact_is_handed_back_untouched(run, scale_add, x):
    before = np.array(x)
    assert run(scale_add).bind()(x, 0.5) is NotImplemented
    np.testing.assert_array_equal(before, np.array(x))


@pytest.mark.parametrize("args", [(), (X,), (X, 0.5, 0.5), (X, 1), (X, "a"), (X, np.float32(1))])
def test_wrong_arguments_are_handed_back(run, scale_add, args):
    assert run(scale_add).bind()(*args) is NotImplemented


def test_a_written_input_that_overlaps_another_is_handed_back(run, scale_add):
    x = X.copy()
    assert run(scale_add).bind()(x, x[1, 1, ...]) is NotImplemented
    with pytest.raises(errors.ArgumentError, match="shares memory"):
        run(scale_add)(x, x[1, 1, ...])
    np.testing.assert_array_equal(x, X)


def test_any_layout_is_computed_and_written_back(run, scale_add):
    executable = run(scale_add)
    for x in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], misaligned()):
        (out,) = executable(x, 0.5)
        np.testing.assert_array_equal(out, X + 0.5)
        np.testing.assert_array_equal(x, 2 * X)


def test_interleaved_arrays_do_not_overlap(run, scale_add):
    both = np.array([[1.0, 9.0, 2.0, 9.0], [3.0, 9.0, 4.0, 9.0]])
    run(scale_add)(both[:, ::2], both[0, 1, ...])
    np.testing.assert_array_equal(both, [[2.0, 9.0, 4.0, 9.0], [6.0, 9.0, 8.0, 9.0]])


@pytest.mark.parametrize(
    "args, error, text",
    [
        ((X,), errors.ArgumentError, "2 inputs needed, 1 given"),
        ((X.astype(np.float32), 0.5), errors.ArgumentError, r"x must be f64\[2, 2\], not float32"),
        ((X.reshape(4), 0.5), errors.ArgumentError, r"of shape \(4,\)"),
        ((read_only(), 0.5), errors.ValueArgumentError, "read-only"),
        ((X.tolist(), 0.5), errors.ValueArgumentError, "read-only"),
    ],
)
def test_the_checked_call_says_what_is_wrong(run, scale_add, args, error, text):
    with pytest.raises(error, match=text):
        run(scale_add)(*args)


def test_outputs_without_axes_as_array_scalar_or_float(run, pick):
    executable = run(pick)
    x = np.arange(4.0)
    for returns, kind_of in [
        (Returns.ARRAY, np.ndarray),
        (Returns.SCALAR, np.float64),
        (Returns.FLOAT, float),
    ]:
        result = executable.bind(returns=[returns])(x, np.int64(1))
        assert type(result) is kind_of and result == 3.0
    (result,) = executable(x, np.int64(1))
    assert result.shape == ()


def test_a_failed_check_raises_at_the_users_line(run, pick):
    for call in (run(pick), run(pick).bind()):
        with pytest.raises(errors.RuntimeIndexError) as caught:
            call(np.arange(4.0), np.int64(7))
        assert caught.value.message == "index 7 is out of bounds for axis 0 with size 4"
        assert caught.value.loc.line == 1 and isinstance(caught.value, IndexError)


def test_other_checks_are_value_errors(run, make_pick_with):
    executable = run(make_pick_with("Integers to negative integer powers are not allowed."))
    with pytest.raises(errors.RuntimeValueError, match="negative integer powers"):
        executable(np.arange(4.0), np.int64(4))


def test_call_into_given_outputs(run, scale_add):
    executable = run(scale_add)
    x, s, out = X.copy(), np.array(0.5), np.empty((2, 2))
    assert executable.call_into([x, s], [out]) is None
    np.testing.assert_array_equal(out, X + 0.5)
    for inputs, outputs, text in [
        ([x], [out], "2 inputs needed"),
        ([x, s], [out.T], "C-ordered"),
        ([x, s], [x], "shares memory"),
        ([x, s], [read_only()], "read-only"),
    ]:
        with pytest.raises(errors.ArgumentError, match=text):
            executable.call_into(inputs, outputs)


def test_threads_may_call_at_once(run, kind, busy):
    if kind == "reference":
        pytest.skip("has no arena of its own")
    executable = run(busy)
    results, size = {}, executable.inputs[0].shape

    def work(n):
        launch = executable.bind() if n % 2 else executable
        x = np.full(size, float(n))
        results[n] = [launch(x) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    shared = executable.bind()
    threads += [
        threading.Thread(
            target=lambda n=n: results.setdefault(
                n, [shared(np.full(size, float(n))) for _ in range(10)]
            )
        )
        for n in (5, 6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for n, found in results.items():
        for result in found:
            np.testing.assert_allclose(np.asarray(result).reshape(size), 3.0 * n)


def test_many_calls_leak_nothing(run, scale_add):
    launch = run(scale_add).bind()
    x, s = np.ones((2, 2)), np.array(0.5)
    before = sys.getrefcount(x), sys.getrefcount(s), sys.getrefcount(NotImplemented)
    for _ in range(100):
        launch(x, s)
        launch(x, 1)
    assert (sys.getrefcount(x), sys.getrefcount(s)) == before[:2]
    made, fresh = launch(x, s), np.empty(1)
    assert sys.getrefcount(made) == sys.getrefcount(fresh)
    assert sys.getrefcount(NotImplemented) - before[2] < 10


def test_long_constants_are_passed_and_kept_alive(run, table_lookup):
    program = table_lookup(3000)
    unit = render(program, shim=True, embed_all=False)
    assert [b.name for b in unit.external_constants] == ["table"]
    executable = run((program, unit))
    launch = executable.bind()
    del program, executable
    x = np.ones(3000)
    np.testing.assert_array_equal(launch(x), x + np.arange(3000.0))


@pytest.mark.parametrize("count", [1, 100])
def test_many_inputs_and_outputs(run, count):
    """More buffers than launcher.c keeps on the stack."""
    names = [f"x{k}" for k in range(count)] + [f"y{k}" for k in range(count)]
    params = tuple(Param(n, F64, 1, Access.IN if n[0] == "x" else Access.OUT) for n in names)
    body = tuple(Store(f"y{k}", 0, Load(f"x{k}", 0, F64)) for k in range(count))
    buffers = tuple(
        Buffer(n, F64, 1, Place.INPUT if n[0] == "x" else Place.OUTPUT, int(n[1:]), shape=())
        for n in names
    )
    program = Program("many", buffers, (Launch(Kernel("many_1", params, body), tuple(names)),))
    executable = run((program, render(program, shim=True, embed_all=False)))
    launch = executable.bind(returns=[Returns.FLOAT] * count)
    values = [float(k) for k in range(count)]
    assert launch(*values) == (values[0] if count == 1 else tuple(values))
