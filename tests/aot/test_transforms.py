"""Transforms as exported C: the example program compares it with what Python computed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg


def chain(x: Any) -> Any:
    y = x.copy()
    y[1:] *= x[:-1]
    return (y**3).sum()


def recurrence(x: Any) -> Any:
    y = x.copy()
    for k in range(1, 4):
        y[k] += np.sin(y[k - 1])
    return y


MADE = {
    "value_and_grad": tg.value_and_grad(chain),
    "hessian": tg.hessian(chain),
    "jacfwd": tg.jacfwd(recurrence),
    "jacrev": tg.jacrev(recurrence),
    "slope": tg.grad(lambda x: (tg.grad(chain)(x) ** 2).sum()),
    "along": tg.compile(lambda x, v: tg.jvp(recurrence, (x,), (v,))[1]),
    "product": tg.compile(lambda x, v: tg.hvp(chain, (x,), (v,))),
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", MADE)
def test_exported(tmp_path: Path, name: str) -> None:
    count = 2 if name in ("along", "product") else 1
    tg.export(MADE[name], [tg.spec((4,))] * count, tmp_path / "out", name=name)
    subprocess.run(["make", "-s"], cwd=tmp_path / "out", check=True)
    done = subprocess.run(["./example"], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0 and "all outputs agree" in done.stdout, done.stdout
