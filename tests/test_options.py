"""Options are validated when made; unknown names and values name the nearest right one."""

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import OptionError, TracegradError, UnsupportedError
from tracegrad.options import Options

FIELDS = [
    "backend",
    "loops",
    "views",
    "arrays",
    "substitute",
    "write_back",
    "copy_outputs",
    "inplace",
    "memory_limit",
    "fastmath",
    "strict",
    "threads",
    "cache_size",
    "max_unrolled",
]


def test_has_exactly_the_designed_fields():
    assert [f.name for f in fields(Options)] == FIELDS


def test_is_frozen_hashable_and_compares_by_value():
    a, b = Options(fastmath=True), Options.make(fastmath=True)
    assert a == b and hash(a) == hash(b) and a != Options()
    with pytest.raises(FrozenInstanceError):
        a.fastmath = False


def test_make_replaces_fields_and_keeps_the_rest():
    base = Options(views="exact", cache_size=3)
    made = Options.make(base, cache_size=4)
    assert (made.views, made.cache_size) == ("exact", 4)
    assert Options.make(base) is base
    assert Options.make() == Options()


@pytest.mark.parametrize(
    "name, near", [("fast_math", "fastmath"), ("thread", "threads"), ("writeback", "write_back")]
)
def test_unknown_name_gives_the_nearest(name, near):
    with pytest.raises(OptionError, match=f"unknown option '{name}'") as caught:
        Options.make(**{name: 1})
    assert f"Did you mean {near!r}?" in str(caught.value)
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, TracegradError)
    assert caught.value.kind == "option"


def test_unknown_name_without_a_near_one_lists_all():
    with pytest.raises(OptionError) as caught:
        Options.make(zzzzqqq=1)
    assert "Did you mean" not in str(caught.value)
    assert all(name in str(caught.value) for name in FIELDS)


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("backend", "C", "Allowed: 'c', 'cuda', 'numpy'."),
        ("views", "exakt", "Did you mean 'exact'?"),
        ("arrays", ["numpy"], "Allowed: 'auto', 'numpy', 'torch'."),
        ("substitute", 1, "Use True or False."),
        ("threads", 0, "an int of at least 1, or None"),
        ("threads", True, "an int of at least 1, or None"),
        ("cache_size", None, "an int of at least 1."),
        ("max_unrolled", 2.5, "an int of at least 1, or None"),
    ],
)
def test_bad_values_are_refused(name, value, text):
    with pytest.raises(OptionError) as caught:
        Options.make(**{name: value})
    assert f"option {name} cannot be {value!r}" in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "cuda"},
    ],
)
def test_what_is_not_built_is_refused_not_ignored(given):
    with pytest.raises(OptionError, match="not available yet"):
        Options(**given)


def test_options_of_another_type_are_refused():
    with pytest.raises(OptionError, match="options must be an Options, not dict"):
        Options.make({"fastmath": True})


def shifted_sum(x):
    s, y = 0.0, x * 1.0
    for i in range(1, len(x)):
        old = y.copy()
        y[i] = y[i - 1] * 2.0
        s = s + np.sum(old * y)
    return s


def recurrence(x):
    y = x * 1.0
    for i in range(1, len(x)):
        y[i] = np.sin(y[i - 1]) * y[i]
    return np.sum(y)


def test_in_place_may_be_required():
    x = np.linspace(0.5, 1.0, 20)
    want = tg.grad(recurrence)(x)
    got = tg.compile(tg.grad(recurrence), inplace="require", backend="numpy")(x)
    np.testing.assert_array_equal(got, want)
    assert np.isclose(tg.compile(shifted_sum, backend="numpy")(x), shifted_sum(x))
    with pytest.raises(UnsupportedError, match="copies its base first") as e:
        tg.compile(shifted_sum, inplace="require", backend="numpy")(x)
    assert "y[i] = y[i - 1] * 2.0" in str(e.value)
