"""``demo``: an inverse problem from a NumPy function to recovered parameters and C without Python.

Each section shows one thing; the numbers are those of this run.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracegrad.cli import demo_descent, demo_export, demo_problem
from tracegrad.cli.demo_code import problem_module
from tracegrad.cli.screen import Screen

_ABOUT = """\
An inverse problem: a rod is warm in places and cools; sensors at every third cell record the
temperature a few times. Which diffusivity, cell by cell, explains the records?
The function below is plain NumPy and writes its arrays in place. Its gradient is compiled."""


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
    misfit = problem_module().misfit
    gradient = tg.value_and_grad(misfit)
    problem = demo_problem.make_problem()
    screen.section("The function", _ABOUT)
    screen.code(inspect.getsource(demo_problem.misfit), "python")
    show_stages(screen, misfit, gradient)
    _show_check(screen, misfit, problem)
    demo_descent.show(screen, gradient, problem)
    demo_descent.show_cost(screen, gradient, problem)
    return demo_export.show(screen, misfit, problem, Path(args.output))


def show_stages(screen: Screen, misfit: Callable[..., Any], gradient: Any) -> None:
    """The graphs and the C for a rod of 8 cells, one record after 2 steps: they fit on a page."""
    import tracegrad as tg

    problem = demo_problem.make_problem(cells=8, times=1, steps=2)
    args = (problem.start, problem.initial, problem.records, problem.steps)
    value = tg.compile(misfit)
    screen.section(
        "The traced graph",
        "For a small rod (8 cells, 2 steps): what the function did, in order. Values are handles\n"
        "into storages s0, s1, ...; a node with 'writes' changes one.",
    )
    screen.code(head(value.graph(*args, stage="traced"), 28), "ir")
    screen.section(
        "The functional graph",
        "Aliasing resolved: a view is a read (as_strided), a write makes a new value of the\n"
        "whole array (copy_slices). Nothing is overwritten any more.",
    )
    screen.code(head(value.graph(*args, stage="functional"), 26), "ir")
    screen.section(
        "The backward graph",
        "Value and gradient are one graph, simplified together; this is the part after the value.\n"
        "The adjoint of a slice adds to a region (add_slices), it pads nothing.",
    )
    screen.code(after_value(gradient.graph(*args, stage="optimized")), "ir")
    screen.section(
        "The C", "Two of the loop nests for the small rod, and the calls in order (excerpt)."
    )
    screen.code(excerpt(gradient.source(*args)), "c")


def head(graph: str, count: int) -> str:
    """The first lines of a graph's text."""
    lines = graph.rstrip().splitlines()
    if len(lines) <= count + 3:
        return graph
    return "\n".join([*lines[:count], f"  ... {len(lines) - count - 2} more", *lines[-2:]])


def after_value(graph: str) -> str:
    """The text of a graph without the nodes up to its first result."""
    lines = graph.rstrip().splitlines()
    returned = next(line for line in lines if line.startswith("  return "))
    first = returned.split()[1].rstrip(",")
    at = next(k for k, line in enumerate(lines) if line.startswith(f"  {first} = "))
    return "\n".join([lines[0], f"  ... {at} nodes of the value", *lines[at + 1 :]])


def excerpt(source: str) -> str:
    """The two longest vector loops among the C functions, and the function that calls them,
    without its list of buffers."""
    blocks = [block for block in source.split("\n\n") if block.strip()]
    loops = [b for b in blocks if b.startswith("static TG_NOINLINE") and "\n  TG_SIMD" in b]
    longest = sorted(loops, key=len)[-2:]
    entry = next(b for b in blocks if b.startswith("TG_EXPORT int "))
    lines = entry.splitlines()
    kept = [line for line in lines if not line.startswith("  double *")]
    kept.insert(1, f"  /* ... {len(lines) - len(kept)} buffers in the workspace */")
    return "\n\n".join([*(k for k in loops if k in longest), "\n".join(kept)])


def _show_check(screen: Screen, misfit: Callable[..., Any], problem: Any) -> None:
    import tracegrad as tg

    screen.section("The gradient against finite differences")
    rest = (problem.initial, problem.records, problem.steps)
    _, slope = tg.value_and_grad(misfit)(problem.start, *rest)
    rows = []
    for cell in (6, 18, 30, 42, 54):
        step = 1e-6
        ends = []
        for sign in (1.0, -1.0):
            moved = problem.start.copy()
            moved[cell] += sign * step
            ends.append(misfit(moved, *rest))
        difference = (ends[0] - ends[1]) / (2.0 * step)
        error = abs(slope[cell] - difference) / abs(difference)
        rows.append((str(cell), f"{slope[cell]:.9f}", f"{difference:.9f}", f"{error:.0e}"))
    screen.table(
        ("cell", "gradient", "differences", "apart"), rows, right="cell gradient differences apart"
    )
    tg.check_grads(misfit, (problem.start, *rest), order=2)
    screen.text(
        "\ncheck_grads: first and second derivatives with respect to all arguments, forward\n"
        "and reverse, agree with finite differences along random directions"
    )
