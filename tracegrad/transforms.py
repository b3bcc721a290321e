"""The transforms: `grad`, `value_and_grad`, `vjp`, `jvp`, `stop_gradient`.

Each is a compiled function whose body differentiates another one inside a trace, so transforms
nest, mix with traced code, and compile as a whole.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import optree

from tracegrad import nested, source
from tracegrad.compiled import BoundCompiled, CompiledFunction
from tracegrad.errors import ArgumentError, GradientError, ShapeError, TracegradError
from tracegrad.ops.views import stop_gradient as stop_gradient_op
from tracegrad.options import Options
from tracegrad.trace.alias_pattern import copy_together
from tracegrad.trace.argnums import Selection, resolve_argnums
from tracegrad.trace.modes import current_trace
from tracegrad.trace.signature import NAMESPACE, CallSignature, Kind, Signature
from tracegrad.trace.tracer import Trace, Tracer

ArgNums = int | Sequence[int]
ArgNames = str | Sequence[str] | None


class Differentiated:
    """A function seen by a transform: what to trace, and which arguments count."""

    def __init__(self, f: Callable[..., Any], argnums: ArgNums | None, argnames: ArgNames,
                 has_aux: bool) -> None:
        if not callable(f):
            raise ArgumentError(f"a transform needs a function, not {type(f).__name__}",
                                loc=source.here(),
                                remedy="Write tg.grad(f)(x), not tg.grad(f(x)).")
        statics: tuple[Any, ...] = ((), ())
        bound: Any = None
        if isinstance(f, BoundCompiled):
            bound, f = f.__self__, f.__func__
        if isinstance(f, CompiledFunction):
            statics = f._statics
        inner = f.fn if isinstance(f, CompiledFunction) else f
        self.fn = inner if bound is None else functools.partial(inner, bound)
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.signature = Signature(self.fn, *statics)
        self.statics = statics
        self.argnums: Any = argnums
        self.argnames = argnames
        self.has_aux = has_aux

    def select(self, call: CallSignature) -> Selection:
        """The leaves to differentiate, placed at the user's line where there are none."""
        try:
            return resolve_argnums(call, self.argnums, self.argnames)
        except TracegradError as e:
            raise e.at(source.here()) from None

    def gradients(self, region: nested.Region, found: Sequence[Tracer]) -> Any:
        """Derivatives in the structure of the arguments asked for; None for static leaves."""
        return self.select(region.traced.signature).rebuild(region.by_leaf(found))

    def enter(self, args: Any, kwargs: Any) -> nested.Region:
        return nested.enter_region(
            self.fn, args, kwargs, self.signature, lambda call: self.select(call).leaves, _trace())


