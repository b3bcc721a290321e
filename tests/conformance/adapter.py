"""Runs a case of the corpus on tracegrad; the protocol is that of `torch_adapter.py`."""

from __future__ import annotations

import cases
import numpy as np

import tracegrad as tg
from tracegrad.errors import ConcretizationError, DataDependentShapeError, TracegradError


class Result:
    def __init__(self, outputs, grads, finals):
        self.outputs, self.grads, self.finals = outputs, grads, finals


def as_list(out):
    if out is None:
        return []
    return list(out) if isinstance(out, (tuple, list)) else [out]


def weighted_sum(outs):
    """The scalar whose gradients the corpus records."""
    total, k = 0.0, 0
    for o in outs:
        if np.dtype(o.dtype).kind != "f":
            continue
        size = int(np.prod(o.shape))
        w = np.array([cases.weight(k, i) for i in range(size)]).reshape(o.shape)
        total = total + (o * w).sum()
        k += 1
    return total


class Eager:
    """`tg` with the corpus's spelling of the gradient of tensors."""

    def __getattr__(self, name):
        return getattr(tg, name)

    @staticmethod
    def grad(output, inputs, **keywords):
        return tg.autograd.grad(output, inputs, **keywords)


def to_numpy(v):
    if isinstance(v, tg.Tensor):
        return v.detach().numpy().copy()
    return [to_numpy(e) for e in v] if isinstance(v, (list, tuple)) else v


class Adapter:
    tg = tg

    options = {"arrays": "torch"}

    @property
    def prompt(self):
        return Prompt()

    @property
    def strict(self):
        return Strict()

    def make_value(self, spec, position):
        dtype = np.int64 if spec.is_index else np.float64
        return np.array(spec.flat(position), dtype).reshape(spec.shape)

    def run(self, case):
        if case.mode == "eager":
            return self.run_eager(case)
        try:
            return self.run_traced(case)
        except (ConcretizationError, DataDependentShapeError):
            # A number of elements that depends on values is a number at the prompt only.
            return self.prompt.run(case)

    def run_traced(self, case):
        positions = case.roots()
        roots = [self.make_value(case.inputs[p], p) for p in positions]
        diff = tuple(positions.index(p) for p in case.diff_positions())

        def objective(*values):
            args = case.args_from_roots(dict(zip(positions, values, strict=True)))
            outs = as_list(case.fn(tg, *args))
            return weighted_sum(outs), outs

        if diff:
            run = tg.value_and_grad(objective, argnums=diff, has_aux=True, **self.options)
            (_, outs), grads = run(*roots)
        else:
            run = tg.compile(objective, **self.options)
            (_, outs), grads = run(*roots), ()
        return Result(
            [np.asarray(o) for o in outs],
            {positions[k]: g for k, g in zip(diff, grads, strict=True)},
            dict(zip(positions, roots, strict=True)),
        )

    def run_eager(self, case):
        diff = case.diff_positions()
        roots = {
            p: tg.tensor(self.make_value(case.inputs[p], p), requires_grad=p in diff)
            for p in case.roots()
        }
        outs = as_list(case.fn(Eager(), *case.args_from_roots(roots)))
        return Result([to_numpy(o) for o in outs], {}, {})

    def classify(self, exc):
        return exc.kind if isinstance(exc, TracegradError) else "other"


class Prompt(Adapter):
    """Cases written for traces, run on Tensors at the prompt.

    Arguments are clones of leaves; the gradient is that of the corpus's weighted sum.
    """

    def run(self, case):
        leaves, roots = {}, {}
        for p in case.roots():
            value = tg.tensor(self.make_value(case.inputs[p], p))
            if p in case.diff_positions():
                leaves[p] = value.requires_grad_()
                value = value.clone()
            roots[p] = value
        outs = as_list(case.fn(tg, *case.args_from_roots(roots)))
        total = weighted_sum(outs)
        finals = {p: to_numpy(v) for p, v in roots.items()}
        grads = {}
        if leaves and isinstance(total, tg.Tensor) and total.requires_grad:
            found = tg.autograd.grad(total, list(leaves.values()), allow_unused=True)
            grads = {
                p: None if g is None else to_numpy(g) for p, g in zip(leaves, found, strict=True)
            }
        return Result([to_numpy(o) for o in outs], grads, finals)


class Strict(Adapter):
    """PyTorch's refusals, too: of overlapping operands by ``strict=True``, of values overwritten
    before their backward by running at the prompt, where memory really is overwritten."""

    options = {"arrays": "torch", "strict": True}

    def run(self, case):
        result = super().run(case)
        if case.mode == "trace":
            self.prompt.run(case)
        return result


adapter = Adapter()
