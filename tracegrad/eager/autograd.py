"""``tg.autograd``: gradients of tensors at the prompt."""

from tracegrad.eager.engine import backward, grad
from tracegrad.eager.history import Node

__all__ = ["Node", "backward", "grad"]
