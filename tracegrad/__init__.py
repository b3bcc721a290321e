"""Compiled gradients of ordinary NumPy functions, views and in-place writes included.

trace        user code -> traced graph             (trace)
alias        views and writes -> values            (aliasing)
transform    grad, vjp, jvp -> joint graph         (autodiff)
simplify     -> smaller graph                      (rewrite)
schedule     -> kernels over buffers               (schedule)
lower        -> loop nests                         (loops)
print        -> C                                  (codegen)
build, call  -> results                            (runtime)
ship         -> C source and header                (aot)
"""

import importlib.util
from typing import TYPE_CHECKING

from tracegrad import errors
from tracegrad.options import Options
from tracegrad.spec import spec
from tracegrad.trace.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from tracegrad import debug
    from tracegrad.checkpointing import checkpoint
    from tracegrad.checks import check_grads
    from tracegrad.compiled import CompiledFunction, compile, disable_compile
    from tracegrad.control import cond, fori_loop, scan, switch, while_loop
    from tracegrad.custom import Function, custom_jvp, custom_vjp
    from tracegrad.exporting import export
    from tracegrad.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
    from tracegrad.pullbacks import jvp, vjp
    from tracegrad.trace.rolling import explicit_range as range
    from tracegrad.trace.signature import register_pytree
    from tracegrad.transforms import grad, stop_gradient, value_and_grad

__version__ = "0.1.0"

# Modules that are loaded when one of their names is asked for, so that the import is quick.
_PROVIDES = {
    "checkpointing": ("checkpoint",),
    "checks": ("check_grads",),
    "compiled": ("CompiledFunction", "compile", "disable_compile"),
    "control": ("cond", "fori_loop", "scan", "switch", "while_loop"),
    "custom": ("Function", "custom_jvp", "custom_vjp"),
    "exporting": ("export",),
    "jacobians": ("hessian", "hvp", "jacfwd", "jacobian", "jacrev"),
    "pullbacks": ("jvp", "vjp"),
    "trace.signature": ("register_pytree",),
    "transforms": ("grad", "stop_gradient", "value_and_grad"),
}
_MODULE_OF = {name: module for module, names in _PROVIDES.items() for name in names}


def __getattr__(name: str) -> object:
    """What is loaded when asked for: most of the API, array functions and dtypes."""
    found = globals()[name] = _load(name)
    return found


def _load(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"tracegrad.{_MODULE_OF[name]}"), name)
    # `from tracegrad import dims` asks here before it looks for the submodule.
    if importlib.util.find_spec(f"tracegrad.{name}"):
        return importlib.import_module(f"tracegrad.{name}")
    if name == "autograd":
        return importlib.import_module("tracegrad.eager.autograd")
    if name == "range":
        return importlib.import_module("tracegrad.trace.rolling").explicit_range
    namespace = importlib.import_module("tracegrad.namespace")
    if name in namespace.FUNCTIONS:
        return namespace.FUNCTIONS[name]
    if name in namespace.DTYPES:
        return getattr(namespace, name)
    if name == "vmap":
        raise AttributeError(
            "tg.vmap is not available yet. Write a for loop over the rows, which stays one loop of "
            "the program, or broadcast."
        )
    raise AttributeError(f"module 'tracegrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "CompiledFunction",
    "Function",
    "Options",
    "checkpoint",
    "check_grads",
    "compile",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "disable_compile",
    "enable_grad",
    "errors",
    "export",
    "fori_loop",
    "grad",
    "hessian",
    "hvp",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "no_grad",
    "range",
    "register_pytree",
    "scan",
    "set_grad_enabled",
    "spec",
    "stop_gradient",
    "switch",
    "value_and_grad",
    "vjp",
    "while_loop",
]
