"""`Function.apply` on tensors of the prompt: one node of the eager graph, with the user's rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tracegrad import source
from tracegrad.custom.context import Context
from tracegrad.custom.function import AT_THE_PROMPT, Function, run_forward
from tracegrad.eager.history import (
    Algebra,
    Edge,
    Node,
    Saved,
    backward_twice,
    saved_value,
    zeros,
)
from tracegrad.eager.recorder import EAGER
from tracegrad.eager.tensor import EagerTensor, as_tensor
from tracegrad.errors import GradientError, ShapeError, ViewMutationError
from tracegrad.trace.modes import is_tracking, no_grad
from tracegrad.types import TensorType
from tracegrad.views import family, legality
from tracegrad.views.family import CreationKind


class FunctionNode(Node):
    """A call of a `Function`: `inputs` numbers the tensors among its arguments."""

    __slots__ = ("cls", "ctx", "inputs", "kept", "likes", "released")

    def __init__(
        self,
        cls: Any,
        ctx: Context,
        args: tuple[Any, ...],
        inputs: list[int],
        edges: tuple[Edge | None, ...],
    ) -> None:
        super().__init__(f"{cls.__name__}Backward", edges, (), source.here())
        self.cls = cls
        self.ctx = ctx
        self.inputs = inputs
        self.likes = [_type(args[k]) for k in inputs]
        # Kept tensors: by value and where they belong, or as they are (None, a constant).
        self.kept: list[Any] = []
        self.released = False

    def keep(self, args: tuple[Any, ...], results: Sequence[Any]) -> None:
        """Take what `save_for_backward` was given, without a reference back to a result."""
        tensors = [args[k] for k in self.inputs]
        for x in self.ctx._notes.saved:
            if not isinstance(x, EagerTensor):
                self.kept.append(x)
                continue
            legality.check_saved(x.alias, self.loc)
            of = next((k for k, y in enumerate(tensors) if y is x), None)
            nr = next((k for k, y in enumerate(results) if y is x), None)
            self.kept.append((saved_value(x), of, nr))
        self.ctx._notes.saved = ()

    def run_as(
        self, algebra: Algebra, cts: Sequence[Any], own: Callable[[int], Edge]
    ) -> Sequence[Any]:
        if self.released:
            raise backward_twice(self)
        saved = tuple(self._kept(algebra, x, own) for x in self.kept)
        given = []
        for ct, type_ in zip(cts, self.outputs, strict=True):
            if ct is None and self.ctx._notes.materialize:
                ct = zeros(algebra, type_)
            given.append(None if ct is None else algebra.tensor(ct))
        got = self.cls.backward(self.ctx.with_values(saved, self.ctx.attributes()), *given)
        grads = got if isinstance(got, (tuple, list)) else (got,)
        count = len(self.ctx.needs_input_grad)
        if len(grads) < count or any(g is not None for g in grads[count:]):
            raise GradientError(
                f"{self.cls.__name__}.backward returns {len(grads)} gradients, and forward takes "
                f"{count} inputs",
                kind="custom_rule",
                loc=self.loc,
                remedy="Return one gradient an input; None where there is none.",
            )
        return [
            None if grads[k] is None or e is None else algebra.value(self._fit(grads[k], like))
            for k, like, e in zip(self.inputs, self.likes, self.edges, strict=True)
        ]

    def _kept(self, algebra: Algebra, x: Any, own: Callable[[int], Edge]) -> Any:
        if not isinstance(x, tuple):
            return x
        saved, of, nr = x
        assert isinstance(saved, Saved)
        saved.check(self)
        edge = self.edges[of] if of is not None else own(nr) if nr is not None else None
        return algebra.tensor(algebra.saved(saved, edge))

    def _fit(self, g: Any, like: TensorType) -> EagerTensor:
        """A gradient in the dtype and, summed where the input broadcasts to it, the shape of
        the input."""
        x: Any = as_tensor(g)
        if x.shape != like.shape:
            lead = len(x.shape) - len(like.shape)
            if lead < 0 or any(
                n not in (1, m) for n, m in zip(like.shape, x.shape[lead:], strict=True)
            ):
                raise ShapeError(
                    f"{self.cls.__name__}.backward returns a gradient of shape {x.shape} for an "
                    f"input of shape {like.shape}",
                    loc=self.loc,
                )
            axes = (
                *range(lead),
                *(k + lead for k, n in enumerate(like.shape) if n == 1 and x.shape[k + lead] != 1),
            )
            x = x.sum(axes).reshape(*like.shape)
        return x if x.element_type is like.dtype else x.to(like.dtype.np)  # type: ignore

    def release(self) -> None:
        self.released = bool(self.kept)
        self.kept = []


def apply(cls: type[Function], args: tuple[Any, ...]) -> Any:
    """Run forward with gradients off and wire its results to the rule."""
    inputs = [k for k, x in enumerate(args) if isinstance(x, EagerTensor)]
    if not inputs:
        return NotImplemented
    needs = tuple(is_tracking() and isinstance(x, EagerTensor) and x.requires_grad for x in args)
    edges = tuple(EAGER.edge(args[k]) if needs[k] else None for k in inputs)
    for k in inputs:
        if needs[k]:
            EAGER._check_use(args[k])
    ctx = Context(needs)
    with no_grad():
        result = run_forward(cls, ctx, args)
    several = isinstance(result, (tuple, list))
    results = list(result) if several else [result]
    _check_dirty(cls, ctx, results, any(needs))
    node = FunctionNode(cls, ctx, args, inputs, edges) if any(needs) else None
    if node is not None:
        node.outputs = tuple(_type(x) for x in results if isinstance(x, EagerTensor))
    made, number = [], 0
    for x in results:
        if isinstance(x, EagerTensor):
            made.append(_deliver(x, node, number, args, ctx, len(results) > 1, cls.__name__))
            number += 1
        else:
            made.append(x)
    if node is not None:
        node.keep(args, [x for x in results if isinstance(x, EagerTensor)])
    return tuple(made) if several else made[0]


def _type(x: Any) -> TensorType:
    return TensorType(x.shape, x.element_type)


def _among(x: Any, xs: Sequence[Any]) -> bool:
    return any(x is y for y in xs)


def _check_dirty(cls: type[Function], ctx: Context, results: list[Any], tracked: bool) -> None:
    loc = source.here()
    for x in ctx._notes.dirty:
        if not _among(x, results):
            raise ViewMutationError(
                f"{cls.__name__}.forward marks an input as dirty and does not return it",
                kind="dirty_not_returned",
                loc=loc,
                op_name=cls.__name__,
                remedy="Return every input that was passed to ctx.mark_dirty.",
            )
        if not tracked:
            continue
        legality.check_write(x.alias, True, True, loc)
        EAGER._refresh(x)
        legality.check_leaf(x.alias, True, True, loc)
        if x.root is not None and sum(isinstance(r, EagerTensor) for r in results) > 1:
            raise ViewMutationError(
                f"{cls.__name__} changes a view in place and returns more than one tensor",
                kind="dirty_view_multi_out",
                loc=loc,
                op_name=cls.__name__,
                remedy="Return the written view alone, or write a clone of it.",
            )


def _deliver(
    x: EagerTensor,
    node: FunctionNode | None,
    nr: int,
    args: tuple[Any, ...],
    ctx: Context,
    several: bool,
    name: str,
) -> EagerTensor:
    """Result `nr` of forward as the caller gets it."""
    notes = ctx._notes
    if _among(x, notes.dirty):
        return _dirty(x, node, nr, args)
    if _among(x, notes.constant):
        return x.detach() if _among(x, args) else x  # type: ignore[no-any-return]
    if _among(x, args) or x.root is not None:
        return _custom_view(x, node, nr, several, name)
    if node is not None and x.element_type.is_inexact:
        if x.requires_grad:  # a tensor of the surroundings
            x = x.detach()
        x.alias.family.tracked = x.alias.own = True
        x.set_node(node, nr)
    return x


def _custom_view(
    x: EagerTensor, node: FunctionNode | None, nr: int, several: bool, name: str
) -> EagerTensor:
    kind = CreationKind.MULTI_OUTPUT if several else CreationKind.CUSTOM
    alias = replace(
        x.alias,
        is_view=True,
        kind=kind if node is not None else x.alias.kind,
        own=node is not None,
        leaf=False,
        fresh_at=x.memory.version,
        op_name=name,
        output_nr=nr,
        made=source.here(),
    )
    out = EAGER.face(EAGER, alias, x.layout, None, x.array, readonly=x.readonly)
    out.root = x if x.root is None else x.root
    out.within = x.within
    if node is not None:
        out.set_node(node, nr)
    return out


def _dirty(
    x: EagerTensor, node: FunctionNode | None, nr: int, args: tuple[Any, ...]
) -> EagerTensor:
    """An input that forward wrote: the same object, with the Function in its history."""
    family.record_write(x.alias, node is not None)
    if node is None:
        return x
    if x.root is None:
        x.set_node(node, nr)
    else:
        own = tuple(j for j, k in enumerate(node.inputs) if args[k] is x)
        EAGER.rebase_view(x, node, own)
    return x


AT_THE_PROMPT.append(apply)
