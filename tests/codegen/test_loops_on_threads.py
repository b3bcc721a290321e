"""Emitted loops on threads, with the pool, as plain programs under the thread sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from compiled import WARNINGS

import tracegrad as tg
import tracegrad.runtime
from tests.parallel_programs import PROGRAMS
from tracegrad.codegen.c_family import literal
from tracegrad.loops.program import Place

GCC = shutil.which("gcc")
FLAGS = ["-std=gnu11", "-O1", "-g", "-fopenmp-simd", "-fsanitize=thread", "-pthread"]
POOL = Path(tracegrad.runtime.__file__).with_name("pool.c")
MAIN = """
#include <stdio.h>
#include <stdlib.h>
void tg_pool_run(void (*)(void *, ptrdiff_t, ptrdiff_t), void *, ptrdiff_t, int);
int main(void) {
%s
  void *ws = aligned_alloc(64, %d);
  void *bufs[] = {%s};
  tg_parallel = tg_pool_run;
  int status = 0;
  for (int k = 0; k < 200; ++k) status |= tg_entry(bufs, ws);
  free(ws);
  return status;
}
"""


def runs_under_the_sanitizer(folder: Path) -> bool:
    (folder / "plain.c").write_text("int main(void) { return 0; }\n")
    command = [str(GCC), *FLAGS, "plain.c", "-o", "plain"]
    built = subprocess.run(command, cwd=folder, capture_output=True)
    return built.returncode == 0 and (
        subprocess.run([folder / "plain"], capture_output=True).returncode == 0
    )


def build_and_run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.c").write_text(text)
    command = [str(GCC), *FLAGS, *WARNINGS, "main.c", str(POOL), "-o", "main", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return subprocess.run([folder / "main"], capture_output=True, text=True)


def program_text(f, args) -> str:
    """The unit of `f` with a main function that calls it on `args`."""
    lowering = f.lower(*args).specialisation.lowering
    program, unit = lowering.plan.program, lowering.unit
    lines = []
    inputs = list(zip(program.at(Place.INPUT), args, strict=True))
    inputs += [(b, b.data) for b in unit.external_constants]
    for b, x in inputs:
        values = ", ".join(literal(v, b.dtype)[0] for v in np.asarray(x).reshape(-1).tolist())
        lines.append(f"  static {b.dtype.c} {b.name}[] = {{{values}}};")
    for b in program.at(Place.OUTPUT):
        lines.append(f"  static {b.dtype.c} {b.name}[{b.size}];")
    names = [b.name for b in (*program.at(Place.INPUT), *program.at(Place.OUTPUT))]
    names += [b.name for b in unit.external_constants]
    nbytes = -(-max(64, program.arena_nbytes) // 64) * 64
    return unit.text + MAIN % ("\n".join(lines), nbytes, ", ".join(names))


@pytest.mark.skipif(GCC is None, reason="no gcc")
@pytest.mark.parametrize("name", ["shared", "temporaries", "symmetric"])
def test_no_two_threads_meet(name, tmp_path):
    if not runs_under_the_sanitizer(tmp_path):
        pytest.skip("no thread sanitizer")
    program, args = PROGRAMS[name]
    over = partial(tg.range, parallel=True)
    loss = tg.grad(
        lambda *xs: np.sum(np.sin(program(over, *xs))), argnums=tuple(range(len(args))), threads=4
    )
    text = program_text(loss, args)
    done = build_and_run(tmp_path, text)
    assert done.returncode == 0, done.stderr
    if name == "temporaries":
        # The sanitizer sees it where threads share the temporaries.
        spoiled = build_and_run(tmp_path, text.replace("worker * ", "0 * "))
        assert "data race" in spoiled.stderr
