"""`vjp` and `jvp`: derivatives along given cotangents and tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optree

from tracegrad import nested, source
from tracegrad.compiled import BoundCompiled, CompiledFunction
from tracegrad.differentiated import (
    ArgNums,
    Differentiated,
    cached,
    in_trace,
    open_trace,
    options_of,
)
from tracegrad.errors import ArgumentError, ShapeError
from tracegrad.options import Options
from tracegrad.trace.alias_pattern import copy_together, find_groups
from tracegrad.trace.argnums import Selection
from tracegrad.trace.known import leaked
from tracegrad.trace.leaves import flatten
from tracegrad.trace.signature import NAMESPACE, Kind
from tracegrad.trace.tracer import Tracer


class _Pullback(Differentiated):
    """``(args, kwargs, cts) -> gradients``; `vjp` at the prompt calls it compiled."""

    def __call__(self, args: Any, kwargs: Any, cts: Any) -> Any:
        region = self.enter(args, kwargs)
        return self.pull(region, cts)

    def pull(self, region: nested.Region, cts: Any) -> Any:
        region = region.used_in(open_trace())
        given = cotangents(region, cts, self.has_aux)
        applied = nested.apply(region, "vjp", extra=given, writes=False)
        grads = self.gradients(region, applied.derivatives)
        return grads if isinstance(grads, tuple) else (grads,)


class _Pushforward(Differentiated):
    """``(primals, tangents) -> (result, tangent of the result)``."""

    def __call__(self, primals: Any, tangents: Any) -> Any:
        self.argnums = tuple(
            k for k, t in enumerate(tangents) if optree.tree_leaves(t, namespace=NAMESPACE)
        )
        region = self.enter(tuple(primals), {})
        given = tangents_of(
            region, self.select(region.traced.signature), [tangents[n] for n in self.argnums]
        )
        applied = nested.apply(region, "jvp", extra=given)
        result = nested.result_of(region, applied.outputs)
        dots = iter(applied.derivatives)
        moved = region.traced.rebuild(
            [
                _kinded(next(dots), o.kind)
                if o.index is not None and region.graph.outputs[o.index].type.dtype.is_inexact
                else None
                for o in region.traced.outputs
            ]
        )
        return result, moved


def cotangents(region: nested.Region, cts: Any, has_aux: bool = False) -> list[Tracer]:
    """One tracer for each inexact output of the region, from the user's structure."""
    outputs, types = region.traced.outputs, region.output_types()
    tree = region.traced.out_tree
    wanted = tree.child(0).num_leaves if has_aux else len(outputs)
    leaves = optree.tree_leaves(cts, none_is_leaf=True, namespace=NAMESPACE)
    if len(leaves) != wanted:
        raise ArgumentError(
            f"the cotangent has {len(leaves)} leaves, the result of "
            f"{region.traced.signature.name} has {wanted}",
            loc=source.here(),
            remedy="Give it the structure of the result; None stands for zero.",
        )
    given = {o.index: leaves[k] for k, o in enumerate(outputs[:wanted])}
    return [_like(given.get(k), t, "cotangent") for k, t in enumerate(types) if t.dtype.is_inexact]


def tangents_of(
    region: nested.Region, selection: Selection, tangents: Sequence[Any]
) -> list[Tracer]:
    """One tracer for each differentiated leaf, from the user's structures."""
    given: list[Any] = [None] * len(selection.leaves)
    for n, (places, tangent) in enumerate(zip(selection.places, tangents, strict=True)):
        leaves = optree.tree_leaves(tangent, none_is_leaf=True, namespace=NAMESPACE)
        if len(leaves) != len(places):
            raise ArgumentError(
                f"tangent {n} has {len(leaves)} leaves, the argument has {len(places)}",
                loc=source.here(),
                remedy="Give it the structure of the argument.",
            )
        for at, leaf in zip(places, leaves, strict=True):
            if at is not None:
                given[at] = leaf
    return [_like(x, t, "tangent") for x, t in zip(given, region.leaf_types(), strict=True)]


_LIKE = {"cotangent": "result", "tangent": "argument"}


