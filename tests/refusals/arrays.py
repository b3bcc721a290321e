"""Shapes, dtypes and indices that do not fit."""

from __future__ import annotations

import numpy as np

from tests.refusals.case import dtype, index, refused, result_cast, shape, unsupported
from tracegrad import errors

# ------------------------------------------------------------------------- shapes, dtypes, indices


@shape(
    says="operands could not be broadcast together with shapes (3,) (4,)", under="x + np.ones(4)"
)
def sum_of_shapes(x):
    return x + np.ones(4)


@shape(
    says="matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
    "(n?,k),(k,m?)->(n?,m?) (size 4 is different from 3)",
    under="x @ np.ones((4, 2))",
)
def product_of_shapes(x):
    return x @ np.ones((4, 2))


@shape(says="could not broadcast input array from shape (4,) into shape (3,)", under="x[:]")
def assigned_shape(x):
    x[:] = np.ones(4)
    return x


@shape(says="setting an array element with a sequence.", under="y[0]")
def array_into_an_element(x):
    y = np.zeros(3)
    y[0] = x
    return y


@shape(
    says="non-broadcastable output operand with shape (3,) doesn't match the broadcast shape "
    "(2, 3)",
    under="x += np.ones((2, 3))",
)
def augmented_shape(x):
    x += np.ones((2, 3))
    return x


@shape(says="cannot reshape array of size 3 into shape (2,2)", under="x.reshape(2, 2)")
def reshaped(x):
    return x.reshape(2, 2)


@refused(
    errors.AxisError,
    IndexError,
    "axis",
    says="axis 1 is out of bounds for array of dimension 1",
    under="np.sum(x, axis=1)",
)
def missing_axis(x):
    return np.sum(x, axis=1)


@index(
    says="too many indices for array: array is 1-dimensional, but 2 were indexed", under="x[0, 1]"
)
def too_many_indices(x):
    return x[0, 1]


@index(says="index 5 is out of bounds for axis 0 with size 3", under="x[5]")
def out_of_range(x):
    return x[5]


@index(says="index 7 is out of bounds for axis 0 with size 3", under="x[7]")
def written_out_of_range(x):
    x[0] = 5.0
    x[7] = 1.0
    return x


@index(
    says="only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
    "boolean arrays are valid indices",
    under='x["a"]',
)
def index_by_name(x):
    return x["a"]


@result_cast(
    says="Cannot cast ufunc 'add' output from dtype('float64') to dtype('int64') with casting "
    "rule 'same_kind'",
    under="n += x",
    remedy="Convert the written array first",
)
def float_into_ints(x):
    n = np.zeros(3, np.int64)
    n += x
    return n


@result_cast(
    says="Cannot cast ufunc 'divide' output from dtype('float64') to dtype('int64') with casting "
    "rule 'same_kind'",
    under="n /= 2",
    remedy="Convert the written array first",
)
def quotient_into_ints(x):
    n = x.astype(np.int64)
    n /= 2
    return n


@dtype(
    says="ufunc 'left_shift' not supported for the input types, and the inputs could not be "
    "safely coerced to any supported types according to the casting rule ''safe''",
    under="x << 1",
)
def shifted_float(x):
    return x << 1


@dtype(
    says="numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the "
    "`^` operator, or the logical_xor function instead.",
    under="(x > 0) - (x > 1)",
)
def bool_difference(x):
    return (x > 0) - (x > 1)


@refused(
    errors.OutOfRangeError,
    OverflowError,
    "integer_range",
    says="Python integer 300 out of bounds for uint8",
    under="small + 300",
)
def integer_that_does_not_fit(x):
    small = (x > 0).astype(np.uint8)
    return small + 300


@dtype(says="dtype float16 is not supported", under="x.astype(np.float16)", remedy="np.float64")
def half_precision(x):
    return x.astype(np.float16)


@refused(
    errors.ValueArgumentError,
    ValueError,
    "argument_value",
    says="Integers to negative integer powers are not allowed.",
    under="np.arange(3) ** -1",
)
def negative_power(x):
    return x * np.arange(3) ** -1


@refused(
    errors.ValueArgumentError,
    ValueError,
    "argument_value",
    says="slice step cannot be zero",
    under="x[::0]",
)
def step_of_zero(x):
    return x[::0]


@refused(
    errors.ArgumentError,
    TypeError,
    "argument",
    says="slice indices must be integers or None or have an __index__ method",
    under="x[1.5:]",
)
def slice_from_a_float(x):
    return x[1.5:]


@refused(
    errors.ArgumentError,
    TypeError,
    "scalar_inplace",
    says="'numpy.float64' object does not support item assignment",
    under="s[0]",
    remedy="write into the array that it came from",
)
def item_of_a_scalar(x):
    s = x[1]
    s[0] = 2.0
    return s


@refused(
    errors.ValueArgumentError,
    ValueError,
    "argument_value",
    says="cannot convert float NaN to integer",
    under="n[0]",
)
def nan_into_integers(x):
    n = x.astype(np.int64)
    n[0] = np.nan
    return n


@refused(
    errors.OutOfRangeError,
    OverflowError,
    "integer_range",
    says="cannot convert float infinity to integer",
    under="n.fill(np.inf)",
)
def infinity_into_integers(x):
    n = x.astype(np.int64)
    n.fill(np.inf)
    return n


@result_cast(
    says="Cannot cast array data from dtype('float64') to dtype('int64') according to the rule "
    "'same_kind'",
    under="np.copyto(n, x)",
)
def copied_into_integers(x):
    n = np.zeros(3, np.int64)
    np.copyto(n, x)
    return n


@refused(
    errors.ValueArgumentError,
    ValueError,
    "argument_value",
    says="cannot delete array elements",
    under="x[0]",
)
def element_deleted(x):
    del x[0]
    return x


@unsupported(says="the flag 'writeable' of a traced array cannot be set", under="x.flags.writeable")
def flag_set(x):
    x.flags.writeable = False
    return x
