"""NPBench by name: natural NumPy programs give NumPy's values and right gradients, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from benchmarks.npbench import KERNELS, differentiable, fresh

# Those whose loops are built as C here too; the others run on the interpreter of the loop IR.
IN_C = [
    "arc_distance",
    "azimint_naive",
    "channel_flow",
    "cholesky",
    "covariance",
    "deriche",
    "doitgen",
    "durbin",
    "fdtd_2d",
    "gramschmidt",
    "hdiff",
    "jacobi_1d",
    "ludcmp",
    "mandelbrot",
    "nbody",
    "seidel_2d",
    "softmax",
    "spmv",
    "stockham_fft",
    "symm",
    "syr2k",
    "tridiagonal",
    "trisolv",
    "trmm",
]
# How many loop nodes a traced program holds at its small size.
NODES = {
    "adi": 5,
    "azimint_naive": 1,
    "cavity_flow": 2,
    "channel_flow": 1,
    "cholesky": 2,
    "conv2d": 2,
    "correlation": 1,
    "covariance": 1,
    "deriche": 2,
    "doitgen": 1,
    "durbin": 1,
    "fdtd_2d": 1,
    "floyd_warshall": 1,
    "gramschmidt": 2,
    "heat_3d": 1,
    "jacobi_1d": 1,
    "jacobi_2d": 1,
    "lu": 3,
    "ludcmp": 5,
    "mandelbrot": 1,
    "nbody": 1,
    "resnet": 6,
    "seidel_2d": 3,
    "spmv": 1,
    "symm": 2,
    "syr2k": 2,
    "syrk": 2,
    "tridiagonal": 2,
    "trisolv": 1,
    "trmm": 2,
    "vadv": 2,
}


@pytest.fixture(params=sorted(KERNELS))
def kernel(request):
    return KERNELS[request.param]


def like(rng, x):
    out = rng.normal(size=np.shape(x))
    return out + 1j * rng.normal(size=np.shape(x)) if np.iscomplexobj(x) else out


def along(f, arguments, direction, h):
    """The derivative of `f` along a direction (position: array), by central differences."""

    def at(t):
        moved = [
            x + t * direction[k] if k in direction else x for k, x in enumerate(fresh(arguments))
        ]
        return f(*moved)

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def check_value(kernel, **options):
    given, expected = fresh(kernel.arguments(kernel.small)), kernel.arguments(kernel.small)
    got, want = tg.compile(kernel.function, **options)(*given), kernel.function(*expected)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    for a, b in zip(given, expected, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


def check_gradient(kernel, **options):
    arguments = kernel.arguments(kernel.small)
    nums = differentiable(kernel, arguments)
    found = tg.grad(kernel.function, argnums=nums, **options)(*fresh(arguments))
    rng = np.random.default_rng(1)
    for _ in range(2):
        direction = {k: like(rng, arguments[k]) for k in nums}
        want = along(kernel.function, arguments, direction, 1e-5)
        got = sum(np.sum(np.conj(g) * direction[k]).real for g, k in zip(found, nums, strict=True))
        np.testing.assert_allclose(got, want, rtol=kernel.slack, atol=1e-9)


def test_value_and_written_arrays(kernel):
    check_value(kernel, backend="numpy")


def test_gradient(kernel):
    check_gradient(kernel, backend="numpy")


@pytest.mark.parametrize("name", IN_C)
def test_in_c(name):
    check_value(KERNELS[name])
    check_gradient(KERNELS[name])


@pytest.mark.parametrize("name", NODES)
def test_its_loops_are_nodes(name):
    kernel = KERNELS[name]
    text = tg.compile(kernel.function).graph(*kernel.arguments(kernel.small))
    assert text.count("= loop(") == NODES[name]


def test_the_transform_is_that_of_fourier():
    x, stages = KERNELS["stockham_fft"].arguments({"k": 5})
    z = np.fft.fft(x)
    want = np.sum(np.sin(z.real)) + np.sum(z.imag**2 * np.cos(np.arange(32)))
    np.testing.assert_allclose(KERNELS["stockham_fft"].function(x, stages), want)


def test_the_solvers_solve():
    a, b = KERNELS["ludcmp"].arguments({"n": 9})
    np.testing.assert_allclose(
        KERNELS["ludcmp"].function(a.copy(), b), np.sum(np.linalg.solve(a, b) ** 2)
    )
    low, main, up, rhs = KERNELS["tridiagonal"].arguments({"n": 9})
    full = np.diag(main) + np.diag(low[1:], -1) + np.diag(up[:-1], 1)
    want = np.sum(np.linalg.solve(full, rhs) ** 2)
    np.testing.assert_allclose(KERNELS["tridiagonal"].function(low, main, up, rhs), want)
    (c,) = KERNELS["cholesky"].arguments({"n": 9})
    want = np.sum(np.sin(np.linalg.cholesky(c)))
    np.testing.assert_allclose(KERNELS["cholesky"].function(c), want)


def test_what_had_to_change_computes_the_same():
    changed = [k for k in KERNELS.values() if k.natural is not None]
    assert [k.name for k in changed] == ["spmv"]
    for k in changed:
        arguments = k.arguments(k.small)
        np.testing.assert_allclose(k.function(*arguments), k.natural(*arguments), rtol=1e-12)


# The forms that differ most from the programs: `scan`, whole-array products, LAPACK.
JAX = [
    "adi",
    "azimint_naive",
    "correlation",
    "durbin",
    "gramschmidt",
    "scattering_self_energies",
    "seidel_2d",
    "spmv",
    "symm",
    "syrk",
    "tridiagonal",
    "trisolv",
    "vadv",
]


@pytest.mark.oracle
@pytest.mark.parametrize("name", JAX)
def test_jax_agrees(name):
    jax = pytest.importorskip("jax")
    from benchmarks.npbench.in_jax import FORMS

    kernel = KERNELS[name]
    arguments = kernel.arguments(kernel.small)
    nums = differentiable(kernel, arguments)
    given = [jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments]
    value, want = jax.value_and_grad(FORMS[name], argnums=nums)(*given)
    np.testing.assert_allclose(kernel.function(*fresh(arguments)), value, rtol=1e-10)
    got = tg.grad(kernel.function, argnums=nums, backend="numpy")(*fresh(arguments))
    for a, b in zip(got, want, strict=True):
        # JAX gives the conjugate of the gradient of a complex argument.
        np.testing.assert_allclose(a, np.conj(b), rtol=1e-7, atol=1e-9)
