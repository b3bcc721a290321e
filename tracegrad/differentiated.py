"""A function seen by a transform, and the compiled transforms that a function has."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tracegrad import nested, source
from tracegrad.compiled import BoundCompiled, CompiledFunction
from tracegrad.errors import ArgumentError, TracegradError
from tracegrad.options import Options
from tracegrad.trace.argnums import Selection, resolve_argnums
from tracegrad.trace.modes import current_trace
from tracegrad.trace.signature import CallSignature, Signature
from tracegrad.trace.tracer import Trace, Tracer

ArgNums = int | Sequence[int]
ArgNames = str | Sequence[str] | None


class Differentiated:
    """A function seen by a transform: what to trace, and which arguments count."""

    def __init__(
        self, f: Callable[..., Any], argnums: ArgNums | None, argnames: ArgNames, has_aux: bool
    ) -> None:
        if not callable(f):
            raise ArgumentError(
                f"a transform needs a function, not {type(f).__name__}",
                loc=source.here(),
                remedy="Write tg.grad(f)(x), not tg.grad(f(x)).",
            )
        statics: tuple[Any, ...] = ((), ())
        bound: Any = None
        if isinstance(f, BoundCompiled):
            bound, f = f.__self__, f.__func__
        if isinstance(f, CompiledFunction):
            statics = f._statics
        inner = f.fn if isinstance(f, CompiledFunction) else f
        self.fn = inner if bound is None else functools.partial(inner, bound)
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.signature = Signature(self.fn, *statics)
        self.statics = statics
        self.argnums: Any = argnums
        self.argnames = argnames
        self.has_aux = has_aux

    def select(self, call: CallSignature) -> Selection:
        """The leaves to differentiate, placed at the user's line where there are none."""
        try:
            return resolve_argnums(call, self.argnums, self.argnames)
        except TracegradError as e:
            raise e.at(source.here()) from None

    def gradients(self, region: nested.Region, found: Sequence[Tracer]) -> Any:
        """Derivatives in the structure of the arguments asked for; None for static leaves."""
        return self.select(region.traced.signature).rebuild(region.by_leaf(found))

    def enter(self, args: Any, kwargs: Any) -> nested.Region:
        return nested.enter_region(
            self.fn,
            args,
            kwargs,
            self.signature,
            lambda call: self.select(call).leaves,
            open_trace(),
        )


class _Made:
    """The compiled transforms of one function, kept on the function: a transform written inside
    a loop costs a dictionary lookup, and goes away with its function."""

    def __init__(self, owner: Any) -> None:
        try:
            self.owner: Callable[[], Any] = weakref.ref(owner)
        except TypeError:  # ufuncs have a dictionary, but take no weak references
            self.owner = lambda: owner
        self.table: dict[Hashable, CompiledFunction[..., Any]] = {}


def _made_of(f: Any) -> dict[Hashable, CompiledFunction[..., Any]]:
    space = getattr(f, "__dict__", None)
    if not isinstance(space, dict) or isinstance(f, type):
        return {}
    found = space.get("__tracegrad_transforms__")
    # functools.wraps copies the attribute to wrappers, which are other functions.
    if not isinstance(found, _Made) or found.owner() is not f:
        found = space["__tracegrad_transforms__"] = _Made(f)
    return found.table


def cached(
    f: Any, key: Hashable, body: Callable[[], Callable[..., Any]], options: Options
) -> CompiledFunction[..., Any]:
    table = _made_of(f)
    found = table.get(key)
    if found is None:
        made = body()
        statics = (
            made.statics
            if hasattr(made, "__wrapped__") and isinstance(made, Differentiated)
            else ((), ())
        )
        found = table[key] = CompiledFunction(made, options, *statics)
    return found


def open_trace() -> Trace:
    trace = current_trace()
    assert trace is not None, "a transform's body runs inside a trace"
    return trace


def in_trace() -> bool:
    return current_trace() is not None


def options_of(f: Any) -> Options | None:
    f = f.__func__ if isinstance(f, BoundCompiled) else f
    return f.options if isinstance(f, CompiledFunction) else None


def hashable(x: Any) -> Hashable:
    """`argnums` or `argnames` as a part of a key; 1, True and 1.0 are three keys."""
    if isinstance(x, (list, tuple)):
        return tuple(map(hashable, x))
    try:
        hash(x)
    except TypeError:
        raise ArgumentError(
            f"argnums and argnames cannot be of type {type(x).__name__}",
            loc=source.here(),
            remedy="Give one, or a tuple of them.",
        ) from None
    return x if type(x) is int else (type(x), x)
