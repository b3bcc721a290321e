"""Functional graph to smaller functional graph."""
