"""Judges of programs with loops: rolled = unrolled = NumPy, and gradients beside differences.

``python -m tests.fuzz.loops_judge --programs 2000 --seed 0`` runs many and prints what differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracegrad as tg
from tests.fuzz.judge_numpy import REFUSALS, Outcome, Refused, is_single
from tests.fuzz.laws import Disagreement, same
from tests.fuzz.loops import make, run
from tests.fuzz.program import Program, shrink
from tracegrad.errors import MemoryLimitError, TracegradError

ALLOWED = REFUSALS | {"loop", "outside_write", "closure_mutation", "carry_type", "branch_type"}

SEGMENTED = 6000  # bytes: a limit under which most of these loops are run in segments


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
    found = {name: Outcome(way, [a.make() for a in p.args]) for name, way in ways.items()}
    if "known only when it runs" in str(found["unrolled"].error):
        del found["unrolled"]  # a loop that an array's value bounds has no copies
    check_refusals({name: got.error for name, got in found.items()})
    for name, got in found.items():
        if agree_on_error(name, got, want, p):
            _compare(name, got, want, p)
    if want.error is not None:
        return "raised"
    rolled = "loop(" in ways["rolled"].graph(*[a.make() for a in p.args])
    if gradients:
        _check_gradients(f, p, backend, rolled, "unrolled" in found)
    return "rolled" if rolled else "unrolled"


def check_refusals(errors: dict[str, Exception | None]) -> None:
    """What one way refuses, the other refuses too: then there is nothing to compare with."""
    kinds = {}
    for name, e in errors.items():
        if isinstance(e, TracegradError) and _is_allowed(e):
            if e.loc is None:
                raise Disagreement(f"{name}: error without a line", f"[{e.kind}] {e}") from e
            kinds[name] = e.kind
    if kinds and len(kinds) < len(errors):
        name, kind = next(iter(kinds.items()))
        raise Disagreement(f"{name}: refused alone", f"[{kind}] {errors[name]}") from errors[name]
    if kinds:
        raise Refused(next(iter(kinds.values())))


def _is_allowed(e: TracegradError) -> bool:
    rounds = e.kind == "result_cast" and ".at(" in str(e)  # NumPy rounds to integers there
    return e.kind in ALLOWED or "float16" in str(e) or rounds


def agree_on_error(name: str, got: Outcome, want: Outcome, p: Program) -> bool:
    """True when both ran; an error must be of NumPy's class, at its line, and leave arguments."""
    e = got.error
    if e is None and want.error is None:
        return True
    if e is not None and not isinstance(e, TracegradError):
        if type(e) is not type(want.error):
            raise Disagreement(f"{name}: crash", f"{type(e).__name__}: {e}") from e
    elif want.error is None:
        assert isinstance(e, TracegradError)
        if isinstance(e, ValueError | IndexError) and re.search(r"tg\.(cond|switch)", p.text):
            raise Refused(f"{e.kind} in a branch that does not run")
        raise Disagreement(f"{name}: refusal", f"[{e.kind}] {e}") from e
    elif e is None:
        raise Disagreement(f"{name}: error", f"nothing raised, NumPy: {want.error!r}")
    else:
        classes = [c for c in type(want.error).__mro__ if c.__module__ == "builtins"]
        if not isinstance(e, classes[0]):
            raise Disagreement(f"{name}: error", f"{e!r}, NumPy: {want.error!r}") from e
    assert e is not None and want.error is not None
    at, wanted = line_of(e), line_of(want.error)
    # What is checked when the program runs comes after all that is checked while tracing.
    if at != wanted and not re.search(r"tg\.[a-z]+_?loop|tg\.scan|range\(.*k\[", p.text):
        raise Disagreement(
            f"{name}: line of an error", f"{at}, NumPy: {wanted} {want.error!r}\n{e}"
        ) from e
    for k, a in enumerate(p.args):
        same(f"{name}: argument {k} after a failed call", got.args[k], a.make())
    return False


def line_of(e: Exception) -> int | None:
    """The line of the program that an error names, or was raised in."""
    if isinstance(e, TracegradError):
        return getattr(e.loc, "line", None)
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if "<program" in f.filename]
    return lines[-1] if lines else None


def _compare(name: str, got: Outcome, want: Outcome, p: Program) -> None:
    # Where something is single, sums in another order differ more, and may be widened since.
    rtol = 2e-4 if is_single(p.text, p.args) else 1e-9
    for k, (g, w) in enumerate(zip(got.results, want.results, strict=True)):
        same(f"{name}: result {p.results[k]}", g, w, rtol)
        if type(g) is not type(w) and not isinstance(w, np.ndarray | float | int):
            raise Disagreement(
                f"{name}: result {p.results[k]}", f"{type(g).__name__}, not {type(w).__name__}"
            )
    for a, g, w in zip(p.args, got.args, want.args, strict=True):
        same(f"{name}: argument {a.name} after the call", g, w, rtol)


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


