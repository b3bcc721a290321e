"""Derivatives of the user's own: `Function` as in PyTorch, `custom_vjp` and `custom_jvp` as in
JAX."""

from tracegrad.custom.function import Function
from tracegrad.custom.rules import custom_jvp, custom_vjp

__all__ = ["Function", "custom_jvp", "custom_vjp"]
