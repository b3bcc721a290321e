"""Functional graph to functional graph with derivatives; importing it registers all rules."""

from tracegrad.autodiff import branches, custom, loops, whiles

__all__ = ["branches", "custom", "loops", "whiles"]
