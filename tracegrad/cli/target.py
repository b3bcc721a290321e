"""``module:function`` and ``path.py:function`` as functions; specs as arguments."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracegrad.cli.failure import CommandError, of_user_code

TRANSFORMS = ("none", "grad", "value_and_grad")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a function, its argument types, and a transform of it."""
    parser.add_argument("target", help="module:function or path/to/file.py:function")
    parser.add_argument(
        "--spec",
        action="append",
        default=[],
        metavar="TYPE",
        help="type of the next positional argument, as f8[16,3], f8 (a scalar), i8[4]",
    )
    parser.add_argument(
        "--static",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a keyword argument with a fixed value, a Python literal, as steps=10",
    )
    parser.add_argument(
        "--transform", choices=TRANSFORMS, default="none", help="what of the function (none)"
    )
    parser.add_argument(
        "--argnums",
        default="0",
        metavar="N,N",
        help="arguments that the transform differentiates (0)",
    )


def transformed(args: argparse.Namespace) -> Callable[..., Any]:
    """The compiled function that the arguments of `add_arguments` describe."""
    import tracegrad as tg

    fn = load_function(args.target)
    fixed = static_values(args.static)
    if fixed:
        fn = _with_fixed(fn, fixed)
    if args.transform == "none":
        return fn if hasattr(fn, "lower") else tg.compile(fn)
    return getattr(tg, args.transform)(fn, argnums=_argnums(args.argnums))  # type: ignore[no-any-return]


def examples(specs: Sequence[str]) -> list[Any]:
    """An argument for each spec; values are arbitrary."""
    import numpy as np

    import tracegrad as tg

    rng = np.random.default_rng(0)
    return [tg.spec.parse(text).example(rng) for text in specs]


def _with_fixed(fn: Callable[..., Any], fixed: dict[str, Any]) -> Callable[..., Any]:
    plain = getattr(fn, "__wrapped__", fn) if hasattr(fn, "lower") else fn
    partial = functools.partial(plain, **fixed)
    functools.update_wrapper(partial, plain)
    del vars(partial)["__wrapped__"]  # its signature is the one without the fixed names
    return partial


def _argnums(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise CommandError(f"--argnums {text!r}: numbers, as in 0 or 0,2") from None
    return numbers[0] if len(numbers) == 1 else numbers


def static_values(given: Sequence[str]) -> dict[str, Any]:
    """``["n=3"]`` as ``{"n": 3}``; the values are Python literals."""
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        try:
            values[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            equals = ""
        if not equals or not name.strip().isidentifier():
            raise CommandError(f"--static {text!r}: write NAME=VALUE, VALUE a Python literal")
    return values


def load_function(target: str) -> Callable[..., Any]:
    """The callable that `target` names; imports its module.

    Raises:
        CommandError: a target of another form, a module that does not import, no such function.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise CommandError(
            f"{target!r} names no function",
            remedy="Write module:function or path/to/file.py:function.",
        )
    module = _module_from_file(Path(place)) if place.endswith(".py") else _module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = sorted(k for k, v in vars(found).items() if callable(v) and k[0] != "_")
            raise CommandError(
                f"{place} has no {name!r}",
                remedy=f"It has: {', '.join(known[:12])}." if known else "",
            )
        found = getattr(found, part)
    if not callable(found):
        raise CommandError(f"{target} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise CommandError(
                f"there is no module {name!r} here", remedy="For a file write path/to/file.py:f."
            ) from error
        raise of_user_code(error, f"importing {name}") from error
    except Exception as error:
        raise of_user_code(error, f"importing {name}") from error


def _module_from_file(path: Path) -> Any:
    if not path.is_file():
        raise CommandError(f"there is no file {path}")
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_from_file"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    # As when Python runs the file: its folder is where it imports from.
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise of_user_code(error, f"importing {path}") from error
    return module
