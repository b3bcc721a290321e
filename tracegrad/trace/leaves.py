"""Leaves of arguments: traced, static or refused; pytrees; the part of a key that each gives."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import optree

from tracegrad import dtypes
from tracegrad.errors import ArgumentError, DTypeError
from tracegrad.graph.storage import dense_strides
from tracegrad.trace.known import leaked
from tracegrad.trace.tracer import Tracer
from tracegrad.types import TensorType

NAMESPACE = "tracegrad"

# Bits of ``ndarray.flags.num``: C order, Fortran order, aligned, writable.
C_ORDER, _F, _ALIGNED, _WRITABLE = 0x1, 0x2, 0x100, 0x400
KEY_FLAGS = C_ORDER | _F | _ALIGNED | _WRITABLE


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
    is an argument such as `self`, what attribute captures start from).  `tracked`: a tensor of
    the prompt that requires a gradient, now that gradients are on; `asked`: because of
    ``requires_grad_``, so that it may not be written; `has_grad`: its ``.grad`` is set;
    `tensor`: a tensor of the prompt at all.
    """

    path: str
    name: str
    kind: Kind
    type: TensorType | None = None
    layout: tuple[int, ...] = ()
    writable: bool = True
    value: Any = None
    tracked: bool = False
    asked: bool = False
    has_grad: bool = False
    tensor: bool = False

    @property
    def is_traced(self) -> bool:
        return self.kind is not Kind.STATIC

    @property
    def is_differentiable(self) -> bool:
        return self.type is not None and self.type.dtype.is_inexact


class ByIdentity:
    """A key that equals only itself; keeps its object alive, so that the id is not reused."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Static:
    """A leaf that was declared static, whatever it contains."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def unwrap(x: Any) -> Any:
    """The user's value of a leaf."""
    x = x.value if type(x) is Static else x
    return x.value if type(x) is ByIdentity else x


