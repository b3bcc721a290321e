"""The rules for ops whose derivative is made of their regions, by attribute class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.graph.ir import Node
from tracegrad.graph.op import Attrs

if TYPE_CHECKING:
    from tracegrad.autodiff.jvp import Forward
    from tracegrad.autodiff.vjp import Reverse

# (reverse pass, node, cotangents of the results, which operands count) -> their cotangents
PullRule = Callable[["Reverse", Node, Any, Any], Any]
# (forward pass, node, tangents of the operands) -> tangents of the results
PushRule = Callable[["Forward", Node, Any], Any]

PULL: dict[type[Attrs], PullRule] = {}
PUSH: dict[type[Attrs], PushRule] = {}
