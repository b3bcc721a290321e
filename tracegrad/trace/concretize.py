"""When Python asks a tracer for its value: known tracers answer, traced ones refuse by route."""

from __future__ import annotations

import ast
import math
import os
import re
import sys
import sysconfig
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.errors import ArgumentError, ConcretizationError, EscapeError, ShapeError
from tracegrad.trace.known import leaked
from tracegrad.trace.tracer import Tracer

CHOOSE = (
    "Use np.where(condition, a, b) to choose values{cond}, or decide by a Python value (a shape, "
    "an int, a static argument), which is part of the specialisation."
)
# What the condition of a statement that begins with the word should be instead.
_STATEMENT = {
    "assert": "Check it before the call, or return the condition and check it there.  Shapes, "
    "dtypes and static arguments can be asserted.",
    "while": "Repeat a fixed number of times with for ... in range(n){loop}.",
    "if": CHOOSE,
    "elif": CHOOSE,
}
_CALLED = {
    "any": "Use np.any(x), and np.where or a reduction for what depends on it.",
    "all": "Use np.all(x), and np.where or a reduction for what depends on it.",
    "sorted": "Use np.sort(x).",
}
NUMBER = (
    "Keep it traced: NumPy functions and arithmetic take it as it is.  A number that the "
    "trace must know has to be a static argument."
)
_REMEDY = {
    "bool": CHOOSE,
    "int": "Pass it as a Python int (then it is static).  As an index or in arithmetic a traced "
    "integer needs no conversion.",
    "index": "Pass int(n) from outside, so that it is static: a size or a slice bound may not "
    "depend on traced values.  For a part of an array take all of it and a mask, as in "
    "np.where(np.arange(len(x)) < n, x, 0.0).",
    "item": NUMBER + "  Return it to see its value.",
    "tolist": NUMBER + "  Return it to see its value.",
    "format": "Return the value and format it outside, or use tg.debug.print(fmt, x).",
}

_INSTALLED = tuple(
    {
        os.path.realpath(p) + os.sep
        for p in (
            sysconfig.get_path("stdlib"),
            sysconfig.get_path("purelib"),
            sysconfig.get_path("platlib"),
        )
    }
)


def known(x: Tracer, route: str, asked: str = "number") -> np.ndarray:
    """The contents of `x`, or ConcretizationError naming the `route` (``bool()``, ``.item()``).

    Raises LeakedTracerError when the trace of `x` is over.
    """
    if x.contents is not None:
        return x.contents
    _check_open(x)
    loc = _user_loc()
    _check_single(x, asked, loc)
    remedy = _REMEDY.get(asked, NUMBER)
    if asked == "bool":
        route, remedy = _condition(route, loc)
    raise ConcretizationError(
        f"{route} needs the value of a traced {_what(x)}, which is known only when the compiled "
        "function runs",
        loc=loc,
        remedy=_offered(remedy),
    )


def _check_single(x: Tracer, asked: str, loc: source.SourceLoc | None) -> None:
    """Raise as NumPy does for arrays of more (or less) than one element."""
    if math.prod(x.sizes) == 1:
        return
    if asked == "bool":
        raise ShapeError(
            "The truth value of an array with more than one element is ambiguous. "
            "Use a.any() or a.all()",
            loc=loc,
            remedy=f"Both stay traced.  {_offered(CHOOSE)}",
        )
    if asked in ("int", "float"):
        raise ArgumentError("only 0-dimensional arrays can be converted to Python scalars", loc=loc)
    if asked == "index":
        raise ArgumentError(
            "only integer scalar arrays can be converted to a scalar index", loc=loc
        )
    if asked == "item":
        raise ShapeError("can only convert an array of size 1 to a Python scalar", loc=loc)


def _check_open(x: Tracer) -> None:
    if not getattr(x.trace, "open", True):
        raise leaked(x)


def _condition(route: str, loc: source.SourceLoc | None) -> tuple[str, str]:
    """How the user wrote the question ``bool()``, and what to write instead."""
    if loc is None:
        return route, CHOOSE
    asked = loc.text[loc.col : min(loc.end_col, len(loc.text))]
    callee = _callee(asked)
    if callee in _CALLED:
        return f"{callee}()", _CALLED[callee]
    word = loc.text.split(maxsplit=1)[0].rstrip("(") if loc.text.strip() else ""
    if word in _STATEMENT and callee != "bool":
        return f"`{word}`", _STATEMENT[word]
    if re.search(r"\bin\b", asked):
        return "`in`", "Use np.any(x == value)."
    return route, CHOOSE


def _offered(remedy: str) -> str:
    """`remedy` with the control functions that this version has."""
    public = sys.modules.get("tracegrad")
    cond, loop = hasattr(public, "cond"), hasattr(public, "while_loop")
    return remedy.replace("{cond}", ", tg.cond to choose what runs" if cond else "").replace(
        "{loop}", ", or use tg.while_loop" if loop else ""
    )


def _what(x: Tracer) -> str:
    return (
        f"{x.element_type.np} scalar"
        if x.scalar
        else (f"{x.element_type.np} array of shape {x.sizes}")
    )


def single(x: Tracer, route: str, asked: str) -> Any:
    """The one element of `x` as a Python number."""
    value = known(x, route, asked)
    if value.size != 1:
        return value.item()  # raises as NumPy does
    return value.item()


def escape(x: Tracer, route: str) -> NoReturn:
    """A traced value reached code that needs a real array."""
    _check_open(x)
    call, loc = called()
    name = f"`{call}` " if call else ""
    raise EscapeError(
        f"{name}needs a real array, but a traced {_what(x)} reached it (by {route})",
        loc=loc,
        remedy="Create the array inside the traced function, as in x = np.zeros(n), pass it as an "
        "argument, or write the computation with NumPy functions on the traced value.",
    )


def called() -> tuple[str, source.SourceLoc | None]:
    """The call in the user's own code that led here, as written there, and its place.

    Frames of installed packages are passed over: it is what the user called that matters.
    """
    frame = _own_frame()
    if frame is None:
        return "", source.here()
    loc = source.of_frame(frame)
    return _callee(loc.text[loc.col : min(loc.end_col, len(loc.text))]), loc


def _user_loc() -> source.SourceLoc | None:
    frame = _own_frame()
    return source.here() if frame is None else source.of_frame(frame)


def _own_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if (
            source.is_user_file(name)
            and not os.path.realpath(name).startswith(_INSTALLED)
            and not name.startswith("<frozen")
        ):
            return frame
        frame = frame.f_back
    return None


def _callee(text: str) -> str:
    """``scipy.stats.norm.pdf`` of ``scipy.stats.norm.pdf(x, 2)``; other code as it is."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return text.strip()
    if isinstance(node, ast.Call):
        return ast.unparse(node.func)
    return text.strip()
