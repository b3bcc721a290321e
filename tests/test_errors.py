"""What a user reads when a program is refused: class, kind, message, quoted line, caret, remedy."""

from __future__ import annotations

import datetime
import json
import math
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from random import gauss as bell
from typing import Any

import numpy as np
import pytest
from numpy.linalg import eig as decompose

import tracegrad as tg
from tests.error_programs import absolute_value
from tracegrad import errors

X = np.array([1.0, 2.0, 3.0])
GENERATOR = np.random.default_rng(0)


def fresh_arrays():
    while True:
        yield np.zeros(3)


ARRAYS = fresh_arrays()  # arrays on a path that cannot be followed again


@dataclass
class Refusal:
    program: Callable[..., Any]
    error: type[errors.TracegradError]
    also: type[Exception]
    kind: str
    says: str
    under: str
    remedy: str


REFUSALS: list[Refusal] = []


def refused(error, also, kind, *, says, under, remedy=""):
    def register(program):
        REFUSALS.append(Refusal(program, error, also, kind, says, under, remedy))
        return program

    return register


def marked(text: str) -> str:
    """The part of the first quoted line that stands over the carets."""
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.strip() and not line.strip(" ^"))
    start = lines[at].index("^")
    return lines[at - 1][start : len(lines[at])]


def caught(call: Callable[[], Any]) -> errors.TracegradError:
    with pytest.raises(errors.TracegradError) as e:
        call()
    assert e.value.__cause__ is None, "what users see is one error, not a chain"
    assert e.value.__context__ is None or e.value.__suppress_context__
    return e.value


def check(e: errors.TracegradError, want: Refusal, file: str = __file__) -> None:
    text = str(e)
    assert type(e) is want.error and isinstance(e, want.also)
    assert e.kind == want.kind
    assert text.splitlines()[0] == want.says
    assert f"  {file}:{e.loc.line} in " in text
    assert marked(text) == want.under
    assert want.remedy in e.remedy and e.remedy in text


# ------------------------------------------------------------- values that are not known yet

VALUE = "which is known only when the compiled function runs"


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"`if` needs the value of a traced bool scalar, {VALUE}",
    under="x.sum() > 0", remedy="np.where(condition, a, b)",
)
def branch(x):
    if x.sum() > 0:
        return x
    return -x


@refused(
    errors.ShapeError, ValueError, "shape",
    says="The truth value of an array with more than one element is ambiguous. "
    "Use a.any() or a.all()",
    under="x > 0", remedy="Both stay traced.",
)
def branch_on_an_array(x):
    if x > 0:
        return x
    return -x


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"bool() needs the value of a traced bool scalar, {VALUE}",
    under="x[0] > 0", remedy="np.where",
)
def conditional_expression(x):
    return x if x[0] > 0 and x[1] > 0 else -x


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"bool() needs the value of a traced float64 scalar, {VALUE}",
    under="bool(x[0])", remedy="np.where",
)
def to_bool(x):
    return x * bool(x[0])


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"`while` needs the value of a traced bool scalar, {VALUE}",
    under="np.sum(x) > 1.0", remedy="for ... in range(n)",
)
def loop_until(x):
    while np.sum(x) > 1.0:
        x = x * 0.5
    return x


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"any() needs the value of a traced bool scalar, {VALUE}",
    under="any(x > 2)", remedy="np.any(x)",
)
def builtin_any(x):
    return x * any(x > 2)


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"`in` needs the value of a traced bool scalar, {VALUE}",
    under="1.0 in x", remedy="np.any(x == value)",
)
def contained(x):
    found = 1.0 in x
    return x * found


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"int() needs the value of a traced float64 scalar, {VALUE}",
    under="int(x[0])", remedy="Pass it as a Python int",
)
def to_int(x):
    return x[: int(x[0])]


@refused(
    errors.ArgumentError, TypeError, "argument",
    says="only 0-dimensional arrays can be converted to Python scalars",
    under="float(x)",
)
def array_to_float(x):
    return x * float(x)


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f".item() needs the value of a traced float64 scalar, {VALUE}",
    under="x[0].item()", remedy="Keep it traced",
)
def to_item(x):
    return x * x[0].item()


