"""What bytecode says: is a function the user's, what does it write, is a name being called."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
from bisect import bisect_right
from functools import lru_cache
from types import CodeType

from tracegrad.source import SourceLoc, is_user_file

_STDLIB = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}
)
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
# Calls with keyword names on the stack; 3.13 keeps NULL above the callee, earlier below.
_NULL_ABOVE = sys.version_info >= (3, 13)


@lru_cache(maxsize=4096)
def is_user_path(file: str) -> bool:
    """Whether source of this name is the user's: not installed, not the standard library."""
    if file.startswith("<frozen") or any(part in file for part in _INSTALLED):
        return False
    return is_user_file(file) and not file.startswith(_STDLIB)


@lru_cache(maxsize=4096)
def outside_write(code: CodeType) -> tuple[str, SourceLoc] | None:
    """The first write of `code` to a global or to a cell that it does not own, if any.

    Such a write would be lost in a function with substituted names, so it is refused.
    """
    return _outside_write(code, frozenset(code.co_freevars))


def _outside_write(code: CodeType, cells: frozenset[str]) -> tuple[str, SourceLoc] | None:
    for ins in dis.get_instructions(code):
        if ins.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
            ins.opname in ("STORE_DEREF", "DELETE_DEREF") and ins.argval in cells
        ):
            at = ins.positions
            line = (at.lineno if at is not None else None) or code.co_firstlineno
            col = (at.col_offset if at is not None else None) or 0
            end = (at.end_col_offset if at is not None else None) or 10**6
            loc = SourceLoc(code.co_filename, line, col, end, code.co_qualname)
            kind = "global" if "GLOBAL" in ins.opname else "nonlocal"
            return f"{kind} variable {ins.argval}", loc
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found = _outside_write(const, cells - frozenset(const.co_cellvars))
            if found is not None:
                return found
    return None


@lru_cache(maxsize=65536)
def is_callee(code: CodeType, offset: int) -> bool:
    """Whether the value loaded by the instruction at byte `offset` is the function of a call.

    ``float(x)`` needs the substitute, ``dtype=float`` and ``isinstance(x, float)`` the real
    type.  The rest of the call is followed by stack effects; arguments with branches of their
    own may be missed, and then the real function meets a traced value and says so.
    """
    instructions = _instructions(code)
    # A specialised instruction that calls Python leaves the frame at its last cache entry.
    at = bisect_right(_offsets(code), offset) - 1
    first = instructions[at]
    if first.opname == "LOAD_METHOD":
        return True
    if (
        first.opname in ("LOAD_GLOBAL", "LOAD_ATTR")
        and (first.arg or 0) & 1
        and (first.opname == "LOAD_GLOBAL" or sys.version_info >= (3, 12))
    ):
        return True
    above = 0
    for ins in instructions[at + 1 :]:
        name, arg = ins.opname, ins.arg or 0
        if name == "LOAD_SUPER_ATTR" and above == 2:
            return True
        if name in ("PRECALL", "CALL") and above in (arg, arg + _NULL_ABOVE):
            return True
        if name == "CALL_KW" and above in (arg + 1, arg + 1 + _NULL_ABOVE):
            return True
        if name == "CALL_FUNCTION_EX" and above in (1 + (arg & 1), 1 + (arg & 1) + _NULL_ABOVE):
            return True
        if above == 0 and name in ("LOAD_ATTR", "LOAD_METHOD"):
            return False  # an attribute of it is wanted: np.maximum.reduce(x)
        if above == 0 and name.startswith("STORE_"):
            return False  # also of a fused pair, which stores it and loads something else
        above += dis.stack_effect(ins.opcode, ins.arg, jump=False)
        if above < 0:
            return False
    return False


@lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))


@lru_cache(maxsize=1024)
def _offsets(code: CodeType) -> tuple[int, ...]:
    return tuple(ins.offset for ins in _instructions(code))
