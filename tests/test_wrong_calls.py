"""Arguments and settings that are refused: their texts, classes and remedies."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tests.refusals.case import caught, marked
from tracegrad import errors

X = np.array([1.0, 2.0, 3.0])


def total(x):
    return np.sum(x * x)


def double(x):
    return 2.0 * x


# ------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("array", "says", "remedy"),
    [
        (np.array([1, "a"], object), "dtype object is not supported", "x.astype(np.float64)"),
        (np.array(["a"]), "dtype <U1 is not supported", "x.astype(np.float64)"),
        (np.ones(2, np.float16), "dtype float16 is not supported", "x.astype(np.float64)"),
        (np.ones(2, ">f8"), "dtype >f8 is not supported", "x.astype(np.float64)"),
        (np.array(["2020"], "M8[D]"), "dtype datetime64[D] is not supported", "np.int64"),
        (
            np.zeros(2, [("a", float)]),
            "dtype [('a', '<f8')] is not supported",
            "Pass its fields as arrays of their own",
        ),
        (
            np.ma.masked_array([1.0, 2.0], [0, 1]),
            "a numpy.ma.MaskedArray is not supported",
            "a mask as an array of its own",
        ),
    ],
    ids=lambda v: str(v)[:20],
)
def test_arrays_that_cannot_be_traced(array, says, remedy):
    e = caught(lambda: tg.compile(double)(array))
    assert type(e) is errors.DTypeError and isinstance(e, TypeError) and e.kind == "dtype"
    assert e.message == f"double: args[0]: {says}" and remedy in e.remedy
    assert marked(str(e)) == "tg.compile(double)(array)"


def test_long_double():
    if np.dtype(np.longdouble) == np.dtype(np.float64):
        pytest.skip("long double is double here")
    e = caught(lambda: tg.compile(double)(np.ones(2, np.longdouble)))
    assert f"dtype {np.dtype(np.longdouble)} is not supported" in e.message


@pytest.mark.parametrize(
    ("value", "kind", "remedy"),
    [
        ([1, 2], "list", "Leave it out of static_argnums"),
        ({"a": 1}, "dict", "Leave it out of static_argnums"),
        (np.ones(2), "ndarray", "arrays are traced"),
        ({1, 2}, "set", "tg.register_pytree(set)"),
    ],
    ids=str,
)
def test_static_arguments_are_hashable(value, kind, remedy):
    f = tg.compile(lambda x, table: x, static_argnames="table")
    e = caught(lambda: f(X, value))
    assert type(e) is errors.ArgumentError and isinstance(e, TypeError) and e.kind == "argument"
    assert e.message == f"<lambda>: args[1]: a static value of type {kind} is not hashable"
    assert remedy in e.remedy and marked(str(e)) == "f(X, value)"


@pytest.mark.parametrize(
    ("call", "says", "under"),
    [
        (
            lambda: tg.compile(double)(X, X),
            "double() too many positional arguments",
            "tg.compile(double)(X, X)",
        ),
        (
            lambda: tg.compile(double)(),
            "double() missing a required argument: 'x'",
            "tg.compile(double)()",
        ),
        (
            lambda: tg.compile(double)(y=X),
            "double() missing a required argument: 'x'",
            "tg.compile(double)(y=X)",
        ),
        (lambda: tg.compile(3), "compile needs a function, not int", "tg.compile(3)"),
        (
            lambda: tg.grad(total(X)),
            "a transform needs a function, not float64",
            "tg.grad(total(X))",
        ),
        (
            lambda: tg.compile(double, static_argnums=4),
            "static_argnums 4 is out of range: double takes 1 positional arguments",
            "tg.compile(double, static_argnums=4)",
        ),
        (
            lambda: tg.compile(double, static_argnames="k"),
            "static_argnames: double has no argument 'k'",
            'tg.compile(double, static_argnames="k")',
        ),
        (
            lambda: tg.compile(double)({1.0}),
            "double: args[0]: a set is neither an array nor a hashable static value",
            "tg.compile(double)({1.0})",
        ),
        (
            lambda: tg.compile(double, loop="roll"),
            "unknown option 'loop'",
            'tg.compile(double, loop="roll")',
        ),
        (
            lambda: tg.compile(double, loops="rolled"),
            "option loops cannot be 'rolled'",
            'tg.compile(double, loops="rolled")',
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_calls(call, says, under):
    e = caught(call)
    assert isinstance(e, TypeError) and e.message == says and marked(str(e)) == under


# ---------------------------------------------------------------------------------- transforms


def test_gradient_of_a_vector():
    x = X.copy()
    e = caught(lambda: tg.grad(double)(x))
    assert type(e) is errors.GradientError and isinstance(e, TypeError)
    assert e.kind == "gradient_not_scalar"
    assert (
        e.message == "the gradient of double needs one number, and it returns an array of "
        "shape (3,)"
    )
    assert marked(str(e)) == "def double(x):" and "tg.vjp" in e.remedy


@pytest.mark.parametrize(
    ("f", "kind", "says"),
    [
        (lambda x: None, "gradient_not_scalar", "needs one number, and it returns None"),
        (lambda x: (x[0], x[1]), "gradient_not_scalar", "and it returns 2 values"),
        (lambda x: "a", "gradient_not_scalar", "<lambda> returns 'a', which has no gradient"),
        (lambda x: np.argmax(x), "gradient_dtype", "<lambda> returns int64, which has no gradient"),
        (lambda x: x[0] > 0, "gradient_dtype", "<lambda> returns bool, which has no gradient"),
    ],
    ids=["none", "tuple", "text", "int", "bool"],
)
def test_results_without_a_gradient(f, kind, says):
    e = caught(lambda: tg.grad(f)(X))
    assert type(e) is errors.GradientError and e.kind == kind and says in e.message and e.remedy
    assert "test_wrong_calls.py" in str(e)


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (
            lambda: tg.grad(total)(np.arange(3)),
            "gradient_dtype",
            "total: args[0] has dtype int64, which has no gradient",
        ),
        (
            lambda: tg.grad(total)(np.array([True])),
            "gradient_dtype",
            "total: args[0] has dtype bool, which has no gradient",
        ),
        (
            lambda: tg.grad(lambda p: total(p["w"]))({"n": np.arange(3), "w": X}),
            "gradient_dtype",
            "<lambda>: args[0]['n'] has dtype int64, which has no gradient",
        ),
        (
            lambda: tg.grad(lambda n: n * 1.0)(3),
            "gradient",
            "<lambda>: args[0] (n) is static (of type int), so there is no gradient by it",
        ),
        (
            lambda: tg.grad(lambda x, name: total(x), argnums=1)(X, None),
            "gradient",
            "<lambda>: args[1] (name) holds no array or float, so there is no gradient by it",
        ),
    ],
    ids=["int", "bool", "tree", "static", "none"],
)
def test_arguments_without_a_gradient(call, kind, says):
    e = caught(call)
    assert type(e) is errors.GradientError and isinstance(e, TypeError)
    assert e.kind == kind and e.message == says and "argnums" in e.remedy
    assert marked(str(e)).startswith("tg.grad(")


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda: tg.grad(total, argnums=1)(X),
            ValueError,
            "argnums 1 is out of range: total was called with 1 positional argument",
        ),
        (
            lambda: tg.grad(total, argnums=-2)(X),
            ValueError,
            "argnums -2 is out of range: total was called with 1 positional argument",
        ),
        (
            lambda: tg.grad(total, argnums="x")(X),
            TypeError,
            "argnums must be an int or a tuple of ints, not 'x'",
        ),
        (
            lambda: tg.grad(total, argnums=True)(X),
            TypeError,
            "argnums must be an int or a tuple of ints, not True",
        ),
        (
            lambda: tg.grad(total, argnums=0.0)(X),
            TypeError,
            "argnums must be an int or a tuple of ints, not 0.0",
        ),
        (
            lambda: tg.grad(total, argnums=X)(X),
            TypeError,
            "argnums and argnames cannot be of type ndarray",
        ),
        (
            lambda: tg.grad(total, argnums=(0, 0))(X),
            ValueError,
            "total: an argument is named twice in argnums and argnames",
        ),
        (
            lambda: tg.grad(total, argnames="y")(X),
            ValueError,
            "argnames: total has no argument 'y'",
        ),
        (
            lambda: tg.grad(total, argnames=3)(X),
            TypeError,
            "argnames must be a string or a tuple of strings, not 3",
        ),
    ],
    ids=["high", "low", "text", "bool", "float", "array", "twice", "name", "number"],
)
def test_wrong_argnums_and_argnames(call, error, says):
    e = caught(call)
    assert isinstance(e, error) and e.message == says
    assert marked(str(e)).startswith("tg.grad(total, arg")


@pytest.mark.parametrize(
    ("call", "error", "says", "remedy"),
    [
        (
            lambda: tg.vjp(double, X)[1](np.ones(4)),
            ValueError,
            "the cotangent has shape (4,), not (3,)",
            "the shape of the result",
        ),
        (
            lambda: tg.vjp(double, X)[1]((X, X)),
            TypeError,
            "the cotangent has 2 leaves, the result of double has 1",
            "None stands for zero",
        ),
        (
            lambda: tg.jvp(double, (X,), (np.ones(4),)),
            ValueError,
            "the tangent has shape (4,), not (3,)",
            "the shape of the argument",
        ),
        (
            lambda: tg.jvp(double, (X,), (X, X)),
            TypeError,
            "jvp: 1 primals and 2 tangents",
            "one tangent for each primal",
        ),
    ],
    ids=["cotangent", "leaves", "tangent", "count"],
)
def test_cotangents_and_tangents(call, error, says, remedy):
    e = caught(call)
    assert isinstance(e, error) and e.message == says and remedy in e.remedy
    assert marked(str(e)).startswith("tg.")


# -------------------------------------------------------------------------------- looking, checking


@pytest.mark.parametrize(
    ("call", "says", "under"),
    [
        (
            lambda x: tg.debug.print("{} {}", x),
            "debug.print: the format '{} {}' does not fit: Replacement index 1 out of range for "
            "positional args tuple",
            'tg.debug.print("{} {}", x)',
        ),
        (
            lambda x: tg.debug.print("{a:.2f}", a=x),
            "debug.print: the format '{a:.2f}' does not fit: unsupported format string passed to "
            "numpy.ndarray.__format__",
            'tg.debug.print("{a:.2f}", a=x)',
        ),
        (
            lambda x: tg.debug.print(x),
            "debug.print: the format is a Array, not a string",
            "tg.debug.print(x)",
        ),
    ],
    ids=["count", "spec", "no format"],
)
def test_a_format_that_does_not_fit(call, says, under):
    def writes(x):
        x[0] = 5.0
        call(x)

    x = X.copy()
    e = caught(lambda: tg.compile(writes)(x))
    assert type(e) is errors.ArgumentError and e.message == says and marked(str(e)) == under
    np.testing.assert_array_equal(x, X)


def test_check_grads_wants_a_tuple_of_floats():
    e = caught(lambda: tg.check_grads(total, X))
    assert e.message == "check_grads: args must be a tuple, not ndarray"
    assert marked(str(e)) == "tg.check_grads(total, X)" and "(x,)" in e.remedy
    e = caught(lambda: tg.check_grads(total, (np.arange(3),)))
    assert isinstance(e, ValueError) and e.message == "check_grads: no argument has a float in it"
