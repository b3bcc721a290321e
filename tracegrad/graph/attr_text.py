"""Text of attribute values: printed by what they are, parsed back by their annotations.

bool ``true`` · int and Dim ``2*n + 1`` · float ``0.5`` · str ``"s"`` · None ``none`` · dtype
``f64`` · type ``f64[3]`` · enum: member name in lower case · tuple ``[a, b]`` · literal
``2.0:f64``, ``(1.0, -0.5):c128`` · other dataclasses: fields in order, ``(a, b)`` · a class
with ``to_text`` and ``from_text``: a quoted string · views: as in `graph.view_text`.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.dims import Dim, format_dim
from tracegrad.dtypes import DType
from tracegrad.errors import ParseError, VerifyError
from tracegrad.graph.ir import Literal
from tracegrad.graph.scan import Scanner
from tracegrad.graph.storage import View
from tracegrad.graph.view_text import format_view, parse_view
from tracegrad.types import TensorType

# --------------------------------------------------------------------------------- printing


def literal_parts(x: Literal) -> tuple[Literal, Literal]:
    """Real and imaginary part of a complex literal."""
    part = x.dtype.parts
    re, im = np.frombuffer(x.key, part.np)
    return Literal(re, part), Literal(im, part)


def format_scalar(x: Literal) -> str:
    """The literal's value; the dtype's own shortest form, so that parsing gives the same bits."""
    if x.dtype.is_bool:
        return "true" if x.value else "false"
    if x.dtype.is_complex:
        return f"({', '.join(map(format_scalar, literal_parts(x)))})"
    if not x.dtype.is_float:
        return str(x.value)
    if x.value != x.value:
        bits = np.frombuffer(x.key, f"u{len(x.key)}")[0]
        return "nan" if x.key == np.asarray(np.nan, x.dtype.np).tobytes() else f"nan(0x{bits:x})"
    if x.value in (float("inf"), float("-inf")):
        return repr(x.value)
    text = np.format_float_scientific(x.dtype.np.type(x.value), trim="-")
    short = repr(x.value)
    return short if x.dtype.bits == 64 else _shorter(x, text)


def _shorter(x: Literal, scientific: str) -> str:
    plain = str(x.dtype.np.type(x.value))
    return plain if "e" in plain or "." in plain else scientific


def format_literal(x: Literal) -> str:
    return f"{format_scalar(x)}:{x.dtype}"


def format_attr(x: Any) -> str:
    """Text of one attribute value."""
    match x:
        case None:
            return "none"
        case bool():
            return "true" if x else "false"
        case int() | dims.Expr():
            return format_dim(x)
        case float():
            return repr(x)
        case str():
            return json.dumps(x)
        case DType() | TensorType():
            return repr(x)
        case Enum():
            return x.name.lower()
        case tuple():
            return f"[{', '.join(map(format_attr, x))}]"
        case View():
            return format_view(x)
        case Literal():
            return format_literal(x)
    if hasattr(x, "to_text"):
        return json.dumps(x.to_text())
    if dataclasses.is_dataclass(x):
        return f"({', '.join(format_attr(v) for v in field_values(x))})"
    raise VerifyError(f"{type(x).__name__} has no text form: give it to_text and from_text")


def field_values(x: Any) -> list[Any]:
    return [getattr(x, name) for name in _field_names(type(x))]  # type: ignore[arg-type]


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls) if f.init)


def field_texts(x: Any) -> dict[str, str]:
    """The text of each field by name, without the fields that have their defaults."""
    defaults = _defaults(type(x))  # type: ignore[arg-type]
    shown = {}
    for name in _field_names(type(x)):  # type: ignore[arg-type]
        text = format_attr(getattr(x, name))
        if name not in defaults or text != format_attr(defaults[name]):
            shown[name] = text
    return shown


def format_fields(x: Any) -> str:
    """``{a = 1, b = [2]}`` without the fields that have their defaults; empty when none is left."""
    shown = field_texts(x)
    return "{" + ", ".join(f"{n} = {t}" for n, t in shown.items()) + "}" if shown else ""


@cache
def _defaults(cls: type) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        if f.default is not dataclasses.MISSING:
            out[f.name] = f.default
        elif f.default_factory is not dataclasses.MISSING:
            out[f.name] = f.default_factory()
    return out


# ---------------------------------------------------------------------------------- parsing


def parse_scalar(s: Scanner, dtype: DType | None = None) -> Literal:
    """``2.0:f64``; `dtype` is used where the text names none."""
    s.skip()
    at = s.pos
    if s.take("("):
        return _parse_complex(s, at, dtype)
    token = s.word() if s.peek_word() in ("true", "false") else s.number()
    if s.take(":"):
        dtype = s.dtype()
    if dtype is None:
        raise s.fail("a literal needs a dtype here, as in 2.0:f64", at)
    if token in ("true", "false"):
        return Literal(token == "true", dtype)
    if token.startswith("nan("):
        bits = np.array(int(token[4:-1], 16), f"u{dtype.nbytes}")
        return Literal(float(bits.view(dtype.np)), dtype)
    try:
        return Literal(int(token), dtype) if dtype.is_integer else Literal(float(token), dtype)
    except (ValueError, OverflowError):
        raise s.fail(f"{token} is not a value of {dtype}", at) from None


def _parse_complex(s: Scanner, at: int, dtype: DType | None) -> Literal:
    """The rest of ``(1.0, -0.5):c128``."""
    texts = [s.number()]
    s.expect(",")
    texts.append(s.number())
    s.expect(")")
    if s.take(":"):
        dtype = s.dtype()
    if dtype is None or not dtype.is_complex:
        raise s.fail("a pair needs a complex dtype, as in (1.0, 0.5):c128", at)
    value = np.array([parse_scalar(Scanner(t), dtype.parts).value for t in texts], dtype.parts.np)
    return Literal(value.view(dtype.np)[0], dtype)


@cache
def field_types(cls: type) -> dict[str, Any]:
    """Field types of a dataclass, resolved, in order."""
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in _field_names(cls)}


def parse_fields(s: Scanner, cls: type) -> Any:
    """``{a = 1, b = [2]}`` as an instance of `cls`; fields with defaults may be left out."""
    defaults = _defaults(cls)
    values: dict[str, Any] = {}
    missing = [n for n in field_types(cls) if n not in defaults]
    start = s.pos
    if field_types(cls) and s.take("{"):
        if not missing and s.take_word("graph") and s.peek("@"):
            s.pos = start  # the brace opens the node's regions
            return cls()
        while not s.take("}"):
            if values:
                s.expect(",")
            s.skip()
            at, name = s.pos, s.word()
            if name not in field_types(cls) or name in values:
                raise s.fail(f"unexpected attribute {name!r}", at)
            s.expect("=")
            values[name] = parse_attr(s, field_types(cls)[name])
    for name in missing:
        if name not in values:
            raise s.fail(f"expected the attribute {name!r}")
    return cls(**values)


def parse_attr(s: Scanner, hint: Any) -> Any:
    """A value of the annotated type `hint`."""
    if hint is None or hint is type(None):
        if not s.take_word("none"):
            raise s.fail("expected none")
        return None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(s, typing.get_args(hint))
    if origin is tuple:
        return _parse_tuple(s, typing.get_args(hint))
    if origin is typing.Literal:
        return _parse_choice(s, typing.get_args(hint))
    if hint is bool:
        word = s.peek_word()
        if word not in ("true", "false"):
            raise s.fail("expected true or false")
        return s.word() == "true"
    simple = {
        int: s.integer,
        str: s.string,
        DType: s.dtype,
        TensorType: s.type,
        View: lambda: parse_view(s),
        Literal: lambda: parse_scalar(s),
    }
    if hint in simple:
        return simple[hint]()
    return _parse_class(s, hint)


def _parse_class(s: Scanner, hint: Any) -> Any:
    s.skip()
    at = s.pos
    if hint is float:
        return float(s.number())
    if isinstance(hint, type) and issubclass(hint, Enum):
        word = s.word()
        for member in hint:
            if member.name.lower() == word:
                return member
        raise s.fail(f"expected one of {', '.join(m.name.lower() for m in hint)}", at)
    if hasattr(hint, "from_text"):
        return hint.from_text(s.string())
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        s.expect("(")
        values = []
        for k, inner in enumerate(field_types(hint).values()):
            if k:
                s.expect(",")
            values.append(parse_attr(s, inner))
        s.expect(")")
        return hint(*values)
    raise s.fail(f"attributes of type {hint} have no text form", at)


def _parse_choice(s: Scanner, choices: tuple[Any, ...]) -> Any:
    for choice in sorted(choices, key=lambda c: -len(format_attr(c))):
        if s.take(format_attr(choice)):
            return choice
    raise s.fail(f"expected one of {', '.join(map(format_attr, choices))}")


def _parse_union(s: Scanner, options: tuple[Any, ...]) -> Any:
    if dims.Expr in options:
        rest = tuple(t for t in options if t not in (int, dims.Expr))
        options = (*rest, Dim)
        if not rest:
            return s.dim()
    # `int` before `float`, `none` and `bool` first: each rejects the others' text.
    rank = {type(None): 0, bool: 1, Literal: 2, int: 3, float: 4}
    error: ParseError | None = None
    s.skip()
    at = s.pos
    for option in sorted(options, key=lambda t: rank.get(t, 3)):
        s.pos = at
        try:
            return parse_attr(s, option)
        except ParseError as e:
            error = e
    assert error is not None
    raise error


def _parse_tuple(s: Scanner, inner: tuple[Any, ...]) -> tuple[Any, ...]:
    s.expect("[")
    out: list[Any] = []
    if inner and inner[-1] is Ellipsis:
        while not s.take("]"):
            if out:
                s.expect(",")
            out.append(parse_attr(s, inner[0]))
        return tuple(out)
    for k, hint in enumerate(inner):
        if k:
            s.expect(",")
        out.append(parse_attr(s, hint))
    s.expect("]")
    return tuple(out)
