"""Judges of programs with loops: rolled = unrolled = NumPy, and gradients beside differences.

``python -m tests.fuzz.loops_judge --programs 2000 --seed 0`` runs many and prints what differs.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracegrad as tg
from tests.fuzz.judge_numpy import REFUSALS, Outcome, Refused
from tests.fuzz.laws import Disagreement, same
from tests.fuzz.loops import PRELUDE, make
from tests.fuzz.program import Program, function, shrink
from tracegrad.errors import TracegradError

ALLOWED = REFUSALS | {"loop", "outside_write", "closure_mutation"}


def run(p: Program, **names: Any) -> Callable[..., Any]:
    return function(PRELUDE + p.text, tg=tg, **names)


def check_program(p: Program, *, backend: str = "numpy", gradients: bool = True) -> str:
    """All ways of running `p`; "rolled", "unrolled" or "raised" says what became of it.

    Raises Disagreement, or Refused where tracegrad says that it cannot run the program.
    """
    f = run(p)
    want = Outcome(f, [a.make() for a in p.args])
    ways = {
        "rolled": tg.compile(f, backend=backend),
        "unrolled": tg.compile(f, backend=backend, loops="unroll"),
    }
    rolled = False
    found: dict[str, Outcome] = {}
    for name, compiled in ways.items():
        got = found[name] = Outcome(compiled, [a.make() for a in p.args])
        if not _agree_on_error(name, got, want, p):
            continue
        _compare(name, got, want, p)
        if name == "rolled":
            rolled = "= loop(" in compiled.graph(*[a.make() for a in p.args])
    if want.error is not None:
        return "raised"
    if gradients:
        _check_gradients(f, p, backend, rolled)
    return "rolled" if rolled else "unrolled"


def _agree_on_error(name: str, got: Outcome, want: Outcome, p: Program) -> bool:
    e = got.error
    if e is None and want.error is None:
        return True
    if e is not None and type(e) is type(want.error):
        return False
    if e is not None and not isinstance(e, TracegradError):
        raise Disagreement(f"{name}: crash", f"{type(e).__name__}: {e}") from e
    if isinstance(e, TracegradError) and (e.kind in ALLOWED or "float16" in str(e)):
        raise Refused(f"{e.kind} ({name})")
    if want.error is None:
        assert isinstance(e, TracegradError)
        raise Disagreement(f"{name}: refusal", f"[{e.kind}] {e}") from e
    if e is None:
        raise Disagreement(f"{name}: error", f"nothing raised, NumPy: {want.error!r}")
    classes = [c for c in type(want.error).__mro__ if c.__module__ == "builtins"]
    if not isinstance(e, classes[0]):
        raise Disagreement(f"{name}: error", f"{e!r}, NumPy: {want.error!r}")
    for k, a in enumerate(p.args):
        same(f"{name}: argument {k} after a failed call", got.args[k], a.make())
    return False


def _compare(name: str, got: Outcome, want: Outcome, p: Program) -> None:
    for k, (g, w) in enumerate(zip(got.results, want.results, strict=True)):
        same(f"{name}: result {p.results[k]}", g, w)
        if type(g) is not type(w) and not isinstance(w, np.ndarray | float | int):
            raise Disagreement(
                f"{name}: result {p.results[k]}", f"{type(g).__name__}, not {type(w).__name__}"
            )
    for a, g, w in zip(p.args, got.args, want.args, strict=True):
        same(f"{name}: argument {a.name} after the call", g, w)


def _objective(f: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all float results, each element with a weight of its own."""

    def value(*args: Any) -> Any:
        total: Any = 0.0
        for k, r in enumerate(f(*args)):
            if isinstance(r, float) and not hasattr(r, "shape"):
                total = total + np.cos(1.0 + k) * r
            elif "float" in str(getattr(r, "dtype", "")):
                w = np.cos(1.0 + k + 0.7 * np.arange(int(np.prod(r.shape)))).reshape(r.shape)
                total = total + (r * w).sum()
        return total * 1.0

    return value


