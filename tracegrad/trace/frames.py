"""Reading and writing the local variables of a running frame."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

from tracegrad.source import is_user_file

ABSENT = object()
ENTRY = "_until_loops_settle"  # the function of `enter` under which traced code runs


class Gone:
    """What a name holds behind a loop that does not keep its value; any use of it is reported."""

    __slots__ = ("_used",)

    def __init__(self, used: Callable[[], NoReturn]) -> None:
        self._used = used

    def _use(self, *args: Any, **keywords: Any) -> Any:
        self._used()

    __getattr__ = __call__ = __getitem__ = __setitem__ = __iter__ = __len__ = __bool__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _use
    __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _use
    __matmul__ = __rmatmul__ = __and__ = __or__ = __xor__ = __neg__ = __abs__ = __index__ = _use
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __float__ = __int__ = _use
    __contains__ = __format__ = __str__ = __repr__ = _use


def read(frame: FrameType, names: Iterable[str]) -> dict[str, Any]:
    """Values of local names (cells included); ABSENT for names that are not bound."""
    values = frame.f_locals
    return {name: values.get(name, ABSENT) for name in names}


def everything(frame: FrameType) -> dict[str, Any]:
    """All bound local names."""
    return dict(frame.f_locals)


def callers(frame: FrameType) -> Iterator[FrameType]:
    """`frame` and the user's frames around it, up to the start of the trace."""
    at: FrameType | None = frame
    while at is not None and at.f_code.co_name != ENTRY:
        if is_user_file(at.f_code.co_filename):
            yield at
        at = at.f_back


def write(frame: FrameType, values: Mapping[str, Any]) -> None:
    """Bind local names; ABSENT leaves a name as it is."""
    given = {k: v for k, v in values.items() if v is not ABSENT}
    if not given:
        return
    frame.f_locals.update(given)
    if sys.version_info < (3, 13):
        # Before PEP 667 f_locals is a copy that has to be stored back.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
