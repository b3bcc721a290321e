"""Calls of what is not there, escapes, writes outside, impure calls, results."""

from __future__ import annotations

import datetime
import json
import math
import random
import time
import uuid
from random import gauss as bell

import numpy as np
from numpy.linalg import eig as decompose

from tests.refusals.case import escape, impure, read_only, refused, result, unsupported
from tracegrad import errors

GENERATOR = np.random.default_rng(0)


def fresh_arrays():
    while True:
        yield np.zeros(3)


ARRAYS = fresh_arrays()  # arrays on a path that cannot be followed again


# ------------------------------------------------------------------ what is not there, and escapes


@unsupported(
    says="np.linalg.eig is not supported yet",
    under="decompose(np.outer(x, x))",
    remedy="Compute it before the traced call",
)
def function_under_another_name(x):
    return decompose(np.outer(x, x))


@unsupported(
    says="np.fft.fft is not supported yet",
    under="np.fft.fft(x)",
    remedy="Compute it before the traced call",
)
def function_that_is_missing(x):
    return np.fft.fft(x)


@unsupported(says="ndarray.tobytes is not supported yet", under="x.tobytes")
def method_that_is_missing(x):
    return x.tobytes()


@refused(
    errors.MissingAttributeError,
    AttributeError,
    "attribute",
    says="'numpy.ndarray' object has no attribute 'average'",
    under="x.average",
)
def method_that_numpy_lacks(x):
    return x.average()


@unsupported(
    says="math.fsum of a traced value is not supported",
    under="math.fsum(x)",
    remedy="Write it with NumPy functions.",
)
def standard_library_sum(x):
    return math.fsum(x)


@escape(
    says="`json.dumps` cannot take a traced value: Object of type Array is not JSON serializable",
    under='json.dumps({"a": x})',
    remedy="pass it as an argument",
)
def written_as_json(x):
    return json.dumps({"a": x})


@escape(
    says="`memoryview` cannot take a traced value: memoryview: a bytes-like object is required, "
    "not 'Array'",
    under="memoryview(x)",
)
def as_memory(x):
    return memoryview(x)


@escape(
    says="`np.vectorize(lambda t: t + 1)` needs a real array, but a traced float64 array of shape "
    "(3,) reached it (by __array__)",
    under="np.vectorize(lambda t: t + 1)(x)",
    remedy="NumPy functions on the traced value",
)
def vectorised(x):
    return np.vectorize(lambda t: t + 1)(x)


@refused(
    errors.DTypeError,
    TypeError,
    "operand",
    says="unsupported operand type(s) for +: 'Array' and 'NoneType'",
    under="x + None",
)
def plus_none(x):
    return x + None


# ------------------------------------------------------------------------------------------ writes


REAL = "Create the array inside the traced function"


@escape(
    says="`a[:]` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by __array__)",
    under="a[:]",
    remedy=REAL,
)
def stored_in_a_real_array(x):
    a = next(ARRAYS)
    a[:] = x
    return a


@escape(says="`a[1]` needs a real number, but a traced value reached it", under="a[1]", remedy=REAL)
def stored_in_a_real_element(x):
    a = next(ARRAYS)
    a[1] = x[0]
    return a


@escape(
    says="`a += x` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by out= of np.add)",
    under="a += x",
    remedy=REAL,
)
def added_to_a_real_array(x):
    a = next(ARRAYS)
    a += x
    return a


@escape(
    says="`np.add` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by out= of np.add)",
    under="np.add(x, 1, out=a)",
    remedy=REAL,
)
def out_is_a_real_array(x):
    a = next(ARRAYS)
    np.add(x, 1, out=a)
    return a


@escape(
    says="`np.add.at` needs a real array, but a traced float64 array of shape (3,) reached it "
    "(by np.add.at)",
    under="np.add.at(a, [0, 1, 2], x)",
    remedy=REAL,
)
def added_at_places_of_a_real_array(x):
    a = next(ARRAYS)
    np.add.at(a, [0, 1, 2], x)
    return a


