"""``dump``: a function at one stage of the pipeline, as text, Graphviz or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tracegrad.cli import target
from tracegrad.cli.failure import CommandError, of_user_code
from tracegrad.cli.screen import Screen
from tracegrad.errors import TracegradError
from tracegrad.pipeline import GRAPH_STAGES, Lowering

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
    Screen().code(_text(lowering, args), _LANGUAGES.get(args.stage, "ir"))
    return 0


def lowered(fn: Callable[..., Any], specs: list[str]) -> Lowering:
    """The lowering of the compiled function `fn` for arguments of the types in `specs`."""
    arguments = target.examples(specs)
    try:
        return fn.lower(*arguments).specialisation.lowering  # type: ignore[attr-defined,no-any-return]
    except TracegradError:
        raise
    except Exception as error:
        raise of_user_code(error, "tracing failed") from error


def _text(lowering: Lowering, args: argparse.Namespace) -> str:
    if args.stage == "source":
        return lowering.unit.text
    if args.stage in ("scheduled", "loops"):
        from tracegrad.loops.text import print_program

        text = print_program(lowering.plan.program, locs=not args.no_loc)
        return _without_bodies(text) if args.stage == "scheduled" else text
    graph = lowering.graph(args.stage)
    if args.format == "dot":
        from tracegrad.graph.export import to_dot

        return to_dot(graph)
    if args.format == "json":
        from tracegrad.graph.export import to_json

        return to_json(graph, indent=2)
    from tracegrad.graph.text import print_graph

    return print_graph(graph, loc=not args.no_loc)


def _without_bodies(program: str) -> str:
    """The text of a program with the statements of its kernels left out."""
    lines: list[str] = []
    inside = False
    for line in program.splitlines():
        if not inside:
            lines.append(line)
        inside = line.startswith("  kernel ") or (inside and line != "  }")
        if line.startswith("  kernel "):
            lines[-1] += " ... }"
    return "\n".join(lines)
