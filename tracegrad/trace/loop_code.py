"""What the bytecode of a `for` statement says: whether its body can be traced as a loop."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType

_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME")
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_NAME", "LOAD_CLASSDEREF")
_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_YIELDS = ("YIELD_VALUE", "SEND")
LEAVES = "it holds a break or a return"
_COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")
_NESTED_CODE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True, slots=True)
class LoopCode:
    """A `for` statement: `stored` are the names that its body binds, in order; `fresh` those of
    them that every iteration binds before it reads them; `loaded` those that it reads.  `reason`
    says why it cannot be a loop of the graph, or is empty."""

    stored: tuple[str, ...] = ()
    fresh: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    reason: str = ""


def loop_of(frame: FrameType) -> LoopCode | None:
    """The `for` statement whose iterator `frame` is just making; None for comprehensions,
    `list(...)` and other uses of an iterable."""
    return _loop(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _loop(code: CodeType, lasti: int) -> LoopCode | None:
    if code.co_name in _NESTED_CODE:
        return None
    found = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    at = next((k for k, i in enumerate(found) if i.offset == lasti), None)
    if at is None or found[at].opname != "GET_ITER" or at + 1 >= len(found):
        return None
    head = found[at + 1]
    if head.opname != "FOR_ITER":
        return None  # from 3.12 on also comprehensions, which save names first
    end: int = head.argval
    body = [i for i in found[at + 2 :] if i.offset < end]
    if _collects(body):
        return None
    return _read(lasti, end, body)


def _collects(body: list[dis.Instruction]) -> bool:
    """Whether the loop belongs to a comprehension: it adds to a collection begun outside."""
    own_to = 0  # the end of a comprehension that begins in the body
    begun = False
    for i in body:
        if i.opname.startswith("BUILD_") and not i.arg:
            begun = True
        elif i.opname == "GET_ITER":
            begun = False  # a comprehension makes its iterator first
        elif i.opname == "FOR_ITER" and begun:
            own_to, begun = max(own_to, i.argval), False
        # A display such as [*a, b] adds to what is on top of the stack.
        if i.opname in _COLLECTS and (i.arg or 0) > 1 and i.offset >= own_to:
            return True
    return False


def _read(start: int, end: int, body: list[dis.Instruction]) -> LoopCode:
    """`start` is the offset of the GET_ITER: in a long body an EXTENDED_ARG stands between it and
    the FOR_ITER, and is where the body jumps back to."""
    stored: dict[str, None] = {}
    seen: set[str] = set()
    fresh: set[str] = set()
    loaded: set[str] = set()
    straight_to = 0  # offsets below this may be jumped over
    for i in body:
        if i.opname in _YIELDS:
            return LoopCode(reason="it holds a yield or an await")
        if i.opname in _RETURNS:
            return LoopCode(reason=LEAVES)
        if "JUMP" in i.opname and isinstance(i.argval, int):
            if not start < i.argval < end:
                return LoopCode(reason=LEAVES)
            if i.argval > i.offset:
                straight_to = max(straight_to, i.argval)
        if i.opname == "FOR_ITER":
            straight_to = max(straight_to, i.argval)
        if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "DELETE_ATTR"):
            return LoopCode(reason=f"it sets {i.argval}, which is no local name")
        for kind, name in _accesses(i):
            if kind == "delete":
                return LoopCode(reason=f"it deletes {name}")
            if kind == "store":
                stored[name] = None
                if name not in seen and i.offset >= straight_to and "DEREF" not in i.opname:
                    fresh.add(name)
            else:
                loaded.add(name)
            seen.add(name)
    return LoopCode(tuple(stored), frozenset(fresh), frozenset(loaded))


def _accesses(i: dis.Instruction) -> list[tuple[str, str]]:
    """(load, store or delete; name) for each variable an instruction touches, in order."""
    name = i.opname
    if isinstance(i.argval, tuple) and "_FAST" in name:
        # Two in one (3.13): STORE_FAST_LOAD_FAST, STORE_FAST_STORE_FAST, LOAD_FAST_LOAD_FAST.
        kinds = [word for word in name.split("_") if word in ("STORE", "LOAD")]
        return [(k.lower(), n) for k, n in zip(kinds, i.argval, strict=False)]
    if not isinstance(i.argval, str):
        return []
    if name.startswith(_STORES):
        return [("store", i.argval)]
    if name.startswith(("DELETE_FAST", "DELETE_DEREF", "DELETE_NAME")):
        return [("delete", i.argval)]
    if name == "LOAD_FAST_AND_CLEAR":
        return []  # a comprehension puts the name aside and gives it back
    if name.startswith(_LOADS):
        return [("load", i.argval)]
    return []
