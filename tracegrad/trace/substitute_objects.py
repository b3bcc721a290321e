"""Modules and objects as traced code sees them."""

from __future__ import annotations

import enum
import functools
import sys
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import source
from tracegrad.errors import CaptureError
from tracegrad.trace.guards import ABSENT, Attribute, Global, Path
from tracegrad.trace.leaves import tree_leaves
from tracegrad.trace.substitute_code import is_callee, is_user_path
from tracegrad.trace.substitute_table import Callee
from tracegrad.trace.symbolic import outside_change
from tracegrad.trace.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.trace.substitute import Substitution

_get = object.__getattribute__
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not defined in C


def is_user_class(kind: type) -> bool:
    """Whether a class is defined in the user's code."""
    name = kind.__module__
    if name == "builtins":
        return bool(kind.__flags__ & _HEAP_TYPE)  # made by `exec` in a bare namespace
    if name in sys.builtin_module_names:
        return False
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return is_user_path(file) if file else module is None or name == "__main__"


# ---------------------------------------------------------------------------------- modules


class ModuleProxy:
    """A module whose attributes are substituted by identity of what they are."""

    __slots__ = ("_sub", "_raw", "_path", "_cache", "_guarded")

    def __init__(self, sub: Substitution, raw: ModuleType, path: Path) -> None:
        self._sub = sub
        self._raw = raw
        self._path = path
        self._cache: dict[str, tuple[Any, Any]] = {}
        file = getattr(raw, "__file__", None)
        self._guarded = is_user_path(file) if file else raw.__name__ == "__main__"

    def __getattribute__(self, name: str) -> Any:
        raw = _get(self, "_raw")
        value = getattr(raw, name)
        sub = _get(self, "_sub")
        if name.startswith("__") or not sub.is_open:
            return type(raw) if name == "__class__" else value
        cache = _get(self, "_cache")
        found = cache.get(name)
        if found is None or found[0] is not value:
            if _get(self, "_guarded"):
                seen = sub.read(Attribute(_get(self, "_path"), name), value, named=True)
            else:
                seen = sub.installed(value, f"{raw.__name__}.{name}")
            found = cache[name] = (value, seen)
        if type(found[1]) is Callee:
            frame = sys._getframe(1)
            called = is_callee(frame.f_code, frame.f_lasti)
            return found[1].substitute if called else found[1].real
        return found[1]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ModuleProxy.__slots__:
            object.__setattr__(self, name, value)
            return
        raise CaptureError(
            f"{_get(self, '_raw').__name__}.{name} is assigned in traced code",
            kind="outside_write",
            loc=source.here(),
            remedy="Return the value instead.",
        )

    def __dir__(self) -> list[str]:
        return dir(_get(self, "_raw"))

    def __repr__(self) -> str:
        return repr(_get(self, "_raw"))


# ---------------------------------------------------------------------------------- objects


