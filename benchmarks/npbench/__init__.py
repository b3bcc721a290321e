"""The programs of NPBench by name, written anew in natural NumPy from what they compute.

Each returns a scalar, so that it has a gradient, and knows nothing of tracegrad.
"""

from benchmarks.npbench import (
    dense,
    fluids,
    graphs,
    images,
    networks,
    particles,
    products,
    solvers,
    stencils,
    transforms,
    weather,
)
from benchmarks.npbench.kernel import KERNELS, Kernel, differentiable, fresh

__all__ = [
    "KERNELS",
    "Kernel",
    "dense",
    "differentiable",
    "fluids",
    "fresh",
    "graphs",
    "images",
    "networks",
    "particles",
    "products",
    "solvers",
    "stencils",
    "transforms",
    "weather",
]
