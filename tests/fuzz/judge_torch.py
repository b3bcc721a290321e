"""The judge of the Tensor face: PyTorch, with operands and saved values copied.

PyTorch refuses programs that overwrite what the backward pass needs, or that read what they
write; copies make it answer those as well, with the value that copying first would give.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import tracegrad as tg
from tests.fuzz.judge_numpy import Outcome, Refused, objective, weighted_gradient
from tests.fuzz.laws import Disagreement, check_stages, same
from tests.fuzz.program import Arg, Program, function
from tracegrad.errors import TracegradError
from tracegrad.options import Options

KINDS = (
    (r"a view of a leaf Variable that requires grad", "view_of_leaf_inplace"),
    (r"a leaf Variable that requires grad", "leaf_inplace"),
    (r"output of a function that returns multiple views", "multi_output_view_inplace"),
    (r"no_grad mode and .* modified inplace", "no_grad_view_inplace"),
    (r"inference mode and .* modified inplace", "inference_view_inplace"),
    (r"Inplace update to inference tensor", "inference_tensor_inplace"),
    (r"Inference tensors cannot be saved", "inference_tensor_saved"),
    (r"input tensor and the written-to tensor refer to", "operand_overlap"),
    (r"refers? to a single memory location", "overlap"),
    (r"has been modified by an inplace operation", "saved_modified"),
    (r"doesn't match the broadcast shape", "broadcast_self"),
    (r"can't be cast to the desired output type", "result_cast"),
    (r"out of bounds for|out of range", "out_of_bounds"),
    (r"view size is not compatible", "bad_geometry"),
)
# Refusals of programs whose meaning is clear: ours must run them.
ODD = frozenset({"leaf_inplace", "view_of_leaf_inplace", "operand_overlap"})


def kind_of(error: Exception) -> str:
    for pattern, kind in KINDS:
        if re.search(pattern, str(error), re.S):
            return kind
    return "other"


def saved_copies() -> Any:
    """Values kept for the backward pass are copies, so that later writes do not matter."""
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)


class Answer:
    """What PyTorch says: results, arguments after the call, gradients; or an error's kind.

    `grads` is None where PyTorch cannot differentiate what it ran; `second`, where asked for, is
    the gradient of the gradient summed with the weights of `weighted_gradient`.
    """

    def __init__(self, text: str, args: Sequence[Arg], second: bool = False) -> None:
        leaves = [torch.from_numpy(a.make()).requires_grad_() for a in args]
        given = [x.clone() for x in leaves]
        self.kind: str | None = None
        self.grads: list[np.ndarray] | None = None
        with saved_copies():
            try:
                results = function(text, tg=torch)(*given)
                total = objective(lambda *_: results, torch.from_numpy)()
            except Exception as e:
                self.kind, self.error = kind_of(e), e
                return
        self.results = [x.detach().clone().numpy() for x in results]
        self.args = [x.detach().clone().numpy() for x in given]
        self.second: list[np.ndarray] | None = None
        found: Any = [None] * len(leaves)
        try:
            with saved_copies():
                if isinstance(total, torch.Tensor) and total.requires_grad:
                    found = torch.autograd.grad(
                        total, leaves, allow_unused=True, create_graph=second
                    )
                if second:
                    self.second = _filled(args, _twice(args, leaves, found))
        except RuntimeError:
            return
        self.grads = _filled(args, [None if g is None else g.detach() for g in found])


def _filled(args: Sequence[Arg], found: Sequence[Any]) -> list[np.ndarray]:
    return [np.zeros(a.shape) if g is None else g.numpy() for a, g in zip(args, found, strict=True)]


def _twice(args: Sequence[Arg], leaves: Sequence[Any], found: Sequence[Any]) -> Sequence[Any]:
    rng = np.random.default_rng(3)
    slope: Any = 0.0
    for a, g in zip(args, found, strict=True):
        w = torch.from_numpy(np.asarray(rng.uniform(-1, 1, a.shape)))
        slope = slope + (0.0 if g is None else (w * g).sum())
    if not isinstance(slope, torch.Tensor) or not slope.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(slope, leaves, allow_unused=True)


def check(
    text: str,
    *args: Arg,
    copied: str = "",
    backend: str = "numpy",
    laws: bool = True,
    second: bool = False,
) -> None:
    """Run the function in `text` both ways; `copied` is it with operands copied, for PyTorch.

    Raises Disagreement, and Refused where there is nothing to compare with.
    """
    want = Answer(copied or text, args, second)
    f = function(text, tg=tg)
    value = objective(f)

    def with_results(*xs: Any) -> Any:
        found = f(*xs)
        return objective(lambda *_: found)(), found

    run = tg.value_and_grad(
        with_results, argnums=tuple(range(len(args))), has_aux=True, arrays="torch", backend=backend
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = Outcome(run, [a.make() for a in args])
    if want.kind and type(got.error) is IndexError and "tuple index" in str(got.error):
        raise Refused("an item of the parts of an empty axis")
    if got.error is not None and not isinstance(got.error, TracegradError):
        raise Disagreement("crash", f"{type(got.error).__name__}: {got.error}") from got.error
    if getattr(got.error, "kind", "") == "inference_tensor_saved":
        want = Answer(text, args)  # a copy of an inference tensor is none
    # PyTorch writes overlapping elements one after the other; ours refuses all such writes.
    if (
        getattr(got.error, "kind", "") == "overlap"
        and want.kind != "overlap"
        and re.search(r"as_strided|unfold|expand", text)
    ):
        raise Refused("write to overlapping elements")
    if want.kind is not None:
        _compare_errors(got, want)
        return
    if got.error is not None:
        kind = got.error.kind  # type: ignore[union-attr]
        raise Disagreement("refusal", f"[{kind}] {got.error}")
    (_, results), grads = got.results
    for k, (g, w) in enumerate(zip(results, want.results, strict=True)):
        same(f"result {k}", g, w)
    for a, g, w in zip(args, got.args, want.args, strict=True):
        same(f"argument {a.name} after the call", g, w)
    if want.grads is not None:
        for a, g, w in zip(args, grads, want.grads, strict=True):
            same(f"gradient of {a.name}", g, w)
    if want.second is not None and want.grads is not None:
        options = Options(backend="numpy", arrays="torch")
        wrt = tuple(range(len(args)))
        slope = weighted_gradient(value, args, wrt, options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = tg.grad(slope, argnums=wrt, options=options)(*[a.make() for a in args])
        for a, g, w in zip(args, again, want.second, strict=True):
            same(f"second gradient of {a.name}", g, w)
    if laws:
        values = [a.make() for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = tg.compile(f, arrays="torch", backend=backend).lower(*values)
            check_stages(plain.specialisation.lowering, values)
            check_stages(run.lower(*values).specialisation.lowering, values)
            _check_forward(value, args, grads)


def _compare_errors(got: Outcome, want: Answer) -> None:
    if want.kind in ODD and got.error is None:
        raise Refused(f"PyTorch says {want.kind}")
    if got.error is None:
        raise Disagreement("error", f"nothing raised, PyTorch: {want.error}")
    kind = got.error.kind  # type: ignore[attr-defined]
    # Of two things wrong at once either may be named.
    if want.kind not in (kind, "other", *ODD) and kind != "shape":
        raise Disagreement("error", f"[{kind}] {got.error}\nPyTorch [{want.kind}]: {want.error}")


def _check_forward(value: Any, args: Sequence[Arg], grads: Sequence[np.ndarray]) -> None:
    rng = np.random.default_rng(5)
    ways = tuple(np.asarray(rng.uniform(-1, 1, a.shape)) for a in args)
    run = tg.compile(value, arrays="torch", backend="numpy")
    _, dot = tg.jvp(run, tuple(a.make() for a in args), ways)
    slope = sum(np.vdot(g, d) for g, d in zip(grads, ways, strict=True))
    same("jvp against vjp", np.float64(dot), np.float64(slope), rtol=1e-8)


def check_program(p: Program, *, backend: str, second: bool = False) -> None:
    check(p.text, *p.args, copied=p.copied_text, backend=backend, second=second)


def as_test(p: Program) -> str:
    return p.as_test("check")