def _check_gradients(f: Callable[..., Any], p: Program, backend: str, rolled: bool) -> None:
    wrt = tuple(k for k, a in enumerate(p.args) if np.dtype(a.dtype).kind == "f")
    value = _objective(f)

    def gradient(**options: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return tg.value_and_grad(value, argnums=wrt, backend=backend, **options)(
                    *[a.make() for a in p.args]
                )
        except TracegradError as e:
            if e.kind in ALLOWED:
                raise Refused(f"gradient {e.kind}") from e
            raise Disagreement("gradient refused", f"[{e.kind}] {e}") from e

    total, grads = gradient()
    single = any(a.dtype == "float32" for a in p.args) or "float32" in p.text
    if rolled:
        same_total, others = gradient(loops="unroll")
        same("gradient: value", np.float64(total), np.float64(same_total), 1e-4 if single else 1e-9)
        for k, g, w in zip(wrt, grads, others, strict=True):
            same(
                f"gradient of {p.args[k].name}: rolled against unrolled",
                g,
                w,
                2e-3 if single else 1e-8,
            )
    if not single and "no_grad" not in p.text and np.isfinite(total):
        _check_slope(value, p, wrt, grads)


def _check_slope(
    value: Callable[..., Any], p: Program, wrt: Sequence[int], grads: Sequence[np.ndarray]
) -> None:
    rng = np.random.default_rng(7)
    ways = [np.asarray(rng.uniform(-1, 1, p.args[k].shape)) for k in wrt]
    slope = float(sum(np.vdot(g, d) for g, d in zip(grads, ways, strict=True)))

    def moved(t: float) -> float:
        given = [a.make() for a in p.args]
        for k, d in zip(wrt, ways, strict=True):
            given[k] = p.args[k].laid_out(given[k] + t * d)
        with np.errstate(all="ignore"):
            return float(value(*given))

    h = 1e-6
    right, left, middle = moved(h), moved(-h), moved(0.0)
    near = (moved(h / 2) - moved(-h / 2)) / h
    if abs(middle) > 1e5:
        return  # differences would drown in the rounding of so large a value
    found = (right - left) / (2 * h)
    scale = max(1.0, abs(found))
    if abs(near - found) > 1e-5 * scale or abs(right + left - 2 * middle) / h > 1e-2 * scale:
        return
    if not abs(found - slope) <= 1e-4 * max(scale, abs(slope)):
        raise Disagreement("gradient against differences", f"slope {slope!r}, not {found!r}")


# ---------------------------------------------------------------------------------- long runs


def attempt(p: Program, backend: str, gradients: bool = True) -> BaseException | str:
    try:
        return check_program(p, backend=backend, gradients=gradients)
    except Refused as e:
        return f"refused: {e.kind}"
    except (Exception, AssertionError) as e:
        return e


def signature(e: BaseException) -> str:
    """Failures with one signature are taken to be one bug."""
    if isinstance(e, Disagreement):
        text = "" if "values" in str(e) else str(e).split("\n")[0].partition(": ")[2][:70]
        cause = e.__cause__
        if "crash" in e.where and cause is not None:
            frame = traceback.extract_tb(cause.__traceback__)[-1]
            text += f" {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
        return f"{e.where.split(' [')[0]} {text}"
    frame = traceback.extract_tb(e.__traceback__)[-1]
    return f"{type(e).__name__} at {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"


def reduced(p: Program, backend: str, e: BaseException, tries: int = 150) -> Program:
    wanted = signature(e)

    def fails(candidate: Program) -> bool:
        found = attempt(candidate, backend, "gradient" in wanted)
        return isinstance(found, BaseException) and signature(found) == wanted

    return shrink(p, fails, tries)


def soak(
    programs: int,
    seed: int,
    every_c: int,
    limit: float,
    tries: int,
    say: Callable[[str], None] = print,
) -> Counter[str]:
    """Run the programs of `seed`, `seed` + 1, ...; every `every_c`-th through compiled C."""
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for n in range(seed, seed + programs):
        if time.monotonic() - start > limit:
            break
        backend = "c" if every_c and n % every_c == 0 else "numpy"
        p = make(n)
        gradients = n % 3 == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = attempt(p, backend, gradients)
            counts["run"] += 1
            if isinstance(found, str):
                counts[found] += 1
                continue
            what = f"FAILED {signature(found)}"
            counts[what] += 1
            if counts[what] == 1:
                small = reduced(p, backend, found, tries)
                again = attempt(small, backend)
                say(f"---- seed {n} ({backend}): {signature(found)}\n{again}\n{small.text}\n")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--c", type=int, default=0, help="every n-th program through C; 0: none")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--tries", type=int, default=150)
    given = parser.parse_args()
    counts = soak(given.programs, given.seed, given.c, given.seconds, given.tries)
    for what, count in sorted(counts.items()):
        print(f"{count:6d}  {what}")


if __name__ == "__main__":
    main()
