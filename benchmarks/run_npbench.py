"""Each program of `benchmarks.npbench`: does it compile, and how fast is it beside NumPy?

    python benchmarks/run_npbench.py                        # all, at the large sizes
    python benchmarks/run_npbench.py seidel_2d adi --size small --json npbench.json

Each program runs in a process of its own with one thread and an empty cache: NumPy, tracegrad and
(where it is installed and a form is written) JAX side by side.  The columns:

- as it is: yes for natural NumPy without a change;
- loops: loop nodes of the optimized graph of the value;
- NumPy ms: the shortest of repeated calls of the function itself, or where it had to change, of
  what one would write for NumPy alone;
- value, gradient: shortest times of the value and of value with gradient over NumPy's, and JAX's;
- gradient/value: one over the other, both ours;
- compile s, gradient s: from a new function to the end of its first call;
- arena kB, gradient kB: memory beside arguments and results, of the value and with gradient.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tracegrad as tg  # noqa: E402
from benchmarks.measure import in_a_process, seconds_of, shape_of  # noqa: E402
from benchmarks.npbench import KERNELS, Kernel, differentiable, fresh  # noqa: E402

COLUMNS = (
    ("program", "name", 25),
    ("as it is", "unchanged", 9),
    ("loops", "loops", 6),
    ("NumPy ms", "numpy_ms", 9),
    ("value", "forward_ratio", 8),
    ("JAX", "jax_forward_ratio", 8),
    ("gradient", "gradient_ratio", 9),
    ("JAX", "jax_gradient_ratio", 8),
    ("gradient/value", "gradient_by_forward", 15),
    ("compile s", "compile_s", 10),
    ("gradient s", "gradient_compile_s", 11),
    ("arena kB", "arena_kb", 9),
    ("gradient kB", "gradient_arena_kb", 12),
)


def measure(kernel: Kernel, size: str) -> dict[str, Any]:
    """One row of the table; times in ms and s, arenas in kB of 1000 bytes."""
    arguments = kernel.arguments(getattr(kernel, size))
    expected = kernel.function(*fresh(arguments))
    row: dict[str, Any] = {
        "name": kernel.name,
        "unchanged": not kernel.changed,
        "changed": kernel.changed,
        "size": dict(getattr(kernel, size)),
    }
    forward = tg.compile(kernel.function)
    start = time.perf_counter()
    got = forward(*fresh(arguments))
    row["compile_s"] = time.perf_counter() - start
    row["error"] = float(abs(got - expected) / max(abs(expected), 1e-300))
    found = shape_of(forward, fresh(arguments))
    row |= {"loops": found["loops"], "nodes": found["nodes"], "arena_kb": found["arena"] / 1e3}
    gradient = tg.value_and_grad(kernel.function, argnums=differentiable(kernel, arguments))
    start = time.perf_counter()
    gradient(*fresh(arguments))
    row["gradient_compile_s"] = time.perf_counter() - start
    found = shape_of(gradient, fresh(arguments))
    row["gradient_arena_kb"] = found["arena"] / 1e3
    numpy_s = seconds_of(kernel.natural or kernel.function, lambda: fresh(arguments))
    forward_s = seconds_of(forward, lambda: fresh(arguments))
    gradient_s = seconds_of(gradient, lambda: fresh(arguments))
    row |= {
        "numpy_ms": numpy_s * 1e3,
        "forward_ratio": forward_s / numpy_s,
        "gradient_ratio": gradient_s / numpy_s,
        "gradient_by_forward": gradient_s / forward_s,
    }
    return row | in_jax(kernel, arguments, numpy_s)


def in_jax(kernel: Kernel, arguments: tuple[Any, ...], numpy_s: float) -> dict[str, float]:
    """JAX's times as multiples of NumPy's; empty without JAX or a form of this program."""
    try:
        import jax

        from benchmarks.npbench.in_jax import FORMS, STATIC
    except ImportError:
        return {}
    if kernel.name not in FORMS:
        return {}
    form, static = FORMS[kernel.name], STATIC.get(kernel.name, ())
    forward = jax.jit(form, static_argnums=static)
    gradient = jax.jit(
        jax.value_and_grad(form, differentiable(kernel, arguments)), static_argnums=static
    )
    given = tuple(jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for x in arguments)
    return {
        word: seconds_of(lambda *xs, f=f: jax.block_until_ready(f(*xs)), lambda: given) / numpy_s
        for word, f in (("jax_forward_ratio", forward), ("jax_gradient_ratio", gradient))
    }


def text(x: Any) -> str:
    if isinstance(x, bool):
        return "yes" if x else "changed"
    if not isinstance(x, float):
        return str(x)
    return f"{x:.0f}" if x >= 100 else f"{x:.2g}" if x < 10 else f"{x:.3g}"


def line(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['name']:<24}  {row['failed']}"
    return "".join(
        f"{text(row.get(key, '-')):>{width}}" if k else f"{row[key]:<{width}}"
        for k, (_, key, width) in enumerate(COLUMNS)
    )


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the rows, and what is to be said of some of them."""
    lines = [
        "| " + " | ".join(title for title, _, _ in COLUMNS) + " |",
        "|---" + "|--:" * (len(COLUMNS) - 1) + "|",
    ]
    for row in rows:
        if "failed" not in row:
            lines.append("| " + " | ".join(text(row.get(k, "-")) for _, k, _ in COLUMNS) + " |")
    failed = [f"{r['name']} ({r['failed']})" for r in rows if "failed" in r]
    lines += ["", f"Not measured: {', '.join(failed)}."] if failed else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all when none is given")
    parser.add_argument("--size", choices=("small", "large"), default="large")
    parser.add_argument("--json", help="write the rows to this file too")
    parser.add_argument("--markdown", help="write a page with the table to this file")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for a program")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(KERNELS[given.names[0]], given.size)))
        return
    print(
        "".join(
            f"{title:>{width}}" if k else f"{title:<{width}}"
            for k, (title, _, width) in enumerate(COLUMNS)
        )
    )
    rows = []
    for name in given.names or KERNELS:
        row = in_a_process(__file__, [name, "--size", given.size, "--here"], given.timeout)
        rows.append({"name": name, "changed": KERNELS[name].changed, **row})
        print(line(rows[-1]), flush=True)
    for row in rows:
        if row.get("changed"):
            print(f"{row['name']}: {row['changed']}")
    if given.markdown:
        pathlib.Path(given.markdown).write_text(markdown(rows))
    if given.json:
        about = {"numpy": np.__version__, "tracegrad": tg.__version__, "rows": rows}
        pathlib.Path(given.json).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
