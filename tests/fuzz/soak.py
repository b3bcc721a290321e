"""Long runs: ``python -m tests.fuzz.soak --programs 3000 --seed 0 [--face numpy] [--c 4]``.

Prints each new kind of disagreement as a shrunk program, ready to be a test, and counts.
"""

from __future__ import annotations

import argparse
import importlib
import time
import traceback
from collections import Counter
from collections.abc import Callable
from types import ModuleType

from tests.fuzz.judge_numpy import Refused
from tests.fuzz.laws import Disagreement
from tests.fuzz.program import Program, shrink


def attempt(p: Program, judge: ModuleType, backend: str, second: bool) -> BaseException | None:
    """What was wrong with a program: a disagreement or a crash; None when nothing was.

    Raises Refused.
    """
    try:
        judge.check_program(p, backend=backend, second=second)
    except Refused:
        raise
    except Exception as e:
        return e
    return None


def signature(e: BaseException) -> str:
    """Failures with one signature are taken to be one bug."""
    if isinstance(e, Disagreement):
        head = e.where.split(" [")[0]
        text = "" if "values" in str(e) else str(e).split("\n")[0].partition(":")[2][:60]
        return f"{head}{text}"
    frame = traceback.extract_tb(e.__traceback__)[-1]
    return f"{type(e).__name__} at {frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"


def reduced(p: Program, judge: ModuleType, backend: str, second: bool, e: BaseException) -> Program:
    """A smaller program with a failure of the same signature."""
    wanted = signature(e)

    def fails(candidate: Program) -> bool:
        try:
            found = attempt(candidate, judge, backend, second)
        except Refused:
            return False
        return found is not None and signature(found) == wanted

    return shrink(p, fails)


def soak(
    face: str,
    programs: int,
    seed: int,
    every_c: int,
    limit: float,
    say: Callable[[str], None] = print,
) -> Counter[str]:
    """Run programs `seed`, `seed` + 1, ...; every `every_c`-th through compiled C, and every
    fifth differentiated twice."""
    generator = importlib.import_module(f"tests.fuzz.generate_{face}")
    judge = importlib.import_module(f"tests.fuzz.judge_{face}")
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for n in range(seed, seed + programs):
        if time.monotonic() - start > limit:
            break
        backend = "c" if every_c and n % every_c == 0 else "numpy"
        second = n % 5 == 1
        p = generator.make(n)
        counts[f"run ({backend})"] += 1
        try:
            e = attempt(p, judge, backend, second)
        except Refused as refused:
            counts[f"refused: {refused.kind}"] += 1
            continue
        if e is None:
            counts["agreed"] += 1
            continue
        what = f"FAILED {signature(e)}"
        counts[what] += 1
        if counts[what] == 1:
            small = reduced(p, judge, backend, second, e)
            again = attempt(small, judge, backend, second) or e
            say(f"---- seed {n} ({backend}): {signature(e)}\n{again}\n{judge.as_test(small)}\n")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--face", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--c", type=int, default=4, help="every n-th program through C; 0: none")
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    counts = soak(given.face, given.programs, given.seed, given.c, given.seconds)
    for what, count in sorted(counts.items()):
        print(f"{count:6d}  {what}")


if __name__ == "__main__":
    main()
