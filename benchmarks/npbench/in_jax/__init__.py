"""The programs as one would write them for JAX: whole-array forms, `scan` and `map`.

Needs JAX.  `FORMS` maps a name to a function with the arguments of the NumPy one, `STATIC` to the
positions that `jax.jit` must take as static.
"""

from benchmarks.npbench.in_jax import (
    fields,
    networks,
    particles,
    products,
    solvers,
    stencils,
    tables,
)
from benchmarks.npbench.in_jax.form import FORMS, STATIC

__all__ = [
    "FORMS",
    "STATIC",
    "fields",
    "networks",
    "particles",
    "products",
    "solvers",
    "stencils",
    "tables",
]
