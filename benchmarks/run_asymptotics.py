"""Do time, compile time and memory grow as they should with the number of iterations?

    python benchmarks/run_asymptotics.py [--json asymptotics.json] [--only sizes|trips|memory]

Three tables.  time(2n)/time(n), forward and gradient: 2 is right for programs linear in n, 4 for
sweeps over an n by n grid, 8 for a factorisation.  The time to compile for trip counts from 10 to
10^7.  The memory that a gradient takes for up to a million steps, without and with a limit.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tracegrad as tg  # noqa: E402
from benchmarks.measure import (  # noqa: E402
    in_a_process,
    seconds_of,
    seconds_together,
    shape_of,
)
from benchmarks.npbench import KERNELS, fresh  # noqa: E402


def recurrence(y):
    """A recurrence in place, whose derivative needs what each step overwrites."""
    for i in range(1, len(y)):
        y[i] = np.sin(y[i - 1]) * y[i]
    return np.sum(y)


def few_numbers(x, steps):
    """A loop over scalars alone; its trip count may be large."""
    s = x
    for _ in range(steps):
        s = s * 0.999 + 0.001
    return s


def stepping(u, steps):
    """Steps of a differential equation, whose derivative needs the state before each."""
    for _ in range(steps):
        u = u + 0.01 * np.sin(u)
    return np.sum(u)


def _vector(n: int) -> tuple[Any, ...]:
    return (np.random.default_rng(0).uniform(1.2, 1.8, n),)  # values stay near 1.5, no subnormals


def _named(name: str, **fixed: int) -> tuple[Callable[..., Any], Callable[[int], Any]]:
    k = KERNELS[name]
    return k.function, lambda n: k.arguments({**fixed, "n": n})


# name: (function, arguments by n, sizes, growth of the work when n doubles)
LINEAR = {
    "recurrence": (recurrence, _vector, (10_000, 100_000, 500_000), 2),
    "tridiagonal": (*_named("tridiagonal"), (10_000, 100_000, 500_000), 2),
    "seidel_2d": (*_named("seidel_2d", steps=2), (100, 500), 4),
    "adi": (*_named("adi", steps=2), (100, 500), 4),
    "trisolv": (*_named("trisolv"), (250, 1000), 4),
    "cholesky": (*_named("cholesky"), (60, 120), 8),
}
VECTORISED = ("adi",)  # NumPy's own growth is measured too: caches make it more than the work's
TRIPS = (10, 1000, 100_000, 10_000_000)
STEPS = (1000, 10_000, 100_000, 1_000_000)
STATE = 64  # numbers that a step of `stepping` updates
LIMIT = "256kB"
MOST_HELD = 2**28  # bytes; gradients that need more are not run without a limit


def timed(name: str, n: int) -> dict[str, Any]:
    """Seconds at n and 2n of value, gradient and (where vectorised) NumPy; seconds of compiling
    and bytes of the gradient's arena at n."""
    function, make, _, _ = LINEAR[name]
    small, large = make(n), make(2 * n)
    where = tuple(k for k, x in enumerate(small) if isinstance(x, np.ndarray))
    forward, gradient = tg.compile(function), tg.grad(function, argnums=where)
    start = time.perf_counter()
    forward(*fresh(small))
    middle = time.perf_counter()
    gradient(*fresh(small))
    end = time.perf_counter()
    out: dict[str, Any] = {
        "n": n,
        "compile": middle - start,
        "gradient_compile": end - middle,
        "arena": shape_of(gradient, fresh(small))["arena"],
    }
    measured = {"forward": forward, "gradient": gradient}
    if name in VECTORISED:
        measured["numpy"] = function
    for word, f in measured.items():
        calls = [(f, lambda a=a: fresh(a)) for a in (small, large)]  # type: ignore[misc]
        for _, arguments in calls:
            f(*arguments())
        out[word] = seconds_together(calls, 0.0 if f is function else 6.0)
    return out


def compiled_for(trips: int) -> dict[str, Any]:
    """Seconds from a new function to its first result, less the run itself."""
    out: dict[str, Any] = {"trips": trips}
    for word, made in (("forward", tg.compile(few_numbers)), ("gradient", tg.grad(few_numbers))):
        start = time.perf_counter()
        made(0.5, trips)
        first = time.perf_counter() - start
        start = time.perf_counter()
        made(0.5, trips)
        out[word] = first - (time.perf_counter() - start)
    return out


