"""Functional graph to functional graph with derivatives; importing it registers all rules."""

from tracegrad.autodiff import custom, loops

__all__ = ["custom", "loops"]
