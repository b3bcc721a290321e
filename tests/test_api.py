"""The public surface: `compile`, the transforms, options, what a compiled function looks like."""

from __future__ import annotations

import inspect
import pickle
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import errors


def heat(u, k):
    """Explicit steps."""
    for _ in range(4):
        u[1:-1] += k * (u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u**2)


compiled_heat = tg.compile(heat)


@tg.compile
def module_level(x):
    return x * 2


def start(n=10):
    return np.random.default_rng(0).standard_normal(n)


def numeric(f, x, h=1e-6):
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        a, b = x.copy(), x.copy()
        a[i] += h
        b[i] -= h
        out[i] = (f(a) - f(b)) / (2 * h)
    return out


# ------------------------------------------------------------------------------------ calling


def test_value_and_written_argument_are_numpys():
    a, b = start(), start()
    assert compiled_heat(a, 0.1) == pytest.approx(heat(b, 0.1), rel=1e-14)
    np.testing.assert_allclose(a, b, rtol=1e-14)


def test_gradient_of_in_place_steps():
    u = start()
    value, (du, dk) = tg.value_and_grad(heat, argnums=(0, 1))(u.copy(), 0.1)
    assert isinstance(value, np.float64) and type(dk) is float
    np.testing.assert_allclose(du, numeric(lambda x: heat(x.copy(), 0.1), u), rtol=1e-6)
    assert dk == pytest.approx(
        (heat(u.copy(), 0.1 + 1e-6) - heat(u.copy(), 0.1 - 1e-6)) / 2e-6, rel=1e-6
    )


def test_looking_writes_nothing():
    u = start()
    before = u.copy()
    for stage in ("traced", "functional", "joint", "optimized", "scheduled", "source"):
        assert str(compiled_heat.graph(u, 0.1, stage=stage))
    assert "copy_slices" in compiled_heat.graph(u, 0.1, stage="functional")
    assert "in place" in compiled_heat.explain(u, 0.1)
    assert "int heat" in compiled_heat.source(u, 0.1)
    tg.check_grads(compiled_heat, (u, 0.1))
    np.testing.assert_array_equal(u, before)


def test_unknown_stage_names_the_stages():
    with pytest.raises(errors.ValueArgumentError, match="traced, functional"):
        compiled_heat.graph(start(), 0.1, stage="nope")


def test_looks_like_the_function():
    assert compiled_heat.__name__ == "heat" and compiled_heat.__doc__ == "Explicit steps."
    assert list(inspect.signature(compiled_heat).parameters) == ["u", "k"]
    assert compiled_heat.__wrapped__ is heat
    assert list(inspect.signature(tg.grad(heat)).parameters) == ["u", "k"]


def test_cache_info_and_clear():
    f = tg.compile(lambda x: x + 1)
    f(np.zeros(2))
    f(np.zeros(2))
    f(np.zeros(3))
    assert f.cache_info()[:2] == (1, 2) and f.cache_info().currsize == 2
    f.cache_clear()
    assert f.cache_info().currsize == 0


def test_cache_size_drops_the_least_recently_used():
    f = tg.compile(lambda x: x + 1, cache_size=2)
    for n in (1, 2, 3):
        f(np.zeros(n))
    assert f.cache_info().currsize == 2


def test_a_function_named_as_a_c_library_function():
    def step(x):
        return x + 1

    def index(x):
        return x * 2

    assert tg.compile(step)(1.0) == 2.0 and tg.compile(index)(2.0) == 4.0


def test_method_and_attributes():
    class Model:
        def __init__(self):
            self.k, self.w = 2.0, np.ones(3)

        @tg.compile
        def rhs(self, x):
            return self.k * x + self.w

    m, x = Model(), np.arange(3.0)
    np.testing.assert_array_equal(m.rhs(x), [1, 3, 5])
    m.k, m.w = 3, m.w - 0.5
    np.testing.assert_array_equal(m.rhs(x), [0.5, 3.5, 6.5])
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(m.rhs(x)))(x), [3, 3, 3])


def test_pickling():
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    again = pickle.loads(pickle.dumps(compiled_heat))
    assert again(start(), 0.1) == pytest.approx(heat(start(), 0.1))


def test_disable_compile():
    seen = []

    @tg.compile
    def f(x):
        seen.append(type(x))
        return x

    with tg.disable_compile():
        f(np.zeros(2))
    assert seen == [np.ndarray]


