"""Text of attributes, views and literals: everything parses back to the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracegrad import dims, dtypes
from tracegrad.dims import Dim
from tracegrad.dtypes import BOOL, F32, F64, I64, U8, DType
from tracegrad.errors import VerifyError
from tracegrad.graph.attr_text import (
    format_attr,
    format_fields,
    format_literal,
    format_view,
    parse_attr,
    parse_fields,
    parse_scalar,
    parse_view,
)
from tracegrad.graph.ir import Literal
from tracegrad.graph.op import Attrs
from tracegrad.graph.scan import Scanner
from tracegrad.graph.storage import (
    Diagonal,
    Expand,
    Index,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
    Strided,
    Unfold,
    View,
)
from tracegrad.types import TensorType


class Colour(Enum):
    RED = auto()
    DARK_BLUE = auto()


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: DType


@dataclass(frozen=True)
class Packed:
    words: tuple[str, ...]

    def to_text(self) -> str:
        return "|".join(self.words)

    @classmethod
    def from_text(cls, text: str) -> Packed:
        return cls(tuple(text.split("|")))


@dataclass(frozen=True, slots=True)
class Everything(Attrs):
    flag: bool
    count: int
    size: Dim
    shape: tuple[Dim, ...]
    ratio: float
    name: str
    dtype: DType
    type: TensorType
    colour: Colour
    value: Literal
    view: View
    pair: Pair
    pairs: tuple[Pair, ...]
    fixed: tuple[int, str]
    packed: Packed
    maybe: int | None
    either: int | float | bool | str
    limit: Dim | None = None
    shown: tuple[int, ...] = field(default=(1, 2))


N = dims.symbol("n", 1)


def everything(**changes: object) -> Everything:
    fields: dict[str, object] = {
        "flag": True,
        "count": -3,
        "size": N * 2 - 1,
        "shape": (4, N),
        "ratio": 1e-300,
        "name": 'a "quoted", {braced}\n',
        "dtype": U8,
        "type": TensorType((N, 2), F32),
        "colour": Colour.DARK_BLUE,
        "value": Literal(-0.0, F32),
        "view": View((Index((Pick(1),)), Reshape((2, 3)))),
        "pair": Pair(1, BOOL),
        "pairs": (Pair(1, I64), Pair(2, F64)),
        "fixed": (7, "x"),
        "packed": Packed(("a", 'b"')),
        "maybe": None,
        "either": 2.0,
    }
    return Everything(**{**fields, **changes})  # type: ignore[arg-type]


def round_trip(x: Everything) -> Everything:
    s = Scanner(format_fields(x))
    s.symbols = {"n": N}
    out = parse_fields(s, Everything)
    assert s.pos == len(s.text)
    return out  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"flag": False},
        {"maybe": 5},
        {"either": 2},
        {"either": True},
        {"either": "two"},
        {"limit": 4},
        {"limit": N + 1},
        {"shown": ()},
        {"pairs": ()},
        {"shape": ()},
        {"view": View()},
        {"ratio": float("inf")},
        {"ratio": -0.0},
        {"colour": Colour.RED},
    ],
)
def test_attributes_parse_back_by_their_annotations(changes: dict[str, object]) -> None:
    x = everything(**changes)
    again = round_trip(x)
    assert again == x
    assert type(again.either) is type(x.either)
    assert format_fields(again) == format_fields(x)


def test_defaults_are_not_printed() -> None:
    text = format_fields(everything())
    assert "limit" not in text and "shown" not in text
    assert "limit = 3" in format_fields(everything(limit=3))


def test_a_value_without_text_form_is_refused() -> None:
    with pytest.raises(VerifyError, match="object has no text form"):
        format_attr(object())


SPANS = st.builds(
    lambda start, size, step: Span(
        start if step > 0 else start + (size - 1) * -step if size else start, size, step
    ),
    st.integers(0, 9),
    st.integers(0, 5),
    st.sampled_from([1, 2, 3, -1, -2]),
)
SIZES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
STEPS = st.one_of(
    st.lists(
        st.one_of(SPANS, st.builds(Pick, st.integers(0, 9)), st.just(NewAxis())), max_size=4
    ).map(lambda items: Index(tuple(items))),
    st.permutations(range(3)).map(lambda p: Permute(tuple(p))),
    SIZES.map(Reshape),
    SIZES.map(Expand),
    st.builds(Diagonal, st.integers(-2, 2), st.integers(0, 3), st.integers(0, 3)),
    st.builds(Unfold, st.integers(0, 3), st.integers(1, 4), st.integers(1, 4)),
    SIZES.map(lambda s: Strided(s, tuple(n + 1 for n in s), 3)),
)


@given(st.lists(STEPS, max_size=4))
@settings(deadline=None, max_examples=300)
def test_views_round_trip(steps: list[object]) -> None:
    view = View(tuple(steps))  # type: ignore[arg-type]
    assert parse_view(Scanner(format_view(view))) == view


def test_symbolic_spans_round_trip() -> None:
    view = View((Index((Span(N - 1, N, -1), Span(1, N - 2), Span(0, N, 2), Pick(N - 1))),))
    s = Scanner(format_view(view))
    s.symbols = {"n": N}
    assert format_view(view) == "[n - 1:-1:-1, 1:n - 1, 0:2*n:2, n - 1]"
    assert parse_view(s) == view


@given(st.sampled_from(dtypes.ALL), st.binary(min_size=8, max_size=8))
@settings(deadline=None, max_examples=500)
def test_literals_round_trip_by_bits(dtype: DType, raw: bytes) -> None:
    value = np.frombuffer(raw[: dtype.nbytes], dtype.np)[0]
    x = Literal(bool(raw[0] & 1) if dtype.is_bool else value.item(), dtype)
    assert parse_scalar(Scanner(format_literal(x))) == x


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1e300])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_special_floats_round_trip(value: float, dtype: DType) -> None:
    if dtype is F32 and value == 1e300:
        value = 1e30
    x = Literal(value, dtype)
    assert parse_scalar(Scanner(format_literal(x))) == x


def test_f32_literals_print_short() -> None:
    assert format_literal(Literal(0.1, F32)) == "0.1:f32"
    assert parse_attr(Scanner("0.1:f32"), Literal) == Literal(0.1, F32)
