"""Runs a case of the corpus on tracegrad; the protocol is that of `torch_adapter.py`."""

from __future__ import annotations

import cases
import numpy as np

import tracegrad as tg
from tracegrad.errors import TracegradError


class Result:
    def __init__(self, outputs, grads, finals):
        self.outputs, self.grads, self.finals = outputs, grads, finals


def as_list(out):
    if out is None:
        return []
    return list(out) if isinstance(out, (tuple, list)) else [out]


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

    def make_value(self, spec, position):
        dtype = np.int64 if spec.is_index else np.float64
        return np.array(spec.flat(position), dtype).reshape(spec.shape)

    def run(self, case):
        if case.mode == "eager":
            return self.run_eager(case)
        positions = case.roots()
        roots = [self.make_value(case.inputs[p], p) for p in positions]
        diff = tuple(positions.index(p) for p in case.diff_positions())

        def objective(*values):
            args = case.args_from_roots(dict(zip(positions, values, strict=True)))
            outs = as_list(case.fn(tg, *args))
            total, k = 0.0, 0
            for o in outs:
                if np.dtype(o.dtype).kind != "f":
                    continue
                size = int(np.prod(o.shape))
                w = np.array([cases.weight(k, i) for i in range(size)]).reshape(o.shape)
                total = total + (o * w).sum()
                k += 1
            return total, outs

        if diff:
            run = tg.value_and_grad(objective, argnums=diff, has_aux=True, arrays="torch")
            (_, outs), grads = run(*roots)
        else:
            run = tg.compile(objective, arrays="torch")
            (_, outs), grads = run(*roots), ()
        return Result([np.asarray(o) for o in outs],
                      {positions[k]: g for k, g in zip(diff, grads, strict=True)},
                      dict(zip(positions, roots, strict=True)))

    def run_eager(self, case):
        diff = case.diff_positions()
        roots = {p: tg.tensor(self.make_value(case.inputs[p], p), requires_grad=p in diff)
                 for p in case.roots()}
        outs = as_list(case.fn(Eager(), *case.args_from_roots(roots)))
        return Result([to_numpy(o) for o in outs], {}, {})

    def classify(self, exc):
        return exc.kind if isinstance(exc, TracegradError) else "other"


adapter = Adapter()
