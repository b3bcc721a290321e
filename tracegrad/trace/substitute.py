"""Traced code runs under substituted names: `np.zeros`, `math.sin`, `range`, the user's helpers.

Nothing in the process is patched.  A user function is rebuilt over a dictionary whose lookups
substitute by the *identity* of what they find, so that every spelling of an import works, and
record what they find as a capture or guard.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import optree

from tracegrad import source
from tracegrad.errors import CaptureError
from tracegrad.trace.captures import Captures
from tracegrad.trace.guards import (
    Attribute,
    Cell,
    Constant,
    Global,
    Item,
    Path,
    same_keys,
    same_value,
)
from tracegrad.trace.impure import impure
from tracegrad.trace.leaves import NAMESPACE, registration
from tracegrad.trace.rolling import RollingRange
from tracegrad.trace.substitute_classes import shadow_class
from tracegrad.trace.substitute_code import is_user_path, outside_write
from tracegrad.trace.substitute_containers import GuardedDict, GuardedList
from tracegrad.trace.substitute_globals import Namespace
from tracegrad.trace.substitute_objects import (
    ModuleProxy,
    is_proxied,
    object_proxy,
    unwrap_proxy,
)
from tracegrad.trace.substitute_table import (
    Callee,
    find_substitute,
    is_installed_function,
    wrap_installed,
)
from tracegrad.trace.tracer import Tracer

_VALUES = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.generic,
    np.dtype,
    range,
    slice,
    type(...),
    type(NotImplemented),
)


class Substitution:
    """What names mean in one outermost trace, and in the traces nested in it."""

    def __init__(self, captures: Captures, *, is_open: bool = True) -> None:
        self.captures = captures
        self.is_open = is_open  # when closed, names mean what they say
        self.home: dict[str, Any] | None = None
        self.root: Any = None  # the traced function itself, which is rebuilt wherever it lives
        self.builtins = dict(vars(builtins), __import__=self._import)
        self._spaces: dict[int, Namespace] = {}
        # id -> (original, substitute); the original is kept alive so that ids stay its own.
        self._done: dict[int, tuple[Any, Any]] = {}
        self._originals: dict[int, Any] = {}
        self._registered: list[type] = []
        captures.places.append(self._globals)

    # -- reading

    def read(self, path: Path, raw: Any, *, named: bool = False) -> Any:
        """What traced code sees for `raw`, found at `path`; records the capture or guard.

        `named`: the caller tells calls of a `Callee` from other uses of it.
        """
        if isinstance(raw, Tracer) or not self.is_open:
            return raw
        if isinstance(raw, np.ndarray):
            return self.captures.array(path, raw)
        if isinstance(raw, _VALUES):
            found = self.captures.value(path, raw)
            return RollingRange(found) if type(found) is range else found
        kind = type(raw)
        if (
            kind in (list, dict)
            or kind is tuple
            or (isinstance(raw, tuple) and hasattr(kind, "_make"))
        ):
            return self._container(path, raw)
        if isinstance(raw, (set, frozenset)):
            self.captures.guard(path, frozenset(raw), _same_set)
            if isinstance(raw, set):
                self._watch(raw)
            return raw
        self.captures.guard(path, raw, operator.is_)
        value = self.substitute(path, raw)
        return value.real if type(value) is Callee and not named else value

    def substitute(self, path: Path, raw: Any) -> Any:
        """What traced code sees for a function, class, module or other object."""
        found = self._done.get(id(raw))
        if found is not None:
            return found[1]
        value = self._make(path, raw)
        self._remember(raw, value)
        return value

    def builtin(self, value: Any) -> Any:
        """A builtin by its substitute, if it has one."""
        found = find_substitute(value) or impure(value) or value
        if type(found) is not Callee:
            self._remember(value, found)
        return found

    def installed(self, value: Any, name: str) -> Any:
        """What an attribute of an installed module is in traced code; nothing is guarded."""
        if isinstance(value, (*_VALUES, Tracer)):
            return value
        if isinstance(value, np.ndarray):
            return self.captures.trace.concrete(value)
        return self.substitute(Constant(value, name), value)

    def call(self, function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
        """`function`, which the caller holds, as traced code would see it."""
        if not self.is_open:
            return function
        path = Constant(function, name or getattr(function, "__name__", "function"))
        value = self.substitute(path, function)
        return value.substitute if type(value) is Callee else value  # type: ignore[no-any-return]

    def original(self, value: Any) -> Any:
        """The user's object behind a substitute; other values unchanged."""
        value = unwrap_proxy(value)
        if type(value) is RollingRange:
            return value.real
        found = self._originals.get(id(value))
        return value if found is None else found

    def _remember(self, raw: Any, value: Any) -> None:
        self._done[id(raw)] = (raw, value)
        if value is not raw:
            self._originals[id(value)] = raw

    def remember_class(self, raw: type, shadow: type) -> None:
        """Note the substitute of a class; it is a pytree if the class is."""
        self._remember(raw, shadow)
        known = registration(raw)
        if known is not None:
            optree.register_pytree_node(
                shadow,
                known.flatten_func,
                known.unflatten_func,
                namespace=NAMESPACE,
                path_entry_type=known.path_entry_type,
            )
            self._registered.append(shadow)

    def close(self) -> None:
        """End of the trace."""
        self.is_open = False
        while self._registered:
            optree.unregister_pytree_node(self._registered.pop(), namespace=NAMESPACE)

    # -- by kind

    def _make(self, path: Path, raw: Any) -> Any:
        found = find_substitute(raw) or impure(raw)
        if found is not None:
            return found
        if isinstance(raw, FunctionType):
            return self._function(path, raw)
        if isinstance(raw, ModuleType):
            return ModuleProxy(self, raw, path)
        if isinstance(raw, MethodType):
            return self._method(path, raw)
        if isinstance(raw, functools.partial):
            return self._partial(path, raw)
        if isinstance(raw, functools._lru_cache_wrapper):
            inner = raw.__wrapped__
            return self.substitute(Attribute(path, "__wrapped__"), inner)
        if isinstance(raw, type):
            return shadow_class(self, path, raw)
        if is_installed_function(raw):
            return wrap_installed(raw)
        return object_proxy(self, path, raw) if is_proxied(raw) else raw

    def _container(self, path: Path, raw: Any) -> Any:
        found = self._done.get(id(raw))
        if found is not None:
            return found[1]
        if _is_plain(raw):
            self.captures.guard(
                path, raw.copy() if isinstance(raw, (list, dict)) else raw, same_value
            )
            self._remember(raw, raw)
            if not isinstance(raw, tuple):
                self._watch(raw)
            return raw
        keys = tuple(raw) if isinstance(raw, dict) else tuple(range(len(raw)))
        self.captures.guard(path, (type(raw), keys), same_keys)
        if isinstance(raw, tuple):
            items = [self.read(Item(path, k), raw[k]) for k in keys]
            value: Any = tuple(items) if type(raw) is tuple else type(raw)._make(items)  # type: ignore[attr-defined]
            self._remember(raw, value)
            return value
        value = GuardedDict(raw, self) if isinstance(raw, dict) else GuardedList(raw, self)
        self._remember(raw, value)  # before its elements, which may lead back to it
        value.fill((k, self.read(Item(path, k), raw[k])) for k in keys)
        return value

    def _watch(self, raw: Any) -> None:
        """What traced code does to a list, dictionary or set outside is taken back when the trace
        starts again."""
        plan = self.captures.trace.rolling
        if plan is not None:
            plan.watched.append((raw, raw.copy()))

    def _function(self, path: Path, raw: FunctionType) -> Any:
        code = raw.__code__
        space = raw.__globals__
        if type(space) is Namespace and space.sub is self:
            return raw
        if raw is not self.root and not is_user_path(code.co_filename):
            return self._wrapper(raw) if "__wrapped__" in raw.__dict__ else wrap_installed(raw)
        written = outside_write(code)
        if written is not None:
            return _refusing(raw, *written)
        return self.rebuild(path, raw)

    def _wrapper(self, raw: FunctionType) -> Any:
        """A decorated function whose wrapper is installed: only what it closes over changes."""
        inner = raw.__dict__["__wrapped__"]
        if (
            raw.__closure__ is None
            or not isinstance(inner, FunctionType)
            or not is_user_path(inner.__code__.co_filename)
        ):
            return wrap_installed(raw)
        cells = tuple(map(_new_cell, raw.__code__.co_freevars, raw.__closure__))
        new = FunctionType(raw.__code__, raw.__globals__, raw.__name__, raw.__defaults__, cells)
        new.__kwdefaults__ = raw.__kwdefaults__
        new.__dict__.update(raw.__dict__)
        self._remember(raw, new)
        self._fill(raw, cells)
        return new

    def _fill(self, raw: FunctionType, cells: tuple[CellType, ...]) -> None:
        for name, old, new in zip(
            raw.__code__.co_freevars, raw.__closure__ or (), cells, strict=True
        ):
            if new is not old:
                new.cell_contents = self.read(Cell(old, name), old.cell_contents)

    def rebuild(self, path: Path, raw: FunctionType) -> FunctionType:
        """The function over substituted globals, cells, defaults and attributes."""
        closure = raw.__closure__
        cells = tuple(map(_new_cell, raw.__code__.co_freevars, closure)) if closure else None
        space = self.namespace(raw.__globals__)
        new = FunctionType(raw.__code__, space, raw.__name__, None, cells)
        self._remember(raw, new)  # before cells are filled, which may hold the function itself
        if cells is not None:
            self._fill(raw, cells)
        if raw.__defaults__:
            where = Attribute(path, "__defaults__")
            new.__defaults__ = tuple(
                self.read(Item(where, k), x) for k, x in enumerate(raw.__defaults__)
            )
        if raw.__kwdefaults__:
            where = Attribute(path, "__kwdefaults__")
            new.__kwdefaults__ = {
                k: self.read(Item(where, k), x) for k, x in raw.__kwdefaults__.items()
            }
        new.__qualname__, new.__doc__, new.__module__ = (
            raw.__qualname__,
            raw.__doc__,
            raw.__module__,
        )
        for name, value in raw.__dict__.items():
            if name == "__tracegrad_transforms__":  # a cache, see transforms.py
                continue
            new.__dict__[name] = (
                value if name == "__wrapped__" else self.read(Attribute(path, name), value)
            )
        self._watch(new.__dict__)
        return new

    def namespace(self, base: dict[str, Any]) -> Namespace:
        """The substituted globals over `base`."""
        if type(base) is Namespace:
            if base.sub is self:
                return base
            base = base.base  # a function that an earlier trace left behind
        space = self._spaces.get(id(base))
        if space is None:
            if self.home is None:
                self.home = base
            space = self._spaces[id(base)] = Namespace(self, base)
        return space

    def _method(self, path: Path, raw: MethodType) -> Any:
        function = self.substitute(Attribute(path, "__func__"), raw.__func__)
        owner = raw.__self__
        if not isinstance(owner, type):
            owner = self.substitute(Attribute(path, "__self__"), owner)
        return MethodType(function, owner)

    def _partial(self, path: Path, raw: functools.partial[Any]) -> Any:
        args = [self.read(Item(Attribute(path, "args"), k), x) for k, x in enumerate(raw.args)]
        keywords = {
            k: self.read(Item(Attribute(path, "keywords"), k), x) for k, x in raw.keywords.items()
        }
        function = self.read(Attribute(path, "func"), raw.func)
        if type(function) is Callee:
            function = function.substitute
        return functools.partial(function, *args, **keywords)

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        base = globals.base if type(globals) is Namespace else globals
        module = builtins.__import__(name, base, locals, fromlist or (), level)
        if not self.is_open:
            return module
        return self.substitute(Constant(module, module.__name__), module)

    def _globals(self) -> Iterator[tuple[Path, Any]]:
        for space in self._spaces.values():
            for name, value in list(space.base.items()):
                if isinstance(value, np.ndarray):
                    yield Global(space.base, name, space._prefix()), value


def _new_cell(name: str, cell: CellType) -> CellType:
    """An empty cell to hold the substitute; the same one if it is not to be substituted."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return cell  # set later by its owner
    return cell if name == "__class__" else CellType()


def _is_plain(raw: Any) -> bool:
    """Whether a container holds numbers, strings and containers of them only."""
    items = raw.values() if isinstance(raw, dict) else raw
    return all(
        type(x) is not range and (isinstance(x, _VALUES) or (type(x) is tuple and _is_plain(x)))
        for x in items
    )


def _same_set(found: Any, expected: Any) -> bool:
    return isinstance(found, (set, frozenset)) and frozenset(found) == expected


def _refusing(raw: FunctionType, what: str, loc: source.SourceLoc) -> Callable[..., Any]:
    @functools.wraps(raw)
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError(
            f"{raw.__name__} assigns the {what}, which a traced function cannot do",
            kind="outside_write",
            loc=loc,
            remedy="Return the value instead, or keep it in an array that is written in place.",
        )

    del refuse.__wrapped__
    return refuse


__all__ = ["Namespace", "Substitution"]
