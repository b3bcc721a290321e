"""Arguments: traced or static, keys, paths, argument numbers, results in the form of leaves."""

from __future__ import annotations

import enum
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from tracegrad import dtypes
from tracegrad.errors import ArgumentError, DTypeError, GradientError, ValueArgumentError
from tracegrad.trace.argnums import resolve_argnums
from tracegrad.trace.recompile import recompile_advice
from tracegrad.trace.signature import Kind, Signature, register_pytree, restore

A = np.zeros(3)


def f(x, y, n=3, *rest, k=1.0):
    return x


def key(*args, **kwargs):
    return Signature(f).key(args, kwargs)[0]


class Colour(enum.Enum):
    RED = 1


@register_pytree
@dataclass
class Params:
    w: object
    b: object


Point = namedtuple("Point", "x y")


# -- keys


def test_equal_calls_have_equal_keys():
    assert key(A, 0.5) == key(np.ones(3), 0.25)
    assert key(A, 0.5) == key(A, y=0.5) == key(x=A, y=0.5)
    assert key({"a": A, "b": 1.0}, 0.5) == key({"b": 1.0, "a": A}, 0.5)
    assert hash(key(A, {"n": 3})) == hash(key(A, {"n": 3}))


@pytest.mark.parametrize(
    "other",
    [
        (np.zeros(4), 0.5),
        (np.zeros(3, np.float32), 0.5),
        (np.zeros((3, 1)), 0.5),
        (np.zeros(6)[::2], 0.5),
        (np.zeros(3)[::-1], 0.5),
        (A, np.float64(0.5)),
        (A, 1),
        (A, True),
        (A, np.array(0.5)),
        ([A], 0.5),
        (A, 0.5, 3),
        (A, None),
        (A, "s"),
        (A, (0.5,)),
    ],
)
def test_different_calls_have_different_keys(other):
    assert key(*other) != key(A, 0.5)


def test_layout_and_writability():
    c, fortran = np.zeros((2, 3)), np.zeros((2, 3), order="F")
    frozen = np.zeros((2, 3))
    frozen.flags.writeable = False
    strided = np.zeros((4, 3))[::2]
    keys = [key(a, 0.5) for a in (c, fortran, frozen, strided, np.zeros((6, 3))[::3])]
    assert len(set(keys)) == 5


def test_static_values_are_keyed_by_type_and_value():
    values = [1, True, 2, "1", None, Colour.RED, np.dtype("f8"), np.float64, f, (1, 2)]
    assert len({key(A, v) for v in values}) == len(values)
    assert key(A, np.dtype("f8")) == key(A, np.dtype("f8"))


def test_numpy_scalars_are_traced():
    assert key(A, np.float64(1)) == key(A, np.float64(2))
    assert key(A, np.int64(1)) == key(A, np.int64(2)) != key(A, np.float64(2))


def test_memmap(tmp_path):
    m = np.memmap(tmp_path / "m", np.float64, "w+", shape=(3,))
    assert key(m, 0.5) == key(A, 0.5)


# -- refusals


@pytest.mark.parametrize(
    "bad, error, text",
    [
        (np.ma.array([1.0]), DTypeError, "MaskedArray"),
        (np.array([1, "a"], object), DTypeError, "dtype object"),
        (np.array(["a"]), DTypeError, "dtype <U1"),
        (np.zeros(2, np.float16), DTypeError, "float16"),
        (np.zeros(2, np.longdouble), DTypeError, "dtype"),
        (np.zeros(2, ">f8"), DTypeError, "dtype >f8"),
        (np.zeros(2, [("a", "f8")]), DTypeError, "dtype"),
        (np.zeros(2, "M8[s]"), DTypeError, "datetime64"),
        (np.datetime64("2020-01-01"), DTypeError, "datetime64"),
        (np.zeros(2, np.clongdouble), DTypeError, "dtype"),
        ({1, 2}, ArgumentError, "static_argnames"),
        ((i for i in "a"), ArgumentError, "used up"),
        (bytearray(b"a"), ArgumentError, "register_pytree"),
    ],
)
def test_refused_leaves_are_named(bad, error, text):
    with pytest.raises(error) as e:
        Signature(f).describe((A, {"n": bad}), {})
    assert "f: args[1]['n']: " in str(e.value) and text in str(e.value)


def test_matrix_is_refused():
    with pytest.warns(PendingDeprecationWarning):
        bad = np.matrix([1.0])
    with pytest.raises(DTypeError, match="matrix"):
        key(A, bad)


def test_mutable_dataclass_is_not_static():
    @dataclass
    class Mutable:
        w: object

    with pytest.raises(ArgumentError, match=r"tg.register_pytree\(Mutable\)"):
        key(A, Mutable(A))
    s = Signature(f, method=True)
    m = Mutable(A)
    assert s.key((m, A), {})[0] == s.key((m, A), {})[0] != s.key((Mutable(A), A), {})[0]


