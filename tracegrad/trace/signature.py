"""Arguments of a call: which are traced, which are static, and the key of a specialisation.

`Signature` belongs to a user function and is made once; `Signature.key` is on the path of every
call; `Signature.describe` runs when the key is new.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import optree

from tracegrad import dtypes
from tracegrad.errors import ArgumentError, DTypeError, TracegradError
from tracegrad.graph.storage import dense_strides
from tracegrad.trace.tracer import Tracer
from tracegrad.types import TensorType

NAMESPACE = "tracegrad"

# Bits of ``ndarray.flags.num``: C order, Fortran order, aligned, writable.
_C, _F, _ALIGNED, _WRITABLE = 0x1, 0x2, 0x100, 0x400
_MASK = _C | _F | _ALIGNED | _WRITABLE


class Kind(Enum):
    """What a leaf is; a gradient or result of this kind leaves in the same form."""

    ARRAY = "array"
    SCALAR = "scalar"  # a NumPy scalar
    WEAK = "weak"  # a Python float
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of the arguments.

    `path` is text such as ``args[0]['n']``; `name` an identifier made of the parameter's name.
    `layout` are NumPy strides in elements.  `value` is the value of a static leaf (and, when it
    is an argument such as `self`, what attribute captures start from).
    """

    path: str
    name: str
    kind: Kind
    type: TensorType | None = None
    layout: tuple[int, ...] = ()
    writable: bool = True
    value: Any = None

    @property
    def is_traced(self) -> bool:
        return self.kind is not Kind.STATIC

    @property
    def is_differentiable(self) -> bool:
        return self.type is not None and self.type.dtype.is_inexact


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
        args, kwargs = self.tree.unflatten(leaves)
        return args, kwargs


class _ByIdentity:
    """A key that equals only itself; keeps its object alive, so that the id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Static:
    """A leaf that was declared static, whatever it contains."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def _unwrap(x: Any) -> Any:
    """The user's value of a leaf."""
    x = x.value if type(x) is _Static else x
    return x.value if type(x) is _ByIdentity else x


