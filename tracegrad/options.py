"""`Options`: what a compiled function may be told, one frozen value passed down, never global."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tracegrad import source
from tracegrad.errors import OptionError

_BOUNDS = {"threads": 1, "cache_size": 1, "max_unrolled": 1, "memory_limit": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one compiled function; hashable, part of the key of a specialisation.

    Every field may be given as a keyword to `tracegrad.compile` and the transforms.

    Raises:
        OptionError: a value that is not allowed, or a feature that is not available yet.
    """

    #: What runs the kernels: ``"c"`` builds them with the system's compiler, ``"numpy"`` runs
    #: the interpreter of the loop IR (slow, needs no compiler), ``"cuda"`` a device.
    backend: Literal["c", "cuda", "numpy"] = "c"
    #: ``for`` statements over ``range``, ``enumerate``, ``zip`` and rows of arrays: ``"roll"``
    #: each is one loop in the graph or refused (up to two iterations are copied), ``"unroll"``
    #: one copy of the body per iteration, ``"auto"`` a loop where that is possible.
    loops: Literal["auto", "roll", "unroll"] = "auto"
    #: Writes to views that came several at once (``Tensor.split``, ``unbind``): ``"torch"``
    #: refuses them as PyTorch does, ``"exact"`` accepts them.
    views: Literal["torch", "exact"] = "torch"
    #: Whose meaning traced arrays have: NumPy's, PyTorch's, or (``"auto"``) PyTorch's when any
    #: argument is a `tracegrad.Tensor`, else NumPy's.
    arrays: Literal["auto", "numpy", "torch"] = "auto"
    #: Run traced code with ``np.zeros``, ``range``, ``math.sin`` and the like replaced by names
    #: that understand traced values.
    substitute: bool = True
    #: Arguments that the function writes are written in the caller's arrays, as NumPy would.
    write_back: bool = True
    #: Results never share memory with arguments.
    copy_outputs: bool = False
    #: ``"require"`` refuses a program in which a write by the user would need a fresh copy.
    inplace: Literal["auto", "require"] = "auto"
    #: Most bytes that a call may use beside its arguments and results (a number, or "512MB"): loops
    #: keep fewer states for the backward pass and compute them again.  None is no limit.
    memory_limit: int | str | None = None
    #: Allow contraction to fused multiply-add, reciprocal multiplication and loss of the sign
    #: of zero.  Never the whole of ``-ffast-math``; NaN and infinities keep their meaning.
    fastmath: bool = False
    #: Raise where tracegrad would fall back to something slower with a warning (no compiler);
    #: with Tensors also where PyTorch refuses a write whose operand overlaps what is written.
    strict: bool = False
    #: Most threads that a loop over ``tg.range(n, parallel=True)`` runs on; None is the number in
    #: ``TRACEGRAD_NUM_THREADS``, or one for each processor of the process.  Results do not
    #: depend on it.
    threads: int | None = None
    #: Specialisations kept per compiled function, least recently used dropped first.
    cache_size: int = 128
    #: Copies of one loop's body that a trace may hold before it is refused; None is no limit.
    max_unrolled: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.memory_limit, str):
            object.__setattr__(self, "memory_limit", _bytes(self.memory_limit))
        for name, hint in _HINTS.items():
            _check_value(name, getattr(self, name), hint)
        for is_set, text in _NOT_YET:
            if is_set(self):
                raise OptionError(f"{text} is not available yet", remedy="Leave the option out.")

    @classmethod
    def make(cls, options: Options | None = None, **given: Any) -> Options:
        """`options` (default: `Options()`) with the fields in `given` replaced.

        Raises:
            OptionError: an unknown name (the nearest one is named), a value that is not
                allowed, or `options` that is not an `Options`.
        """
        try:
            return cls._made(options, given)
        except OptionError as e:
            raise e.at(source.here()) from None

    @classmethod
    def _made(cls, options: Options | None, given: dict[str, Any]) -> Options:
        if options is not None and not isinstance(options, cls):
            raise OptionError(
                f"options must be an Options, not {type(options).__name__}",
                remedy="Write tracegrad.Options(...), or give the fields as keywords.",
            )
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise OptionError(f"unknown option {name!r}", remedy=_nearest(name, known))
        if options is None:
            return cls(**given)
        return replace(options, **given) if given else options


_HINTS = get_type_hints(Options)

# Features of later versions.  An option that nothing would honour is refused, never ignored.
_NOT_YET: tuple[tuple[Callable[[Options], bool], str], ...] = (
    (lambda o: o.backend == "cuda", "backend='cuda'"),
)


def _bytes(text: str) -> int:
    """``"512MB"`` as a number of bytes; units are powers of 1024."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)i?B?\s*", text)
    if found is None:
        raise OptionError(
            f"memory_limit: {text!r} is not a size", remedy='Write for example "512MB".'
        )
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    listing = f"Options are: {', '.join(known)}."
    return f"Did you mean {close[0]!r}? {listing}" if close else listing


def _check_value(name: str, value: object, hint: Any) -> None:
    choices = get_args(hint) if get_origin(hint) is Literal else None
    if choices is not None:
        if not (isinstance(value, str) and value in choices):
            allowed = ", ".join(map(repr, choices))
            raise OptionError(
                f"option {name} cannot be {value!r}", remedy=_choice_remedy(value, choices, allowed)
            )
        return
    if hint is bool:
        if type(value) is not bool:
            raise OptionError(f"option {name} cannot be {value!r}", remedy="Use True or False.")
        return
    is_optional = isinstance(hint, types.UnionType) and type(None) in get_args(hint)
    if value is None and is_optional:
        return
    least = _BOUNDS[name]
    if type(value) is not int or value < least:
        form = f"an int of at least {least}" + (", or None" if is_optional else "")
        raise OptionError(f"option {name} cannot be {value!r}", remedy=f"Use {form}.")


def _choice_remedy(value: object, choices: tuple[str, ...], allowed: str) -> str:
    close = difflib.get_close_matches(str(value), choices, n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Allowed: {allowed}."
