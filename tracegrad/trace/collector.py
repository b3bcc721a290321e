"""`Collector`: what a list is while the body of a loop that appends to it is traced once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracegrad import dims
from tracegrad.trace.symbolic import integer


class Collector(list[Any]):
    """Stands for the list `real`, which reads `text` in the program; holds what one iteration
    appends.  Anything else that is done with it unrolls the loop."""

    __slots__ = ("_real", "_trial", "_text", "_asked")

    def __init__(self, real: list[Any], trial: Any, text: str) -> None:
        super().__init__()
        self._real, self._trial, self._text, self._asked = real, trial, text, False

    def extend(self, items: Iterable[Any]) -> None:
        for x in items:
            list.append(self, x)

    def __iadd__(self, items: Iterable[Any]) -> Collector:  # type: ignore[override, misc]
        self.extend(items)
        return self

    def _items(self) -> list[Any]:
        return list.__getitem__(self, slice(None))

    def _length(self) -> Any:
        """What ``len`` is in the iteration at the index."""
        trial = self._trial
        self._asked = True
        each = trial.learned.counters.get(f"len({self._text})", 1)
        real = self._real
        before = real._length() if isinstance(real, Collector) else len(real)
        start = before.dim if hasattr(before, "dim") else before
        now = dims.add(dims.mul(trial.index, each), list.__len__(self))
        return integer(dims.add(start, now))

    def _check_length(self) -> None:
        """Learn how many elements each iteration adds, where it was asked."""
        slot, learned = f"len({self._text})", self._trial.learned.counters
        each = list.__len__(self)
        if self._asked and learned.get(slot, 1) != each:
            learned[slot] = each
            self._trial.decision.again()

    def _read(self, *args: Any, **keywords: Any) -> Any:
        self._trial.decision.give_up(f"it reads the list {self._text}, to which it appends")

    __len__ = __iter__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = _read
    __add__ = __radd__ = __mul__ = __rmul__ = __imul__ = __reversed__ = __bool__ = _read
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _read
    __repr__ = __str__ = __format__ = __reduce_ex__ = __copy__ = __deepcopy__ = _read
    clear = copy = count = index = insert = pop = remove = reverse = sort = _read
    __hash__ = None  # type: ignore[assignment]
