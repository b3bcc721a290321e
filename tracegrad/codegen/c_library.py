"""The library of C functions that emitted code calls: found by name, printed only when used.

`c_functions` fills the table with `define`.  A definition is text with placeholders, one instance
for each dtype it is defined for:

    $T  the C type (double)         $t  the dtype's name (f64)
    $U  unsigned type as wide       $f  suffix of libm's names (f for f32, else empty)
    $B  bits of the type            $L  suffix of literals (f for f32, else empty)

An instance is called ``<name>_<t>`` in the table (``max_f64``) and ``tg_<name>_<t>`` in C, which
is also what `Intrinsic.helpers` and `Intrinsic.c` write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import Template

from tracegrad.dtypes import DType
from tracegrad.errors import VerifyError


@dataclass(frozen=True, slots=True)
class CFunction:
    """One instance: its table name, its text, and the instances it calls."""

    name: str
    text: str
    needs: tuple[str, ...] = ()


_TABLE: dict[str, CFunction] = {}


def define(
    name: str, types: Sequence[DType], text: str, *, needs: Sequence[str] = (), **words: str
) -> None:
    """Add ``<name>_<t>`` for each of `types` (just `name` when there are none).

    `words` are further placeholders; `needs` may use all of them.  A later definition for the
    same name and dtype is an error.
    """
    for dtype in types or (None,):
        filled = words if dtype is None else placeholders(dtype) | words
        key = name if dtype is None else f"{name}_{dtype.name}"
        if key in _TABLE:
            raise VerifyError(f"the C function {key} is defined twice")
        _TABLE[key] = CFunction(
            key,
            Template(text.strip("\n")).substitute(filled),
            tuple(Template(n).substitute(filled) for n in needs),
        )


def placeholders(dtype: DType) -> dict[str, str]:
    suffix = "f" if dtype.is_float and dtype.bits == 32 else ""
    return {
        "T": dtype.c,
        "t": dtype.name,
        "U": f"uint{dtype.bits}_t",
        "f": suffix,
        "L": suffix,
        "B": str(dtype.bits),
    }


def with_dependencies(names: Iterable[str]) -> tuple[CFunction, ...]:
    """The instances named and all they call, callees first, in a fixed order.

    Raises VerifyError for a name nobody defined.
    """
    done: dict[str, CFunction] = {}

    def visit(name: str, caller: str) -> None:
        if name in done:
            return
        found = _TABLE.get(name)
        if found is None:
            raise VerifyError(
                f"no C function {name!r} (needed by {caller})",
                remedy="Define it in codegen/c_functions.py.",
            )
        for callee in found.needs:
            visit(callee, name)
        done[name] = found

    for name in sorted(set(names)):
        visit(name, "a kernel")
    return tuple(done.values())