@escape(
    says="`np.sum` needs a real array, but a traced float64 scalar reached it "
    "(by out= of a NumPy function)",
    under="np.sum(x, out=a[0, ...])",
    remedy=REAL,
)
def reduced_into_a_real_array(x):
    a = next(ARRAYS)
    np.sum(x, out=a[0, ...])
    return a


@read_only(says="assignment destination is read-only", under="b[0]", remedy="x.copy()")
def broadcast_written(x):
    b = np.broadcast_to(x, (2, 3))
    b[0] = 1.0
    return b


@read_only(says="assignment destination is read-only", under="part[1]", remedy="x.copy()")
def view_of_a_diagonal_written(x):
    part = np.outer(x, x).diagonal()[1:]
    part[1] = 1.0
    return part


@read_only(says="output array is read-only", under="d += 1", remedy="x.copy()")
def diagonal_written(x):
    d = np.outer(x, x).diagonal()
    d += 1
    return d


# ------------------------------------------------------------------------------------ impure calls


EACH = "gives another result at each call, and a traced function must depend on its arguments alone"
DRAW = "Draw before the call"


@impure(
    says=f"np.random.standard_normal() {EACH}", under="np.random.standard_normal(3)", remedy=DRAW
)
def numpy_random(x):
    return x + np.random.standard_normal(3)


@impure(says=f"Generator.normal {EACH}", under="GENERATOR.normal", remedy=DRAW)
def captured_generator(x):
    return x + GENERATOR.normal(size=3)


@impure(says=f"random.gauss() {EACH}", under="bell(0, 1)", remedy=DRAW)
def python_random(x):
    return x * bell(0, 1)


@impure(says=f"random.random() {EACH}", under="random.random()", remedy=DRAW)
def python_random_by_module(x):
    return x * random.random()


@impure(
    says=f"time.perf_counter() {EACH}", under="time.perf_counter()", remedy="Read the clock before"
)
def clock(x):
    return x * time.perf_counter()


@impure(
    says=f"datetime.now() {EACH}", under="datetime.datetime.now()", remedy="Read the clock before"
)
def wall_clock(x):
    return x * datetime.datetime.now().second


@impure(says=f"uuid.uuid4() {EACH}", under="uuid.uuid4()", remedy="Make it before the call")
def fresh_identity(x):
    return x * (uuid.uuid4().int % 7)


@impure(says=f"open() {EACH}", under='open("weights.txt")', remedy="Read the file before the call")
def file(x):
    with open("weights.txt") as f:
        return x * len(f.read())


# ---------------------------------------------------------------------------- the outside, results


@refused(
    errors.CaptureError,
    RuntimeError,
    "unknown_capture",
    says="an array of shape (3,) that is no argument of the traced function meets a traced value, "
    "and it is not known where the array comes from",
    under="x * next(ARRAYS)",
    remedy="Pass it as an argument.",
)
def array_from_nowhere(x):
    return x * next(ARRAYS)


@result(
    says="generator_result returns a generator",
    under="def generator_result(x):",
    remedy="Return a list or a tuple",
)
def generator_result(x):
    return (x * k for k in range(3))


@result(
    says="function_result returns a function that holds traced values",
    under="def function_result(x):",
    remedy="Return the arrays.",
)
def function_result(x):
    return lambda: x


@result(
    says="set_result returns a set, which all calls would share",
    under="def set_result(x):",
    remedy="Return a tuple.",
)
def set_result(x):
    return {1, 2}


@refused(
    errors.TraceRecursionError,
    RecursionError,
    "recursion",
    says="endless calls itself without end while it is traced",
    under="endless_half(x)",
    remedy="End the recursion by a static value",
)
def endless(x):
    return endless_half(x)


def endless_half(x):
    return endless_half(x * 0.5)
