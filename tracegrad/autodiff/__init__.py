"""Functional graph to functional graph with derivatives; importing it registers all rules."""

from tracegrad.autodiff import branches, checkpoint, custom, loops, whiles

__all__ = ["branches", "checkpoint", "custom", "loops", "whiles"]
