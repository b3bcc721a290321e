"""What leaves a traced function: errors, placed at the user's line, and results that cannot be.

Code that does not know tracers complains of them in its own words (``Object of type Array is not
JSON serializable``); here such an error gets the name of what the user called.
"""

from __future__ import annotations

import dis
import linecache
import re
import types
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from tracegrad import source
from tracegrad.errors import (
    ArgumentError,
    DTypeError,
    EscapeError,
    MissingAttributeError,
    TracegradError,
    TraceRecursionError,
)
from tracegrad.source import SourceLoc
from tracegrad.trace.substitute_code import is_user_path
from tracegrad.trace.tracer import Tracer

_REAL = (
    "Create the array inside the traced function, as in x = np.zeros(n), pass it as an argument, "
    "or write the computation with NumPy functions on the traced value."
)
_SET = {
    "shape": "Use x = x.reshape(shape).",
    "dtype": "Use x = x.astype(dtype), which converts.",
    "strides": "Use x = np.lib.stride_tricks.as_strided(x, ...).",
    "data": "Write x[...] = values.",
}
_ITERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def run(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str, face: str
) -> Any:
    """``fn(*args, **kwargs)``; `name` is what errors call it, `face` the class of its tracers.

    Raises:
        TracegradError: as it was raised, or in place of what code that does not know tracers
            raised; placed at the user's line.
    """
    try:
        return fn(*args, **kwargs)
    except TracegradError as e:
        _place(e)
        raise
    except (TypeError, ValueError, AttributeError) as e:
        found = _metadata(e, face) if isinstance(e, AttributeError) else _foreign(e, face)
        if found is None:
            raise
        raise found from None
    except RecursionError as e:
        raise TraceRecursionError(
            f"{name} calls itself without end while it is traced",
            loc=_users_line(e.__traceback__, 0),
            remedy="End the recursion by a static value (an int, a shape), not by a traced one.",
        ) from None


def _metadata(e: AttributeError, face: str) -> TracegradError | None:
    """The error in place of ``x.shape = ...``: tracers have no attributes to set."""
    found = re.match(rf"property '(\w+)' of '{face}' object has no setter$", str(e)) or re.match(
        rf"'{face}' object has no attribute '(\w+)'", str(e)
    )
    if found is None or _is_users_raise(e.__traceback__):
        return None
    return MissingAttributeError(
        f"the attribute {found[1]!r} of a traced array cannot be set",
        kind="metadata_write",
        loc=_users_line(e.__traceback__, -1),
        remedy=_SET.get(found[1], "Make a new array instead."),
    )


def _foreign(e: Exception, face: str) -> TracegradError | None:
    """The error in place of one that a tracer caused where tracers are not known."""
    loc = _users_line(e.__traceback__, -1)
    text = str(e)
    if isinstance(e.__cause__, TracegradError):
        # NumPy's own conversion of a scalar: a[0] = tracer.
        call = _spelling(loc) or _text(loc)
        return EscapeError(
            f"`{call}` needs a real number, but a traced value reached it",
            loc=loc,
            remedy=_REAL,
        )
    if not re.search(rf"\b{face}\b", text) or _is_users_raise(e.__traceback__):
        return None
    if text.startswith("unsupported operand") or " not supported between " in text:
        return DTypeError(text, kind="operand", loc=loc)
    return EscapeError(
        f"`{_spelling(loc) or _text(loc)}` cannot take a traced value: {text}",
        loc=loc,
        remedy=_REAL,
    )


def _frames(tb: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while tb is not None:
        yield tb.tb_frame, tb.tb_lasti
        tb = tb.tb_next


def _is_users(frame: FrameType) -> bool:
    return is_user_path(frame.f_code.co_filename)


def _is_users_raise(tb: TracebackType | None) -> bool:
    """Whether a ``raise`` statement of the user's made the error."""
    *_, (frame, at) = _frames(tb)
    raising = dis.opmap["RAISE_VARARGS"]
    return _is_users(frame) and frame.f_code.co_code[at] == raising


def _users_line(tb: TracebackType | None, at: int) -> SourceLoc | None:
    """The line of the first (0) or last (-1) frame of the user's in a traceback."""
    found = [place for place in _frames(tb) if _is_users(place[0])]
    return source.at(*found[at]) if found else None


def _place(error: TracegradError) -> None:
    """Place an error that arose inside an installed package at the user's call of it."""
    loc = error.loc
    if loc is not None and not (isinstance(loc, SourceLoc) and not is_user_path(loc.file)):
        return
    stack = list(_frames(error.__traceback__))
    last = max((k for k, (frame, _) in enumerate(stack) if _is_users(frame)), default=None)
    if last is None:
        return
    error.loc = source.at(*stack[last])
    if loc is None:
        return
    error.notes = (*error.notes, ("where the value arrived:", loc))
    spelling = _spelling(error.loc)
    if spelling:
        error.message = f"{spelling} cannot take a traced value: {error.message}"
        error.args = (error.message,)


def _text(loc: SourceLoc | None) -> str:
    return "" if loc is None else linecache.getline(loc.file, loc.line)[loc.col : loc.end_col]


def _spelling(loc: SourceLoc | None) -> str:
    """The function as the user called it: the text of the call up to its parenthesis."""
    head, bracket, _ = _text(loc).partition("(")
    return head.strip() if bracket else ""


# ---------------------------------------------------------------------------------- results


def check_result(x: Any, name: str, loc: SourceLoc | None) -> None:
    """Refuse a result, not an array, that would carry traced values out of their trace, or
    that all calls would share.

    Raises:
        ArgumentError: kind ``result``.
    """
    kind = type(x).__name__
    if isinstance(x, _ITERATORS):
        what, remedy = f"a {kind}", "Return a list or a tuple; yield and await are not traced."
    elif isinstance(x, (set, bytearray)):
        what, remedy = f"a {kind}, which all calls would share", "Return a tuple."
    elif not isinstance(x, type) and _holds_tracer(x):
        what = f"a {kind} that holds traced values"
        remedy = "Return the arrays"
        remedy += (
            "."
            if isinstance(x, types.FunctionType)
            else f", or make {kind} a container with tg.register_pytree({kind})."
        )
    else:
        return
    raise ArgumentError(f"{name} returns {what}", kind="result", loc=loc, remedy=remedy)


def _holds_tracer(x: Any) -> bool:
    """Whether a function closes over tracers, or attributes or items of an object are some."""
    if isinstance(x, types.MethodType):
        return _holds_tracer(x.__self__) or _holds_tracer(x.__func__)
    held: list[Any] = []
    for cell in getattr(x, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet assigned
            continue
    held += getattr(x, "__dict__", {}).values()
    return any(isinstance(y, Tracer) for y in held)
