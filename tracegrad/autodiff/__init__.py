"""Functional graph to functional graph with derivatives."""
