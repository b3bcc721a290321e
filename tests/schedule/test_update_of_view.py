"""An update whose base is a view of a computed value: the view is copied, not forgotten."""

from __future__ import annotations

import numpy as np

import tracegrad.ops  # noqa: F401  (fills the registry)
from tracegrad.graph.text import parse_graph
from tracegrad.loops.interpret import run_program
from tracegrad.schedule.plan import make_plan

GRAPH = """
graph @f(%x: f64[3, 4], %y: f64[4, 1], %b: f64[2]) -> (f64[3]) stage=functional {
  %a = matmul(%x, %y) : f64[3, 1]
  %r = as_strided(%a) {view = reshape(3)} : f64[3]
  %o = add_slices(%r, %b) {view = [1:3], shape = [3]} : f64[3]
  return %o
}
"""


def test_the_base_is_copied_into_the_result() -> None:
    rng = np.random.default_rng(0)
    x, y, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 1)), rng.standard_normal(2)
    out = np.full(3, np.nan)
    program = make_plan(parse_graph(GRAPH)).program
    status, _ = run_program(program, [x.reshape(-1), y.reshape(-1), b], [out])
    want = (x @ y)[:, 0]
    want[1:] += b
    assert status == 0
    np.testing.assert_allclose(out, want, rtol=1e-14)