class Signature:
    """How a user function takes arguments.

    `method` says that the first argument is `self`: static by identity even where the class
    defines equality.

    Raises:
        ArgumentError: `static_argnums` or `static_argnames` that the function does not have.
    """

    def __init__(self, fn: Callable[..., Any], static_argnums: int | Iterable[int] = (),
                 static_argnames: str | Iterable[str] = (), *, method: bool = False) -> None:
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.method = method
        self.signature = _signature(fn)
        self.parameters = tuple(self.signature.parameters) if self.signature else ()
        nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        names = ((static_argnames,) if isinstance(static_argnames, str)
                 else tuple(static_argnames))
        self.static_nums, self.static_names = self._resolve(nums, names)
        self._plain = not (self.static_nums or self.static_names or method)
        self._limit = self._positional()

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

    def _resolve(self, nums: tuple[int, ...], names: tuple[str, ...]
                 ) -> tuple[frozenset[int], frozenset[str]]:
        positional = [p.name for p in self.signature.parameters.values()
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)] \
            if self.signature else []
        has = {p.kind for p in self.signature.parameters.values()} if self.signature else set()
        out_nums, out_names = set(), set(names)
        for n in nums:
            if type(n) is not int:
                raise ArgumentError(f"static_argnums: {n!r} is not an int")
            at = n + len(positional) if n < 0 else n
            if self.signature and inspect.Parameter.VAR_POSITIONAL not in has \
                    and not 0 <= at < len(positional):
                raise ArgumentError(
                    f"static_argnums {n} is out of range: {self.name} takes "
                    f"{len(positional)} positional arguments")
            out_nums.add(at)
            if at < len(positional):
                out_names.add(positional[at])
        for name in names:
            if name in positional:
                out_nums.add(positional.index(name))
            elif self.signature and inspect.Parameter.VAR_KEYWORD not in has \
                    and name not in self.parameters:
                raise ArgumentError(f"static_argnames: {self.name} has no argument {name!r}",
                                    remedy=f"It has: {', '.join(self.parameters)}.")
        return frozenset(out_nums), frozenset(out_names)

    # -- every call

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> tuple[Hashable, Sequence[Any]]:
        """The key of the specialisation and the leaves of the call in order.

        Raises:
            ArgumentError, DTypeError: a leaf that is neither traced nor static.
        """
        if self._plain and not kwargs:
            count = len(args)
            if self._limit[0] <= count <= self._limit[1]:
                key = [count]
                for x in args:
                    if type(x) is np.ndarray:
                        flags = x.flags.num & _MASK
                        key.append(
                            (x.dtype, x.shape, flags) if flags & _C  # type: ignore[arg-type]
                            else (x.dtype, x.shape, flags, x.strides))
                    elif type(x) is float:
                        key.append(float)  # type: ignore[arg-type]
                    else:
                        break
                else:
                    return tuple(key), args
        leaves, tree = self._flatten(args, kwargs)
        entries = [self._entry(x, k, tree) for k, x in enumerate(leaves)]
        if self._plain and tree == optree.tree_structure(
                ((0,) * len(leaves), {}), namespace=NAMESPACE):
            return (len(leaves), *entries), leaves
        return (tree, *entries), [_unwrap(x) for x in leaves]

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                 ) -> tuple[list[Any], optree.PyTreeSpec]:
        args, kwargs = self.bind(args, kwargs)
        if not self._plain:
            args = tuple(_Static(x) if k in self.static_nums else x for k, x in enumerate(args))
            kwargs = {k: _Static(x) if k in self.static_names else x for k, x in kwargs.items()}
            if self.method and args and registration(type(args[0])) is None:
                args = (_Static(_ByIdentity(args[0])), *args[1:])
        return optree.tree_flatten(  # type: ignore[return-value]
            (args, kwargs), is_leaf=None, namespace=NAMESPACE)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]
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
            raise ArgumentError(f"{self.name}() {e}") from None
        return bound.args, bound.kwargs

    def _entry(self, x: Any, k: int, tree: optree.PyTreeSpec) -> Hashable:
        try:
            return _entry(x)
        except TracegradError as e:
            path = _path_text(tree.accessors()[k])
            e.message = f"{self.name}: {path}: {e.message}"
            e.args = (e.message,)
            raise

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
        return CallSignature(self.name, key, tree, leaves, tuple(arguments),
                             tuple(part for _, part in parts), self.parameters)

    def _leaf(self, x: Any, accessor: optree.PyTreeAccessor) -> Leaf:
        path, name = _path_text(accessor), self._name(accessor)
        if type(x) is _Static:
            return Leaf(path, name, Kind.STATIC, value=_unwrap(x))
        if isinstance(x, Tracer):
            kind = Kind.WEAK if x.weak else Kind.SCALAR if x.scalar else Kind.ARRAY
            return Leaf(path, name, kind, TensorType(x.shape, x.element_type),
                        x.layout.stride, not x.readonly)  # type: ignore[arg-type]
        if isinstance(x, np.ndarray):
            return Leaf(path, name, Kind.ARRAY, TensorType(x.shape, dtypes.of(x.dtype)),
                        element_strides(x), x.flags.writeable)
        if isinstance(x, np.generic):
            return Leaf(path, name, Kind.SCALAR, TensorType((), dtypes.of(x.dtype)))
        if type(x) is float:
            return Leaf(path, name, Kind.WEAK, TensorType((), dtypes.F64))
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