def remembered(steps: int, limited: bool) -> dict[str, Any]:
    """Bytes of the arena of the gradient of `stepping`, growth of the process while it runs, and
    seconds beside those of the value."""
    options = {"memory_limit": LIMIT} if limited else {}
    forward, gradient = tg.compile(stepping), tg.grad(stepping, **options)
    u = np.linspace(0.5, 1.5, STATE)
    out: dict[str, Any] = {"steps": steps, "arena": shape_of(gradient, (u, steps))["arena"]}
    if out["arena"] > MOST_HELD:
        return out
    gradient(u, 8)  # what a first call takes is no part of the growth
    forward(u, steps)
    gradient.lower(u, steps).compile()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradient(u, steps)
    out["growth"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    seconds = [seconds_of(f, lambda: (u, steps), 0.5) for f in (forward, gradient)]
    return {**out, "forward": seconds[0], "gradient": seconds[1]}


TITLES = [
    "program",
    "n",
    "forward ms",
    "gradient ms",
    "x at 2n",
    "gradient",
    "numpy",
    "want",
    "compile s",
    "gradient s",
    "arena kB",
]


def line(cells: list[str]) -> str:
    return f"{cells[0]:<14}" + "".join(f"{x:>12}" for x in cells[1:])


def _growth(found: dict[str, Any], word: str) -> str:
    return f"{found[word][1] / found[word][0]:.2f}" if word in found else "-"


def show(name: str, timeout: float) -> list[dict[str, Any]]:
    """Print a line for each size: times at n, and what they grow by at 2n."""
    rows = []
    _, _, sizes, growth = LINEAR[name]
    for n in sizes:
        found = in_a_process(__file__, ["--timed", name, str(n)], timeout)
        rows.append({"name": name, "expected": growth, "n": n, **found})
        if "failed" in found:
            print(f"{name:<14}{n:>10}  {found['failed']}", flush=True)
            continue
        cells = [f"{found[key][0] * 1e3:.3f}" for key in ("forward", "gradient")]
        cells += [_growth(found, key) for key in ("forward", "gradient", "numpy")]
        cells += [str(growth), f"{found['compile']:.2f}", f"{found['gradient_compile']:.2f}"]
        cells += [f"{found['arena'] / 1e3:.1f}"]
        print(line([name, str(n), *cells]), flush=True)
    return rows


def show_sizes(timeout: float) -> list[dict[str, Any]]:
    print(line(TITLES))
    return [row for name in LINEAR for row in show(name, timeout)]


def show_trips(timeout: float) -> list[dict[str, Any]]:
    print(f"{'trips':>10}{'compile s':>12}{'gradient s':>12}")
    rows = []
    for n in TRIPS:
        found = in_a_process(__file__, ["--compiled", str(n)], timeout)
        rows.append({"trips": n, **found})
        shown = found.get("failed") or f"{found['forward']:>10.3f}{found['gradient']:>12.3f}"
        print(f"{n:>10}  {shown}", flush=True)
    return rows


def show_memory(timeout: float) -> list[dict[str, Any]]:
    print(f"{'steps':>10}{'limit':>8}{'arena kB':>11}{'growth kB':>11}{'gradient/value':>16}")
    rows = []
    for n in STEPS:
        for limit in ("", LIMIT):
            found = in_a_process(__file__, ["--remembered", str(n), limit or "none"], timeout)
            rows.append({"limit": limit, "steps": n, **found})
            if "failed" in found:
                print(f"{n:>10}{limit:>8}  {found['failed']}", flush=True)
                continue
            ratio = found["gradient"] / found["forward"] if "gradient" in found else None
            shown = f"{found['growth'] / 1e3:>11.0f}{ratio:>16.1f}" if ratio else "  not run"
            print(f"{n:>10}{limit or '-':>8}{found['arena'] / 1e3:>11.0f}{shown}", flush=True)
    return rows


SHOWN = {"sizes": show_sizes, "trips": show_trips, "memory": show_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=tuple(SHOWN), help="one of the tables")
    parser.add_argument("--json", help="write the numbers to this file too")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a size")
    parser.add_argument("--timed", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--remembered", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.timed:
        print(json.dumps(timed(given.timed[0], int(given.timed[1]))))
    elif given.compiled:
        print(json.dumps(compiled_for(given.compiled)))
    elif given.remembered:
        steps, limit = given.remembered
        print(json.dumps(remembered(int(steps), limit != "none")))
    else:
        found = {k: f(given.timeout) for k, f in SHOWN.items() if given.only in (None, k)}
        if given.json:
            pathlib.Path(given.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
