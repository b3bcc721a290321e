"""When a function keeps being specialised anew: which argument is the cause, and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.trace.signature import CallSignature


def recompile_advice(signatures: Sequence[CallSignature], limit: int = 8) -> str | None:
    """A warning text when the newest signature is the `limit`-th that differs in one argument.

    `signatures` are those of all specialisations of one function, newest last.
    """
    newest = signatures[-1]
    for at, leaf in enumerate(newest.leaves):
        rivals = [s for s in signatures if _differs_only_at(s, newest, at)]
        if len(rivals) != limit - 1:
            continue
        seen = [*rivals, newest]
        if not leaf.is_traced:
            what, remedy = "values", "Pass it as a float or an array, which are traced"
        elif len({s.leaves[at].type.dtype for s in seen}) == len(seen):  # type: ignore[union-attr]
            what, remedy = "dtypes", "Convert it to one dtype before the call"
        else:
            what, remedy = "shapes or layouts", "Pad it to one shape, or pass it in chunks of one"
        shown = ", ".join(
            repr(x.leaves[at].value) if not leaf.is_traced else str(x.leaves[at].type)
            for x in seen[-3:]
        )
        return (
            f"{newest.name} was specialised for {limit} {what} of {leaf.path} "
            f"({leaf.name}), the last ones {shown}.  {remedy}."
        )
    return None


def _differs_only_at(a: CallSignature, b: CallSignature, at: int) -> bool:
    if len(a.leaves) != len(b.leaves) or a.tree != b.tree:
        return False
    mine, other = _entries(a), _entries(b)
    if any(
        (x.is_traced, x.kind) != (y.is_traced, y.kind)
        for x, y in zip(a.leaves, b.leaves, strict=True)
    ):
        return False
    return mine[at] != other[at] and all(
        x == y for k, (x, y) in enumerate(zip(mine, other, strict=True)) if k != at
    )


def _entries(s: CallSignature) -> tuple[Any, ...]:
    assert isinstance(s.key, tuple)
    return s.key[1:]