def test_wrong_calls():
    s = Signature(f)
    with pytest.raises(ArgumentError, match=r"f\(\) missing a required argument: 'y'"):
        s.key((A,), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        s.key((A, A), {"z": 1})
    with pytest.raises(ArgumentError, match="too many"):
        Signature(lambda x: x).key((A, A), {})


# -- static arguments


def test_static_argnums_and_names():
    s = Signature(f, static_argnums=1)
    assert s.key((A, 0.5), {})[0] != s.key((A, 0.25), {})[0]
    assert s.key((A, 0.5), {})[0] == s.key((A,), {"y": 0.5})[0]
    t = Signature(f, static_argnames="k")
    assert t.key((A, 0.5), {"k": 1.0})[0] != t.key((A, 0.5), {"k": 2.0})[0]
    assert Signature(f, static_argnums=-2).static_nums == {1}
    with pytest.raises(ArgumentError, match="a list is not hashable|type list is not hashable"):
        s.key((A, [1, 2]), {})
    with pytest.raises(ArgumentError, match="no argument 'z'"):
        Signature(f, static_argnames="z")
    with pytest.raises(ArgumentError, match="out of range"):
        Signature(lambda x: x, static_argnums=2)


# -- descriptions


def test_leaves_and_paths():
    d = Signature(f).describe(
        ({"w": [A, 2.0], "n": 3}, Params(np.float32(1), "tanh"), 4, A), {"k": Point(A, None)}
    )
    assert [(x.path, x.name, x.kind) for x in d.leaves] == [
        ("args[0]['n']", "x_n", Kind.STATIC),
        ("args[0]['w'][0]", "x_w_0", Kind.ARRAY),
        ("args[0]['w'][1]", "x_w_1", Kind.WEAK),
        ("args[1].w", "y_w", Kind.SCALAR),
        ("args[1].b", "y_b", Kind.STATIC),
        ("args[2]", "n", Kind.STATIC),
        ("args[3]", "arg3", Kind.ARRAY),
        ("kwargs['k'].x", "k_x", Kind.ARRAY),
    ]
    assert d.leaves[3].type.dtype is dtypes.F32
    args, kwargs = d.rebuild(range(8))
    assert args[0] == {"n": 0, "w": [1, 2]} and kwargs == {"k": Point(7, None)}
    assert type(args[1]) is Params


def test_layout_of_leaves():
    d = Signature(f).describe((np.zeros((2, 3), order="F"), np.zeros(6)[::-2]), {})
    assert [x.layout for x in d.leaves] == [(1, 2), (-2,)]


def test_key_and_description_agree():
    s = Signature(f)
    assert s.describe((A, 0.5), {}).key == s.key((A, 0.5), {})[0]


def test_restore():
    assert type(restore(np.array(2.0), Kind.WEAK)) is float
    assert type(restore(np.array(2.0, np.float32), Kind.SCALAR)) is np.float32
    assert restore(A, Kind.ARRAY) is A


# -- argument numbers of gradients


def chosen(args, argnums=None, argnames=None, kwargs=None):
    return resolve_argnums(Signature(f).describe(args, kwargs or {}), argnums, argnames)


def test_argnums():
    assert chosen((A, 0.5)).leaves == (0,)
    s = chosen((A, 0.5), (1, 0))
    assert s.leaves == (1, 0)
    assert s.rebuild(["dy", "dx"]) == ("dy", "dx")
    assert chosen((A, 0.5), -1).leaves == (1,)
    assert chosen((A, 0.5), 1).rebuild(["dy"]) == "dy"
    assert chosen((A, 0.5), (1,)).rebuild(["dy"]) == ("dy",)


def test_argnames():
    assert chosen((A, 0.5), None, "y").leaves == (1,)
    assert chosen((A, 0.5), None, "k", {"k": 2.0}).leaves == (2,)
    s = chosen((A, 0.5), 0, ("y",))
    assert s.rebuild(["dx", "dy"]) == ("dx", "dy")


def test_pytree_argument_has_none_for_static_leaves():
    s = chosen(({"w": [A, 2.0], "mode": "fast"}, A))
    assert len(s.leaves) == 2
    assert s.rebuild(["a", "b"]) == {"w": ["a", "b"], "mode": None}


@pytest.mark.parametrize(
    "args, argnums, error, text",
    [
        ((A, {"n": np.arange(3)}), 1, GradientError, "args[1]['n'] has dtype int64"),
        ((np.zeros(3, bool), A), 0, GradientError, "args[0] has dtype bool"),
        ((A, 3), 1, GradientError, "args[1] (y) is static"),
        ((A, None), 1, GradientError, "args[1] (y) holds no array"),
        ((A, A), 5, ValueArgumentError, "argnums 5 is out of range"),
        ((A, A), "x", ArgumentError, "argnums must be an int"),
        ((A, A), (0, 0), ValueArgumentError, "named twice"),
    ],
)
def test_gradients_that_do_not_exist(args, argnums, error, text):
    with pytest.raises(error) as e:
        chosen(args, argnums)
    assert text in str(e.value)


def test_wrong_argnames():
    with pytest.raises(ValueArgumentError, match="no argument 'z'"):
        chosen((A, A), None, "z")
    with pytest.raises(ValueArgumentError, match="'k' was not passed"):
        chosen((A, A), None, "k")


# -- recompilation


def test_recompile_advice():
    s = Signature(f)
    values = [s.describe((A, n), {}) for n in range(9)]
    told = [recompile_advice(values[: k + 1]) for k in range(9)]
    assert [t is not None for t in told] == [False] * 7 + [True, False]
    assert "8 values of args[1] (y)" in told[7] and "5, 6, 7" in told[7]
    shapes = [s.describe((np.zeros(k + 1), 1), {}) for k in range(8)]
    assert "8 shapes" in recompile_advice(shapes) and "f64[8]" in recompile_advice(shapes)
    mixed = [s.describe((np.zeros(k + 1), k), {}) for k in range(8)]
    assert recompile_advice(mixed) is None