class ObjectProxy:
    """A user object: attributes are guarded, arrays in them captured, methods rebuilt."""

    __slots__ = ("_sub", "_raw", "_path", "_set", "__weakref__")

    def __init__(self, sub: Substitution, raw: Any, path: Path) -> None:
        object.__setattr__(self, "_sub", sub)
        object.__setattr__(self, "_raw", raw)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_set", {})

    def __getattribute__(self, name: str) -> Any:
        raw = _get(self, "_raw")
        sub = _get(self, "_sub")
        if name == "__class__":
            return type(raw)
        if name == "__dict__":
            return {k: getattr(self, k) for k in raw.__dict__}
        if not sub.is_open:
            return getattr(raw, name)
        written = _get(self, "_set")
        if name in written:
            return written[name]
        return _attribute(self, sub, raw, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raw, sub = _get(self, "_raw"), _get(self, "_sub")
        check_outside_value(_get(self, "_path"), name, value)
        found = _class_attribute(type(raw), name)
        if isinstance(found, property) and found.fset is not None:
            sub.call(found.fset)(self, value)
            return
        had, old = hasattr(raw, name), getattr(raw, name, None)
        outside_change(lambda: setattr(raw, name, old) if had else delattr(raw, name))
        setattr(raw, name, sub.original(value))
        _get(self, "_set")[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(_get(self, "_raw"), name)
        _get(self, "_set").pop(name, None)

    def __eq__(self, other: object) -> Any:
        raw = _get(self, "_raw")
        found = _class_attribute(type(raw), "__eq__")
        if isinstance(found, FunctionType):
            return _get(self, "_sub").call(found)(self, other)
        return raw == unwrap_proxy(other)

    def __hash__(self) -> int:
        return hash(_get(self, "_raw"))

    def __repr__(self) -> str:
        return repr(_get(self, "_raw"))

    def __dir__(self) -> list[str]:
        return dir(_get(self, "_raw"))


def check_outside_value(path: Path, name: str, value: Any) -> None:
    if any(isinstance(x, Tracer) for x in tree_leaves(value)):
        raise CaptureError(
            f"a traced value is stored in {path}.{name}, outside the function",
            kind="outside_write",
            loc=source.here(),
            remedy=f"Return it, or write into the array that is there: {name}[...] = value.",
        )


_OPERATORS = tuple(
    f"__{p}{n}__"
    for n in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "matmul",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    )
    for p in ("", "r", "i")
)
_SPECIAL = frozenset(
    (
        "__call__",
        "__len__",
        "__iter__",
        "__next__",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__contains__",
        "__bool__",
        "__enter__",
        "__exit__",
        "__neg__",
        "__pos__",
        "__abs__",
        "__invert__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__ne__",
        "__index__",
        "__float__",
        "__int__",
        "__reversed__",
        "__round__",
        "__str__",
        "__format__",
        *_OPERATORS,
    )
)


@functools.lru_cache(maxsize=512)
def _proxy_type(kind: Any) -> type[ObjectProxy]:
    """A proxy class with the special methods that `kind` has (Python looks them up on types)."""
    names = {n for base in kind.__mro__ if base is not object for n in vars(base)} & _SPECIAL
    return type(
        kind.__name__, (ObjectProxy,), {"__slots__": (), **{n: _special(n) for n in sorted(names)}}
    )


def _special(name: str) -> Any:
    def method(self: ObjectProxy, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    method.__name__ = name
    return method


def _class_attribute(kind: type, name: str) -> Any:
    owner = _owner(kind, name)
    return ABSENT if owner is None else owner.__dict__[name]


def _owner(kind: type, name: str) -> type | None:
    return next((base for base in kind.__mro__ if name in base.__dict__), None)


def in_class(owner: type, name: str) -> Global:
    """The path of a class attribute as it stands in the class, before it is bound."""
    return Global(owner.__dict__, name, owner.__name__)  # type: ignore[arg-type]


def _attribute(proxy: ObjectProxy, sub: Substitution, raw: Any, name: str) -> Any:
    kind = type(raw)
    owner = _owner(kind, name)
    found = ABSENT if owner is None else owner.__dict__[name]
    path = Attribute(_get(proxy, "_path"), name)
    is_data = isinstance(found, property) or hasattr(type(found), "__set__")
    if (
        owner is None
        or not hasattr(type(found), "__get__")
        or isinstance(found, (MemberDescriptorType, GetSetDescriptorType))
        or (not is_data and name in getattr(raw, "__dict__", ()))
    ):
        return sub.read(path, getattr(raw, name))
    if isinstance(found, (MethodDescriptorType, WrapperDescriptorType)):
        return getattr(raw, name)
    sub.captures.guard(in_class(owner, name), found)
    if isinstance(found, FunctionType):
        return MethodType(sub.call(found), proxy)
    if isinstance(found, property):
        return sub.call(found.fget)(proxy) if found.fget is not None else getattr(raw, name)
    if isinstance(found, staticmethod):
        return sub.call(found.__func__)
    if isinstance(found, classmethod):
        return MethodType(sub.call(found.__func__), sub.call(kind))
    if isinstance(found, functools.cached_property):
        return sub.call(found.func)(proxy)
    value = found.__get__(proxy, kind)  # type: ignore[union-attr]
    return (
        MethodType(sub.call(value.__func__), value.__self__)
        if isinstance(value, MethodType)
        else value
    )


def is_proxied(raw: Any) -> bool:
    """Whether attributes of `raw` are to be watched: an object of the user's classes."""
    kind = type(raw)
    if isinstance(raw, (enum.Enum, BaseException, Tracer, ModuleProxy, ObjectProxy)):
        return False
    if isinstance(raw, SimpleNamespace):
        return True
    return is_user_class(kind) and not isinstance(raw, (np.generic, np.ndarray))


def object_proxy(sub: Substitution, path: Path, raw: Any) -> ObjectProxy:
    """The proxy of a user object found at `path`."""
    kind: Any = type(raw)
    return _proxy_type(kind)(sub, raw, path)


def unwrap_proxy(value: Any) -> Any:
    """The object behind a proxy; other values unchanged."""
    if (
        isinstance(value, (ObjectProxy, ModuleProxy))
        or type(value) is ModuleProxy
        or issubclass(type(value), ObjectProxy)
    ):
        return _get(value, "_raw")
    return value