@refused(
    errors.ShapeError, ValueError, "shape",
    says="can only convert an array of size 1 to a Python scalar",
    under="x.item()",
)
def array_to_item(x):
    return x.item()


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"formatting with '.3f' needs the value of a traced float64 scalar, {VALUE}",
    under='f"{x.sum():.3f}"', remedy="tg.debug.print(fmt, x)",
)
def format_with_spec(x):
    label = f"{x.sum():.3f}"
    return x, label


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"float() needs the value of a traced float64 scalar, {VALUE}",
    under='"%.3f" % x.sum()', remedy="Keep it traced",
)
def percent_format(x):
    label = "%.3f" % x.sum()  # noqa: UP031
    return x, label


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"use as a Python integer needs the value of a traced int64 scalar, {VALUE}",
    under="np.zeros(n)", remedy="Pass int(n) from outside",
)
def traced_size(x):
    n = np.argmax(x)
    return np.zeros(n)


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"use as a Python integer needs the value of a traced int64 scalar, {VALUE}",
    under="x[:n]", remedy="a slice bound may not depend on traced values",
)
def traced_slice_bound(x):
    n = np.argmax(x)
    return x[:n]


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says=f"the shift of np.roll needs the value of a traced int64 scalar, {VALUE}",
    under="np.roll(x, np.argmax(x))", remedy="Pass int(n) from outside",
)
def traced_roll(x):
    return np.roll(x, np.argmax(x))


@refused(
    errors.ConcretizationError, TypeError, "concretization",
    says="math.floor of a traced value is a Python int, which is not known yet",
    under="math.floor(x[0])", remedy="np.floor(x)",
)
def floor_to_int(x):
    return x * math.floor(x[0])


# ---------------------------------------------------------------- what is not there, and escapes


@refused(
    errors.UnsupportedError, NotImplementedError, "unsupported",
    says="np.linalg.eig is not supported yet",
    under="decompose(np.outer(x, x))", remedy="Compute it before the traced call",
)
def function_under_another_name(x):
    return decompose(np.outer(x, x))


@refused(
    errors.UnsupportedError, TypeError, "unsupported",
    says="np.fft.fft is not supported yet",
    under="np.fft.fft(x)", remedy="Compute it before the traced call",
)
def function_that_is_missing(x):
    return np.fft.fft(x)


@refused(
    errors.UnsupportedError, NotImplementedError, "unsupported",
    says="ndarray.tobytes is not supported yet", under="x.tobytes",
)
def method_that_is_missing(x):
    return x.tobytes()


@refused(
    errors.MissingAttributeError, AttributeError, "attribute",
    says="'numpy.ndarray' object has no attribute 'average'", under="x.average",
)
def method_that_numpy_lacks(x):
    return x.average()


@refused(
    errors.UnsupportedError, TypeError, "unsupported",
    says="math.fsum of a traced value is not supported",
    under="math.fsum(x)", remedy="Write it with NumPy functions.",
)
def standard_library_sum(x):
    return math.fsum(x)


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`json.dumps` cannot take a traced value: Object of type Array is not JSON serializable",
    under='json.dumps({"a": x})', remedy="pass it as an argument",
)
def written_as_json(x):
    return json.dumps({"a": x})


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`memoryview` cannot take a traced value: memoryview: a bytes-like object is required, "
    "not 'Array'",
    under="memoryview(x)",
)
def as_memory(x):
    return memoryview(x)


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`np.vectorize(lambda t: t + 1)` needs a real array, but a traced float64 array of shape "
    "(3,) reached it (by __array__)",
    under="np.vectorize(lambda t: t + 1)(x)", remedy="NumPy functions on the traced value",
)
def vectorised(x):
    return np.vectorize(lambda t: t + 1)(x)


@refused(
    errors.DTypeError, TypeError, "operand",
    says="unsupported operand type(s) for +: 'Array' and 'NoneType'", under="x + None",
)
def plus_none(x):
    return x + None


# ------------------------------------------------------------------- shapes, dtypes, indices


@refused(
    errors.ShapeError, ValueError, "shape",
    says="operands could not be broadcast together with shapes (3,) (4,)",
    under="x + np.ones(4)",
)
def sum_of_shapes(x):
    return x + np.ones(4)


@refused(
    errors.ShapeError, ValueError, "shape",
    says="matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
    "(n?,k),(k,m?)->(n?,m?) (size 4 is different from 3)",
    under="x @ np.ones((4, 2))",
)
def product_of_shapes(x):
    return x @ np.ones((4, 2))


@refused(
    errors.ShapeError, ValueError, "shape",
    says="could not broadcast input array from shape (4,) into shape (3,)", under="x[:]",
)
def assigned_shape(x):
    x[:] = np.ones(4)
    return x