def _check_gradients(
    f: Callable[..., Any], p: Program, backend: str, rolled: bool, unrolls: bool
) -> None:
    wrt = tuple(k for k, a in enumerate(p.args) if np.dtype(a.dtype).kind == "f")
    value = _objective(f)

    def gradient(**options: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return tg.value_and_grad(value, argnums=wrt, backend=backend, **options)(
                    *[a.make() for a in p.args]
                )
        except TracegradError as e:
            if isinstance(e, MemoryLimitError):
                raise
            if _is_allowed(e):
                raise Refused(f"gradient {e.kind}") from e
            raise Disagreement("gradient refused", f"[{e.kind}] {e}") from e

    single = is_single(p.text, p.args)
    loose, tight = (2e-3, 1e-4) if single else (1e-8, 1e-9)

    def agree(what: str, found: Any, wanted: Any) -> None:
        same(f"gradient: value, {what}", np.float64(found[0]), np.float64(wanted[0]), tight)
        for k, g, w in zip(wrt, found[1], wanted[1], strict=True):
            same(f"gradient of {p.args[k].name}: {what}", g, w, loose)

    total, grads = gradient()
    if rolled and unrolls:
        agree("rolled against unrolled", (total, grads), gradient(loops="unroll"))
    if rolled:
        with contextlib.suppress(MemoryLimitError):
            agree("in segments", gradient(memory_limit=SEGMENTED), (total, grads))
    if not single and "no_grad" not in p.text and np.isfinite(total):
        _check_slope(value, p, wrt, grads)
        _check_forward(value, p, wrt, grads, backend)


def _check_forward(
    value: Callable[..., Any],
    p: Program,
    wrt: Sequence[int],
    grads: Sequence[np.ndarray],
    backend: str,
) -> None:
    rng = np.random.default_rng(5)
    ways = {k: np.asarray(rng.uniform(-1, 1, p.args[k].shape)) for k in wrt}
    run = tg.compile(value, backend=backend)
    tangents = tuple(ways.get(k) for k in range(len(p.args)))
    try:
        with np.errstate(all="ignore"):
            _, dot = tg.jvp(run, tuple(a.make() for a in p.args), tangents)
    except TracegradError as e:
        raise Disagreement("jvp refused", f"[{e.kind}] {e}") from e
    slope = float(sum(np.vdot(g, ways[k]) for k, g in zip(wrt, grads, strict=True)))
    same("jvp against vjp", np.float64(dot), np.float64(slope), 1e-7)


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


Check = Callable[..., str]


def attempt(
    p: Program, backend: str, gradients: bool = True, check: Check = check_program
) -> BaseException | str:
    try:
        return check(p, backend=backend, gradients=gradients)
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


def reduced(p: Program, backend: str, e: BaseException, tries: int, check: Check) -> Program:
    wanted = signature(e)

    def fails(candidate: Program) -> bool:
        found = attempt(candidate, backend, "gradient" in wanted, check)
        return isinstance(found, BaseException) and signature(found) == wanted

    return shrink(p, fails, tries)


def faces(name: str) -> tuple[Callable[[int], Program], Check]:
    """The generator and the judge of one face; PyTorch is needed for its own only."""
    if name == "numpy":
        return make, check_program
    generator = importlib.import_module("tests.fuzz.loops_torch")
    judge = importlib.import_module("tests.fuzz.loops_torch_judge")
    return generator.make, judge.check_program


def soak(
    programs: int,
    seed: int,
    every_c: int,
    limit: float,
    tries: int,
    each: int = 1,
    face: str = "numpy",
    say: Callable[[str], None] = print,
) -> Counter[str]:
    """Run the programs of `seed`, `seed` + 1, ...; every `every_c`-th through compiled C."""
    generate, check = faces(face)
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for n in range(seed, seed + programs):
        if time.monotonic() - start > limit:
            break
        backend = "c" if every_c and n % every_c == 0 else "numpy"
        gradients = n % 3 == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = generate(n)
            found = attempt(p, backend, gradients, check)
            counts["run"] += 1
            if isinstance(found, str):
                counts[found] += 1
                continue
            what = f"FAILED {signature(found)}"
            counts[what] += 1
            if counts[what] <= each:
                small = reduced(p, backend, found, tries, check)
                again = attempt(small, backend, check=check)
                say(f"---- seed {n} ({backend}): {signature(found)}\n{again}\n{small.text}\n")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--c", type=int, default=0, help="every n-th program through C; 0: none")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--tries", type=int, default=150)
    parser.add_argument("--face", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--each", type=int, default=1, help="programs shown of one failure")
    given = parser.parse_args()
    counts = soak(
        given.programs, given.seed, given.c, given.seconds, given.tries, given.each, given.face
    )
    for what, count in sorted(counts.items()):
        print(f"{count:6d}  {what}")


if __name__ == "__main__":
    main()