def flatten(tree: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves of a tree of containers, and its structure; None is structure."""
    return optree.tree_flatten(tree, namespace=NAMESPACE)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree of containers."""
    return optree.tree_leaves(tree, namespace=NAMESPACE)


def element_strides(x: np.ndarray) -> tuple[int, ...]:
    """NumPy's strides in elements; those of a C-ordered copy where bytes do not divide."""
    if x.size == 0 or any(s % x.itemsize for s in x.strides):
        return dense_strides(x.shape)  # type: ignore[return-value]
    return tuple(s // x.itemsize for s in x.strides)


def restore(value: np.ndarray, kind: Kind) -> Any:
    """A result in the form of a leaf of this kind: array, NumPy scalar or Python float."""
    if kind is Kind.WEAK:
        return value.item()
    return value[()] if kind is Kind.SCALAR else value


def array_entry(x: np.ndarray) -> tuple[Any, ...]:
    """The part of a key that an array contributes: dtype, shape, layout class, writable."""
    flags = x.flags.num & KEY_FLAGS
    return (x.dtype, x.shape, flags) if flags & C_ORDER else (x.dtype, x.shape, flags, x.strides)


def check_array(x: np.ndarray) -> None:
    """Raise for arrays that cannot be traced: subclasses, dtypes that are not supported."""
    if type(x) is not np.ndarray and not isinstance(x, np.memmap):
        kind = type(x)
        raise DTypeError(
            f"a {kind.__module__}.{kind.__qualname__} is not supported",
            remedy="Pass np.asarray(x), and a mask as an array of its own.",
        )
    dtypes.of(x.dtype)


def leaf_entry(x: Any) -> Hashable:
    kind = type(x)
    if kind is np.ndarray or isinstance(x, np.ndarray):
        check_array(x)
        return array_entry(x)
    if kind is float or kind is complex:
        return kind  # type: ignore[return-value]  # classes can be hashed
    if isinstance(x, np.generic):
        dtypes.of(x.dtype)
        return (kind, "scalar")
    if isinstance(x, Tracer):
        if not x.trace.eager and not x.trace.open:
            raise leaked(x)
        key = (kind, x.element_type, x.sizes, x.layout.stride, x.scalar, x.weak)
        if x.trace.eager:
            a = x.alias
            has_grad = a.leaf and x._grad is not None  # type: ignore[attr-defined]
            return (*key, x.readonly, a.requires_grad, a.leaf or a.family.leaf, has_grad)
        return key
    if kind is Static:
        return ("static", _hashable(x.value))
    _refuse_unknown(x)
    return _hashable(x)


def _hashable(x: Any) -> Hashable:
    try:
        hash(x)
    except TypeError:
        kind = type(x).__name__
        if isinstance(x, (np.ndarray, list, dict)):
            remedy = "Leave it out of static_argnums and static_argnames: arrays are traced, lists "
            remedy += "and dicts are containers.  A table of constants can be a tuple."
        else:
            remedy = "Give a hashable value (a tuple, a frozen dataclass), or make its arrays "
            remedy += f"visible with tg.register_pytree({kind})."
        raise ArgumentError(
            f"a static value of type {kind} is not hashable", remedy=remedy
        ) from None
    # 1, True and 1.0 are equal, and mean different programs.
    return (type(x), x)


def _refuse_unknown(x: Any) -> None:
    kind = type(x)
    if kind is float or kind in (int, bool, str, type(None)) or isinstance(x, type):
        return
    if kind is types.GeneratorType or hasattr(kind, "__next__"):
        raise ArgumentError(
            f"a {kind.__name__} is used up by tracing", remedy="Pass a list or tuple."
        )
    if any(hasattr(kind, n) for n in ("__array__", "__array_interface__", "__dlpack__")):
        raise ArgumentError(
            f"a {kind.__module__}.{kind.__qualname__} is not an ndarray",
            remedy="Pass np.asarray(x).",
        )
    if kind.__hash__ is None:
        raise ArgumentError(
            f"a {kind.__name__} is neither an array nor a hashable static value",
            remedy=f"Name it in static_argnames with a hashable type, or call "
            f"tg.register_pytree({kind.__name__}) to make its arrays visible.",
        )


def registration(kind: type) -> Any:
    """What optree knows of a class that was registered as a pytree, or None."""
    return optree.register_pytree_node.get(  # type: ignore[attr-defined]
        kind, namespace=NAMESPACE
    )


def path_text(accessor: optree.PyTreeAccessor) -> str:
    side = accessor.path[0] if accessor.path else 0
    root = "args" if side == 0 else "kwargs"
    return optree.PyTreeAccessor(accessor[1:]).codify(root)


def register_pytree(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
    unflatten: Callable[[Any, Iterable[Any]], Any] | None = None,
) -> type:
    """Make instances of `cls` containers of arrays; usable as a decorator of a dataclass.

    ``flatten(x) -> (children, static)`` and ``unflatten(static, children) -> x``; a dataclass
    needs neither: its fields are the children.

    Raises:
        ArgumentError: `cls` is not a dataclass and the functions are missing.
    """
    register: Any = optree.register_pytree_node
    if flatten is not None and unflatten is not None:
        register(cls, flatten, unflatten, namespace=NAMESPACE)
        return cls
    if not is_dataclass(cls):
        raise ArgumentError(
            f"register_pytree({cls.__name__}): flatten and unflatten are needed",
            remedy="Only a dataclass has fields that are known.",
        )
    names = tuple(f.name for f in fields(cls))

    def children(x: Any) -> tuple[Iterable[Any], Any, tuple[str, ...]]:
        return [getattr(x, n) for n in names], None, names

    def build(static: Any, values: Iterable[Any]) -> Any:
        out = object.__new__(cls)
        for n, value in zip(names, values, strict=True):
            object.__setattr__(out, n, value)
        return out

    register(cls, children, build, namespace=NAMESPACE, path_entry_type=optree.GetAttrEntry)
    return cls
