"""``dump``: a function at one stage of the pipeline, as text, Graphviz or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tracegrad.cli import target
from tracegrad.cli.failure import CommandError, of_user_code
from tracegrad.cli.screen import Screen
from tracegrad.errors import TracegradError
from tracegrad.pipeline import GRAPH_STAGES

_STAGES = (*GRAPH_STAGES, "scheduled", "loops", "source")
_LANGUAGES = {"source": "c"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "dump",
        help="show a function at one stage",
        description="Traces a function for the argument types given and prints one stage. "
        "The function is not called with values and no argument is written.",
    )
    target.add_arguments(parser)
    parser.add_argument("--stage", choices=_STAGES, default="optimized", help="(optimized)")
    parser.add_argument("--format", choices=("text", "dot", "json"), default="text")
    parser.add_argument("--no-loc", action="store_true", help="leave out the user's places")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.format != "text" and args.stage not in GRAPH_STAGES:
        raise CommandError(
            f"stage {args.stage} has no {args.format} form",
            remedy=f"Stages with one: {', '.join(GRAPH_STAGES)}.",
        )
    lowering = lowered(target.transformed(args), args.spec)
    text = _text(lowering, args)
    Screen().code(text, _LANGUAGES.get(args.stage, "ir"))
    return 0


def lowered(fn: Callable[..., Any], specs: list[str]) -> Any:
    """The lowering of the compiled function `fn` for arguments of the types in `specs`."""
    import tracegrad as tg

    arguments = [tg.spec.parse(text) for text in specs]
    try:
        return fn.lower(*arguments)  # type: ignore[attr-defined]
    except TracegradError:
        raise
    except Exception as error:
        raise of_user_code(error, "tracing failed") from error
