"""Derivatives of the user's own: `Function` (PyTorch's form), `custom_vjp`, `custom_jvp` (JAX's)."""

from tracegrad.custom.function import Function
from tracegrad.custom.rules import custom_jvp, custom_vjp

__all__ = ["Function", "custom_jvp", "custom_vjp"]
