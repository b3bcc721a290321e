"""Hooks on gradients: registered on the history a tensor has now, removable by their handle."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad import source
from tracegrad.eager.history import AccumulateGrad, Algebra, Node
from tracegrad.errors import AutogradError
from tracegrad.trace.hook_handle import Handle, Hooks, call_hook, check_hook, check_retain

if TYPE_CHECKING:
    from tracegrad.eager.tensor import EagerTensor


def register(x: EagerTensor, hook: Callable[[Any], Any]) -> Handle:
    """``x.register_hook``: on the node `x` has now, or on the leaf itself."""
    check_hook(x.requires_grad)
    if x.is_leaf:
        if x._hooks is None:
            x._hooks = {}
        return Handle(x._hooks, hook)
    assert x.node is not None
    return Handle(x.node.hooks_of(x.nr), hook)


def register_post(x: EagerTensor, hook: Callable[[Any], Any]) -> Handle:
    """``x.register_post_accumulate_grad_hook``: leaves that require a gradient only."""
    check_hook(x.requires_grad)
    if not x.is_leaf:
        raise AutogradError(
            "post-accumulate hooks can be registered on leaves only",
            kind="hook_nonleaf",
            loc=source.here(),
            remedy="Use register_hook.",
        )
    if x._post is None:
        x._post = {}
    return Handle(x._post, hook)


def retain_grad(x: EagerTensor) -> None:
    check_retain(x.requires_grad)
    if x.is_leaf or x.retained:
        return
    x.retained = True
    assert x.node is not None
    retain(x.node, x.nr, x)


def retain(node: Node, nr: int, x: EagerTensor) -> None:
    """From now on the gradient of result `nr` is stored in ``x.grad``."""
    if node.retains is None:
        node.retains = {}
    node.retains[nr] = weakref.ref(x)


def run(node: Node, cts: list[Any], algebra: Algebra) -> None:
    """Pass the gradients that reach `node` through its hooks, in place in `cts`; the retained
    ones last."""
    if isinstance(node, AccumulateGrad):
        if node.variable._hooks and cts[0] is not None:
            cts[0] = _through(node.variable._hooks, cts[0], algebra)
        return
    if node.hooks is not None:
        for nr, hooks in node.hooks.items():
            if cts[nr] is not None:
                cts[nr] = _through(hooks, cts[nr], algebra)
    if node.retains is not None:
        for nr, held in node.retains.items():
            x = held()
            if x is not None and cts[nr] is not None:
                _keep(x, cts[nr], algebra)


def _keep(x: EagerTensor, value: Any, algebra: Algebra) -> None:
    from tracegrad.eager.recorder import EAGER
    from tracegrad.ops.arithmetic import add

    g = algebra.tensor(value)
    if x.grad is not None:
        g = EAGER.apply(add, (x.grad, g))
    elif not g.requires_grad:
        g = EAGER.concrete(g.array)
    x.grad = g


def _through(hooks: Hooks, value: Any, algebra: Algebra) -> Any:
    for hook in list(hooks.values()):
        given = algebra.tensor(value)
        got = call_hook(hook, given)
        if got is not given:
            value = algebra.value(got)
    return value
