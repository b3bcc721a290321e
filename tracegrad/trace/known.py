"""Arrays whose contents are known while tracing: how they enter the graph, what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad import dtypes, source
from tracegrad.errors import LeakedTracerError
from tracegrad.graph.builder import GraphBuilder
from tracegrad.graph.evaluate import evaluate
from tracegrad.graph.ir import Literal, Operand, Value
from tracegrad.graph.op import Attrs, OpDef
from tracegrad.ops.create import ConstantData, constant, full
from tracegrad.trace.memory import Tracer
from tracegrad.types import TensorType


def value_of(b: GraphBuilder, array: np.ndarray) -> Value:
    """A node that makes the contents of `array`."""
    dtype = dtypes.of(array.dtype)
    flat = array.reshape(-1)
    if flat.size == 0 or (
        flat[:1].tobytes() * min(flat.size, 2) == flat[:2].tobytes()
        and np.all(flat.view(f"V{array.itemsize}") == flat[:1].view(f"V{array.itemsize}"))
    ):
        value = Literal(flat[0].item() if flat.size else 0, dtype)
        return b.emit(full, (), full.attrs(array.shape, value))  # type: ignore[no-any-return]
    return b.emit(constant, (), constant.attrs(ConstantData(array)))  # type: ignore[no-any-return]


def evaluated(build: Callable[..., Operand], xs: Sequence[Tracer | Literal]) -> np.ndarray:
    """What `build` makes of known operands."""
    b = GraphBuilder("constant")
    arrays = [x.concrete for x in xs if isinstance(x, Tracer)]
    inputs = iter(
        [
            b.input(TensorType(a.shape, dtypes.of(a.dtype)), "x")  # type: ignore[union-attr]
            for a in arrays
        ]
    )
    made = build(b, *[x if isinstance(x, Literal) else next(inputs) for x in xs])
    return evaluate(b.finish([made]), arrays)[0]  # type: ignore[arg-type]


def reference(op: OpDef, xs: Sequence[Tracer | Literal], attrs: Attrs) -> Any:
    """The op's value for known operands, by its NumPy reference."""
    arrays = [np.asarray(x.value, x.dtype.np) if isinstance(x, Literal) else x.concrete for x in xs]
    types = [TensorType(a.shape, dtypes.of(a.dtype)) for a in arrays]  # type: ignore[union-attr]
    op.infer(attrs, *types)
    return op.reference(attrs, *arrays)


def leaked(x: Tracer) -> LeakedTracerError:
    """The error for a tracer that meets a recorder it does not belong to."""
    if x.trace.eager:
        return LeakedTracerError(
            f"a tg.Tensor of shape {x.sizes} made at the prompt meets a traced value",
            kind="eager_in_trace",
            loc=source.here(),
            remedy="Pass it to the traced function as an argument.",
        )
    return LeakedTracerError(
        f"a traced value of shape {x.sizes} is used outside the call that made it",
        loc=source.here(),
        remedy="Return it from the function instead of keeping it in a list, a global or an "
        "attribute.",
        notes=(("it was made here:", x.alias.made),) if x.alias.made is not None else (),
    )
