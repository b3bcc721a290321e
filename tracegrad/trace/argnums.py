"""Which leaves `argnums` and `argnames` of a transform choose, and the form of the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from tracegrad.errors import ArgumentError, GradientError, ValueArgumentError
from tracegrad.trace.signature import CallSignature


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The chosen arguments of one call.

    `leaves` are indices into the leaves of the signature, in the order of the gradients.
    """

    leaves: tuple[int, ...]
    trees: tuple[optree.PyTreeSpec, ...]
    places: tuple[tuple[int | None, ...], ...]  # per argument: leaf -> which gradient, or None
    single: bool

    def rebuild(self, gradients: Sequence[Any]) -> Any:
        """Gradients, one for each of `leaves`, in the structure of the arguments; static leaves
        get None.  A tuple of them when several were asked for."""
        parts = tuple(
            tree.unflatten([None if at is None else gradients[at] for at in places])
            for tree, places in zip(self.trees, self.places, strict=True)
        )
        return parts[0] if self.single else parts


def resolve_argnums(
    signature: CallSignature,
    argnums: int | Iterable[int] | None = None,
    argnames: str | Iterable[str] | None = None,
) -> Selection:
    """The leaves to differentiate by; neither given means the first argument.

    Raises:
        ArgumentError: `argnums` or `argnames` of a wrong type.
        ValueArgumentError: an argument that the call does not have, or one named twice.
        GradientError: a leaf whose dtype has no gradient, or an argument without arrays.
    """
    chosen, single = _positions(signature, argnums, argnames)
    leaves: list[int] = []
    places = []
    for at in chosen:
        given = _leaves(signature, at)
        start = len(leaves)
        places.append(
            tuple(
                start + given.index(k) if k in given else None for k in signature.arguments[at][1]
            )
        )
        leaves += given
    trees = tuple(signature.subtrees[at] for at in chosen)
    return Selection(tuple(leaves), trees, tuple(places), single)


def _positions(signature: CallSignature, argnums: Any, argnames: Any) -> tuple[list[int], bool]:
    if argnums is None and argnames is None:
        argnums = 0
    nums = _listed(argnums, int, "argnums must be an int or a tuple of ints")
    names = _listed(argnames, str, "argnames must be a string or a tuple of strings")
    chosen = [_number(signature, n) for n in nums] + [_name(signature, n) for n in names]
    if len(set(chosen)) != len(chosen):
        raise ValueArgumentError(
            f"{signature.name}: an argument is named twice in argnums and argnames",
            remedy="Name each argument once.",
        )
    is_one = isinstance(argnums, int) + isinstance(argnames, str)
    return chosen, len(chosen) == 1 and is_one == 1


def _listed(given: Any, kind: type, text: str) -> list[Any]:
    if given is None:
        return []
    items = [given] if isinstance(given, (int, str)) else None
    if items is None:
        try:
            items = list(given)
        except TypeError:
            raise ArgumentError(f"{text}, not {given!r}") from None
    for x in items:
        if type(x) is not kind:
            raise ArgumentError(f"{text}, not {given!r}")
    return items


def _number(signature: CallSignature, n: int) -> int:
    count = sum(isinstance(name, int) for name, _ in signature.arguments)
    at = n + count if n < 0 else n
    if not 0 <= at < count:
        plural = "argument" if count == 1 else "arguments"
        raise ValueArgumentError(
            f"argnums {n} is out of range: {signature.name} was called with {count} positional "
            f"{plural}",
            remedy="Count from 0; for an argument passed by keyword give argnames.",
        )
    return at


def _name(signature: CallSignature, name: str) -> int:
    for at, (where, _) in enumerate(signature.arguments):
        if where == name or (
            isinstance(where, int)
            and where < len(signature.parameters)
            and signature.parameters[where] == name
        ):
            return at
    if name in signature.parameters:
        raise ValueArgumentError(
            f"argnames: {name!r} was not passed to {signature.name}",
            remedy="A default that is not passed is a constant.",
        )
    raise ValueArgumentError(
        f"argnames: {signature.name} has no argument {name!r}",
        remedy=f"It has: {', '.join(signature.parameters)}.",
    )


def _leaves(signature: CallSignature, at: int) -> list[int]:
    """The traced leaves of one argument, each checked to have a gradient."""
    where, span = signature.arguments[at]
    path = f"args[{where}]" if isinstance(where, int) else f"kwargs[{where!r}]"
    name = (
        signature.parameters[where]
        if isinstance(where, int) and where < len(signature.parameters)
        else where
    )
    traced = [k for k in span if signature.leaves[k].is_traced]
    if not traced:
        leafless = not any(signature.leaves[k].path == path for k in span)
        what = (
            "holds no array or float"
            if leafless
            else f"is static (of type {type(signature.leaves[span[0]].value).__name__})"
        )
        raise GradientError(
            f"{signature.name}: {path} ({name}) {what}, so there is no gradient by it",
            remedy="Pass a float or a float array, or choose another argument with argnums.",
        )
    for k in traced:
        leaf = signature.leaves[k]
        if not leaf.is_differentiable:
            assert leaf.type is not None
            raise GradientError(
                f"{signature.name}: {leaf.path} has dtype {leaf.type.dtype.np}, which has no "
                "gradient",
                kind="gradient_dtype",
                remedy="Convert it to float64, or choose other arguments with argnums.",
            )
    return traced
