"""``build``: a function as a folder of C source and header."""

from __future__ import annotations

import argparse
from typing import Any

from tracegrad.cli import target
from tracegrad.cli.failure import of_user_code
from tracegrad.cli.screen import Screen
from tracegrad.errors import TracegradError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "build",
        help="write a function as C source and header",
        description="Writes C99 source, header, an example program that checks itself, a "
        "Makefile and a manifest. Needs no compiler; the folder needs no Python.",
    )
    target.add_arguments(parser)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--name", help="name of the C function (default: the function's)")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a folder that an earlier build wrote"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tracegrad.exporting import export
    from tracegrad.spec import spec

    fn = target.transformed(args)
    specs = [spec.parse(text) for text in args.spec]
    name = args.name or args.target.rpartition(":")[2].rpartition(".")[2]
    try:
        folder = export(fn, specs, args.output, name=name, overwrite=args.overwrite)
    except TracegradError:
        raise
    except Exception as error:
        raise of_user_code(error, "tracing failed") from error
    screen = Screen()
    for path in sorted(folder.iterdir()):
        screen.text(f"{path.stat().st_size:>8} bytes  {path.name}")
    screen.text(
        f"written to {args.output}; make -C {args.output} check builds and runs its example"
    )
    return 0
