"""PyTorch's gradients on traced tensors: ``requires_grad_``, ``backward``, ``.grad``, hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import source
from tracegrad.errors import ArgumentError, AutogradError, ShapeError, UnsupportedError
from tracegrad.trace import segments
from tracegrad.trace.hook_handle import Handle, check_hook, check_retain
from tracegrad.trace.modes import STATE
from tracegrad.trace.tracer import Tracer
from tracegrad.views import legality


class TensorGradients(Tracer):
    """Mixin of `Tensor`; tensors of the prompt have their own, over the eager graph."""

    __slots__ = ()

    @property
    def requires_grad(self) -> bool:
        return self.alias.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        """Whether nothing tracked has made this tensor."""
        return self.alias.leaf or not self.alias.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Make this tensor a leaf of the function; nothing for one that has a gradient."""
        value, alias = bool(requires_grad), self.alias
        legality.check_requires_grad(alias, value, self.is_leaf, STATE.inference, source.here())
        if value == alias.requires_grad:
            return self
        if not value:
            raise UnsupportedError(
                "requires_grad_(False) of a leaf inside a compiled function is not supported",
                loc=source.here(), remedy="Use x.detach().",
            )  # fmt: skip
        segments.make_leaf(self)
        return self

    def backward(
        self,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to ``.grad`` of the leaves made in this function."""
        if inputs is not None:
            inputs = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        segments.backward([self], [gradient], create_graph, inputs)

    @property
    def grad(self) -> Any:
        found = segments.point_of(self)
        if found is None:
            return None
        if found.grad is None and self._had_grad() and not found.replaced:
            raise UnsupportedError(
                "the .grad that an argument had before the call is read inside a compiled "
                "function", loc=source.here(),
                remedy="Set x.grad = None before the call, or pass x.grad as an argument.",
            )  # fmt: skip
        return found.grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not isinstance(value, Tracer):
            raise ArgumentError(
                f"grad must be a Tensor or None, not {type(value).__name__}", loc=source.here()
            )
        if value is not None and value.sizes != self.sizes:
            raise ShapeError(
                f"a gradient of shape {value.sizes} for a tensor of shape {self.sizes}",
                loc=source.here(),
            )
        found = segments.point_of(self)
        if found is None:
            if value is None:
                return
            raise UnsupportedError(
                "grad is set on a tensor that is no leaf of this compiled function",
                loc=source.here(), remedy="Call requires_grad_() first.",
            )  # fmt: skip
        segments.refuse_in_loop(self)
        found.grad, found.replaced = value, True

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _had_grad(self) -> bool:
        trace: Any = self.trace
        return self in trace.had_grad

    def register_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call ``hook(gradient)`` with the gradient of this value when ``backward`` reaches it."""
        check_hook(self.alias.requires_grad)
        return Handle(segments.hooked_point(self).hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call ``hook(tensor)`` after the gradient of this leaf was added to ``.grad``."""
        check_hook(self.alias.requires_grad)
        if not self.alias.leaf:
            raise AutogradError(
                "post-accumulate hooks can be registered on leaves only", kind="hook_nonleaf",
                loc=source.here(), remedy="Use register_hook.",
            )  # fmt: skip
        return Handle(segments.hooked_point(self).after, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``.grad``."""
        check_retain(self.alias.requires_grad)
        if not self.alias.leaf:
            segments.hooked_point(self).retained = True

    @property
    def retains_grad(self) -> bool:
        found = segments.point_of(self)
        return found is not None and found.retained
