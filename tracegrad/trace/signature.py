"""Arguments of a call: which are traced, which are static, and the key of a specialisation.

`Signature` belongs to a user function and is made once; `Signature.key` is on the path of every
call; `Signature.describe` runs when the key is new.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from tracegrad import dtypes, source
from tracegrad.errors import ArgumentError, TracegradError
from tracegrad.trace.leaves import (
    C_ORDER,
    KEY_FLAGS,
    NAMESPACE,
    ByIdentity,
    Kind,
    Leaf,
    Static,
    element_strides,
    flatten,
    leaf_entry,
    path_text,
    register_pytree,
    registration,
    restore,
    unwrap,
)
from tracegrad.trace.modes import is_tracking
from tracegrad.trace.tracer import Tracer
from tracegrad.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class CallSignature:
    """The arguments of a call without their data; `leaves` in the order of the pytree."""

    name: str
    key: Hashable
    tree: optree.PyTreeSpec
    leaves: tuple[Leaf, ...]
    arguments: tuple[tuple[int | str, range], ...]  # position or keyword -> its leaves
    subtrees: tuple[optree.PyTreeSpec, ...]
    parameters: tuple[str, ...]

    def rebuild(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``(args, kwargs)`` with these leaves (one for each of `self.leaves`)."""
        rebuilt: Any = self.tree.unflatten(leaves)
        return rebuilt[0], rebuilt[1]


