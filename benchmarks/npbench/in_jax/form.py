"""`form`: enter a program as written for JAX, in float64, under its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

jax.config.update("jax_enable_x64", True)

FORMS: dict[str, Callable[..., Any]] = {}
STATIC = {
    "jacobi_1d": (0,),
    "jacobi_2d": (0,),
    "heat_3d": (0,),
    "seidel_2d": (0,),
    "adi": (0,),
    "nbody": (3,),
    "mandelbrot": (1,),
    "azimint_naive": (2,),
    "stockham_fft": (1,),
}


def form(f: Callable[..., Any]) -> Callable[..., Any]:
    FORMS[f.__name__] = f
    return f


def repeat(step: Callable[[Any], Any], state: Any, times: int) -> Any:
    """The state after `times` steps; a `scan`, which can be differentiated in reverse."""
    return lax.scan(lambda s, _: (step(s), None), state, None, length=times)[0]
