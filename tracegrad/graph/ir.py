"""The tensor IR: values, nodes, graphs.  Frozen; only `graph.builder.GraphBuilder` makes them.

A graph is a straight list of nodes in static single assignment form; a node may hold *regions*,
which are closed graphs (what they need is among the node's operands).

Two stages share these classes:

TRACED      values may be handles into storages: a node with op ``view`` makes an alias of its
            operand, a node with a `target` has no results and writes its value through that
            handle.  Order matters.
FUNCTIONAL  no views that alias, no targets: ``as_strided`` reads, ``copy_slices`` makes a new
            base.  Any topological order means the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from tracegrad.dtypes import DType
from tracegrad.graph.storage import View
from tracegrad.source import SourceLoc
from tracegrad.types import TensorType

if TYPE_CHECKING:
    from tracegrad.graph.op import Attrs, OpDef


class Stage(Enum):
    TRACED = "traced"
    FUNCTIONAL = "functional"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One result or input; compared by identity.

    `hint` is a name from the user's code or from the op; printing makes names unique.
    `storage` numbers the storage a traced value is a handle into (None after functionalisation).
    """

    type: TensorType
    hint: str = "t"
    storage: int | None = None
    loc: SourceLoc | None = None

    @property
    def shape(self) -> tuple:  # type: ignore[type-arg]
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass(frozen=True, slots=True)
class Literal:
    """A scalar constant operand; where an op wants a tensor it stands for that value everywhere.
    The value is a Python complex for complex dtypes, which only traced graphs have.

    Compared by dtype and bits (so that 0.0 and -0.0 differ and NaN equals itself).
    """

    value: bool | int | float
    dtype: DType
    key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", np.asarray(self.value, self.dtype.np).tobytes())
        object.__setattr__(self, "value", np.frombuffer(self.key, self.dtype.np)[0].item())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self.dtype, self.key) == (other.dtype, other.key)

    def __hash__(self) -> int:
        return hash((self.dtype, self.key))

    @property
    def type(self) -> TensorType:
        return TensorType((), self.dtype)

    @property
    def shape(self) -> tuple[()]:
        return ()


Operand = Value | Literal


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation.

    `target` (traced stage only) is the handle that receives the node's single value instead of
    a result.  `grad` is False for nodes recorded with gradients off, `inference` is True for
    those recorded in inference mode (then `grad` is False too).
    """

    op: OpDef
    operands: tuple[Operand, ...]
    attrs: Attrs
    results: tuple[Value, ...]
    regions: tuple[Graph, ...] = ()
    target: Value | None = None
    grad: bool = True
    loc: SourceLoc | None = None
    inference: bool = False

    @property
    def result(self) -> Value:
        assert len(self.results) == 1, f"{self.op.name} has {len(self.results)} results"
        return self.results[0]

    def values(self) -> Iterator[Value]:
        """The operands that are values, then the target."""
        for x in self.operands:
            if isinstance(x, Value):
                yield x
        if self.target is not None:
            yield self.target


@dataclass(frozen=True, slots=True)
class OutputAlias:
    """Output `output` of a call is a view of argument leaf `input` (of the caller's memory)."""

    output: int
    input: int
    view: View


@dataclass(frozen=True, slots=True)
class SharedOutput:
    """Output `output` of a call is a view of graph output `base`, a whole intermediate that
    other outputs are views of too."""

    output: int
    base: int
    view: View


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Graph output `output` is the new contents of argument leaf `input`."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class AliasReport:
    """What the call has to do beyond returning values; filled in by functionalisation.

    `results` is the number of leading graph outputs that the user sees; the rest are
    write-backs and the bases of `shared`.  `notes` are lines for `explain()`.
    """

    results: int
    write_backs: tuple[WriteBack, ...] = ()
    aliases: tuple[OutputAlias, ...] = ()
    shared: tuple[SharedOutput, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A closed program.  `tracked[k]` says that gradients may be asked of input k."""

    name: str
    stage: Stage
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Operand, ...]
    tracked: tuple[bool, ...] = ()
    alias: AliasReport | None = None
