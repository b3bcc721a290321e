"""The rough work of a program, which decides whether a call gives up the interpreter lock."""

from __future__ import annotations

from tracegrad.loops.text import parse_program
from tracegrad.runtime.launch import work_of

TEXT = """\
program @p arena 0 {
  buffer %y: f64[1000] output 0 shape (1000)
  kernel @fill(out %y: f64[1000]) {
    for k in 1000, parallel {
      store %y[k] = 1.0
    }
  }
  kernel @put(inout %y: f64[1000])[i [0..999]] {
    store %y[i] = load %y[i]
  }
  launch @fill(%y)
  for i in 20, reverse {
    launch @put(%y)[i]
    for j [0..18] in i, forward {
      launch @put(%y)[j]
    }
  }
}
"""


def test_loops_count_their_trips_and_scalar_kernels_a_few_elements():
    """1000 of the fill; each of 20 trips 1, and at most 19 inner ones."""
    program = parse_program(TEXT, {})
    assert work_of(program) == 1000 + 20 * (1 + 19)
    straight = parse_program(TEXT.replace("launch @put(%y)[j]", "launch @fill(%y)"), {})
    assert work_of(straight) == 1000 + 20 * (1 + 19 * 1000)