@refused(
    errors.ShapeError, ValueError, "shape",
    says="setting an array element with a sequence.", under="y[0]",
)
def array_into_an_element(x):
    y = np.zeros(3)
    y[0] = x
    return y


@refused(
    errors.ShapeError, ValueError, "shape",
    says="non-broadcastable output operand with shape (3,) doesn't match the broadcast shape "
    "(2, 3)",
    under="x += np.ones((2, 3))",
)
def augmented_shape(x):
    x += np.ones((2, 3))
    return x


@refused(
    errors.ShapeError, ValueError, "shape",
    says="cannot reshape array of size 3 into shape (2,2)", under="x.reshape(2, 2)",
)
def reshaped(x):
    return x.reshape(2, 2)


@refused(
    errors.AxisError, IndexError, "axis",
    says="axis 1 is out of bounds for array of dimension 1", under="np.sum(x, axis=1)",
)
def missing_axis(x):
    return np.sum(x, axis=1)


@refused(
    errors.IndexingError, IndexError, "index",
    says="too many indices for array: array is 1-dimensional, but 2 were indexed", under="x[0, 1]",
)
def too_many_indices(x):
    return x[0, 1]


@refused(
    errors.IndexingError, IndexError, "index",
    says="index 5 is out of bounds for axis 0 with size 3", under="x[5]",
)
def out_of_range(x):
    return x[5]


@refused(
    errors.IndexingError, IndexError, "index",
    says="index 7 is out of bounds for axis 0 with size 3", under="x[7]",
)
def written_out_of_range(x):
    x[0] = 5.0
    x[7] = 1.0
    return x


@refused(
    errors.IndexingError, IndexError, "index",
    says="only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
    "boolean arrays are valid indices",
    under='x["a"]',
)
def index_by_name(x):
    return x["a"]


@refused(
    errors.DTypeError, TypeError, "result_cast",
    says="Cannot cast ufunc 'add' output from dtype('float64') to dtype('int64') with casting "
    "rule 'same_kind'",
    under="n += x", remedy="Convert the written array first",
)
def float_into_ints(x):
    n = np.zeros(3, np.int64)
    n += x
    return n


@refused(
    errors.DTypeError, TypeError, "result_cast",
    says="Cannot cast ufunc 'divide' output from dtype('float64') to dtype('int64') with casting "
    "rule 'same_kind'",
    under="n /= 2", remedy="Convert the written array first",
)
def quotient_into_ints(x):
    n = x.astype(np.int64)
    n /= 2
    return n


@refused(
    errors.DTypeError, TypeError, "dtype",
    says="ufunc 'left_shift' not supported for the input types, and the inputs could not be "
    "safely coerced to any supported types according to the casting rule ''safe''",
    under="x << 1",
)
def shifted_float(x):
    return x << 1


@refused(
    errors.DTypeError, TypeError, "dtype",
    says="numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the "
    "`^` operator, or the logical_xor function instead.",
    under="(x > 0) - (x > 1)",
)
def bool_difference(x):
    return (x > 0) - (x > 1)


@refused(
    errors.OutOfRangeError, OverflowError, "integer_range",
    says="Python integer 300 out of bounds for uint8", under="small + 300",
)
def integer_that_does_not_fit(x):
    small = (x > 0).astype(np.uint8)
    return small + 300


@refused(
    errors.DTypeError, TypeError, "dtype",
    says="dtype float16 is not supported", under="x.astype(np.float16)", remedy="np.float64",
)
def half_precision(x):
    return x.astype(np.float16)


@refused(
    errors.ValueArgumentError, ValueError, "argument_value",
    says="Integers to negative integer powers are not allowed.",
    under="np.argsort(np.arange(3)) ** -1",
)
def negative_power(x):
    return x * np.argsort(np.arange(3)) ** -1


# ------------------------------------------------------------------------------------ writes

REAL = "Create the array inside the traced function"


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`a[:]` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by __array__)",
    under="a[:]", remedy=REAL,
)
def stored_in_a_real_array(x):
    a = next(ARRAYS)
    a[:] = x
    return a


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`a[1]` needs a real number, but a traced value reached it", under="a[1]", remedy=REAL,
)
def stored_in_a_real_element(x):
    a = next(ARRAYS)
    a[1] = x[0]
    return a


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`a += x` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by out= of np.add)",
    under="a += x", remedy=REAL,
)
def added_to_a_real_array(x):
    a = next(ARRAYS)
    a += x
    return a


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`np.add` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by out= of np.add)",
    under="np.add(x, 1, out=a)", remedy=REAL,
)
def out_is_a_real_array(x):
    a = next(ARRAYS)
    np.add(x, 1, out=a)
    return a