class _Gradient(Differentiated):
    """The body of `grad` and `value_and_grad`."""

    def __init__(self, f: Callable[..., Any], argnums: ArgNums | None, argnames: ArgNames,
                 has_aux: bool, with_value: bool) -> None:
        super().__init__(f, argnums, argnames, has_aux)
        functools.update_wrapper(self, self.fn, updated=())
        self.with_value = with_value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        region = self.enter(args, kwargs)
        seed = self._seed(region)
        applied = nested.apply(region, "vjp", seeds=(seed,))
        grads = self.gradients(region, applied.derivatives)
        if not self.with_value and not self.has_aux:
            return grads
        result = nested.result_of(region, applied.outputs)
        if self.with_value:
            return result, grads
        return grads, result[1]

    def _seed(self, region: nested.Region) -> int:
        """The graph output that is the value; -1 when it is known while tracing."""
        traced = region.traced
        tree, outputs = traced.out_tree, traced.outputs
        name = traced.signature.name
        if self.has_aux:
            if tree.is_leaf() or tree.type is not tuple or tree.num_children != 2:
                raise GradientError(f"{name} must return (value, aux) with has_aux=True",
                                    loc=_line(region), kind="gradient_not_scalar",
                                    remedy="Return a tuple of two, or leave has_aux out.")
            tree, outputs = tree.child(0), outputs[:tree.child(0).num_leaves]
        if not tree.is_leaf() or len(outputs) != 1:
            raise GradientError(
                f"the gradient of {name} needs one number, and it returns "
                + (f"{len(outputs)} values" if outputs else "None"),
                loc=_line(region), kind="gradient_not_scalar",
                remedy="Return one scalar; give other results with has_aux=True, or use tg.vjp.")
        (out,) = outputs
        if out.index is None:
            if isinstance(out.value, (int, float)) and not isinstance(out.value, bool):
                return -1
            raise GradientError(f"{name} returns {out.value!r}, which has no gradient",
                                loc=_line(region), kind="gradient_not_scalar",
                                remedy="Return one scalar.")
        type_ = traced.graph.outputs[out.index].type
        if type_.shape != ():
            raise GradientError(
                f"the gradient of {name} needs one number, and it returns an array of shape "
                f"{tuple(type_.shape)}", loc=_line(region), kind="gradient_not_scalar",
                remedy="Reduce it (np.sum), or use tg.vjp with a cotangent of its shape.")
        if type_.dtype.is_complex:
            raise GradientError(
                f"the gradient of {name} needs a real number, and it returns {type_.dtype.np}",
                loc=_line(region), kind="gradient_dtype",
                remedy="Return its real part, np.abs of it, or use tg.vjp with a cotangent.")
        if not type_.dtype.is_inexact:
            raise GradientError(f"{name} returns {type_.dtype.np}, which has no gradient",
                                loc=_line(region), kind="gradient_dtype",
                                remedy="Return a float: integers and bools are constant "
                                "between jumps.")
        return out.index


class _Pullback(Differentiated):
    """``(args, kwargs, cts) -> gradients``; `vjp` at the prompt calls it compiled."""

    def __call__(self, args: Any, kwargs: Any, cts: Any) -> Any:
        region = self.enter(args, kwargs)
        return self.pull(region, cts, writes=False)

    def pull(self, region: nested.Region, cts: Any, writes: bool) -> Any:
        given = cotangents(region, cts, self.has_aux)
        applied = nested.apply(region, "vjp", extra=given, writes=writes)
        grads = self.gradients(region, applied.derivatives)
        return grads if isinstance(grads, tuple) else (grads,)


class _Pushforward(Differentiated):
    """``(primals, tangents) -> (result, tangent of the result)``."""

    def __call__(self, primals: Any, tangents: Any) -> Any:
        self.argnums = tuple(k for k, t in enumerate(tangents)
                             if optree.tree_leaves(t, namespace=NAMESPACE))
        region = self.enter(tuple(primals), {})
        given = tangents_of(region, self.select(region.traced.signature), [
            tangents[n] for n in self.argnums])
        applied = nested.apply(region, "jvp", extra=given)
        result = nested.result_of(region, applied.outputs)
        dots = iter(applied.derivatives)
        moved = region.traced.rebuild([
            _kinded(next(dots), o.kind) if o.index is not None
            and region.graph.outputs[o.index].type.dtype.is_inexact else None
            for o in region.traced.outputs])
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
            f"{region.traced.signature.name} has {wanted}", loc=source.here(),
            remedy="Give it the structure of the result; None stands for zero.")
    given = {o.index: leaves[k] for k, o in enumerate(outputs[:wanted])}
    return [_like(given.get(k), t, "cotangent") for k, t in enumerate(types)
            if t.dtype.is_inexact]


def tangents_of(region: nested.Region, selection: Selection, tangents: Sequence[Any]
                ) -> list[Tracer]:
    """One tracer for each differentiated leaf, from the user's structures."""
    given: list[Any] = [None] * len(selection.leaves)
    for n, (places, tangent) in enumerate(zip(selection.places, tangents, strict=True)):
        leaves = optree.tree_leaves(tangent, none_is_leaf=True, namespace=NAMESPACE)
        if len(leaves) != len(places):
            raise ArgumentError(f"tangent {n} has {len(leaves)} leaves, the argument has "
                                f"{len(places)}", loc=source.here(),
                                remedy="Give it the structure of the argument.")
        for at, leaf in zip(places, leaves, strict=True):
            if at is not None:
                given[at] = leaf
    return [_like(x, t, "tangent") for x, t in zip(given, region.leaf_types(), strict=True)]


