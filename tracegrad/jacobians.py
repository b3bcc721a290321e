"""`jacrev`, `jacfwd`, `jacobian`, `hessian`, `hvp`: derivatives of functions of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

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
from tracegrad.graph.ir import Value
from tracegrad.options import Options
from tracegrad.pullbacks import jvp
from tracegrad.trace.tracer import Tracer
from tracegrad.transforms import grad


class _Jacobian(Differentiated):
    """The body of `jacrev`, `jacfwd` and `jacobian`."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: ArgNums | None,
        argnames: ArgNames,
        has_aux: bool,
        mode: str | None,
    ) -> None:
        super().__init__(f, argnums, argnames, has_aux)
        functools.update_wrapper(self, self.fn, updated=())
        self.mode = mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        region = self.enter(args, kwargs)
        _check_real(region)
        applied = nested.apply(region, self.mode or _cheaper(region))
        result = self._result_leaves(region)
        blocks = list(applied.derivatives)
        count = len(region.wrt)
        rows: dict[int, list[Tracer]] = {}
        for k, t in enumerate(region.output_types()):
            if t.dtype.is_inexact:
                rows[k], blocks = blocks[:count], blocks[count:]
        leaves = [
            self.gradients(region, rows[o.index]) if o.index in rows else None for o in result
        ]
        tree = region.traced.out_tree
        jacobian = (tree.child(0) if self.has_aux else tree).unflatten(leaves)
        if self.has_aux:
            return jacobian, nested.result_of(region, applied.outputs)[1]
        return jacobian

    def _result_leaves(self, region: nested.Region) -> Any:
        traced = region.traced
        if not self.has_aux:
            return traced.outputs
        return traced.outputs[: traced.out_tree.child(0).num_leaves]


def _check_real(region: nested.Region) -> None:
    """A derivative in both parts of complex numbers is not one number an element."""
    graph = region.graph
    for x in (*(graph.inputs[k] for k in region.wrt), *graph.outputs):
        if x.type.dtype.is_complex:
            raise GradientError(
                f"the Jacobian of {region.traced.signature.name} by or of {x.type.dtype.np} "
                "arrays is not supported",
                loc=source.here(),
                kind="gradient_dtype",
                remedy="Write it in real and imaginary parts, or use tg.vjp and tg.jvp.",
            )


def _cheaper(region: nested.Region) -> str:
    """Forward mode costs one pass an input element, reverse mode one an output element."""
    ins = sum(_size(region.graph.inputs[k]) for k in region.wrt)
    outs = sum(
        _size(x) for x in region.graph.outputs if isinstance(x, Value) and x.dtype.is_inexact
    )
    return "jacrev" if outs <= ins else "jacfwd"


def _size(x: Value) -> int:
    size = x.type.size
    assert isinstance(size, int), "traced shapes are numbers"
    return size


def _make(
    f: Any,
    argnums: Any,
    argnames: Any,
    has_aux: bool,
    mode: str | None,
    options: Options | None,
    option: dict[str, Any],
) -> Any:
    if f is None:
        return functools.partial(
            _make,
            argnums=argnums,
            argnames=argnames,
            has_aux=has_aux,
            mode=mode,
            options=options,
            option=option,
        )
    chosen = Options.make(options or options_of(f), **option)
    key = (mode or "jacobian", hashable(argnums), hashable(argnames), has_aux, chosen)
    return cached(f, key, lambda: _Jacobian(f, argnums, argnames, has_aux, mode), chosen)


def jacrev(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """The Jacobian of `f` by reverse mode: for each result the derivative by each argument asked
    for, of shape ``result.shape + argument.shape``, in the structure of result then argument."""
    return _make(f, argnums, argnames, has_aux, "jacrev", options, option)


def jacfwd(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """As `jacrev`, by forward mode: cheaper when there are fewer arguments than results."""
    return _make(f, argnums, argnames, has_aux, "jacfwd", options, option)


def jacobian(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """The Jacobian by whichever mode is cheaper for the sizes at hand."""
    return _make(f, argnums, argnames, has_aux, None, options, option)


def hessian(
    f: Callable[..., Any] | None = None,
    argnums: ArgNums | None = None,
    *,
    argnames: ArgNames = None,
    has_aux: bool = False,
    options: Options | None = None,
    **option: Any,
) -> Any:
    """Second derivatives of a function of one scalar result, forward over reverse, dense: for
    arguments x and y a block of shape ``x.shape + y.shape``."""
    if f is None:
        return functools.partial(
            hessian, argnums=argnums, argnames=argnames, has_aux=has_aux, options=options, **option
        )
    chosen = Options.make(options or options_of(f), **option)
    inner = grad(f, argnums, argnames=argnames, has_aux=has_aux, options=chosen)
    return jacfwd(inner, argnums, argnames=argnames, has_aux=has_aux, options=chosen)


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of `f` (one scalar result) times `tangents`, forward over reverse, without
    forming it: in the structure of the gradient by all primals (one primal: that alone)."""
    nums: Any = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(f, nums), primals, tangents)[1]


__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]
