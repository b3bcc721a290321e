"""What a refusal must read like: the record of one, and the registers of its kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tracegrad import errors


@dataclass
class Refusal:
    """A program that is refused: the error's class, what else it is, its kind, the first line
    of its text, the code that the carets mark, a part of its remedy."""

    program: Callable[..., Any]
    error: type[errors.TracegradError]
    also: type[Exception]
    kind: str
    says: str
    under: str
    remedy: str


REFUSALS: list[Refusal] = []


def refused(error, also, kind, says, under, remedy=""):
    """A decorator: the function takes an array of 1, 2, 3 and is refused."""

    def register(program):
        REFUSALS.append(Refusal(program, error, also, kind, says, under, remedy))
        return program

    return register


concretization = partial(refused, errors.ConcretizationError, TypeError, "concretization")
shape = partial(refused, errors.ShapeError, ValueError, "shape")
unsupported = partial(refused, errors.UnsupportedError, NotImplementedError, "unsupported")
escape = partial(refused, errors.EscapeError, TypeError, "escape")
dtype = partial(refused, errors.DTypeError, TypeError, "dtype")
result_cast = partial(refused, errors.DTypeError, TypeError, "result_cast")
index = partial(refused, errors.IndexingError, IndexError, "index")
read_only = partial(refused, errors.ValueArgumentError, ValueError, "read_only")
data_dependent = partial(
    refused, errors.DataDependentShapeError, IndexError, "data_dependent_shape"
)
impure = partial(refused, errors.ImpureCallError, RuntimeError, "impure_call")
result = partial(refused, errors.ArgumentError, TypeError, "result")


def marked(text: str) -> str:
    """The part of the first quoted line that stands over the carets."""
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.strip() and not line.strip(" ^"))
    start = lines[at].index("^")
    return lines[at - 1][start : len(lines[at])]


def caught(call: Callable[[], Any]) -> errors.TracegradError:
    """The error that `call` ends in."""
    with pytest.raises(errors.TracegradError) as e:
        call()
    assert e.value.__cause__ is None, "what users see is one error, not a chain"
    assert e.value.__context__ is None or e.value.__suppress_context__
    return e.value


def check(e: errors.TracegradError, want: Refusal) -> None:
    """The error is what `want` says, at a line of the program's file."""
    text, file = str(e), want.program.__code__.co_filename
    assert type(e) is want.error and isinstance(e, want.also)
    assert e.kind == want.kind
    assert text.splitlines()[0] == want.says
    assert f"  {file}:{e.loc.line} in " in text
    assert marked(text) == want.under
    assert want.remedy in e.remedy and e.remedy in text
