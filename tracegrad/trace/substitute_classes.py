"""Classes and `super` as traced code sees them."""

from __future__ import annotations

import enum
from abc import ABCMeta
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.trace.guards import ABSENT, Path
from tracegrad.trace.substitute_objects import check_outside_value, in_class, is_user_class
from tracegrad.trace.substitute_table import find_substitute
from tracegrad.trace.symbolic import outside_change

if TYPE_CHECKING:
    from tracegrad.trace.substitute import Substitution

_get = object.__getattribute__


def shadow_class(sub: Substitution, path: Path, raw: type) -> type:
    """A subclass of a user class with its functions rebuilt and its attributes captured.

    Traced code that makes an instance gets one whose methods know traced values; classes whose
    making has effects (other metaclasses, ``__init_subclass__``) stay as they are, and so do
    named tuples.
    """
    if (
        not is_user_class(raw)
        or type(raw) not in (type, ABCMeta)
        or issubclass(raw, (BaseException, enum.Enum, tuple))
        or "__init_subclass__" in {n for b in raw.__mro__[:-1] for n in vars(b)}
    ):
        return raw
    bases = (type(raw),)
    meta = type(
        bases[0].__name__,
        bases,
        {
            "__instancecheck__": lambda cls, x: isinstance(x, raw),
            "__subclasscheck__": lambda cls, x: issubclass(x, raw),
            "__setattr__": lambda cls, name, value: _set_in_class(sub, path, raw, cls, name, value),
        },
    )
    shadow = meta(
        raw.__name__,
        (raw,),
        {
            "__slots__": (),
            "__module__": raw.__module__,
            "__qualname__": raw.__qualname__,
            "__doc__": raw.__doc__,
        },
    )
    sub.remember_class(raw, shadow)
    for base in reversed(raw.__mro__):
        if is_user_class(base):
            for name, value in list(vars(base).items()):
                seen = _class_value(sub, base, name, value)
                if seen is not ABSENT:
                    type.__setattr__(shadow, name, seen)
    return shadow


def _set_in_class(
    sub: Substitution, path: Path, raw: type, shadow: type, name: str, value: Any
) -> None:
    """An assignment to a class attribute: in the class itself, and in what traced code sees."""
    if shadow.__mro__[1] is raw:
        check_outside_value(path, name, value)
        had, old = name in vars(raw), vars(raw).get(name)
        outside_change(lambda: setattr(raw, name, old) if had else delattr(raw, name))
        setattr(raw, name, sub.original(value))
    type.__setattr__(shadow, name, value)


def _class_value(sub: Substitution, owner: type, name: str, value: Any) -> Any:
    path = in_class(owner, name)
    if isinstance(value, FunctionType):
        return sub.read(path, value)
    if isinstance(value, (staticmethod, classmethod, property)):
        sub.captures.guard(path, value)
        if isinstance(value, property):
            fget, fset, fdel = (f and sub.call(f) for f in (value.fget, value.fset, value.fdel))
            return property(fget, fset, fdel)
        return type(value)(sub.call(value.__func__))
    known = isinstance(value, type) and find_substitute(value) is not None
    if name.startswith("__") or not (
        known
        or isinstance(
            value, (int, float, str, bytes, tuple, list, dict, range, np.ndarray, np.generic)
        )
    ):
        return ABSENT
    return sub.read(path, value)


def restore_class(sub: Substitution, value: Any) -> bool:
    """Give an instance of a shadow class its real class; True if it was one."""
    raw = sub.original(type(value))
    if raw is type(value):
        return False
    value.__class__ = raw
    return True


class SuperProxy:
    """``super()`` in a rebuilt method: what it finds is rebuilt too."""

    __slots__ = ("_super", "_sub")

    def __init__(self, found: Any, sub: Substitution) -> None:
        object.__setattr__(self, "_super", found)
        object.__setattr__(self, "_sub", sub)

    def __getattribute__(self, name: str) -> Any:
        value = getattr(_get(self, "_super"), name)
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            return MethodType(_get(self, "_sub").call(value.__func__), value.__self__)
        return value
