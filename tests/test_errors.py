"""What a user reads when a program is refused: class, kind, message, quoted line, caret, remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tests.refusals import VALUE, arrays, outside, values  # noqa: F401
from tests.refusals.case import REFUSALS, Refusal, caught, check, marked
from tests.refusals.helper import absolute_value
from tracegrad import errors

X = np.array([1.0, 2.0, 3.0])
EACH = outside.EACH


# ------------------------------------------------------------------------------------------- tests


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
    e = caught(lambda: tg.compile(lambda x, r: x + r.normal())(X, outside.GENERATOR))
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
        absolute_value,
        errors.ConcretizationError,
        TypeError,
        "concretization",
        f"`if` needs the value of a traced bool scalar, {VALUE}",
        "v > 0",
        "np.where",
    )
    check(e, want)
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
    assert "tg.cond" in caught(lambda: tg.compile(values.branch)(X)).remedy
    assert "tg.while_loop" in caught(lambda: tg.compile(values.loop_until)(X)).remedy


# ---------------------------------------------------------------------------------- leaked tracers


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
        use_sum,
        use_ufunc,
        use_method,
        use_float,
        use_condition,
        use_array,
        use_with_array,
        use_index,
        use_write,
        use_in_real_array,
        use_as_argument,
        use_in_another_trace,
    ],
)
def test_leaked_tracer(use):
    tg.compile(keep)(X)
    e = caught(use)
    assert type(e) is errors.LeakedTracerError and isinstance(e, RuntimeError)
    assert e.kind == "leaked_tracer"
    assert e.message.endswith("a traced value of shape (3,) is used outside the call that made it")
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
    assert (
        e.message == "by_global assigns the global variable LEAK, which a traced function cannot do"
    )
    assert marked(str(e)) == "LEAK" and "LEAK" not in globals()


def test_printing_a_leaked_tracer_is_fine():
    tg.compile(keep)(X)
    assert f"{KEPT[-1]}" == "<traced Array float64[3]>"
    KEPT.clear()
