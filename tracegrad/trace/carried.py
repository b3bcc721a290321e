"""What goes from one iteration to the next: its types at the start and at the end.

They stay the same; a Python number takes the type that it turns into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import optree

from tracegrad import source
from tracegrad.dtypes import BOOL, DType, promote
from tracegrad.errors import ArgumentError, DTypeError
from tracegrad.graph.ir import Literal, Operand
from tracegrad.trace.promote import as_arg, cast, shape_of
from tracegrad.trace.promote import literal as literal_of
from tracegrad.trace.regions import dtype_of_number
from tracegrad.trace.tracer import Trace, Tracer
from tracegrad.types import TensorType


@dataclass(slots=True, eq=False)
class Leaf:
    """One leaf of what is carried: its type at the start of every iteration."""

    before: Tracer | Literal
    type: TensorType
    weak: bool
    scalar: bool
    tracked: bool
    number: bool  # a Python number, which has no type of its own

    def enter(self, trace: Trace, hint: str) -> Tracer:
        return trace.argument(
            self.type, hint, tracked=self.tracked, scalar=self.scalar, weak=self.weak
        )

    def start(self, outer: Trace) -> Tracer | Literal:
        return cast(outer, self.before, self.type.dtype)


def leaf_of(outer: Trace, x: Any) -> Leaf:
    """A leaf of the initial value."""
    given = as_arg(outer, x)
    faces: Any = outer.face
    if isinstance(given, Tracer):
        type_ = TensorType(given.sizes, given.element_type)
        return Leaf(given, type_, given.weak, given.scalar, given.alias.requires_grad, False)
    if isinstance(given, Literal):
        return Leaf(given, given.type, False, faces.numpy_scalars, False, False)
    number = literal_of(given, dtype_of_number(given))
    return Leaf(
        number, number.type, isinstance(given, (float, complex)), faces.numpy_scalars, False, True
    )


def check_tree(before: optree.PyTreeSpec, after: optree.PyTreeSpec, what: str) -> None:
    """Refuse a body that returns another structure than it was given."""
    if before != after:
        raise ArgumentError(
            f"{what} is given {_tree_text(before)} and returns {_tree_text(after)}",
            kind="carry_type",
            loc=source.here(),
            remedy="Return what is carried in the structure of its initial value.",
        )


def _tree_text(tree: optree.PyTreeSpec) -> str:
    return str(tree.unflatten(["*"] * tree.num_leaves)).replace("'*'", "*")


def settle(
    trace: Trace,
    leaves: Sequence[Leaf],
    tree: optree.PyTreeSpec,
    after: Sequence[Tracer | Literal],
    numbers: Sequence[bool],
    what: str,
) -> bool:
    """Compare types at the end of an iteration with those at its start; whether a Python number
    or a gradient flag taught something, so that the body has to be traced again.

    `numbers`: which of `after` were Python numbers.  Raises DTypeError (kind ``carry_type``).
    """
    learned = False
    for k, (leaf, x, number) in enumerate(zip(leaves, after, numbers, strict=True)):
        type_ = TensorType(shape_of(x), x.type.dtype if isinstance(x, Literal) else x.element_type)
        weak = number or (isinstance(x, Tracer) and x.weak)
        if isinstance(x, Tracer) and x.alias.requires_grad and not leaf.tracked:
            leaf.tracked = learned = True
        if type_ == leaf.type and leaf.weak <= weak:
            continue
        if leaf.number and type_.shape == ():
            dtype = (
                type_.dtype
                if leaf.weak and not weak and _kind(type_.dtype) >= _kind(leaf.type.dtype)
                else promote(leaf.type.dtype, type_.dtype)
            )
            new = leaf.weak and weak
            if (dtype, new) != (leaf.type.dtype, leaf.weak):
                leaf.type, leaf.weak = TensorType((), dtype), new
                learned = True
                continue
        if type_.shape == leaf.type.shape and (
            type_ == leaf.type or (weak and _kind(type_.dtype) <= _kind(leaf.type.dtype))
        ):
            continue
        _refuse(leaf, x, type_, tree, k, what)
    return learned


_ORDER = "buifc"


def _kind(dtype: DType) -> int:
    return 0 if dtype is BOOL else _ORDER.index("i" if dtype.kind == "u" else dtype.kind)


def _refuse(
    leaf: Leaf, x: Tracer | Literal, after: TensorType, tree: optree.PyTreeSpec, k: int, what: str
) -> NoReturn:
    path = "".join(f"[{p!r}]" for p in tree.paths()[k])
    place = f" in its leaf {path}" if path else ""
    made = leaf.before.alias.made if isinstance(leaf.before, Tracer) else None
    left = x.alias.made if isinstance(x, Tracer) else None
    raise DTypeError(
        f"{what} carries {leaf.type}{place} and returns {after}",
        kind="carry_type",
        loc=source.here(),
        notes=((f"it starts as {leaf.type}:", made), (f"it is returned as {after}:", left)),
        remedy="What goes from one iteration to the next keeps its shape and dtype: give the "
        "initial value the type of the result (np.zeros(n), x.astype(...)), or convert the "
        "result.",
    )


def final_operands(
    trace: Trace, leaves: Sequence[Leaf], after: Sequence[Tracer | Literal]
) -> list[Operand]:
    """The ends of an iteration in the types of its start."""
    return [
        trace.operand(cast(trace, x, leaf.type.dtype))
        for leaf, x in zip(leaves, after, strict=True)
    ]
