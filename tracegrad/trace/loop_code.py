"""What the bytecode of a `for` statement says: whether its body can be traced as a loop."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType

_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME")
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "YIELD_VALUE", "SEND")


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A `for` statement: `stored` are the names that its body binds, in order; `fresh` those of
    them that every iteration binds before it reads them.  `reason` says why it cannot be a loop
    of the graph, or is empty."""

    stored: tuple[str, ...]
    fresh: frozenset[str]
    reason: str = ""


def loop_of(frame: FrameType) -> LoopCode | None:
    """The `for` statement whose iterator `frame` is just making; None for comprehensions,
    `list(...)` and other uses of an iterable."""
    return _loop(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _loop(code: CodeType, lasti: int) -> LoopCode | None:
    found = list(dis.get_instructions(code))
    at = next((k for k, i in enumerate(found) if i.offset == lasti), None)
    if at is None or found[at].opname != "GET_ITER" or at + 1 >= len(found):
        return None
    head = found[at + 1]
    if head.opname != "FOR_ITER":
        return None
    end = head.argval
    body = [i for i in found[at + 2:] if i.offset < end]
    stored: dict[str, None] = {}
    seen: set[str] = set()
    fresh: set[str] = set()
    straight_to = 0  # offsets below this may be jumped over
    for i in body:
        if i.opname in _LEAVES:
            return LoopCode((), frozenset(), f"it holds a {_word(i.opname)}")
        if "JUMP" in i.opname and isinstance(i.argval, int):
            if not head.offset <= i.argval < end:
                return LoopCode((), frozenset(), "it holds a break")
            if i.argval > i.offset:
                straight_to = max(straight_to, i.argval)
        if i.opname == "FOR_ITER":
            straight_to = max(straight_to, i.argval)
        for kind, name in _accesses(i):
            if kind == "store":
                stored[name] = None
                if name not in seen and i.offset >= straight_to:
                    fresh.add(name)
            elif kind == "delete":
                return LoopCode((), frozenset(), f"it deletes {name}")
            seen.add(name)
    return LoopCode(tuple(stored), frozenset(fresh))


def _word(opname: str) -> str:
    return "return" if opname.startswith("RETURN") else "yield"


def _accesses(i: dis.Instruction) -> list[tuple[str, str]]:
    """(load, store or delete; name) for each variable an instruction touches, in order."""
    name = i.opname
    if isinstance(i.argval, tuple) and "_FAST" in name:
        # Two in one (3.13): STORE_FAST_LOAD_FAST, STORE_FAST_STORE_FAST, LOAD_FAST_LOAD_FAST.
        first, second = ("store", "load") if name == "STORE_FAST_LOAD_FAST" else (
            ("store", "store") if name.startswith("STORE") else ("load", "load"))
        return [(first, i.argval[0]), (second, i.argval[1])]
    if not isinstance(i.argval, str):
        return []
    if name.startswith(_STORES):
        return [("store", i.argval)]
    if name.startswith("DELETE_FAST") or name.startswith("DELETE_DEREF"):
        return [("delete", i.argval)]
    if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_NAME")):
        return [("load", i.argval)]
    return []