@refused(
    errors.EscapeError, TypeError, "escape",
    says="`np.sum` needs a real array, but a traced float64 scalar reached it "
    "(by out= of a NumPy function)",
    under="np.sum(x, out=a[0, ...])", remedy=REAL,
)
def reduced_into_a_real_array(x):
    a = next(ARRAYS)
    np.sum(x, out=a[0, ...])
    return a


@refused(
    errors.ValueArgumentError, ValueError, "read_only",
    says="assignment destination is read-only", under="b[0]", remedy="x.copy()",
)
def broadcast_written(x):
    b = np.broadcast_to(x, (2, 3))
    b[0] = 1.0
    return b


@refused(
    errors.ValueArgumentError, ValueError, "read_only",
    says="assignment destination is read-only", under="part[1]", remedy="x.copy()",
)
def view_of_a_diagonal_written(x):
    part = np.outer(x, x).diagonal()[1:]
    part[1] = 1.0
    return part


@refused(
    errors.ValueArgumentError, ValueError, "read_only",
    says="output array is read-only", under="d += 1", remedy="x.copy()",
)
def diagonal_written(x):
    d = np.outer(x, x).diagonal()
    d += 1
    return d


# -------------------------------------------------------------------------- shapes from values

KEEP = "np.sum(x, where=mask)"


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="x[mask] with a traced mask has a shape that depends on traced values",
    under="x[x > 0]", remedy=KEEP,
)
def selected(x):
    return np.mean(x[x > 0])


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="the shape of the result of np.nonzero depends on traced values",
    under="np.nonzero(x)", remedy=KEEP,
)
def nonzero(x):
    return np.nonzero(x)


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="the shape of the result of ndarray.nonzero depends on traced values",
    under="(x > 1).nonzero()", remedy=KEEP,
)
def nonzero_method(x):
    return (x > 1).nonzero()


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="the shape of the result of np.unique depends on traced values",
    under="np.unique(x)", remedy=KEEP,
)
def unique(x):
    return np.unique(x)


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="np.where with one argument has a result whose shape depends on traced values",
    under="np.where(x > 0)", remedy=KEEP,
)
def where_of_one(x):
    return np.where(x > 0)


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="the length of the result of np.repeat depends on traced counts",
    under="np.repeat(x, x.astype(int))", remedy="Pass the counts as static values",
)
def repeated(x):
    return np.repeat(x, x.astype(int))


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="the length of arange would depend on a traced value",
    under="np.arange(x[0])", remedy="np.linspace(a, b, n)",
)
def range_of_values(x):
    return np.arange(x[0])


@refused(
    errors.DataDependentShapeError, IndexError, "data_dependent_shape",
    says="an assignment x[mask] = values with a traced mask needs to know how many elements the "
    "mask selects",
    under="x[x > 1]", remedy="np.where(mask, v, x)",
)
def values_into_a_mask(x):
    x[x > 1] = np.ones(2)
    return x


# -------------------------------------------------------------------------------- impure calls

EACH = "gives another result at each call, and a traced function must depend on its arguments alone"
DRAW = "Draw before the call"


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"np.random.standard_normal() {EACH}", under="np.random.standard_normal(3)", remedy=DRAW,
)
def numpy_random(x):
    return x + np.random.standard_normal(3)


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"Generator.normal {EACH}", under="GENERATOR.normal", remedy=DRAW,
)
def captured_generator(x):
    return x + GENERATOR.normal(size=3)


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"random.gauss() {EACH}", under="bell(0, 1)", remedy=DRAW,
)
def python_random(x):
    return x * bell(0, 1)


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"random.random() {EACH}", under="random.random()", remedy=DRAW,
)
def python_random_by_module(x):
    return x * random.random()


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"time.perf_counter() {EACH}", under="time.perf_counter()", remedy="Read the clock before",
)
def clock(x):
    return x * time.perf_counter()


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"datetime.now() {EACH}", under="datetime.datetime.now()", remedy="Read the clock before",
)
def wall_clock(x):
    return x * datetime.datetime.now().second


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"uuid.uuid4() {EACH}", under="uuid.uuid4()", remedy="Make it before the call",
)
def fresh_identity(x):
    return x * (uuid.uuid4().int % 7)


