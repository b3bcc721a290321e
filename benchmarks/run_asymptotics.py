"""Do time and compile time grow as they should with the number of iterations?

    python benchmarks/run_asymptotics.py [--json asymptotics.json]

time(2n)/time(n) should be near 2 for programs linear in n (near 4 for sweeps over an n by n
grid), forward and gradient; the time to compile should not depend on the trip count.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tracegrad as tg  # noqa: E402
from benchmarks.measure import in_a_process, seconds_of, shape_of  # noqa: E402
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


def _vector(n: int) -> tuple[Any, ...]:
    return (np.random.default_rng(0).uniform(1.2, 1.8, n),)  # values stay near 1.5, no subnormals


def _named(name: str, **fixed: int) -> tuple[Callable[..., Any], Callable[[int], Any]]:
    k = KERNELS[name]
    return k.function, lambda n: k.arguments({**fixed, "n": n})


# name: (function, arguments by n, sizes, growth of the work when n doubles)
LINEAR = {
    "recurrence": (recurrence, _vector, (10_000, 100_000, 500_000), 2),
    "tridiagonal": (*_named("tridiagonal"), (10_000, 100_000, 500_000), 2),
    "seidel_2d": (*_named("seidel_2d", steps=2), (100, 300, 500), 4),
    "adi": (*_named("adi", steps=2), (100, 300, 500), 4),
}
VECTORISED = ("adi",)  # NumPy's own growth is measured too: caches make it more than the work's
TRIPS = (10, 1000, 100_000, 10_000_000)


def timed(name: str, n: int) -> dict[str, Any]:
    """Seconds of forward and gradient at n; bytes of the gradient's arena; compile seconds."""
    function, make, _, _ = LINEAR[name]
    arguments = make(n)
    where = tuple(k for k, x in enumerate(arguments) if isinstance(x, np.ndarray))
    forward, gradient = tg.compile(function), tg.grad(function, argnums=where)
    plain = None
    if name in VECTORISED:
        plain = seconds_of(function, lambda: fresh(arguments), 0.0)
    start = time.perf_counter()
    forward(*fresh(arguments))
    middle = time.perf_counter()
    gradient(*fresh(arguments))
    end = time.perf_counter()
    return {
        "n": n,
        "forward": seconds_of(forward, lambda: fresh(arguments), 0.5),
        "gradient": seconds_of(gradient, lambda: fresh(arguments), 0.5),
        "compile": middle - start,
        "gradient_compile": end - middle,
        "arena": shape_of(gradient, fresh(arguments))["arena"],
        "numpy": plain,
    }


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


def _growth(one: dict[str, Any], two: dict[str, Any], key: str) -> str:
    return f"{two[key] / one[key]:.2f}" if one[key] else "-"


def show(name: str, timeout: float) -> list[dict[str, Any]]:
    """Print a line for each size with the ratio to half of it."""
    rows = []
    _, _, sizes, growth = LINEAR[name]
    for n in sizes:
        one, two = (in_a_process(__file__, ["--timed", name, str(m)], timeout) for m in (n, 2 * n))
        rows.append({"name": name, "expected": growth, "n": one, "2n": two})
        if "failed" in one or "failed" in two:
            print(f"{name:<14}{n:>10}  {one.get('failed') or two.get('failed')}", flush=True)
            continue
        cells = [f"{one[key] * 1e3:.3f}" for key in ("forward", "gradient")]
        cells += [_growth(one, two, key) for key in ("forward", "gradient", "numpy")]
        cells += [str(growth), f"{one['compile']:.2f}", f"{one['gradient_compile']:.2f}"]
        cells += [f"{one['arena'] / 1e3:.1f}"]
        print(line([name, str(n), *cells]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", help="write the numbers to this file too")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a size")
    parser.add_argument("--timed", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.timed:
        print(json.dumps(timed(given.timed[0], int(given.timed[1]))))
        return
    if given.compiled:
        print(json.dumps(compiled_for(given.compiled)))
        return
    print(line(TITLES))
    rows = [row for name in LINEAR for row in show(name, given.timeout)]
    print(f"\n{'trips':>10}{'compile s':>12}{'gradient s':>12}")
    trips = []
    for n in TRIPS:
        found = in_a_process(__file__, ["--compiled", str(n)], given.timeout)
        trips.append({"trips": n, **found})
        shown = found.get("failed") or f"{found['forward']:>10.3f}{found['gradient']:>12.3f}"
        print(f"{n:>10}  {shown}", flush=True)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps({"sizes": rows, "trips": trips}, indent=1))


if __name__ == "__main__":
    main()
