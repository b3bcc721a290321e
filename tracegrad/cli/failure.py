"""`CommandError`: what a command cannot do, as one message."""

from __future__ import annotations

import traceback

from tracegrad.errors import TracegradError
from tracegrad.source import is_user_file


class CommandError(TracegradError, ValueError):
    """An argument of a command cannot be used."""

    kind = "command"


def of_user_code(error: BaseException, doing: str) -> CommandError:
    """`error`, raised by the user's code while `doing` something, as a `CommandError` that names
    the last line outside tracegrad and NumPy."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    place = ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    elif frames:
        place = f" ({frames[-1].filename}:{frames[-1].lineno})"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return CommandError(
        f"{doing}: {type(error).__name__}: {text}{place}",
        remedy="--traceback shows where it came from.",
    )