@refused(
    errors.ImpureCallError, RuntimeError, "impure_call",
    says=f"open() {EACH}", under='open("weights.txt")', remedy="Read the file before the call",
)
def file(x):
    with open("weights.txt") as f:
        return x * len(f.read())


# ------------------------------------------------------------------------ the outside, results


@refused(
    errors.CaptureError, RuntimeError, "unknown_capture",
    says="an array of shape (3,) that is no argument of the traced function meets a traced value, "
    "and it is not known where the array comes from",
    under="x * next(ARRAYS)", remedy="Pass it as an argument.",
)
def array_from_nowhere(x):
    return x * next(ARRAYS)


@refused(
    errors.ArgumentError, TypeError, "result",
    says="generator_result returns a generator",
    under="@refused(", remedy="Return a list or a tuple",
)
def generator_result(x):
    return (x * k for k in range(3))


@refused(
    errors.ArgumentError, TypeError, "result",
    says="function_result returns a function that holds traced values",
    under="@refused(", remedy="Return the arrays.",
)
def function_result(x):
    return lambda: x


@refused(
    errors.ArgumentError, TypeError, "result",
    says="set_result returns a set, which all calls would share",
    under="@refused(", remedy="Return a tuple.",
)
def set_result(x):
    return {1, 2}


@refused(
    errors.TraceRecursionError, RecursionError, "recursion",
    says="endless calls itself without end while it is traced",
    under="endless_half(x)", remedy="End the recursion by a static value",
)
def endless(x):
    return endless_half(x)


def endless_half(x):
    return endless_half(x * 0.5)


# --------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("transform", [tg.compile, tg.grad], ids=["compile", "grad"])
@pytest.mark.parametrize("case", REFUSALS, ids=lambda c: c.program.__name__)
def test_refused(case, transform):
    x = X.copy()
    check(caught(lambda: transform(case.program)(x)), case)
    np.testing.assert_array_equal(x, X)


def test_an_assertion():
    def positive(x):
        assert np.all(x > 0), "not positive"
        return x

    e = caught(lambda: tg.compile(positive)(X))
    assert e.message == f"`assert` needs the value of a traced bool scalar, {VALUE}"
    assert "np.all(x > 0)" in marked(str(e)) and "Check it before the call" in e.remedy


def test_a_generator_as_argument():
    e = caught(lambda: tg.compile(lambda x, r: x + r.normal())(X, GENERATOR))
    assert e.message == f"Generator.normal {EACH}" and marked(str(e)) == "r.normal"


def test_formatting_without_a_spec_prints_a_placeholder(capsys):
    @tg.compile
    def shown(x):
        print(f"{x} and {x.sum()}", repr(x[0]), "{}".format(x))  # noqa: UP030, UP032
        return x

    np.testing.assert_array_equal(shown(X), X)
    assert capsys.readouterr().out == (
        "<traced Array float64[3]> and <traced Array float64[]> <traced Array float64[]> "
        "<traced Array float64[3]>\n"
    )


def test_float_of_a_scalar_stays_traced():
    np.testing.assert_array_equal(tg.compile(lambda x: x * float(x[1]))(X), X * 2)


def test_the_file_and_line_of_a_helper():
    e = caught(lambda: tg.compile(lambda x: absolute_value(x[0]))(X))
    want = Refusal(
        absolute_value, errors.ConcretizationError, TypeError, "concretization",
        f"`if` needs the value of a traced bool scalar, {VALUE}", "v > 0", "np.where",
    )
    check(e, want, file=__file__.replace("test_errors", "error_programs"))
    assert "in absolute_value" in str(e)


def test_a_call_into_an_installed_package():
    stats = pytest.importorskip("scipy.stats")
    linalg = pytest.importorskip("scipy.linalg")

    def density(x):
        return stats.norm.pdf(x, 2)

    def exponential(x):
        return linalg.expm(np.outer(x, x))

    e = caught(lambda: tg.compile(density)(X))
    assert type(e) is errors.EscapeError and marked(str(e)) == "stats.norm.pdf(x, 2)"
    assert e.message.startswith("`stats.norm.pdf` needs a real array, but a traced float64 array")
    e = caught(lambda: tg.compile(exponential)(X))
    assert marked(str(e)) == "linalg.expm(np.outer(x, x))"
    assert e.message.startswith("`linalg.expm` needs a real array")