_LIKE = {"cotangent": "result", "tangent": "argument"}


def _like(x: Any, type_: Any, what: str) -> Tracer:
    """`x` as a tracer of a type; None is zero."""
    trace = _trace()
    if x is None:
        return trace.concrete(np.zeros(type_.shape, type_.dtype.np))
    given = nested.as_tracer(trace, x)
    if given.shape != type_.shape:
        raise ShapeError(f"the {what} has shape {given.shape}, not {tuple(type_.shape)}",
                         loc=source.here(),
                         remedy=f"Give it the shape of the {_LIKE[what]}.")
    if given.element_type is not type_.dtype:
        from tracegrad.ops.cast import CastAttrs, cast

        return trace.apply(cast, (given,), CastAttrs(type_.dtype))  # type: ignore[no-any-return]
    return given


def _kinded(x: Tracer, kind: Kind) -> Tracer:
    return nested.as_kind(x, kind)


# ------------------------------------------------------------------------------- public names


def grad(f: Callable[..., Any] | None = None, argnums: ArgNums | None = None, *,
         argnames: ArgNames = None, has_aux: bool = False, options: Options | None = None,
         **option: Any) -> Any:
    """The gradient of a function of one scalar result, as a compiled function.

    `argnums` (default 0) and `argnames` say with respect to what: one gives a gradient in the
    form of that argument, several a tuple.  With `has_aux` the function returns
    ``(value, aux)`` and the gradient function ``(gradient, aux)``.  Gradients are those with
    respect to the values on entry; arguments that the function writes are written.
    """
    return _gradient(f, argnums, argnames, has_aux, False, options, option)


def value_and_grad(f: Callable[..., Any] | None = None, argnums: ArgNums | None = None, *,
                   argnames: ArgNames = None, has_aux: bool = False,
                   options: Options | None = None, **option: Any) -> Any:
    """As `grad`, returning ``(value, gradient)``, or ``((value, aux), gradient)``."""
    return _gradient(f, argnums, argnames, has_aux, True, options, option)


def _gradient(f: Any, argnums: Any, argnames: Any, has_aux: bool, with_value: bool,
              options: Options | None, option: dict[str, Any]) -> Any:
    if f is None:
        return functools.partial(_gradient, argnums=argnums, argnames=argnames, has_aux=has_aux,
                                 with_value=with_value, options=options, option=option)
    kind = "value_and_grad" if with_value else "grad"
    chosen = Options.make(options or options_of(f), **option)
    key = (kind, hashable(argnums), hashable(argnames), has_aux, chosen)
    return cached(f, key, lambda: _Gradient(f, argnums, argnames, has_aux, with_value), chosen)


def vjp(f: Callable[..., Any], *primals: Any, argnums: ArgNums | None = None,
        has_aux: bool = False) -> Any:
    """``(result, pullback)``, or ``(result, pullback, aux)``: ``pullback(ct)`` gives one
    gradient for each primal (or each of `argnums`), as a tuple.

    `ct` has the structure of the result; None stands for zero.  Primals that the function
    writes are written once, by this call; the pullback uses their values on entry.
    """
    nums = tuple(range(len(primals))) if argnums is None else (
        (argnums,) if isinstance(argnums, int) else tuple(argnums))
    if _in_trace(f):
        body = _Pullback(f, nums, None, has_aux)
        region = nested.freeze(body.enter(primals, {}))
        applied = nested.apply(region, "call")
        result = nested.result_of(region, applied.outputs)

        def pullback(ct: Any) -> Any:
            return body.pull(region, ct, writes=False)
    else:
        options = options_of(f) or Options()
        entry = _on_entry(primals)
        plain = f if isinstance(f, (CompiledFunction, BoundCompiled)) else cached(
            f, ("compile", options), lambda: f, options)
        back = cached(f, ("pullback", nums, has_aux, options),
                       lambda: _Pullback(f, nums, None, has_aux), options)
        result = plain(*primals)

        def pullback(ct: Any) -> Any:
            return back(entry, {}, ct)
    if has_aux:
        return result[0], pullback, result[1]
    return result, pullback