def test_threads():
    f = tg.value_and_grad(lambda x: np.sum(np.sin(x)))
    x = start(1000)
    want = f(x)[1]
    wrong = []

    def work():
        for _ in range(200):
            if not np.array_equal(f(x)[1], want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_curve_fit_accepts_it():
    optimize = pytest.importorskip("scipy.optimize")

    @tg.compile
    def model(t, a, b):
        return a * np.exp(-b * t)

    t = np.linspace(0, 2, 30)
    found, _ = optimize.curve_fit(model, t, 3 * np.exp(-1.5 * t), p0=(1.0, 1.0))
    np.testing.assert_allclose(found, [3, 1.5], rtol=1e-6)


# ------------------------------------------------------------------------- arguments and results


def test_trees_of_arguments():
    def loss(p, x):
        return np.sum((p["w"] * x + p["b"]) ** 2)

    p = {"w": np.ones(3), "b": 0.5, "name": "static"}
    g = tg.grad(loss)(p, np.arange(3.0))
    np.testing.assert_allclose(g["w"], [0, 3, 10])
    assert g["b"] == pytest.approx(9.0) and type(g["b"]) is float and g["name"] is None


def test_registered_dataclass():
    @tg.register_pytree
    @dataclass
    class Point:
        x: np.ndarray
        y: float

    g = tg.grad(lambda p: np.sum(p.x) * p.y)(Point(np.arange(3.0), 2.0))
    assert isinstance(g, Point) and g.y == 3.0
    np.testing.assert_array_equal(g.x, [2, 2, 2])


def test_argnums_and_argnames():
    def f(a, b, *, c=1.0):
        return a * b * c

    assert tg.grad(f, argnums=1)(2.0, 3.0, c=4.0) == 8.0
    assert tg.grad(f, argnums=-1)(2.0, 3.0) == 2.0
    assert tg.grad(f, argnames="c")(2.0, 3.0, c=4.0) == 6.0
    assert tg.grad(f, argnames=("a", "c"))(2.0, 3.0, c=4.0) == (12.0, 6.0)
    with pytest.raises(errors.ValueArgumentError, match="argnums 5 is out of range"):
        tg.grad(f, argnums=5)(2.0, 3.0)


def test_has_aux():
    def f(x):
        return np.sum(x**2), {"twice": x * 2, "text": "kept"}

    (value, aux), g = tg.value_and_grad(f, has_aux=True)(np.arange(3.0))
    assert value == 5.0 and aux["text"] == "kept"
    np.testing.assert_array_equal(aux["twice"], [0, 2, 4])
    g2, aux2 = tg.grad(f, has_aux=True)(np.arange(3.0))
    np.testing.assert_array_equal(g, g2)
    np.testing.assert_array_equal(aux2["twice"], [0, 2, 4])


def test_static_arguments():
    @tg.compile(static_argnames="power")
    def f(x, power):
        return x**power

    assert f(2.0, power=3) == 8.0 and f(2.0, 2) == 4.0
    assert tg.grad(f)(2.0, 3) == 12.0


def test_gradient_forms_mirror_arguments():
    def f(a, b, c):
        return np.sum(a) * b * c

    ga, gb, gc = tg.grad(f, argnums=(0, 1, 2))(
        np.ones((2, 2), np.float32, order="F"), np.float64(2), 3.0
    )
    assert ga.dtype == np.float32 and ga.flags.c_contiguous and ga.flags.writeable
    assert isinstance(gb, np.float64) and type(gc) is float


@pytest.mark.parametrize(
    "bad, kind",
    [
        (lambda: tg.grad(lambda x: x * 2)(np.ones(3)), "gradient_not_scalar"),
        (lambda: tg.grad(lambda n: n * 2.0)(np.array(3)), "gradient_dtype"),
        (lambda: tg.grad(lambda x: np.argmax(x))(np.ones(3)), "gradient_dtype"),
        (lambda: tg.grad(lambda x, s: np.sum(x), argnums=1)(np.ones(3), "a"), "gradient"),
    ],
)
def test_gradients_that_do_not_exist(bad, kind):
    with pytest.raises(errors.GradientError) as e:
        bad()
    assert e.value.kind == kind


# --------------------------------------------------------------------------- memory of arguments


def test_results_that_are_arguments_stay_them():
    @tg.compile
    def f(x):
        x[0] = 5
        return x, x[1:]

    a = np.zeros(3)
    whole, part = f(a)
    assert whole is a and np.shares_memory(part, a) and a[0] == 5


def test_copy_outputs_and_write_back_options():
    def f(x):
        x[0] = 5
        return x

    a = np.zeros(3)
    out = tg.compile(f, copy_outputs=True)(a)
    assert out is not a and a[0] == 5
    a = np.zeros(3)
    out = tg.compile(f, write_back=False)(a)
    assert out[0] == 5 and a[0] == 0


def test_strided_arguments_are_written():
    @tg.compile
    def f(x):
        x *= 2
        return x.sum()

    base = np.arange(12.0).reshape(3, 4)
    f(base[:, ::2])
    np.testing.assert_array_equal(base[0], [0, 1, 4, 3])
    f(np.asfortranarray(base))


def test_read_only_arguments_are_not_written():
    a = np.zeros(3)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tg.compile(heat)(a, 0.1)


def test_arguments_that_share_memory_may_be_written():
    @tg.compile
    def f(x, y):
        x += y
        return x.sum()

    a = np.arange(4.0)
    assert f(a[1:], a[:-1]) == 9.0
    np.testing.assert_array_equal(a, [0.0, 1.0, 3.0, 5.0])
    assert f(a[:2], a[2:]) == 9.0


def test_a_refused_index_writes_nothing():
    @tg.compile
    def f(x, i):
        x[0] = 9.0
        return x[i]

    x = np.zeros(3)
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        f(x, np.array([1, 7]))
    np.testing.assert_array_equal(x, 0)


# ------------------------------------------------------------------------------------ transforms


def test_nested_transforms():
    def f(x):
        return np.sin(x) * x

    assert tg.grad(tg.grad(f))(0.3) == pytest.approx(2 * np.cos(0.3) - 0.3 * np.sin(0.3))
    assert tg.grad(tg.grad(tg.grad(f)))(0.3) == pytest.approx(-3 * np.sin(0.3) - 0.3 * np.cos(0.3))


def test_transforms_inside_compiled_functions():
    def energy(x):
        return np.sum(np.sin(x) ** 2)

    @tg.compile
    def f(x, y):
        return np.sum(tg.grad(energy)(x) * y)

    x = np.array([0.3, 1.0, 2.0])
    assert f(x, x) == pytest.approx(np.sum(np.sin(2 * x) * x))
    np.testing.assert_allclose(tg.grad(f, argnums=1)(x, x), np.sin(2 * x))
    np.testing.assert_allclose(tg.grad(f)(x, x), 2 * np.cos(2 * x) * x)


@pytest.mark.parametrize("outer", ["rev", "fwd"])
def test_perturbations_are_not_confused(outer):
    def f(x):
        inner = tg.grad(lambda y: x * y)(1.0)  # d/dy (x*y) = x
        return x * inner

    if outer == "rev":
        assert tg.grad(f)(3.0) == 6.0
    else:
        assert tg.jvp(f, (3.0,), (1.0,))[1] == 6.0


def test_vjp_and_jvp():
    def f(x, y):
        return np.sin(x) * y, np.sum(x)

    x, y = np.array([0.1, 0.2]), np.array([1.0, 2.0])
    (a, b), pullback = tg.vjp(f, x, y)
    np.testing.assert_allclose(a, np.sin(x) * y)
    assert b == pytest.approx(0.3)
    gx, gy = pullback((np.ones(2), 1.0))
    np.testing.assert_allclose(gx, np.cos(x) * y + 1)
    np.testing.assert_allclose(gy, np.sin(x))
    out, dot = tg.jvp(f, (x, y), (np.ones(2), None))
    np.testing.assert_allclose(dot[0], np.cos(x) * y)
    assert dot[1] == 2.0
    gx0, _ = pullback((None, 1.0))
    np.testing.assert_array_equal(gx0, [1, 1])


def test_vjp_writes_its_argument_once():
    def f(u):
        u *= 2
        return u.copy()

    u = np.ones(3)
    _, pullback = tg.vjp(f, u)
    np.testing.assert_array_equal(u, 2)
    np.testing.assert_array_equal(pullback(np.ones(3))[0], 2)
    np.testing.assert_array_equal(u, 2)


def test_gradient_function_writes_as_the_plain_call_does():
    u, v = start(), start()
    tg.grad(heat)(u, 0.1)
    heat(v, 0.1)
    np.testing.assert_allclose(u, v, rtol=1e-14)


def test_modes_and_stop_gradient():
    def f(x):
        with tg.no_grad():
            c = x * 2
            assert not tg.is_grad_enabled()
        return x * c + x * tg.stop_gradient(x * x)

    assert tg.grad(f)(3.0) == 6.0 + 9.0
    with tg.no_grad():
        assert tg.grad(lambda x: x * x)(3.0) == 6.0


def test_check_grads_finds_a_wrong_derivative():
    tg.check_grads(lambda x: np.sum(np.exp(x)), (np.ones(3),))
    with pytest.raises(errors.GradientCheckError, match="by central differences"):
        tg.check_grads(lambda x: np.sum(tg.stop_gradient(x) * x), (np.ones(3),), order=1)


# -------------------------------------------------------------------------------------- the rest


def test_debug_print(capsys):
    @tg.compile
    def f(x):
        y = x * 2
        tg.debug.print("y = {} first {v:.1f}", y, v=y[0])
        y[0] = 7
        return y

    f(np.arange(3.0))
    f(np.arange(3.0) + 1)
    assert capsys.readouterr().out == "y = [0. 2. 4.] first 0.0\ny = [2. 4. 6.] first 2.0\n"


def test_spec_text():
    assert str(tg.spec.parse("f8[n,3]")) == "f8[n,3]" and tg.spec.parse("f4").shape == ()
    assert tg.spec((2, 3)) == tg.spec.parse("f8[2,3]")
    with pytest.raises(errors.ParseError):
        tg.spec.parse("f8[2,")
    with pytest.raises(errors.ValueArgumentError):
        tg.spec((-1,))


def test_unknown_options_name_the_nearest():
    with pytest.raises(errors.OptionError, match="backend"):
        tg.compile(heat, bakend="c")


def test_recompiling_warns_and_names_the_argument():
    f = tg.compile(lambda x, n: x * n)
    with pytest.warns(errors.RecompileWarning, match="n"):
        for n in range(9):
            f(np.ones(2), n)


def test_numpy_backend_runs_the_same_plan():
    f = tg.value_and_grad(heat, backend="numpy")
    value, g = f(start(), 0.1)
    want, g2 = tg.value_and_grad(heat)(start(), 0.1)
    assert value == pytest.approx(want)
    np.testing.assert_allclose(g, g2)


def test_features_of_later_versions_are_refused_by_name():
    with pytest.raises(errors.OptionError, match="not available yet"):
        tg.compile(heat, backend="cuda")
    with pytest.raises(errors.UnsupportedError, match="inside a compiled function"):
        tg.exp(np.ones(3))


def test_export_can_be_asked_for_twice(tmp_path):
    for name in ("one", "two"):
        folder = tg.export(tg.grad(heat), ["f8[8]", "f8"], tmp_path / name, name="heat_grad")
        assert (folder / "heat_grad.c").exists() and "double *d_u" in (
            folder / "heat_grad.h"
        ).read_text()


def test_export_refuses_what_c_cannot_have(tmp_path):
    with pytest.raises(errors.ExportError, match="not an array"):
        tg.export(lambda x: (x, "text"), ["f8[2]"], tmp_path / "a", name="f")
    with pytest.raises(errors.ValueArgumentError, match="is not a number"):
        tg.export(lambda x: x, ["f8[n]"], tmp_path / "b", name="f")
    with pytest.raises(errors.ExportError):
        tg.export(lambda x: x, ["f8[2]"], tmp_path / "c", name="double")


def test_transforms_of_ufuncs():
    for f in (tg.grad(np.sin), tg.compile(lambda x: tg.grad(np.sin)(x))):
        for x in (0.3, 0.4):
            assert float(f(x)) == pytest.approx(np.cos(x))


def test_what_is_not_there_is_said():
    with pytest.raises(AttributeError, match="for loop over the rows"):
        tg.vmap  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'sum'"):
        tg.sum  # noqa: B018


def test_explain_says_what_a_reverse_loop_keeps():
    def f(x):
        y = x * 1.0
        for i in range(1, len(x)):
            y[i] = np.sin(y[i - 1]) * y[i]
        return np.sum(y)

    text = tg.compile(tg.grad(f), backend="numpy").explain(np.linspace(0.0, 1.0, 100))
    assert "792 bytes of it keep mul of each iteration for the reverse loop" in text
    assert "reverse loop" not in tg.compile(f, backend="numpy").explain(np.ones(100))
