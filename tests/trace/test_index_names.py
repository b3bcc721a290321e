"""Renaming the indices of loops in a graph."""

from __future__ import annotations

import numpy as np
import pytest

from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.parse import parse_graph
from tracegrad.graph.text import canonical, print_graph
from tracegrad.graph.verify import verify
from tracegrad.trace.index_names import rename_indices

TRIANGLE = """
graph @f(%x: f64[5, 5]) -> (f64[5, 5]) stage=functional {
  %y = loop(%x) {index = "i0", trips = 5, reverse = false, carries = 1, consts = 0, results = [f64[5, 5]]} : f64[5, 5] {
    graph @f.loop[i0: 0..4](%x: f64[5, 5]) -> (f64[5, 5]) stage=functional {
      %z = loop(%x) {index = "i1", trips = i0 + 1, reverse = false, carries = 1, consts = 0, results = [f64[5, 5]]} : f64[5, 5] {
        graph @f.loop.loop[i0: 0..4, i1: 0..i0](%x: f64[5, 5]) -> (f64[5, 5]) stage=functional {
          %a = as_strided(%x) {view = [i0, 0:i1 + 1]} : f64[i1 + 1]
          %b = as_strided(%x) {view = [i1, i0 - i1:i0 + 1]} : f64[i1 + 1]
          %c = mul(%a, %b) : f64[i1 + 1]
          %d = copy_slices(%x, %c) {view = [i0, 0:i1 + 1], shape = [5, 5]} : f64[5, 5]
          return %d
        }
      }
      return %z
    }
  }
  return %y
}
"""  # noqa: E501


def renamed_text(text, names):
    for old in names:
        text = text.replace(old, f"<{old}>")
    for old, new in names.items():
        text = text.replace(f"<{old}>", new)
    return text


@pytest.mark.parametrize(
    "names",
    [{"i0": "i1", "i1": "i2"}, {"i0": "i1", "i1": "i0"}, {"i1": "k"}, {"i0": "i7"}, {"i5": "i6"}],
)
def test_all_at_once_in_attributes_types_and_ranges(names):
    before = parse_graph(TRIANGLE)
    verify(before)
    after = rename_indices(before, names)
    verify(after)
    assert canonical(after) == canonical(parse_graph(renamed_text(TRIANGLE, names)))
    assert print_graph(rename_indices(after, {new: old for old, new in names.items()})) == (
        print_graph(before)
    )
    x = np.random.default_rng(0).uniform(0.5, 1.5, (5, 5))
    np.testing.assert_array_equal(evaluate(after, [x])[0], evaluate(before, [x])[0])