def _on_entry(primals: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the arrays, which share memory with each other as the primals do."""
    leaves, tree = optree.tree_flatten(primals, namespace=NAMESPACE)
    arrays = [k for k, x in enumerate(leaves) if isinstance(x, np.ndarray)]
    for k, copied in zip(arrays, copy_together([leaves[k] for k in arrays]), strict=True):
        leaves[k] = copied
    return tree.unflatten(leaves)  # type: ignore[return-value]


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """``(result, tangent of the result)`` along `tangents`, one a primal (None: zero)."""
    if len(primals) != len(tangents):
        raise ArgumentError(f"jvp: {len(primals)} primals and {len(tangents)} tangents",
                            loc=source.here(),
                            remedy="Give one tangent for each primal; None stands for zero.")
    if _in_trace(f):
        return _Pushforward(f, (), None, False)(tuple(primals), tuple(tangents))
    options = options_of(f) or Options()
    nums = tuple(k for k, t in enumerate(tangents)
                 if optree.tree_leaves(t, namespace=NAMESPACE))
    pushed = cached(f, ("jvp", nums, options), lambda: _Pushforward(f, nums, None, False),
                     options)
    return pushed(tuple(primals), tuple(tangents))


def stop_gradient(x: Any) -> Any:
    """`x` as a constant of differentiation; arrays of any structure."""
    trace = current_trace()
    if trace is None:
        return x

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer) or leaf.concrete is not None:
            return leaf
        return trace.apply(stop_gradient_op, (leaf,), scalar=leaf.scalar, weak=leaf.weak)

    return optree.tree_map(one, x, namespace=NAMESPACE)


# ------------------------------------------------------------------------------------ inside

class _Made:
    """The compiled transforms of one function, kept on the function: a transform written inside
    a loop costs a dictionary lookup, and goes away with its function."""

    def __init__(self, owner: Any) -> None:
        self.owner = weakref.ref(owner)
        self.table: dict[Hashable, CompiledFunction[..., Any]] = {}


def _made_of(f: Any) -> dict[Hashable, CompiledFunction[..., Any]]:
    space = getattr(f, "__dict__", None)
    if not isinstance(space, dict) or isinstance(f, type):
        return {}
    found = space.get("__tracegrad_transforms__")
    # functools.wraps copies the attribute to wrappers, which are other functions.
    if not isinstance(found, _Made) or found.owner() is not f:
        found = space["__tracegrad_transforms__"] = _Made(f)
    return found.table


def cached(f: Any, key: Hashable, body: Callable[[], Callable[..., Any]],
            options: Options) -> CompiledFunction[..., Any]:
    table = _made_of(f)
    found = table.get(key)
    if found is None:
        made = body()
        statics = made.statics if hasattr(made, "__wrapped__") and isinstance(
            made, Differentiated) else ((), ())
        found = table[key] = CompiledFunction(made, options, *statics)
    return found


def _trace() -> Trace:
    trace = current_trace()
    assert trace is not None, "a transform's body runs inside a trace"
    return trace


def _in_trace(f: Any) -> bool:
    return current_trace() is not None


def options_of(f: Any) -> Options | None:
    f = f.__func__ if isinstance(f, BoundCompiled) else f
    return f.options if isinstance(f, CompiledFunction) else None


def hashable(x: Any) -> Hashable:
    """`argnums` or `argnames` as a part of a key; 1, True and 1.0 are three keys."""
    if isinstance(x, (list, tuple)):
        return tuple(map(hashable, x))
    try:
        hash(x)
    except TypeError:
        raise ArgumentError(f"argnums and argnames cannot be of type {type(x).__name__}",
                            loc=source.here(), remedy="Give one, or a tuple of them.") from None
    return x if type(x) is int else (type(x), x)


def _line(region: nested.Region) -> Any:
    return region.traced.location or source.here()
