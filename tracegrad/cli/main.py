"""Arguments, the choice of a command, and what the shell sees: output, one message, exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tracegrad.cli import build, cache, demo, doctor, dump, opt
from tracegrad.errors import TracegradError

_COMMANDS = (demo, doctor, dump, opt, build, cache)
_FAILED = 2
_CLOSED_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


def make_parser() -> argparse.ArgumentParser:
    """The parser; each command's module adds its own part and sets `run`."""
    parser = argparse.ArgumentParser(
        prog="python -m tracegrad",
        description="Compiled gradients of NumPy functions: look at them, build them, check "
        "the machine.",
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show the Python traceback of an error"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (2 after an error, told on stderr)."""
    args = make_parser().parse_args(argv)
    _tolerate_narrow_encodings()
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (head, less) has seen enough; keep the interpreter from flushing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (TracegradError, OSError) as error:
        if args.traceback:
            raise
        print(f"error: {_told(error)}", file=sys.stderr)
        return _FAILED


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _tolerate_narrow_encodings() -> None:
    """Characters that the output's encoding lacks are replaced, never an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
