"""Gradient mode, inference mode and the stack of open traces, both per thread."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracegrad.trace.tracer import Trace
    from tracegrad.trace.tracking import Recorder


class _State(threading.local):
    def __init__(self) -> None:
        self.grad = True
        self.inference = False
        self.traces: list[Trace] = []
        self.disabled = 0


STATE = _State()


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation in this thread."""
    return STATE.grad


class set_grad_enabled(ContextDecorator):
    """``with tg.set_grad_enabled(mode):`` or a decorator: switch recording on or off.

    Called as a plain function, PyTorch's class switches at once; so does this one, and `with`
    or `close` restores.
    """

    def __init__(self, mode: bool) -> None:
        self._mode = bool(mode)
        self._before = [STATE.grad]
        STATE.grad = self._mode

    def __enter__(self) -> set_grad_enabled:
        STATE.grad = self._mode
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.grad = self._before[-1]

    def __call__(self, func):  # type: ignore[no-untyped-def]
        STATE.grad = self._before[-1]
        return _Mode(self._mode)(func)


class _Mode(ContextDecorator):
    """Gradient recording set to `mode` inside a block or a decorated function."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before: list[bool] = []

    def _recreate_cm(self) -> _Mode:
        return _Mode(self._mode)

    def __enter__(self) -> _Mode:
        self._before.append(STATE.grad)
        STATE.grad = self._mode
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.grad = self._before.pop()


class no_grad(_Mode):
    """``with tg.no_grad():`` or ``@tg.no_grad()``: operations inside have no gradient."""

    def __init__(self) -> None:
        super().__init__(False)


class enable_grad(_Mode):
    """``with tg.enable_grad():``: gradients on again inside a `no_grad` block."""

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(ContextDecorator):
    """``with tg.inference_mode():``: nothing is tracked, whatever `enable_grad` says inside, and
    tensors made inside are *inference tensors*, which have no version and no gradient."""

    def __init__(self, mode: bool = True) -> None:
        self._mode = bool(mode)
        self._before: list[tuple[bool, bool]] = []

    def _recreate_cm(self) -> inference_mode:
        return inference_mode(self._mode)

    def __enter__(self) -> inference_mode:
        self._before.append((STATE.grad, STATE.inference))
        STATE.inference = self._mode
        STATE.grad = not self._mode
        return self

    def __exit__(self, *exc: object) -> None:
        STATE.grad, STATE.inference = self._before.pop()


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside `inference_mode`."""
    return STATE.inference


def is_tracking() -> bool:
    """Whether an operation on a tensor that requires a gradient is recorded now."""
    return STATE.grad and not STATE.inference


def current_trace() -> Trace | None:
    """The innermost open trace of this thread."""
    return STATE.traces[-1] if STATE.traces else None


_prompt: list[Recorder] = []


def set_prompt(recorder: Recorder) -> None:
    """Name what runs operations outside every trace (the eager package calls this once)."""
    _prompt[:] = [recorder]


def at_prompt() -> Recorder | None:
    """What runs operations outside every trace; None before `tracegrad.eager` is imported."""
    return _prompt[0] if _prompt else None
