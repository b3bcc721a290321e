"""Runs a functional graph node by node through each op's NumPy reference: the meaning of graphs.

Every later stage is checked against this; nothing here is fast or clever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad import dims
from tracegrad.errors import TracegradError, ValueArgumentError, VerifyError
from tracegrad.graph.ir import Graph, Literal, Node, Operand, Stage, Value
from tracegrad.graph.symbols import bind_symbols
from tracegrad.graph.walk import last_uses
from tracegrad.loops.grown import GROWN, is_grown
from tracegrad.types import TensorType

Sizes = Mapping[str, int]


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], *, sizes: Sizes | None = None
) -> list[np.ndarray]:
    """The outputs of `graph` on `inputs`, one array each (0-d for scalars and literals).

    `sizes` binds the symbols of symbolic shapes by name.  Arrays may be inputs passed through:
    treat them as read-only.  An op that has regions is called with ``regions=``, one function
    ``(*arrays) -> list of arrays`` a region.

    Raises `ValueArgumentError` when the inputs do not fit the graph, `VerifyError` when a
    reference disagrees with its op's shape rule, and what CHECKED ops raise.
    """
    if graph.stage is not Stage.FUNCTIONAL:
        raise VerifyError(f"graph {graph.name} is {graph.stage.value}; only functional graphs run")
    bound = dict(sizes or {})
    env = _bind(graph, inputs, bound)
    dying = last_uses(graph)
    for at, node in enumerate(graph.nodes):
        _run(node, env, bound)
        for value in dying[at]:
            del env[value]
    return [np.asarray(_read(x, env)) for x in graph.outputs]


def _bind(
    graph: Graph, inputs: Sequence[np.ndarray], sizes: dict[str, int]
) -> dict[Value, np.ndarray]:
    if len(inputs) != len(graph.inputs):
        raise ValueArgumentError(
            f"graph {graph.name} takes {len(graph.inputs)} inputs, not {len(inputs)}"
        )
    env = {}
    for value, given in zip(graph.inputs, inputs, strict=True):
        array = np.asarray(given)
        for dim, n in zip(value.shape, array.shape, strict=False):
            if isinstance(dim, dims.Expr) and not is_grown(dim):
                free = dims.symbols(dim)
                if len(free) == 1 and dims.is_equal(dim, dims.of_atom(next(iter(free)))):
                    sizes.setdefault(next(iter(free)).name, n)
        if array.dtype != value.dtype.np or not _fits(array.shape, value.type, sizes):
            raise ValueArgumentError(
                f"input {value.hint} of graph {graph.name} is {value.type}, "
                f"not {array.dtype}{list(array.shape)}"
            )
        env[value] = array
    return env


def _fits(shape: tuple[int, ...], type_: TensorType, sizes: Sizes) -> bool:
    """Whether an array has the shape of its type; one that grew has any length."""
    return len(shape) == type_.rank and all(
        is_grown(d) or n == _size(d, sizes) for n, d in zip(shape, type_.shape, strict=True)
    )


def _size(d: dims.Dim, sizes: Sizes) -> int:
    return d if isinstance(d, int) else int(dims.evaluate(d, sizes))


def _read(x: Operand, env: Mapping[Value, np.ndarray]) -> Any:
    """An array, or a NumPy scalar of the literal's dtype."""
    return x.dtype.np.type(x.value) if isinstance(x, Literal) else env[x]


def _run(node: Node, env: dict[Value, np.ndarray], sizes: Sizes) -> None:
    keywords: dict[str, Any] = {}
    if node.regions:
        keywords["regions"] = tuple(_region(g, sizes) for g in node.regions)
    try:
        with np.errstate(all="ignore"):
            known = sizes if node.regions else {**sizes, **_lengths(node, env)}
            attrs = bind_symbols(node.attrs, known) if known else node.attrs
            out = node.op.reference(attrs, *[_read(x, env) for x in node.operands], **keywords)
    except TracegradError as e:
        raise e.at(node.loc) from None
    if len(node.results) == 1 and not isinstance(out, (tuple, list)):
        out = (out,)
    elif not node.results and out is None:
        out = ()
    if len(out) != len(node.results):
        raise VerifyError(
            f"the reference of {node.op.name} gives {len(out)} results, not {len(node.results)}",
            loc=node.loc,
        )
    for value, result in zip(node.results, out, strict=True):
        array = np.asarray(result)
        if array.dtype != value.dtype.np or not _fits(array.shape, value.type, sizes):
            raise VerifyError(
                f"the reference of {node.op.name} gives {array.dtype}"
                f"{list(array.shape)}, its shape rule {value.type}",
                loc=node.loc,
            )
        env[value] = array


def _lengths(node: Node, env: Mapping[Value, np.ndarray]) -> Sizes:
    """The length of what grew, where an operand did."""
    grown = [x for x in node.values() if any(map(is_grown, x.shape))]
    return {str(GROWN): len(env[grown[0]])} if grown else {}


def _region(graph: Graph, sizes: Sizes) -> Callable[..., list[np.ndarray]]:
    """A region as a function of arrays; keywords bind further symbols (loop indices)."""

    def run(*arrays: np.ndarray, **symbols: int) -> list[np.ndarray]:
        bound = {**sizes, **symbols}
        return evaluate(
            graph,
            [_front(x, v.type, bound) for x, v in zip(arrays, graph.inputs, strict=True)],
            sizes=bound,
        )

    return run


def _front(array: np.ndarray, type_: TensorType, sizes: Sizes) -> np.ndarray:
    """The part of an element of a stack that its iteration filled."""
    if all(isinstance(n, int) for n in type_.shape):
        return array
    ends = [None if is_grown(n) else _size(n, sizes) for n in type_.shape]
    return np.asarray(array)[tuple(map(slice, ends))]
