"""Hooks on gradients, the same at the prompt and in a trace: how one is removed and called."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tracegrad import source
from tracegrad.errors import AutogradError
from tracegrad.trace.memory import Tracer

_numbers = itertools.count()
Hooks = dict[int, Callable[..., Any]]


class Handle:
    """Takes one hook away again; also a context manager."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: Hooks, hook: Callable[..., Any]) -> None:
        self.id = next(_numbers)
        self._hooks: Hooks | None = hooks
        hooks[self.id] = hook

    def remove(self) -> None:
        """Make the hook inert; again is no error."""
        if self._hooks is not None:
            self._hooks.pop(self.id, None)
            self._hooks = None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def check_hook(tracked: bool) -> None:
    """Raise if a hook is put on a tensor that does not require a gradient."""
    if not tracked:
        raise AutogradError(
            "cannot register a hook on a tensor that does not require a gradient",
            kind="hook_no_grad",
            loc=source.here(),
        )


def check_retain(tracked: bool) -> None:
    """Raise if the gradient of a tensor that requires none shall be retained."""
    if not tracked:
        raise AutogradError(
            "cannot retain the gradient of a tensor that does not require one",
            kind="retain_no_grad",
            loc=source.here(),
        )


def call_hook(hook: Callable[..., Any], given: Any) -> Any:
    """What the hook makes of the gradient `given`: a tensor of the same type, or `given`."""
    got = hook(given)
    if got is None:
        return given
    if not isinstance(got, Tracer):
        raise AutogradError(
            f"a hook has to return None or a Tensor, but hook returned {type(got).__name__}",
            kind="hook_bad_return",
            loc=_defined(hook),
        )
    if got.sizes != given.shape or got.element_type is not given.element_type:
        raise AutogradError(
            f"a hook has changed the gradient from {given.element_type}{list(given.shape)} to "
            f"{got.element_type}{list(got.sizes)}",
            kind="hook_bad_return",
            loc=_defined(hook),
        )
    return got


def _defined(hook: Any) -> source.SourceLoc | None:
    code = getattr(hook, "__code__", None)
    if code is None:
        return None
    return source.SourceLoc(code.co_filename, code.co_firstlineno, 0, 10**6, code.co_qualname)
