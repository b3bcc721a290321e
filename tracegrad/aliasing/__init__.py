"""Traced graph to functional graph."""
