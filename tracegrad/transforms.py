"""The transforms `grad`, `value_and_grad` and `stop_gradient`.

Each transform is a compiled function whose body differentiates another one inside a trace, so
transforms nest, mix with traced code, and compile as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import optree

from tracegrad import nested, source
from tracegrad.differentiated import (
    ArgNames,
    ArgNums,
    Differentiated,
    cached,
    hashable,
    options_of,
)
from tracegrad.errors import GradientError
from tracegrad.ops.handles import stop_gradient as stop_gradient_op
from tracegrad.options import Options
from tracegrad.trace.modes import current_trace
from tracegrad.trace.signature import NAMESPACE
from tracegrad.trace.tracer import Tracer


class _Gradient(Differentiated):
    """The body of `grad` and `value_and_grad`."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: ArgNums | None,
        argnames: ArgNames,
        has_aux: bool,
        with_value: bool,
    ) -> None:
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
                raise GradientError(
                    f"{name} must return (value, aux) with has_aux=True",
                    loc=_line(region),
                    kind="gradient_not_scalar",
                    remedy="Return a tuple of two, or leave has_aux out.",
                )
            tree, outputs = tree.child(0), outputs[: tree.child(0).num_leaves]
        if not tree.is_leaf() or len(outputs) != 1:
            raise GradientError(
                f"the gradient of {name} needs one number, and it returns "
                + (f"{len(outputs)} values" if outputs else "None"),
                loc=_line(region),
                kind="gradient_not_scalar",
                remedy="Return one scalar; give other results with has_aux=True, or use tg.vjp.",
            )
        (out,) = outputs
        if out.index is None:
            if isinstance(out.value, (int, float)) and not isinstance(out.value, bool):
                return -1
            raise GradientError(
                f"{name} returns {out.value!r}, which has no gradient",
                loc=_line(region),
                kind="gradient_not_scalar",
                remedy="Return one scalar.",
            )
        type_ = traced.graph.outputs[out.index].type
        if type_.shape != ():
            raise GradientError(
                f"the gradient of {name} needs one number, and it returns an array of shape "
                f"{tuple(type_.shape)}",
                loc=_line(region),
                kind="gradient_not_scalar",
                remedy="Reduce it (np.sum), or use tg.vjp with a cotangent of its shape.",
            )
        if type_.dtype.is_complex:
            raise GradientError(
                f"the gradient of {name} needs a real number, and it returns {type_.dtype.np}",
                loc=_line(region),
                kind="gradient_dtype",
                remedy="Return its real part, np.abs of it, or use tg.vjp with a cotangent.",
            )
        if not type_.dtype.is_inexact:
            raise GradientError(
                f"{name} returns {type_.dtype.np}, which has no gradient",
                loc=_line(region),
                kind="gradient_dtype",
                remedy="Return a float: integers and bools are constant between jumps.",
            )
        return out.index


def grad(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """The gradient of a function of one scalar result, as a compiled function.

    `argnums` (default 0) and `argnames` say with respect to what: one gives a gradient in the
    form of that argument, several a tuple.  With `has_aux` the function returns
    ``(value, aux)`` and the gradient function ``(gradient, aux)``.  Gradients are those with
    respect to the values on entry; arguments that the function writes are written.
    """
    return _gradient(f, argnums, argnames, has_aux, False, options, option)


def value_and_grad(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """As `grad`, returning ``(value, gradient)``, or ``((value, aux), gradient)``."""
    return _gradient(f, argnums, argnames, has_aux, True, options, option)


def _gradient(
    f: Any,
    argnums: Any,
    argnames: Any,
    has_aux: bool,
    with_value: bool,
    options: Options | None,
    option: dict[str, Any],
) -> Any:
    if f is None:
        return functools.partial(
            _gradient,
            argnums=argnums,
            argnames=argnames,
            has_aux=has_aux,
            with_value=with_value,
            options=options,
            option=option,
        )
    kind = "value_and_grad" if with_value else "grad"
    chosen = Options.make(options or options_of(f), **option)
    key = (kind, hashable(argnums), hashable(argnames), has_aux, chosen)
    return cached(f, key, lambda: _Gradient(f, argnums, argnames, has_aux, with_value), chosen)


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


def _line(region: nested.Region) -> Any:
    return region.traced.location or source.here()
