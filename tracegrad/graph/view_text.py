"""Text of views: their steps in sequence, ``identity`` for none.

::

    [1, 2:10:2, newaxis]   permute(1, 0)   reshape(6)   expand(3, 5)   diagonal(0, 0, 1)
    unfold(0, 3, 2)   strided(size=[3], stride=[1], offset=1)
    as_real   as_complex   conj   bitcast(f64, i64)

A span is ``start:stop:step`` with the stop it would have without clipping; ``4::-1`` runs down
to the first element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import dims
from tracegrad.dims import format_dim
from tracegrad.graph.scan import Scanner
from tracegrad.graph.storage import (
    AsComplex,
    AsReal,
    Bitcast,
    Conj,
    Diagonal,
    Expand,
    Index,
    Item,
    NewAxis,
    Permute,
    Pick,
    Reshape,
    Span,
    Step,
    Strided,
    Unfold,
    View,
)


def format_view(view: View) -> str:
    return " ".join(map(_format_step, view.steps)) or "identity"


def _format_step(step: Step) -> str:
    match step:
        case Index(items=items):
            return f"[{', '.join(map(_format_item, items))}]"
        case Permute(order=ns) | Reshape(to=ns) | Expand(to=ns):
            return f"{type(step).__name__.lower()}({', '.join(map(format_dim, ns))})"
        case Diagonal(offset=offset, axis1=a, axis2=b):
            return f"diagonal({offset}, {a}, {b})"
        case Unfold(axis=axis, size=size, step=by):
            return f"unfold({axis}, {size}, {by})"
        case Strided(size=size, stride=stride, offset=offset):
            return f"strided(size={_list(size)}, stride={_list(stride)}, offset={offset})"
        case AsReal():
            return "as_real"
        case AsComplex():
            return "as_complex"
        case Conj():
            return "conj"
        case Bitcast(before=before, to=to):
            return f"bitcast({before}, {to})"
    raise AssertionError(step)


def _format_item(item: Item) -> str:
    match item:
        case Pick(at=at):
            return format_dim(at)
        case NewAxis():
            return "newaxis"
        case Span(start=start, size=size, step=step):
            stop = dims.add(start, dims.mul(size, step))
            by = "" if step == 1 else f":{step}"
            runs_out = isinstance(start, int) and isinstance(stop, int) and stop < 0
            last = "" if runs_out else format_dim(stop)
            return f"{format_dim(start)}:{last}{by}"
    raise AssertionError(item)


def _list(numbers: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def parse_view(s: Scanner) -> View:
    if s.take_word("identity"):
        return View()
    steps: list[Step] = []
    while s.peek("[") or s.peek_word() in _STEPS:
        steps.append(_parse_index(s) if s.peek("[") else _STEPS[s.word()](s))
    if not steps:
        raise s.fail("expected a view such as [0, 2:10:2] or permute(1, 0)")
    return View(tuple(steps))


def _parse_index(s: Scanner) -> Index:
    s.expect("[")
    items: list[Item] = []
    while not s.take("]"):
        if items:
            s.expect(",")
        items.append(_parse_item(s))
    return Index(tuple(items))


def _parse_item(s: Scanner) -> Item:
    if s.take_word("newaxis"):
        return NewAxis()
    start = s.dim()
    if not s.take(":"):
        return Pick(start)
    s.skip()
    at = s.pos
    stop = None if s.peek(":") else s.dim()
    step = s.integer() if s.take(":") else 1
    if step == 0:
        raise s.fail("a span's step is not zero", at)
    if stop is None:
        if step > 0 or not isinstance(start, int):
            raise s.fail("only a span that runs down may leave out its stop", at)
        return Span(start, start // -step + 1, step)
    length = dims.mul(dims.add(stop, dims.mul(start, -1)), 1 if step > 0 else -1)
    if dims.is_divisible(length, abs(step)) is not True:
        raise s.fail("the step does not divide stop - start", at)
    return Span(start, dims.floordiv(length, abs(step)), step)


def _numbers(s: Scanner) -> tuple[Any, ...]:
    s.expect("(")
    return s.dims(")")


def _parse_strided(s: Scanner) -> Strided:
    s.expect("(")
    size = _named(s, "size")
    s.expect(",")
    stride = _named(s, "stride")
    s.expect(",")
    _name(s, "offset")
    offset = s.integer()
    s.expect(")")
    return Strided(size, stride, offset)


def _parse_bitcast(s: Scanner) -> Bitcast:
    s.expect("(")
    before = s.dtype()
    s.expect(",")
    to = s.dtype()
    s.expect(")")
    return Bitcast(before, to)


def _named(s: Scanner, name: str) -> tuple[Any, ...]:
    _name(s, name)
    s.expect("[")
    return s.dims("]")


def _name(s: Scanner, name: str) -> None:
    if not s.take_word(name):
        raise s.fail(f"expected {name}=")
    s.expect("=")


_STEPS: dict[str, Callable[[Scanner], Step]] = {
    "permute": lambda s: Permute(_numbers(s)),
    "reshape": lambda s: Reshape(_numbers(s)),
    "expand": lambda s: Expand(_numbers(s)),
    "diagonal": lambda s: Diagonal(*_numbers(s)),
    "unfold": lambda s: Unfold(*_numbers(s)),
    "strided": _parse_strided,
    "as_real": lambda s: AsReal(),
    "as_complex": lambda s: AsComplex(),
    "conj": lambda s: Conj(),
    "bitcast": _parse_bitcast,
}
