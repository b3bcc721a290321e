"""The short way from a call to the launcher, for calls that only check guards and pass arrays.

`Signature.key` describes any call; here a call is compared with the one specialisation that the
last call used, without describing it.  Whatever differs is answered by NotImplemented, and then
the long way decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.trace.enter import Traced
from tracegrad.trace.leaves import Kind, flatten

if TYPE_CHECKING:
    from tracegrad.specialise import Specialisation

# Static values of these types cannot change and are compared cheaply.
_CONSTANTS = (int, bool, str, bytes, type(None))

Call = Callable[..., Any]
# The leaves of positional arguments; NotImplemented where their structure is another one.
Leaves = Callable[[tuple[Any, ...]], Any]


def quick_call(made: Specialisation, method: bool) -> Call | None:
    """``f(*args)``, which answers NotImplemented for arguments that need the long way; None when
    a call always needs more work than checking guards and passing its arrays on.

    `method`: the first argument is an object, static by identity.
    """
    if not made.passes_on:
        return None
    leaves, fixed = _leaves(made, method), _fixed(made, method)
    if leaves is None or fixed is None:
        return None
    traced, outside = made.traced, made.traced.outside
    launch = made.launch if made.is_plain else _rebuilding(made.launch, traced)
    if leaves is _flat and not fixed and not outside.arrays:
        return launch if outside.is_empty else _guarded(launch, outside.enter)
    count = len(made.call_signature.leaves)
    order = [s.leaf if s.leaf is not None else count + (s.array or 0) for s in traced.inputs]

    def call(*args: Any) -> Any:
        found = leaves(args)
        if found is NotImplemented or len(found) != count:
            return NotImplemented
        for k, kind, value in fixed:
            x = found[k]
            if x is not value and (kind is None or type(x) is not kind or x != value):
                return NotImplemented
        captured = outside.enter(found)
        if captured is None:
            return NotImplemented
        given = [*found, *captured]
        return launch(*[given[k] for k in order])

    return call


def _flat(args: tuple[Any, ...]) -> Any:
    return args


def _leaves(made: Specialisation, method: bool) -> Leaves | None:
    """How the leaves of a call are found; None when some were passed by keyword, or where static
    arguments stand beside containers."""
    tree = made.call_signature.tree
    args, keywords = tree.children()
    if keywords.num_leaves or len(keywords.children()):
        return None
    if all(part.is_leaf() for part in args.children()):
        return _flat
    if method or any(
        x.kind is Kind.STATIC and type(x.value) not in _CONSTANTS
        for x in made.call_signature.leaves
    ):
        return None

    def leaves(args: tuple[Any, ...]) -> Any:
        found, structure = flatten((args, {}))
        return found if structure == tree else NotImplemented

    return leaves


def _fixed(made: Specialisation, method: bool) -> list[tuple[int, type | None, Any]] | None:
    """Static leaves: (position, the type that an equal value has or None for by identity, value);
    None when one of them might change without becoming another object."""
    fixed: list[tuple[int, type | None, Any]] = []
    for k, leaf in enumerate(made.call_signature.leaves):
        if leaf.is_traced:
            continue
        by_identity = method and k == 0
        if not by_identity and type(leaf.value) not in _CONSTANTS:
            return None
        fixed.append((k, None if by_identity else type(leaf.value), leaf.value))
    return fixed


def _guarded(launch: Call, enter: Callable[[Sequence[Any]], Any]) -> Call:
    def call(*leaves: Any) -> Any:
        return NotImplemented if enter(leaves) is None else launch(*leaves)

    return call


def _rebuilding(launch: Call, traced: Traced) -> Call:
    """`launch` with its results put into the structure that the function returns."""
    rebuild, outputs = traced.rebuild, traced.outputs

    def call(*leaves: Any) -> Any:
        found = launch(*leaves)
        if found is NotImplemented:
            return found
        given = found if type(found) is tuple else (found,)
        return rebuild([given[o.index] if o.index is not None else o.value for o in outputs])

    return call
