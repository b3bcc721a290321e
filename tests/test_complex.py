"""Complex arrays: values as NumPy's, gradients ``dL/d(re) + i dL/d(im)``, views and writes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.aliasing.interpret import evaluate_traced
from tracegrad.aliasing.pairs import has_complex, real_graph
from tracegrad.errors import DTypeError, GradientError, UnsupportedError
from tracegrad.graph.text import parse_graph, print_graph

Array = Any


def numbers(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


FUNCTIONS: dict[str, Callable[[Array, Array], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - 2 * b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "div_real": lambda a, b: a / b.real,
    "real_div": lambda a, b: 3.0 / a + b.imag,
    "reciprocal": lambda a, b: np.reciprocal(a),
    "neg": lambda a, b: -a,
    "square": lambda a, b: np.square(a) + b**2,
    "power": lambda a, b: a**b,
    "power_whole": lambda a, b: a**5 + b**-3,
    "power_zero": lambda a, b: a**0 + b,
    "power_half": lambda a, b: a**0.5,
    "power_real_array": lambda a, b: a ** np.arange(4),
    "real_power": lambda a, b: np.abs(a) ** b,
    "abs": lambda a, b: np.abs(a),
    "conj": lambda a, b: np.conj(a) * b.conj(),
    "real": lambda a, b: a.real * b,
    "imag": lambda a, b: np.imag(a) + np.real(b),
    "angle": lambda a, b: np.angle(a) + np.angle(b, deg=True),
    "exp": lambda a, b: np.exp(a),
    "log": lambda a, b: np.log(a) + np.log2(b) - np.log10(a),
    "sqrt": lambda a, b: np.sqrt(a),
    "sin": lambda a, b: np.sin(a) * np.cos(b),
    "tan": lambda a, b: np.tan(a),
    "sinh": lambda a, b: np.sinh(a) * np.cosh(b),
    "tanh": lambda a, b: np.tanh(a),
    "where": lambda a, b: np.where(a.real > 0, a, b),
    "sum": lambda a, b: np.sum(a, axis=0) * b.sum(),
    "prod": lambda a, b: np.prod(a, axis=0),
    "prod_all": lambda a, b: np.prod(a[:, :3]) + np.prod(b, axis=(0, 1)),
    "prod_empty": lambda a, b: np.prod(a[:0], axis=0) * b,
    "mean": lambda a, b: np.mean(a, axis=1),
    "var": lambda a, b: np.var(a, axis=0) + np.std(b),
    "cumsum": lambda a, b: np.cumsum(a, axis=1),
    "matmul": lambda a, b: a @ b.T,
    "matvec": lambda a, b: a @ b[0],
    "dot": lambda a, b: np.dot(a, b.T),
    "vdot": lambda a, b: np.vdot(a, b),
    "inner": lambda a, b: np.inner(a, b),
    "outer": lambda a, b: np.outer(a, b[0]),
    "tensordot": lambda a, b: np.tensordot(a, b, axes=([1], [1])),
    "einsum": lambda a, b: np.einsum("ij,kj->ik", a, b),
    "norm": lambda a, b: np.linalg.norm(a) + np.linalg.norm(b, axis=0),
    "concatenate": lambda a, b: np.concatenate([a, b]),
    "stack": lambda a, b: np.stack([a, b], axis=-1),
    "gather": lambda a, b: a[[0, 2, 0]] * b[1, [3, 1, 0, 0]],
    "transpose": lambda a, b: (a.T * 2)[1:],
    "diagonal": lambda a, b: np.diagonal(a, 1) * np.trace(b),
    "reshape": lambda a, b: a.reshape(2, -1)[:, ::2],
    "windows": lambda a, b: np.lib.stride_tricks.sliding_window_view(a, 2, 1).sum(-1) + b[0, 0],
    "broadcast": lambda a, b: np.broadcast_to(a[0], (5, 4)) * b[:1],
    "element": lambda a, b: a[0, 1] * b[1, 2] + 1j,
    "mixed": lambda a, b: a * np.arange(4.0) + b.real + np.arange(4),
    "constant": lambda a, b: np.array([1j, 2, 3 + 1j, 0]) * a,
    "full": lambda a, b: np.full((4,), 1 + 2j) * a + np.zeros(4, complex),
    "diff": lambda a, b: np.diff(a),
    "average": lambda a, b: np.average(a, axis=0, weights=np.abs(b)),
    "narrow": lambda a, b: a.astype(np.complex64).astype(np.complex128),
    "bool": lambda a, b: np.where(np.logical_and(a, b), a, 0),
}
EXACT: dict[str, Callable[[Array, Array], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "eq_real": lambda a, b: a == a.real,
    "isnan": lambda a, b: np.isnan(a),
    "isfinite": lambda a, b: np.isfinite(a),
    "any": lambda a, b: np.any(a - a),
    "all": lambda a, b: a.all(),
    "not": lambda a, b: np.logical_not(a),
    "iscomplexobj": lambda a, b: np.full(2, np.iscomplexobj(a)),
    "as_bool": lambda a, b: a.astype(bool),
    "bytes": lambda a, b: (a + 0).view(np.float64),
    "bits": lambda a, b: (a + 0).view(np.int64),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("width", [np.complex128, np.complex64])
def test_values_and_dtypes_are_numpys(name: str, width: type) -> None:
    f = FUNCTIONS[name]
    a, b = numbers(1, 3, 4).astype(width), numbers(2, 3, 4).astype(width)
    got, want = tg.compile(f)(a, b), f(a, b)
    assert type(got) is type(want)
    assert got.dtype == want.dtype
    eps = np.finfo(want.dtype).eps
    if name == "narrow":
        eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(got, want, rtol=2000 * eps, atol=200 * eps)


@pytest.mark.parametrize("name", EXACT)
def test_exact_values_are_numpys(name: str) -> None:
    f = EXACT[name]
    a, b = numbers(1, 3, 4), numbers(2, 3, 4)
    a[0, 0], a[1, 1], a[2, 0] = b[0, 0], 0, 2.5
    got, want = tg.compile(f)(a, b), f(a, b)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def weighted(f: Callable[[Array, Array], Any], like: np.ndarray) -> Callable[..., Any]:
    """A real function of what `f` gives."""
    w = numbers(5, *like.shape)

    def loss(a: Array, b: Array) -> Any:
        out = f(a, b)
        if np.iscomplexobj(out):
            return np.sum(out.real * w.real + out.imag * w.imag)
        return np.sum(out * w.real)

    return loss


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_both_parts(name: str) -> None:
    if name == "narrow":
        pytest.skip("rounding to complex64 hides small differences")
    f = FUNCTIONS[name]
    a, b, da, db = (numbers(k, 3, 4) for k in (1, 2, 3, 4))
    loss = weighted(f, np.asarray(f(a, b)))
    ga, gb = tg.grad(loss, argnums=(0, 1))(a, b)
    assert ga.dtype == gb.dtype == np.complex128
    slope = np.sum((ga.conj() * da + gb.conj() * db).real)
    _, forward = tg.jvp(loss, (a, b), (da, db))
    assert forward == pytest.approx(slope, rel=1e-9, abs=1e-9)
    h = 1e-6
    measured = (loss(a + h * da, b + h * db) - loss(a - h * da, b - h * db)) / (2 * h)
    assert slope == pytest.approx(measured, rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) | set(EXACT)))
def test_text_and_pairs_mean_the_same(name: str) -> None:
    """The traced graph by its own meaning, and rewritten on pairs of real numbers."""
    f = (FUNCTIONS | EXACT)[name]
    a, b = numbers(1, 3, 4), numbers(2, 3, 4)
    graph = tg.compile(f).graph(a, b).graph
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    split = real_graph(graph)
    assert not has_complex(split)
    (want,) = evaluate_traced(graph, [a.copy(), b.copy()])
    pairs = [x.copy().view(float).reshape(3, 4, 2) for x in (a, b)]
    (got,) = evaluate_traced(split, pairs)
    if want.dtype.kind == "c":
        got = np.ascontiguousarray(got).view(want.dtype)[..., 0]
    np.testing.assert_allclose(got, want, rtol=1e-6 if name == "narrow" else 1e-11, atol=1e-12)


# ------------------------------------------------------------------------- writes and views


def _parts(a: Array, b: Array) -> Any:
    a.real *= 2
    a.imag[1:] += b[1:].real
    return a * b


def _setters(a: Array, b: Array) -> Any:
    z = a + b
    z.real = 1.5
    z[1].imag = b[0].imag
    return z


def _chain(a: Array, b: Array) -> Any:
    z = a * 1
    row = z[1].real[1:]
    z *= 3 - 1j
    row += b[0].imag[1:]
    return z


def _from_pairs(a: Array, b: Array) -> Any:
    z = a * b
    z.T[2:].imag[...] = 0
    z[0] = 1j
    z[::2, 1] /= b[::2, 3]
    return z


def _scatter(a: Array, b: Array) -> Any:
    z = a.copy()
    z[[0, 2], [1, 1]] = b[0, :2]
    np.add.at(z, ([1, 1], [2, 2]), b[0, 0])
    z[z.real > 1] = 2j
    return z


def _diagonals(a: Array, b: Array) -> Any:
    z = np.zeros((4, 4), complex)
    z[:3] += a
    z.ravel()[::5] += 1j
    np.multiply(z[:3], b, out=z[1:])
    z[::-1, 1].real += 2
    return z[:, ::-1]


WRITES = {f.__name__.strip("_"): f for f in (
    _parts, _setters, _chain, _from_pairs, _scatter, _diagonals)}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_writes_reach_the_arguments(name: str, layout: str) -> None:
    f = WRITES[name]

    def argument(seed: int) -> np.ndarray:
        if layout == "strided":
            return numbers(seed, 6, 8)[::2, ::2]
        return np.array(numbers(seed, 3, 4), order=layout)  # type: ignore[call-overload]

    a, b = argument(1), argument(2)
    c, d = a.copy(), b.copy()
    got, want = tg.compile(f)(a, b), f(c, d)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    np.testing.assert_allclose(a, c, rtol=1e-12)
    np.testing.assert_array_equal(b, d)


@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writes(name: str) -> None:
    f = WRITES[name]
    a, b, da, db = (numbers(k, 3, 4) for k in (1, 2, 3, 4))
    loss = weighted(f, f(a.copy(), b.copy()))
    ga, gb = tg.grad(loss, argnums=(0, 1))(a.copy(), b.copy())
    slope = np.sum((ga.conj() * da + gb.conj() * db).real)
    h = 1e-6
    measured = (loss(a + h * da, b + h * db) - loss(a - h * da, b - h * db)) / (2 * h)
    assert slope == pytest.approx(measured, rel=2e-6, abs=2e-6)


def test_results_are_views_of_the_arguments() -> None:
    a = numbers(1, 3, 4)
    part = tg.compile(lambda z: z.real[1:])(a)
    assert np.shares_memory(part, a) and part.dtype == np.float64
    part[...] = 7
    assert np.all(a[1:].real == 7)
    x = np.arange(6.0).reshape(3, 2)
    z = tg.compile(lambda x: tg.view_as_complex(x), arrays="torch")(x)
    assert np.shares_memory(z, x)
    np.testing.assert_array_equal(z, [0 + 1j, 2 + 3j, 4 + 5j])
    bits = tg.compile(lambda z: z.view(np.int64))(a)
    assert np.shares_memory(bits, a) and bits.shape == (3, 8)


def test_numbers_and_scalars() -> None:
    f = tg.compile(lambda z, x: z * x + 1)
    assert f(2j, 3.0) == 1 + 6j and type(f(2j, 3.0)) is complex
    assert type(f(np.complex64(2j), 3.0)) is np.complex64
    assert f(2j, np.float32(1)).dtype == np.complex64
    assert tg.grad(lambda z: (z * z).real)(1 + 2j) == 2 - 4j
    closed = numbers(3, 2)
    np.testing.assert_allclose(tg.compile(lambda x: x * closed)(2.0), 2 * closed)


def test_a_gradient_through_abs_is_zero_at_zero() -> None:
    g = tg.grad(lambda z: np.sum(np.abs(z)))(np.array([0, 3 + 4j]))
    np.testing.assert_allclose(g, [0, 0.6 + 0.8j])


@pytest.mark.parametrize("f", [
    np.sqrt, np.exp, np.log, np.reciprocal, np.tanh, np.tan, np.abs, lambda z: 1 / z,
    lambda z: z**1.5, lambda z: z**2,
])  # fmt: skip
def test_special_points(f: Any) -> None:
    z = np.array([
        0, 1, -1, 1j, -1j, -4 + 0j, complex(-4, -0.0), 1e-200 + 1e-200j, 1e150 - 1e150j, 30 + 2j,
        -30 - 2j, 1e-8 + 1j,
    ])  # fmt: skip
    got = tg.compile(f)(z)
    with np.errstate(all="ignore"):
        want = f(z)
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-13)


def test_pullbacks_and_pushforwards_of_complex_results() -> None:
    z, dz, ct = numbers(1, 4), numbers(2, 4), numbers(3, 4)
    out, pull = tg.vjp(lambda z: z * z, z)
    np.testing.assert_allclose(out, z * z)
    (g,) = pull(ct)
    np.testing.assert_allclose(g, ct * np.conj(2 * z))
    out, moved = tg.jvp(lambda z: z * z, (z,), (dz,))
    np.testing.assert_allclose(moved, 2 * z * dz)


def test_second_derivatives() -> None:
    z, v = numbers(1, 4), numbers(2, 4)

    def slope(z: Array) -> Any:
        g = tg.grad(lambda z: np.sum(np.abs(np.sin(z)) ** 2))(z)
        return np.sum(g.real * v.real + g.imag * v.imag)

    g, d, h = tg.grad(slope)(z), numbers(3, 4), 1e-6
    measured = (slope(z + h * d) - slope(z - h * d)) / (2 * h)
    assert np.sum((g.conj() * d).real) == pytest.approx(measured, rel=1e-5)


def test_loops_carry_complex_arrays() -> None:
    def f(z: Array, c: Array) -> Any:
        for _ in range(30):
            z = z * z * 0.5 + c
        return np.sum(np.abs(z))

    z, c = 0.1 * numbers(1, 5), 0.1 * numbers(2, 5)
    assert tg.compile(f)(z, c) == pytest.approx(f(z, c), rel=1e-12)
    g, d, h = tg.grad(f)(z, c), numbers(3, 5), 1e-6
    measured = (f(z + h * d, c) - f(z - h * d, c)) / (2 * h)
    assert np.sum((g.conj() * d).real) == pytest.approx(measured, rel=1e-5, abs=1e-8)


# --------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("f", [
    np.max, np.sign, np.round, np.cumprod, np.argmax, np.arcsin, np.expm1, np.nan_to_num, np.ptp,
    lambda z: np.clip(z, 0, 1), lambda z: z > 1j, lambda z: np.maximum(z, 0),
    lambda z: z.logsumexp(),
])  # fmt: skip
def test_what_is_not_supported_is_refused(f: Any) -> None:
    with pytest.raises(DTypeError):
        tg.compile(f)(numbers(1, 4))


def test_exported_functions_take_real_arrays(tmp_path: Any) -> None:
    with pytest.raises(tg.errors.ExportError, match="complex128"):
        tg.export(lambda z: np.abs(z), ["c16[3]"], tmp_path / "out", name="f")
    inside = tg.export(lambda x: np.abs(np.exp(1j * x)), ["f8[3]"], tmp_path / "in", name="f")
    assert "double" in (inside / "f.c").read_text()


def test_check_grads_knows_complex_numbers() -> None:
    tg.check_grads(lambda z: np.sin(z) / (z + 3), (numbers(1, 3),))
    tg.check_grads(lambda z: np.abs(z), (numbers(1, 3).astype(np.complex64),))


def test_a_complex_value_has_no_gradient() -> None:
    with pytest.raises(GradientError, match="complex128"):
        tg.grad(lambda z: np.sum(z))(numbers(1, 4))


def test_imaginary_parts_do_not_vanish_silently() -> None:
    def store(z: Array) -> Any:
        x = np.zeros(4)
        x[:] = z
        return x

    with pytest.warns(np.exceptions.ComplexWarning):
        tg.compile(store)(numbers(1, 4))
    with pytest.raises(DTypeError, match="cannot become float64"):
        tg.compile(lambda x: np.where(x > 0, x, 0).__setitem__(0, 1j))(np.ones(3))
    with pytest.raises(DTypeError, match="same_kind"):
        tg.compile(lambda x: np.multiply(x, 1j, out=x))(np.ones(3))
    with pytest.raises(DTypeError, match="imaginary part"):
        tg.compile(lambda x: setattr(x, "imag", 1.0))(np.ones(3))


def test_views_of_bytes_have_rules() -> None:
    with pytest.raises(tg.errors.TracegradError, match="cannot be seen as"):
        tg.compile(lambda x: x[:, ::2].view(np.float32))(np.ones((2, 4)))
    with pytest.raises(tg.errors.TracegradError, match="cannot be seen as"):
        tg.compile(lambda x: x.view(np.complex128))(np.ones((2, 3)))
    with pytest.raises(UnsupportedError):
        tg.compile(lambda x: x.view(bool))(np.ones((2, 3)))


@pytest.mark.parametrize("to", [
    np.int64, np.uint8, np.float32, np.complex128, np.complex64, np.int32, np.uint64])  # fmt: skip
@pytest.mark.parametrize("before", [np.float64, np.complex128, np.int16, np.float32, np.complex64])
def test_views_of_bytes_write_through(before: type, to: type) -> None:
    def f(x: Array) -> Any:
        y = x + 0
        part = y[1:, 8:]
        seen = part.view(to)
        seen[:, :1] += np.ones((), to)
        return y, seen * np.ones((), to)

    rng = np.random.default_rng(3)
    x = rng.uniform(1, 99, (3, 16)).astype(before)
    with np.errstate(all="ignore"):
        want = f(x)
    for got, expected in zip(tg.compile(f)(x), want, strict=True):
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes()


def test_a_write_of_bytes_is_hidden_from_the_gradient() -> None:
    def f(x: Array) -> Any:
        y = x * 3
        y.view(np.int64)[0] = 0
        return np.sum(y * y)

    x = np.arange(1.0, 4)
    value, g = tg.value_and_grad(f)(x)
    assert value == 36 + 81
    np.testing.assert_array_equal(g, 6 * np.array([0, 6, 9]))


# ------------------------------------------------------------------------------- by PyTorch


@pytest.mark.oracle
@pytest.mark.parametrize("name", [
    "add", "mul", "div", "reciprocal", "abs", "exp", "sqrt", "log", "sin", "tan", "tanh", "sinh",
    "power", "power_whole", "angle", "conj", "prod", "matmul", "var",
])  # fmt: skip
def test_gradients_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours: dict[str, Any] = {
        "exp": (np.exp, torch.exp), "sqrt": (np.sqrt, torch.sqrt), "log": (np.log, torch.log),
        "sin": (np.sin, torch.sin), "tan": (np.tan, torch.tan), "tanh": (np.tanh, torch.tanh),
        "sinh": (np.sinh, torch.sinh), "abs": (np.abs, torch.abs), "angle": (np.angle, torch.angle),
        "reciprocal": (np.reciprocal, torch.reciprocal), "conj": (np.conj, torch.conj),
        "prod": (np.prod, torch.prod), "var": (np.var, lambda z: torch.var(z, correction=0)),
        "power_whole": (lambda z: z**5, lambda z: z**5),
    }  # fmt: skip
    binary = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
              "power": lambda a, b: a**b, "matmul": lambda a, b: a @ b}  # fmt: skip
    f, g = ours.get(name, (None, None))
    a, b = numbers(1, 4, 4), numbers(2, 4, 4)
    w = numbers(3, 4, 4)

    def loss(a: Array, b: Array) -> Any:
        out = binary[name](a, b) if f is None else f(a)
        return np.sum(np.real(out * w) if np.iscomplexobj(out) else out * w.real)

    grads = tg.grad(loss, argnums=(0, 1))(a, b)
    s, t = (torch.tensor(x, requires_grad=True) for x in (a, b))
    out = binary[name](s, t) if g is None else g(s)
    v = torch.tensor(w)
    ((out * v).real if out.is_complex() else out * v.real).sum().backward()
    np.testing.assert_allclose(grads[0], s.grad.resolve_conj().numpy(), rtol=1e-8, atol=1e-9)
    if f is None:
        np.testing.assert_allclose(grads[1], t.grad.resolve_conj().numpy(), rtol=1e-8, atol=1e-9)


def test_warnings_are_only_those_of_conversions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.grad(lambda z: np.sum(np.abs(np.exp(z) / z) ** 2))(numbers(1, 4))


# -------------------------------------------------------------------------------- the prompt


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_prompt_agrees_with_compiled_code(name: str) -> None:
    f = FUNCTIONS[name]
    a, b = numbers(1, 3, 4), numbers(2, 3, 4)
    loss = weighted(f, np.asarray(f(a, b)))
    want, grads = tg.value_and_grad(loss, argnums=(0, 1), arrays="torch")(a, b)
    s, t = tg.tensor(a, requires_grad=True), tg.tensor(b, requires_grad=True)
    out = loss(s, t)
    out.backward()
    np.testing.assert_allclose(out.detach().numpy(), want, rtol=1e-6 if name == "narrow" else 1e-10)
    for x, g in ((s, grads[0]), (t, grads[1])):
        got = np.zeros((3, 4)) if x.grad is None else x.grad.numpy()
        np.testing.assert_allclose(got, g, rtol=1e-5 if name == "narrow" else 1e-9, atol=1e-11)


def test_writes_through_views_at_the_prompt() -> None:
    def run(x: Any, w: Any) -> Any:
        z = tg.view_as_complex(x * 1.0)
        z.conj()[1:].mul_(w * 1j)
        z.real.mul_(w)
        tg.view_as_real(z)[0].add_(w)
        return (z.imag * z.real + abs(z)).sum()

    x, w = np.arange(1.0, 7).reshape(3, 2), np.array(1.5)
    want, grads = tg.value_and_grad(run, argnums=(0, 1), arrays="torch")(x, w)
    s, t = tg.tensor(x, requires_grad=True), tg.tensor(w, requires_grad=True)
    out = run(s, t)
    out.backward()
    np.testing.assert_allclose(out.detach().numpy(), want)
    np.testing.assert_allclose(s.grad.numpy(), grads[0])
    np.testing.assert_allclose(t.grad.numpy(), grads[1])


def test_second_derivatives_at_the_prompt() -> None:
    z = tg.tensor(numbers(1, 3), requires_grad=True)
    (g,) = tg.autograd.grad((abs(z) ** 4).sum(), z, create_graph=True)
    (h,) = tg.autograd.grad((g.real * g.imag).sum(), z)

    def slope(z: Array) -> Any:
        g = tg.grad(lambda z: np.sum(np.abs(z) ** 4))(z)
        return np.sum(g.real * g.imag)

    np.testing.assert_allclose(h.numpy(), tg.grad(slope)(numbers(1, 3)), rtol=1e-9)


def test_conjugates_of_constants_are_views() -> None:
    def f(x: Array) -> Any:
        z = tg.full((2,), 1 + 2j)
        c = z.conj()
        z.mul_(1j)
        c[0] = 5j
        return z, c.clone(), x * c

    z, c, y = tg.compile(f, arrays="torch")(np.ones(2))
    np.testing.assert_array_equal(z, [-5j, -2 + 1j])
    np.testing.assert_array_equal(c, [5j, -2 - 1j])
    np.testing.assert_array_equal(y, c)


def test_views_of_constants_share_memory() -> None:
    def f(x: Array) -> Any:
        z = np.zeros(3, complex)
        z.real[1:] = 4
        z.imag = x
        z.view(np.float64)[0] = 9
        return z

    x = np.arange(3.0)
    np.testing.assert_array_equal(tg.compile(f)(x), f(x))


def test_captured_conjugates_and_parts() -> None:
    def f(z: Array) -> Any:
        c, r = np.conj(z), z.real
        return tg.grad(lambda s: np.sum((s * c).real * r))(2.0)

    z = numbers(1, 3)
    np.testing.assert_allclose(tg.compile(f)(z), np.sum(z.real**2))

    def views(z: Array) -> Any:
        c = z.conj()
        return tg.grad(lambda s: ((c * s).imag * s).sum())(z.real[0])

    np.testing.assert_allclose(
        tg.compile(views, arrays="torch")(z), 2 * z.real[0] * -z.imag.sum(), rtol=1e-12
    )


def test_jacobians_of_complex_arrays_are_refused() -> None:
    with pytest.raises(GradientError, match="complex128"):
        tg.jacobian(lambda z: z * z)(numbers(1, 3))
    with pytest.raises(GradientError, match="complex128"):
        tg.jacfwd(lambda x: x * 1j)(np.ones(3))


def test_conjugates_at_the_prompt_are_views() -> None:
    z = tg.tensor(numbers(1, 3))
    c = z.conj()
    z.mul_(2j)
    np.testing.assert_array_equal(c.clone().numpy(), np.conj(z.numpy()))
    c[1] = 1 + 2j
    assert z[1].item() == 1 - 2j
    with pytest.raises(tg.errors.AutogradError, match="clone"):
        c.numpy()
    with pytest.raises(tg.errors.ViewMutationError, match="conj"):
        tg.view_as_real(c)


def test_tracked_values_do_not_enter_through_other_bytes() -> None:
    def f(x: Array) -> Any:
        y = x * 1.0
        y.view(np.float32)[0] = x[0] * 2
        return np.sum(y)

    with pytest.raises(tg.errors.ViewMutationError, match="has no gradient"):
        tg.grad(f)(np.ones(3))
    w = tg.tensor(np.ones(1, np.float32), requires_grad=True)
    y = tg.tensor(np.ones(3))
    with pytest.raises(tg.errors.ViewMutationError, match="has no gradient"):
        y.view(np.float32)[:1].mul_(w)