def _like(x: Any, type_: Any, what: str) -> Tracer:
    """`x` as a tracer of a type; None is zero."""
    trace = open_trace()
    if x is None:
        return trace.concrete(np.zeros(type_.shape, type_.dtype.np))
    given = nested.as_tracer(trace, x)
    if given.sizes != type_.shape:
        raise ShapeError(
            f"the {what} has shape {given.sizes}, not {tuple(type_.shape)}",
            loc=source.here(),
            remedy=f"Give it the shape of the {_LIKE[what]}.",
        )
    if given.element_type is not type_.dtype:
        from tracegrad.ops.cast import CastAttrs, cast

        return trace.apply(cast, (given,), CastAttrs(type_.dtype))  # type: ignore[no-any-return]
    return given


def _kinded(x: Tracer, kind: Kind) -> Tracer:
    return nested.as_kind(x, kind)


def vjp(
    f: Callable[..., Any], *primals: Any, argnums: ArgNums | None = None, has_aux: bool = False
) -> Any:
    """``(result, pullback)``, or ``(result, pullback, aux)``: ``pullback(ct)`` gives one
    gradient for each primal (or each of `argnums`), as a tuple.

    `ct` has the structure of the result; None stands for zero.  Primals that the function
    writes are written once, by this call; the pullback uses their values on entry.
    """
    nums = (
        tuple(range(len(primals)))
        if argnums is None
        else ((argnums,) if isinstance(argnums, int) else tuple(argnums))
    )
    if in_trace():
        body = _Pullback(f, nums, None, has_aux)
        region = nested.freeze(body.enter(primals, {}))
        applied = nested.apply(region, "call")
        result = nested.result_of(region, applied.outputs)

        operands = region.operands  # in a cell of the pullback, where loops look for them

        def pullback(ct: Any) -> Any:
            if not in_trace():
                raise leaked(operands[0])
            return body.pull(replace(region, operands=operands), ct)
    else:
        options = options_of(f) or Options()
        entry = _on_entry(primals)
        plain = (
            f
            if isinstance(f, (CompiledFunction, BoundCompiled))
            else cached(f, ("compile", options), lambda: f, options)
        )
        back = cached(
            f,
            ("pullback", nums, has_aux, options),
            lambda: _Pullback(f, nums, None, has_aux),
            options,
        )
        result = plain(*primals)

        def pullback(ct: Any) -> Any:
            return back(entry, {}, ct)

    if has_aux:
        return result[0], pullback, result[1]
    return result, pullback


def _on_entry(primals: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the arrays, which share memory with each other as the primals do; of tensors at
    the prompt clones, with their history.

    Raises:
        ArgumentError: tensors that share memory, which clones do not.
    """
    leaves, tree = flatten(primals)
    distinct = list({id(x): x for x in leaves if isinstance(x, (Tracer, np.ndarray))}.values())
    tensors = [k for k, x in enumerate(distinct) if isinstance(x, Tracer)]
    if tensors:
        used = [x.contents if isinstance(x, Tracer) else x for x in distinct]
        if find_groups(used, tensors):
            raise ArgumentError(
                "vjp of tensors that share memory",
                kind="aliasing_args",
                loc=source.here(),
                remedy="Pass clones, or use backward().",
            )
        clones = {id(distinct[k]): distinct[k].clone() for k in tensors}  # type: ignore
        leaves = [clones.get(id(x), x) for x in leaves]
    arrays = [k for k, x in enumerate(leaves) if isinstance(x, np.ndarray)]
    for k, copied in zip(arrays, copy_together([leaves[k] for k in arrays]), strict=True):
        leaves[k] = copied
    return tree.unflatten(leaves)  # type: ignore[return-value]


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """``(result, tangent of the result)`` along `tangents`, one a primal (None: zero)."""
    if len(primals) != len(tangents):
        raise ArgumentError(
            f"jvp: {len(primals)} primals and {len(tangents)} tangents",
            loc=source.here(),
            remedy="Give one tangent for each primal; None stands for zero.",
        )
    if in_trace():
        return _Pushforward(f, (), None, False)(tuple(primals), tuple(tangents))
    options = options_of(f) or Options()
    nums = tuple(k for k, t in enumerate(tangents) if optree.tree_leaves(t, namespace=NAMESPACE))
    pushed = cached(f, ("jvp", nums, options), lambda: _Pushforward(f, nums, None, False), options)
    return pushed(tuple(primals), tuple(tangents))