def element_strides(x: np.ndarray) -> tuple[int, ...]:
    """NumPy's strides in elements; those of a C-ordered copy where bytes do not divide."""
    if x.size == 0 or any(s % x.itemsize for s in x.strides):
        return dense_strides(x.shape)  # type: ignore[return-value]
    return tuple(s // x.itemsize for s in x.strides)


def restore(value: np.ndarray, kind: Kind) -> Any:
    """A result in the form of a leaf of this kind: array, NumPy scalar or Python float."""
    if kind is Kind.WEAK:
        return float(value)
    return value[()] if kind is Kind.SCALAR else value


def array_entry(x: np.ndarray) -> tuple[Any, ...]:
    """The part of a key that an array contributes: dtype, shape, layout class, writable."""
    flags = x.flags.num & _MASK
    return (x.dtype, x.shape, flags) if flags & _C else (x.dtype, x.shape, flags, x.strides)


def check_array(x: np.ndarray) -> None:
    """Raise for arrays that cannot be traced: subclasses, dtypes that are not supported."""
    if type(x) is not np.ndarray and not isinstance(x, np.memmap):
        kind = type(x)
        raise DTypeError(f"a {kind.__module__}.{kind.__qualname__} is not supported",
                         remedy="Pass np.asarray(x), and a mask as an array of its own.")
    dtypes.of(x.dtype)


def _entry(x: Any) -> Hashable:
    kind = type(x)
    if kind is np.ndarray or isinstance(x, np.ndarray):
        check_array(x)
        return array_entry(x)
    if kind is float:
        return float
    if isinstance(x, np.generic):
        dtypes.of(x.dtype)
        return (kind, "scalar")
    if isinstance(x, Tracer):
        return (kind, x.element_type, x.shape, x.layout.stride, x.scalar, x.weak)
    if kind is _Static:
        return ("static", _hashable(x.value))
    _refuse_unknown(x)
    return _hashable(x)


def _hashable(x: Any) -> Hashable:
    try:
        hash(x)
    except TypeError:
        kind = type(x).__name__
        raise ArgumentError(
            f"a static value of type {kind} is not hashable",
            remedy="Give a hashable value (a tuple instead of a list, a frozen dataclass), or "
                   f"make its arrays visible with tg.register_pytree({kind}).") from None
    # 1, True and 1.0 are equal, and mean different programs.
    return (type(x), x)


def _refuse_unknown(x: Any) -> None:
    kind = type(x)
    if kind is complex:
        raise DTypeError("a complex number is not supported",
                         remedy="Pass its real and imaginary parts.")
    if kind is float or kind in (int, bool, str, type(None)) or isinstance(x, type):
        return
    if kind is types.GeneratorType or hasattr(kind, "__next__"):
        raise ArgumentError(f"a {kind.__name__} is used up by tracing",
                            remedy="Pass a list or tuple.")
    if any(hasattr(kind, n) for n in ("__array__", "__array_interface__", "__dlpack__")):
        raise ArgumentError(f"a {kind.__module__}.{kind.__qualname__} is not an ndarray",
                            remedy="Pass np.asarray(x).")
    if kind.__hash__ is None:
        raise ArgumentError(
            f"a {kind.__name__} is neither an array nor a hashable static value",
            remedy=f"Name it in static_argnames with a hashable type, or call "
                   f"tg.register_pytree({kind.__name__}) to make its arrays visible.")


def registration(kind: type) -> Any:
    """What optree knows of a class that was registered as a pytree, or None."""
    return optree.register_pytree_node.get(  # type: ignore[attr-defined]
        kind, namespace=NAMESPACE)


def _path_text(accessor: optree.PyTreeAccessor) -> str:
    side = accessor.path[0] if accessor.path else 0
    root = "args" if side == 0 else "kwargs"
    return optree.PyTreeAccessor(accessor[1:]).codify(root)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None


def register_pytree(cls: type, flatten: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
                    unflatten: Callable[[Any, Iterable[Any]], Any] | None = None) -> type:
    """Make instances of `cls` containers of arrays; usable as a decorator of a dataclass.

    ``flatten(x) -> (children, static)`` and ``unflatten(static, children) -> x``; a dataclass
    needs neither: its fields are the children.

    Raises:
        ArgumentError: `cls` is not a dataclass and the functions are missing.
    """
    if flatten is None or unflatten is None:
        if not is_dataclass(cls):
            raise ArgumentError(
                f"register_pytree({cls.__name__}): flatten and unflatten are needed",
                remedy="Only a dataclass has fields that are known.")
        names = tuple(f.name for f in fields(cls))

        def flatten(x: Any) -> tuple[Iterable[Any], Any, tuple[str, ...]]:
            return [getattr(x, n) for n in names], None, names

        def unflatten(static: Any, children: Iterable[Any]) -> Any:
            out = object.__new__(cls)
            for n, child in zip(names, children, strict=True):
                object.__setattr__(out, n, child)
            return out

    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE,  # type: ignore
                                path_entry_type=optree.GetAttrEntry if is_dataclass(cls)
                                else optree.AutoEntry)
    return cls