class Signature:
    """How a user function takes arguments.

    `method` says that the first argument is `self`: static by identity even where the class
    defines equality.

    Raises:
        ArgumentError: `static_argnums` or `static_argnames` that the function does not have.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        static_argnums: int | Iterable[int] = (),
        static_argnames: str | Iterable[str] = (),
        *,
        method: bool = False,
    ) -> None:
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.method = method
        self.signature = _signature(fn)
        self.parameters = tuple(self.signature.parameters) if self.signature else ()
        nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        try:
            self.static_nums, self.static_names = self._resolve(nums, names)
        except TracegradError as e:
            raise e.at(source.here()) from None
        self._plain = not (self.static_nums or self.static_names or method)
        self._limit = self._positional()
        parameters = self.signature.parameters.values() if self.signature else ()
        # A name that no keyword has stands for a positional-only parameter.
        self._positional_names = tuple(
            "" if p.kind is p.POSITIONAL_ONLY else p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        )

    def _positional(self) -> tuple[int, int]:
        """Fewest and most arguments with which a purely positional call is complete."""
        if self.signature is None:
            return 0, 10**9
        least = most = 0
        for p in self.signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                most = 10**9
            elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
                return 1, 0
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                most += 1
                least += p.default is p.empty
        return least, most

    def _resolve(
        self, nums: tuple[int, ...], names: tuple[str, ...]
    ) -> tuple[frozenset[int], frozenset[str]]:
        positional = (
            [
                p.name
                for p in self.signature.parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            if self.signature
            else []
        )
        has = {p.kind for p in self.signature.parameters.values()} if self.signature else set()
        out_nums, out_names = set(), set(names)
        for n in nums:
            if type(n) is not int:
                raise ArgumentError(f"static_argnums: {n!r} is not an int")
            at = n + len(positional) if n < 0 else n
            if (
                self.signature
                and inspect.Parameter.VAR_POSITIONAL not in has
                and not 0 <= at < len(positional)
            ):
                raise ArgumentError(
                    f"static_argnums {n} is out of range: {self.name} takes "
                    f"{len(positional)} positional arguments"
                )
            out_nums.add(at)
            if at < len(positional):
                out_names.add(positional[at])
        for name in names:
            if name in positional:
                out_nums.add(positional.index(name))
            elif (
                self.signature
                and inspect.Parameter.VAR_KEYWORD not in has
                and name not in self.parameters
            ):
                raise ArgumentError(
                    f"static_argnames: {self.name} has no argument {name!r}",
                    remedy=f"It has: {', '.join(self.parameters)}.",
                )
        return frozenset(out_nums), frozenset(out_names)

    # -- every call

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Hashable, Sequence[Any]]:
        """The key of the specialisation and the leaves of the call in order.

        Raises:
            ArgumentError, DTypeError: a leaf that is neither traced nor static.
        """
        if self._plain and not kwargs:
            count = len(args)
            if self._limit[0] <= count <= self._limit[1]:
                key: list[Hashable] = [count]
                for x in args:
                    if type(x) is np.ndarray:
                        flags = x.flags.num & KEY_FLAGS
                        key.append(
                            (x.dtype, x.shape, flags)
                            if flags & C_ORDER
                            else (x.dtype, x.shape, flags, x.strides)
                        )
                    elif type(x) is float:
                        key.append(float)
                    else:
                        break
                else:
                    return tuple(key), args
        leaves, tree = self._flatten(args, kwargs)
        entries = [self._entry(x, k, tree) for k, x in enumerate(leaves)]
        if self._plain and tree == flatten(((0,) * len(leaves), {}))[1]:
            return (len(leaves), *entries), leaves
        return (tree, *entries), [unwrap(x) for x in leaves]

    def in_order(self, count: int, kwargs: dict[str, Any]) -> Iterable[Any]:
        """The values of `kwargs` as positional arguments behind `count` others.

        Raises:
            TypeError: they are not the next parameters, in their order.
        """
        if tuple(kwargs) != self._positional_names[count : count + len(kwargs)]:
            raise TypeError("not in order")
        return kwargs.values()

    def _flatten(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], optree.PyTreeSpec]:
        args, kwargs = self.bind(args, kwargs)
        if not self._plain:
            args = tuple(Static(x) if k in self.static_nums else x for k, x in enumerate(args))
            kwargs = {k: Static(x) if k in self.static_names else x for k, x in kwargs.items()}
            if self.method and args and registration(type(args[0])) is None:
                args = (Static(ByIdentity(args[0])), *args[1:])
        return flatten((args, kwargs))

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with as many as possible positional; defaults stay out.

        Raises:
            ArgumentError: too many, too few or unknown arguments.
        """
        if self.signature is None:
            return args, kwargs
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentError(f"{self.name}() {e}", loc=source.here()) from None
        return bound.args, bound.kwargs

    def _entry(self, x: Any, k: int, tree: optree.PyTreeSpec) -> Hashable:
        try:
            return leaf_entry(x)
        except TracegradError as e:
            path = path_text(tree.accessors()[k])
            e.message = f"{self.name}: {path}: {e.message}"
            e.args = (e.message,)
            raise e.at(source.here()) from None

    # -- a new specialisation

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSignature:
        """The full description of a call."""
        key, _ = self.key(args, kwargs)
        values, tree = self._flatten(args, kwargs)
        accessors = tree.accessors()
        for k, x in enumerate(values):
            self._entry(x, k, tree)
        leaves = tuple(self._leaf(x, a) for x, a in zip(values, accessors, strict=True))
        args_tree, kwargs_tree = tree.children()
        parts: list[tuple[int | str, optree.PyTreeSpec]] = list(enumerate(args_tree.children()))
        parts += zip(kwargs_tree.entries(), kwargs_tree.children(), strict=True)
        arguments, at = [], 0
        for name, part in parts:
            arguments.append((name, range(at, at + part.num_leaves)))
            at += part.num_leaves
        return CallSignature(
            self.name,
            key,
            tree,
            leaves,
            tuple(arguments),
            tuple(part for _, part in parts),
            self.parameters,
        )

    def _leaf(self, x: Any, accessor: optree.PyTreeAccessor) -> Leaf:
        path, name = path_text(accessor), self._name(accessor)
        if type(x) is Static:
            return Leaf(path, name, Kind.STATIC, value=unwrap(x))
        if isinstance(x, Tracer):
            kind = Kind.WEAK if x.weak else Kind.SCALAR if x.scalar else Kind.ARRAY
            at_prompt = x.trace.eager
            tracked = at_prompt and is_tracking() and x.alias.requires_grad
            return Leaf(
                path,
                name,
                Kind.ARRAY if at_prompt else kind,
                TensorType(x.sizes, x.element_type),
                x.layout.stride,  # type: ignore[arg-type]
                not x.readonly,
                tracked=tracked,
                asked=tracked and x.alias.leaf,
                tensor=at_prompt,
                has_grad=at_prompt and x._grad is not None,  # type: ignore[attr-defined]
            )
        if isinstance(x, np.ndarray):
            return Leaf(
                path,
                name,
                Kind.ARRAY,
                TensorType(x.shape, dtypes.of(x.dtype)),
                element_strides(x),
                x.flags.writeable,
            )
        if isinstance(x, np.generic):
            return Leaf(path, name, Kind.SCALAR, TensorType((), dtypes.of(x.dtype)))
        if type(x) is float:
            return Leaf(path, name, Kind.WEAK, TensorType((), dtypes.F64))
        if type(x) is complex:
            return Leaf(path, name, Kind.WEAK, TensorType((), dtypes.C128))
        return Leaf(path, name, Kind.STATIC, value=x)

    def _name(self, accessor: optree.PyTreeAccessor) -> str:
        side, first, *_ = accessor.path
        rest = [getattr(e, "field", e.entry) for e in accessor[2:]]
        if side == 0:
            kinds = list(self.signature.parameters.values()) if self.signature else []
            if first < len(kinds) and kinds[first].kind is not inspect.Parameter.VAR_POSITIONAL:
                first = kinds[first].name
            else:
                first = f"arg{first}"
        text = "_".join(str(p) for p in (first, *rest))
        return "".join(c if c.isalnum() or c == "_" else "_" for c in text)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None


__all__ = [
    "NAMESPACE",
    "CallSignature",
    "Kind",
    "Leaf",
    "Signature",
    "register_pytree",
    "registration",
    "restore",
]
