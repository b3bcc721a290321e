"""``opt``: text IR in, passes in the order given, text IR out."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from tracegrad.cli import passes
from tracegrad.cli.failure import CommandError
from tracegrad.cli.screen import Screen
from tracegrad.graph.ir import Graph
from tracegrad.loops.program import Program


def add_parser(commands: Any) -> None:
    listing = "\n".join(f"  {p.name:<15}{p.about}" for p in passes.PASSES)
    parser = commands.add_parser(
        "opt",
        help="run passes on the text of a graph",
        description="Reads a graph or a loop program, runs passes in order, prints the result. "
        "Everything is verified before and after each pass; with no pass the text is checked "
        "and printed in its normal form.",
        epilog=f"passes:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", default="-", help="text IR; - (default) is stdin")
    parser.add_argument(
        "--pass",
        dest="passes",
        action="append",
        default=[],
        metavar="NAME[:INPUTS]",
        help="a pass, as simplify or vjp:0,2; may be given several times",
    )
    parser.add_argument("--no-loc", action="store_true", help="leave out the user's places")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import tracegrad.ops  # noqa: F401  (fills the registry)

    text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8")
    unit = _parse(text)
    _verify(unit)
    for spelled in args.passes:
        unit = passes.apply(spelled, unit)
        _verify(unit)
    Screen().code(_print(unit, loc=not args.no_loc), "c" if isinstance(unit, str) else "ir")
    return 0


def _parse(text: str) -> passes.Unit:
    from tracegrad.graph.op import REGISTRY
    from tracegrad.graph.text import parse_graph
    from tracegrad.loops.text import parse_program

    first = re.search(r"^\s*(\w+)", re.sub(r"#.*", "", text))
    word = first.group(1) if first else ""
    if word == "graph":
        return parse_graph(text)
    if word == "program":
        return parse_program(text, REGISTRY.intrinsics())
    raise CommandError(
        "the input is neither a graph nor a loop program",
        remedy="A graph starts with 'graph @name', a program with 'program @name': print one "
        "with the command dump.",
    )


def _verify(unit: passes.Unit) -> None:
    from tracegrad.graph.verify import verify
    from tracegrad.loops.verify import verify_program

    if isinstance(unit, Graph):
        verify(unit)
    elif isinstance(unit, Program):
        verify_program(unit)


def _print(unit: passes.Unit, loc: bool) -> str:
    from tracegrad.graph.text import print_graph
    from tracegrad.loops.text import print_program

    if isinstance(unit, Graph):
        return print_graph(unit, loc=loc)
    if isinstance(unit, Program):
        return print_program(unit, locs=loc)
    return unit