def test_a_users_own_error_is_not_touched():
    def strict(x):
        raise TypeError("an Array is not welcome here")

    with pytest.raises(TypeError) as e:
        tg.compile(strict)(X)
    assert type(e.value) is TypeError and str(e.value) == "an Array is not welcome here"


def test_remedies_name_only_what_there_is():
    for case in REFUSALS:
        remedy = caught(lambda: tg.compile(case.program)(X.copy())).remedy  # noqa: B023
        for word in remedy.replace("(", " ").replace(",", " ").split():
            if word.startswith("tg."):
                place: Any = tg
                for name in word.strip(".").split(".")[1:]:
                    place = getattr(place, name)


def test_later_control_functions_are_offered_when_they_are_there(monkeypatch):
    monkeypatch.setattr(tg, "cond", object(), raising=False)
    monkeypatch.setattr(tg, "while_loop", object(), raising=False)
    assert "tg.cond" in caught(lambda: tg.compile(branch)(X)).remedy
    assert "tg.while_loop" in caught(lambda: tg.compile(loop_until)(X)).remedy


# ------------------------------------------------------------------------------ leaked tracers

KEPT: list[Any] = []


def keep(x):
    KEPT.append(x * 2.0)
    return np.sum(x)


def use_sum():
    return KEPT[-1] + 1.0


def use_ufunc():
    return np.sin(KEPT[-1])


def use_method():
    return KEPT[-1].sum()


def use_float():
    return float(KEPT[-1])


def use_condition():
    return bool(KEPT[-1])


def use_array():
    return np.asarray(KEPT[-1])


def use_with_array():
    return np.ones(3) * KEPT[-1]


def use_index():
    return KEPT[-1][0]


def use_write():
    KEPT[-1][0] = 1.0


def use_in_real_array():
    a = np.ones(3)
    a[:] = KEPT[-1]


def use_as_argument():
    return tg.compile(keep)(KEPT[-1])


def use_in_another_trace():
    return tg.compile(lambda x: x * KEPT[-1])(X)


@pytest.mark.parametrize(
    "use",
    [
        use_sum, use_ufunc, use_method, use_float, use_condition, use_array, use_with_array,
        use_index, use_write, use_in_real_array, use_as_argument, use_in_another_trace,
    ],
)
def test_leaked_tracer(use):
    tg.compile(keep)(X)
    e = caught(use)
    assert type(e) is errors.LeakedTracerError and isinstance(e, RuntimeError)
    assert e.kind == "leaked_tracer"
    assert e.message == "a traced value of shape (3,) is used outside the call that made it"
    assert "KEPT[-1]" in e.loc.text and "in use_" in str(e)
    assert "it was made here:" in str(e) and "    KEPT.append(x * 2.0)" in str(e)
    assert "Return it from the function" in e.remedy
    KEPT.clear()


def test_leaked_by_closure_and_generator():
    kept: dict[str, Any] = {}

    def closure(x):
        kept["call"] = lambda: x * 2.0
        return x

    def generator(x):
        kept["items"] = (x * k for k in range(3))
        return x

    tg.compile(closure)(X)
    e = caught(kept["call"])
    assert type(e) is errors.LeakedTracerError and marked(str(e)) == "x * 2.0"
    tg.compile(generator)(X)
    e = caught(lambda: next(kept["items"]))
    assert type(e) is errors.LeakedTracerError and marked(str(e)) == "x * k"


class Holder:
    pass


HOLDER = Holder()


def test_leak_by_attribute_and_global_is_refused_when_it_happens():
    def by_attribute(x):
        HOLDER.state = x * 2.0
        return x

    def by_global(x):
        global LEAK
        LEAK = x
        return x

    e = caught(lambda: tg.compile(by_attribute)(X))
    assert e.kind == "outside_write" and not hasattr(HOLDER, "state")
    assert e.message == "a traced value is stored in HOLDER.state, outside the function"
    assert marked(str(e)) == "HOLDER.state"
    e = caught(lambda: tg.compile(by_global)(X))
    assert e.message == "by_global assigns the global variable LEAK, which a traced function " \
        "cannot do"
    assert marked(str(e)) == "LEAK" and "LEAK" not in globals()


def test_printing_a_leaked_tracer_is_fine():
    tg.compile(keep)(X)
    assert f"{KEPT[-1]}" == "<traced Array float64[3]>"
    KEPT.clear()
