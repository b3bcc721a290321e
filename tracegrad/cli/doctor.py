"""``doctor``: what tracegrad finds on this machine, and what a missing part costs."""

from __future__ import annotations

import argparse
from typing import Any

from tracegrad.cli.screen import Screen

_COLOURS = {"ok": "green", "missing": "yellow", "problem": "bold red"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what is found here, what is missing",
        description=(
            "Looks for the compiler, Python.h, BLAS and the cache, and says what each missing part "
            "costs. Exit code 1 when something is broken, 0 otherwise."
        ),
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tracegrad.runtime.doctor import doctor, format_report

    rows = doctor()
    screen = Screen()
    if screen.is_rich:
        screen.table(
            ("item", "state", "found"),
            [(r.item, screen.styled(r.state, _COLOURS[r.state]), _found(r)) for r in rows],
        )
    else:
        screen.text(format_report(rows))
    return 1 if any(row.state == "problem" for row in rows) else 0


def _found(row: Any) -> str:
    return row.value if row.state == "ok" or not row.cost else f"{row.value}\n{row.cost}".lstrip()
