"""When Python asks a tracer for its value: known tracers answer, traced ones refuse by route."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tracegrad import source
from tracegrad.errors import ConcretizationError, EscapeError
from tracegrad.trace.tracer import Tracer

BRANCH = (
    "Use np.where(condition, a, b) to choose values, tg.cond to choose what runs, "
    "tg.while_loop to repeat, or pass a Python value that is part of the specialisation."
)
NUMBER = (
    "Keep it traced: NumPy functions and arithmetic take it as it is.  A number that the "
    "trace must know has to be a static argument."
)
_REMEDY = {
    "bool": BRANCH,
    "int": "Pass it as a Python int (then it is static).  As an index or in arithmetic a traced "
    "integer needs no conversion.",
    "index": "Pass int(n) from outside, so that it is static: a size, a count or a slice bound "
    "may not depend on traced values.",
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
    """The contents of `x`, or ConcretizationError naming the `route` (``bool()``, ``.item()``)."""
    if x.contents is not None:
        return x.contents
    raise ConcretizationError(
        f"{route} needs the value of a traced {_what(x)}, which is known only when the compiled "
        "function runs",
        loc=_user_loc(),
        remedy=_REMEDY.get(asked, NUMBER),
    )


def _what(x: Tracer) -> str:
    return (
        f"{x.element_type.np} scalar"
        if x.scalar
        else (f"{x.element_type.np} array of shape {x.shape}")
    )


def single(x: Tracer, route: str, asked: str) -> Any:
    """The one element of `x` as a Python number."""
    value = known(x, route, asked)
    if value.size != 1:
        return value.item()  # raises as NumPy does
    return value.item()


def escape(x: Tracer, route: str) -> NoReturn:
    """A traced value reached code that needs a real array."""
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
