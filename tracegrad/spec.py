"""`spec`: the shape and dtype of an argument, as a value or as text such as ``f8[n,3]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracegrad import dtypes
from tracegrad.errors import ParseError, ValueArgumentError

_TEXT = re.compile(r"^\s*([A-Za-z]\w*)\s*(?:\[(.*)\])?\s*$")


@dataclass(frozen=True)
class spec:
    """An argument of `shape` and `dtype`; `name` is what it is called in exported code.

    A size may be a name (``"n"``): a size that is not fixed.  Text form: ``f8[n,3]``, ``f4``
    for a scalar; the number is bytes, as in NumPy.

    Raises:
        DTypeError: a dtype that is not supported.
        ValueArgumentError: a size that is neither a name nor an int of at least 0.
    """

    shape: tuple[int | str, ...]
    dtype: Any = np.float64
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        given: Any = self.shape
        sizes = (given,) if isinstance(given, (int, str)) else tuple(given)
        for n in sizes:
            named = isinstance(n, str) and n.isidentifier()
            sized = isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0
            if not (named or sized):
                raise ValueArgumentError(
                    f"spec: {n!r} is not a size",
                    remedy="A size is an int of at least 0, or a name.",
                )
        object.__setattr__(self, "shape", tuple(n if isinstance(n, str) else int(n) for n in sizes))
        object.__setattr__(self, "dtype", dtypes.of(self.dtype).np)

    @classmethod
    def parse(cls, text: str, *, name: str | None = None) -> spec:
        """The spec of a text such as ``f8[n,3]``; inverse of ``str``.

        Raises:
            ParseError, DTypeError: text that is no spec.
        """
        found = _TEXT.match(text)
        if found is None:
            raise ParseError(f"not a spec: {text!r}", remedy="Write for example f8[100,3] or f4.")
        dtype = dtypes.parse_spec(found[1]).np
        sizes = [s.strip() for s in found[2].split(",")] if (found[2] or "").strip() else []
        shape: list[int | str] = []
        for s in sizes:
            if not (s.isdigit() or s.isidentifier()):
                raise ParseError(f"not a size: {s!r} in {text!r}")
            shape.append(int(s) if s.isdigit() else s)
        return cls(tuple(shape), dtype, name=name)

    def __str__(self) -> str:
        sizes = f"[{','.join(map(str, self.shape))}]" if self.shape else ""
        return dtypes.of(self.dtype).spec + sizes

    def example(self, rng: np.random.Generator) -> Any:
        """A value of this spec: an array, or a NumPy scalar for shape ().

        Raises:
            ValueArgumentError: a size that is a name.
        """
        named = [n for n in self.shape if isinstance(n, str)]
        if named:
            raise ValueArgumentError(
                f"size {named[0]!r} of {self} is not a number",
                kind="symbolic_size",
                remedy="Give sizes as numbers; artifacts for all sizes come in a later version.",
            )
        shape: Sequence[Any] = self.shape
        value: Any
        if self.dtype.kind == "f":
            value = rng.uniform(0.5, 1.5, shape)
        elif self.dtype.kind == "c":
            value = rng.uniform(0.5, 1.5, shape) + 1j * rng.uniform(0.5, 1.5, shape)
        elif self.dtype.kind == "b":
            value = rng.integers(0, 2, shape)
        else:
            value = rng.integers(0, 3, shape)
        array = np.asarray(value).astype(self.dtype)
        return array if self.shape else array[()]
