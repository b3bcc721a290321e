"""``demo``: an inverse problem from a NumPy function to recovered parameters and C without Python.

Each section shows one thing; the numbers are those of this run.
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from tracegrad.cli import demo_descent, demo_export, demo_problem
from tracegrad.cli.demo_problem import Problem, make_problem, misfit
from tracegrad.cli.screen import Screen

_ABOUT = """\
An inverse problem: a rod is warm in places and cools; sensors at every third cell record the
temperature a few times. Which diffusivity, cell by cell, explains the records?
The function below is plain NumPy and writes its arrays in place. tracegrad compiles its gradient."""
_HEAD = 26


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="solve an inverse problem and show every stage",
        description="Recovers the diffusivity of a rod from noisy temperatures by gradient "
        "descent through a simulation with in-place writes; shows each stage on the way.",
    )
    parser.add_argument(
        "-o", "--output", default="build/heat", metavar="DIR", help="folder for the C (build/heat)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import tracegrad as tg

    screen = Screen()
    problem = make_problem()
    gradient = tg.value_and_grad(misfit)
    _show_function(screen)
    _show_stages(screen)
    _show_check(screen)
    demo_descent.show(screen, gradient, problem)
    demo_descent.show_cost(screen, gradient, problem)
    return demo_export.show(screen, gradient, problem, Path(args.output))


def _show_function(screen: Screen) -> None:
    screen.section("The function", _ABOUT)
    screen.code(inspect.getsource(misfit), "python")


def small_problem() -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Arguments of `misfit` whose graphs fit on a page: 8 cells, one record after 2 steps."""
    problem = make_problem(cells=8, times=1, steps=2)
    return problem.start, problem.initial, problem.records, problem.steps


def _show_stages(screen: Screen) -> None:
    import tracegrad as tg

    args = small_problem()
    value, gradient = tg.compile(misfit), tg.value_and_grad(misfit)
    screen.section(
        "The traced graph",
        "For a small rod (8 cells, 2 steps): what the function did, line by line. Handles into\n"
        "storages s0, s1, ... are written; order matters.",
    )
    screen.code(_text(value.graph(*args, stage="traced")), "ir")
    screen.section(
        "The functional graph",
        "Aliasing resolved: a view is a read (as_strided), a write makes a new value of the\n"
        "whole (copy_slices). Nothing is overwritten any more.",
    )
    screen.code(_text(value.graph(*args, stage="functional")), "ir")
    screen.section(
        "The backward graph",
        "Value and gradient as one graph, simplified together; the sweep back begins where the\n"
        "value is finished. Adjoints of slices are regions (add_slices), not padded arrays.",
    )
    screen.code(_text(gradient.graph(*args, stage="optimized")), "ir")
    screen.section(
        "The C",
        "What runs for the small rod: one function per loop nest, and the calls in order.",
    )
    screen.code(_excerpt(gradient.source(*args)), "c")


def _text(graph: Any) -> str:
    """A graph as text without the places, which are long paths here."""
    from tracegrad.graph.text import print_graph

    return print_graph(getattr(graph, "graph", graph), loc=False)
