"""``cache``: the disk cache of built libraries."""

from __future__ import annotations

import argparse
from typing import Any

from tracegrad.cli.screen import Screen


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("cache", help="show or empty the cache of built libraries")
    parser.add_argument("action", choices=("info", "clear"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tracegrad.runtime.cache import disk_cache

    cache = disk_cache()
    screen = Screen()
    if args.action == "clear":
        nbytes = cache.nbytes()
        count = cache.clear()
        screen.text(f"removed {count} files, {nbytes / 1e6:.1f} MB, from {cache.root}")
        return 0
    libraries = sum(path.suffix == ".so" for path in cache.entries())
    screen.text(f"folder     {cache.root}")
    screen.text(f"libraries  {libraries}")
    screen.text(f"size       {cache.nbytes() / 1e6:.1f} of {cache.limit / 1e6:.0f} MB")
    if cache.fallback_reason is not None:
        screen.text(f"temporary  {cache.fallback_reason}")
    return 0
