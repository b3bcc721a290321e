"""Programs that ask for a value which is not known yet, or for a shape that depends on one."""

from __future__ import annotations

import math

import numpy as np

from tests.refusals import VALUE
from tests.refusals.case import concretization, data_dependent, refused, shape
from tracegrad import errors

# ------------------------------------------------------------------- values that are not known yet


@concretization(
    says=f"`if` needs the value of a traced bool scalar, {VALUE}",
    under="x.sum() > 0",
    remedy="np.where(condition, a, b)",
)
def branch(x):
    if x.sum() > 0:
        return x
    return -x


@shape(
    says="The truth value of an array with more than one element is ambiguous. "
    "Use a.any() or a.all()",
    under="x > 0",
    remedy="Both stay traced.",
)
def branch_on_an_array(x):
    if x > 0:
        return x
    return -x


@concretization(
    says=f"bool() needs the value of a traced bool scalar, {VALUE}",
    under="x[0] > 0",
    remedy="np.where",
)
def conditional_expression(x):
    return x if x[0] > 0 and x[1] > 0 else -x


@concretization(
    says=f"bool() needs the value of a traced float64 scalar, {VALUE}",
    under="bool(x[0])",
    remedy="np.where",
)
def to_bool(x):
    return x * bool(x[0])


@concretization(
    says=f"`while` needs the value of a traced bool scalar, {VALUE}",
    under="np.sum(x) > 1.0",
    remedy="for ... in range(n)",
)
def loop_until(x):
    while np.sum(x) > 1.0:
        x = x * 0.5
    return x


@concretization(
    says=f"any() needs the value of a traced bool scalar, {VALUE}",
    under="any(x > 2)",
    remedy="np.any(x)",
)
def builtin_any(x):
    return x * any(x > 2)


@concretization(
    says=f"`in` needs the value of a traced bool scalar, {VALUE}",
    under="1.0 in x",
    remedy="np.any(x == value)",
)
def contained(x):
    found = 1.0 in x
    return x * found


@concretization(
    says=f"int() needs the value of a traced float64 scalar, {VALUE}",
    under="int(x[0])",
    remedy="Pass it as a Python int",
)
def to_int(x):
    return x[: int(x[0])]


@refused(
    errors.ArgumentError,
    TypeError,
    "argument",
    says="only 0-dimensional arrays can be converted to Python scalars",
    under="float(x)",
)
def array_to_float(x):
    return x * float(x)


@concretization(
    says=f".item() needs the value of a traced float64 scalar, {VALUE}",
    under="x[0].item()",
    remedy="Keep it traced",
)
def to_item(x):
    return x * x[0].item()


@shape(says="can only convert an array of size 1 to a Python scalar", under="x.item()")
def array_to_item(x):
    return x.item()


@concretization(
    says=f"formatting with '.3f' needs the value of a traced float64 scalar, {VALUE}",
    under='f"{x.sum():.3f}"',
    remedy="tg.debug.print(fmt, x)",
)
def format_with_spec(x):
    label = f"{x.sum():.3f}"
    return x, label


@concretization(
    says=f"float() needs the value of a traced float64 scalar, {VALUE}",
    under='"%.3f" % x.sum()',
    remedy="Keep it traced",
)
def percent_format(x):
    label = "%.3f" % x.sum()  # noqa: UP031
    return x, label


@concretization(
    says=f"use as a Python integer needs the value of a traced int64 scalar, {VALUE}",
    under="np.zeros(n)",
    remedy="Pass int(n) from outside",
)
def traced_size(x):
    n = np.argmax(x)
    return np.zeros(n)


@concretization(
    says=f"use as a Python integer needs the value of a traced int64 scalar, {VALUE}",
    under="x[:n]",
    remedy="a slice bound may not depend on traced values",
)
def traced_slice_bound(x):
    n = np.argmax(x)
    return x[:n]


@concretization(
    says=f"the shift of np.roll needs the value of a traced int64 scalar, {VALUE}",
    under="np.roll(x, np.argmax(x))",
    remedy="Pass int(n) from outside",
)
def traced_roll(x):
    return np.roll(x, np.argmax(x))


@concretization(
    says="math.floor of a traced value is a Python int, which is not known yet",
    under="math.floor(x[0])",
    remedy="np.floor(x)",
)
def floor_to_int(x):
    return x * math.floor(x[0])


# ------------------------------------------------------------------------------ shapes from values


KEEP = "np.sum(x, where=mask)"


@data_dependent(
    says="x[mask] with a traced mask has a shape that depends on traced values",
    under="x[x > 0]",
    remedy=KEEP,
)
def selected(x):
    return np.median(x[x > 0])


@data_dependent(
    says="the shape of the result of np.nonzero depends on traced values",
    under="np.nonzero(x)",
    remedy=KEEP,
)
def nonzero(x):
    return np.nonzero(x)


@data_dependent(
    says="the shape of the result of ndarray.nonzero depends on traced values",
    under="(x > 1).nonzero()",
    remedy=KEEP,
)
def nonzero_method(x):
    return (x > 1).nonzero()


@data_dependent(
    says="the shape of the result of np.unique depends on traced values",
    under="np.unique(x)",
    remedy=KEEP,
)
def unique(x):
    return np.unique(x)


@data_dependent(
    says="np.where with one argument has a result whose shape depends on traced values",
    under="np.where(x > 0)",
    remedy=KEEP,
)
def where_of_one(x):
    return np.where(x > 0)


@data_dependent(
    says="the length of the result of np.repeat depends on traced counts",
    under="np.repeat(x, x.astype(int))",
    remedy="Pass the counts as static values",
)
def repeated(x):
    return np.repeat(x, x.astype(int))


@data_dependent(
    says="the length of arange would depend on a traced value",
    under="np.arange(x[0])",
    remedy="np.linspace(a, b, n)",
)
def range_of_values(x):
    return np.arange(x[0])


@data_dependent(
    says="an assignment x[mask] = values with a traced mask needs to know how many elements the "
    "mask selects",
    under="x[x > 1]",
    remedy="np.where(mask, v, x)",
)
def values_into_a_mask(x):
    x[x > 1] = np.ones(2)
    return x
