"""Functional graph to a plan of kernels."""
