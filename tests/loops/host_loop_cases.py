"""Programs with loops around launches, as text, and what they compute in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from loop_cases import INTRINSICS

from tracegrad.loops.program import Program
from tracegrad.loops.text import parse_program

RECURRENCE = """\
program @recurrence arena 0 {
  buffer %x: f64[6] input 0 shape (6)
  buffer %y: f64[6] output 0 shape (6)
  kernel @first(in %x: f64[6], out %y: f64[6]) {
    store %y[0] = load %x[0]
  }
  kernel @next(in %x: f64[6], inout %y: f64[6])[i [1..5]] {
    store %y[i] = mul(load %y[i - 1], load %x[i]) loc("decay.py":3:5)
  }
  launch @first(%x, %y)
  for i in 5, forward loc("decay.py":2:1) {
    launch @next(%x, %y)[i + 1] loc("decay.py":3:5)
  }
}
"""

# y = 7*y + 4*a + b for each launch, so the result tells the order of all of them.
TRIANGLE = """\
program @triangle arena 0 {
  buffer %y: i64[1] output 0 shape (1)
  kernel @start(out %y: i64[1]) {
    store %y[0] = 1
  }
  kernel @note(inout %y: i64[1])[a [0..3], b [0..3]] {
    store %y[0] = add(mul(load %y[0], 7), index(4*a + b))
  }
  launch @start(%y)
  for i in 4, reverse {
    for j in i, forward {
      launch @note(%y)[i, j]
    }
    launch @note(%y)[-i + 3, 3]
    for j in -i + 4, reverse {
      launch @note(%y)[j, i]
    }
  }
  for i in 0, forward {
    launch @note(%y)[2, 2]
  }
}
"""

# Indices below zero: in a kernel, and in a launch whose variable has no known least value.
FLOORS = """\
program @floors arena 0 {
  buffer %y: f64[8] output 0 shape (8)
  kernel @clear(out %y: f64[8]) {
    for k in 8, parallel {
      store %y[k] = 0.0
    }
  }
  kernel @count(inout %y: f64[8])[s [-5..2], unused] {
    update %y[floordiv(s, 2) + 3] add 1.0
    update %y[mod(s, 3) + 5] add cast(%s):f64
  }
  launch @clear(%y)
  for i in 8, forward {
    launch @count(%y)[i - 5, i]
    for j [..7] in i, reverse {
      launch @count(%y)[-mod(j, 3), floordiv(j, 2)]
    }
  }
}
"""

# A block of rows a step, through the arena; not a scalar kernel, so it stays a function.
ROWS = """\
program @rows arena 128 {
  buffer %x: f64[12] input 0 shape (4, 3)
  buffer %y: f64[12] output 0 shape (4, 3)
  buffer %t: f64[3] arena 0 offset 64 shape (3)
  kernel @clear(out %t: f64[3]) {
    for k in 3, parallel {
      store %t[k] = 0.0
    }
  }
  kernel @add_row(in %x: f64[12], inout %t: f64[3])[i [0..3]] {
    for k in 3, parallel {
      update %t[k] add load %x[3*i + k]
    }
  }
  kernel @put_row(in %t: f64[3], out %y: f64[12])[i [0..3]] {
    for k in 3, parallel {
      store %y[3*i + k] = load %t[k]
    }
  }
  launch @clear(%t)
  for row in 4, reverse {
    launch @add_row(%x, %t)[row]
    launch @put_row(%t, %y)[row]
  }
}
"""

GUARDED = """\
program @guarded arena 64 {
  buffer %detail: i64[1] arena -1 shape ()
  buffer %x: f64[5] input 0 shape (5)
  buffer %y: f64[5] output 0 shape (5)
  check "first"
  check "step {value} is too large" loc("limit.py":4:9)
  kernel @clear(out %y: f64[5]) {
    for k in 5, parallel {
      store %y[k] = -1.0
    }
  }
  kernel @take(in %x: f64[5], inout %y: f64[5], out %detail: i64[1])[i [0..4]] {
    check lt(load %x[i], 10.0):bool else 1 with index(i)
    store %y[i] = load %x[i]
  }
  launch @clear(%y)
  for i in 5, reverse {
    launch @take(%x, %y, %detail)[i] checks 1
  }
}
"""


CHOICES = """\
program @choices arena 64 {
  buffer %k: i64[6] input 0 shape (6)
  buffer %y: f64[6] output 0 shape (6)
  buffer %at: i64[1] arena 0 shape ()
  kernel @take(in %k: i64[6], out %at: i64[1])[i [0..5]] {
    store %at[0] = load %k[i]
  }
  kernel @low(out %y: f64[6])[i [0..5]] {
    store %y[i] = 1.0
  }
  kernel @mid(out %y: f64[6])[i [0..5]] {
    store %y[i] = 2.0
  }
  kernel @high(out %y: f64[6])[i [0..5]] {
    store %y[i] = 3.0
  }
  for i in 6, forward {
    launch @take(%k, %at)[i]
    branch %at loc("pick.py":3:5) {
      case {
        launch @low(%y)[i]
      }
      case {
        launch @mid(%y)[i] loc("pick.py":4:9)
      }
      case {
        launch @high(%y)[i]
      }
    }
  }
}
"""

UNTIL = """\
program @until arena 128 {
  buffer %x: f64[1] input 0 shape ()
  buffer %y: f64[6] output 0 shape (6)
  buffer %go: bool[1] arena 0 shape ()
  buffer %n: i64[1] arena 1 offset 64 shape ()
  kernel @start(in %x: f64[1], out %y: f64[6], out %n: i64[1]) {
    for k in 6, serial {
      store %y[k] = 0.0
    }
    store %y[0] = load %x[0]
    store %n[0] = 0
  }
  kernel @ask(in %y: f64[6], in %n: i64[1], out %go: bool[1]) {
    let %at: i64 [0..5] = load %n[0]
    store %go[0] = lt(load %y[at], 10.0):bool
  }
  kernel @next(inout %y: f64[6], out %n: i64[1])[i [0..3]] {
    store %y[i + 1] = mul(load %y[i], 2.0)
    store %n[0] = index(i + 1)
  }
  kernel @back(inout %y: f64[6])[i [0..4]] {
    store %y[i] = mul(load %y[i], load %y[i + 1])
  }
  launch @start(%x, %y, %n)
  while %go, i in 4 loc("until.py":2:1) {
    test {
      launch @ask(%y, %n, %go)
    }
    launch @next(%y, %n)[i]
  }
  for i in 5, reverse, count %n {
    launch @back(%y)[i]
  }
  branch %go {
    case {
      for i in 2, forward, count %n {
        launch @back(%y)[i]
      }
    }
    case {
    }
  }
}
"""

# Rows of two that are kept of as many steps as there are, and a copy of them.
GROWING = """\
program @growing arena 256 {
  buffer %x: f64[1] input 0 shape ()
  buffer %y: f64[1] output 0 shape ()
  buffer %tape: f64[2*grown] growing 0 shape (grown, 2)
  buffer %twin: f64[2*grown] growing 1 shape (grown, 2)
  buffer %detail: i64[1] arena -1 shape ()
  buffer %v: f64[1] arena 0 offset 64 shape ()
  buffer %n: i64[1] arena 1 offset 128 shape ()
  buffer %go: bool[1] arena 2 offset 192 shape ()
  check "no memory"
  check "no step"
  kernel @start(in %x: f64[1], out %v: f64[1], out %n: i64[1], out %y: f64[1]) {
    store %v[0] = load %x[0]
    store %n[0] = 0
    store %y[0] = 1.0
  }
  kernel @ask(in %v: f64[1], out %go: bool[1]) {
    store %go[0] = lt(load %v[0], 1000.0):bool
  }
  kernel @next(inout %v: f64[1], out %n: i64[1], out %tape: f64[2*grown])[i [0..]] {
    store %tape[2*i] = load %v[0]
    store %tape[2*i + 1] = mul(load %v[0], 2.0)
    store %v[0] = mul(load %v[0], 1.01)
    store %n[0] = index(i + 1)
  }
  kernel @some(in %n: i64[1], out %detail: i64[1]) {
    check lt(0, load %n[0]):bool else 1 with load %n[0]
  }
  kernel @back(inout %y: f64[1], in %tape: f64[2*grown], in %twin: f64[2*grown])[i [0..]] {
    store %y[0] = mul(load %y[0], 0.5)
    update %y[0] add mul(load %tape[2*i], load %twin[2*i + 1])
  }
  launch @start(%x, %v, %n, %y)
  while %go, i loc("until.py":2:1) {
    test {
      launch @ask(%v, %go)
    }
    grow %tape to 2*i + 2, check 1 loc("until.py":2:1)
    launch @next(%v, %n, %tape)[i]
  }
  launch @some(%n, %detail) checks 1
  copy %tape to %twin, check 1
  for i in grown, reverse, count %n {
    launch @back(%y, %tape, %twin)[i]
  }
  for i in grown, forward, count %n {
    launch @back(%y, %tape, %twin)[i]
  }
}
"""


@dataclass(frozen=True)
class HostCase:
    """`wanted` gives the output and (status, detail)."""

    text: str
    inputs: tuple[np.ndarray, ...]
    wanted: Callable[..., tuple[np.ndarray, tuple[int, int]]]

    def program(self) -> Program:
        return parse_program(self.text, INTRINSICS)


def _recurrence(x):
    return np.cumprod(x), (0, 0)


def _triangle():
    y = 1
    for i in (3, 2, 1, 0):
        pairs = [(i, j) for j in range(i)] + [(3 - i, 3)]
        for a, b in pairs + [(j, i) for j in reversed(range(4 - i))]:
            y = 7 * y + 4 * a + b
    return np.array([y]), (0, 0)


def _floors():
    y = np.zeros(8)
    for i in range(8):
        for s in (i - 5, *(-(j % 3) for j in range(i))):
            y[s // 2 + 3] += 1
            y[s % 3 + 5] += s
    return y, (0, 0)


def _rows(x):
    return np.cumsum(x.reshape(4, 3)[::-1], axis=0)[::-1].reshape(-1), (0, 0)


def _guarded(x):
    y = np.full(5, -1.0)
    for i in (4, 3, 2, 1, 0):
        if not x[i] < 10:
            return y, (2, i)
        y[i] = x[i]
    return y, (0, 0)


def _choices(k):
    return 1.0 + np.clip(k, 0, 2), (0, 0)


def _until(x):
    y, n, go = np.zeros(6), 0, True
    y[0] = x[0]
    for i in range(4):
        go = y[n] < 10
        if not go:
            break
        y[i + 1] = y[i] * 2
        n = i + 1
    for i in reversed(range(min(n, 5))):
        y[i] *= y[i + 1]
    if not go:
        for i in range(min(n, 2)):
            y[i] *= y[i + 1]
    return y, (0, 0)


def _growing(x):
    v, tape, y = x[0], [], 1.0
    while v < 1000:
        tape.append(v)
        v = v * 1.01
    for t in [*reversed(tape), *tape]:
        y = y * 0.5 + t * (t * 2)
    return np.array([y]), (0, 0) if tape else (2, 0)


HOST_CASES = {
    "recurrence": HostCase(RECURRENCE, (np.linspace(0.5, 2.0, 6),), _recurrence),
    "triangle": HostCase(TRIANGLE, (), _triangle),
    "floors": HostCase(FLOORS, (), _floors),
    "rows": HostCase(ROWS, (np.linspace(-1.0, 1.0, 12) ** 3,), _rows),
    "choices": HostCase(CHOICES, (np.array([0, 1, 2, -7, 9, 1]),), _choices),
    "until_soon": HostCase(UNTIL, (np.array([4.0]),), _until),
    "until_limit": HostCase(UNTIL, (np.array([0.1]),), _until),
    "until_never": HostCase(UNTIL, (np.array([11.0]),), _until),
    "growing": HostCase(GROWING, (np.array([0.1]),), _growing),
    "growing_never": HostCase(GROWING, (np.array([2000.0]),), _growing),
    "guard_holds": HostCase(GUARDED, (np.arange(5.0),), _guarded),
    "guard_fails": HostCase(GUARDED, (np.array([1.0, 20.0, 30.0, 4.0, 5.0]),), _guarded),
}
