"""Random chains of custom Functions, writes and views: first and second order as PyTorch's."""

from __future__ import annotations

import types

import numpy as np
import pytest

import tracegrad as tg


def functions(base, cat):
    """Functions with rules that are not their derivatives, over either library."""

    class Cube(base):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2.5 * x * x * g

    class Exp(base):
        @staticmethod
        def forward(ctx, x):
            y = (x * 0.3).exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return 0.7 * y * g

    class Dirty(base):
        @staticmethod
        def forward(ctx, x):
            x.mul_(0.5)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * 0.8 * y

    class Head(base):
        @staticmethod
        def forward(ctx, x):
            return x[:2]

        @staticmethod
        def backward(ctx, g):
            return cat((g * 3.0, g * 0.0))

    class Pair(base):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            return g * y * 1.5 + h, g * x + 2.0 * h

    return types.SimpleNamespace(
        cube=Cube.apply, exp=Exp.apply, dirty=Dirty.apply, head=Head.apply, pair=Pair.apply
    )


def run(steps, use, x):
    y = x * 1.0
    z = y * 0.5
    for kind, at in steps:
        match kind:
            case 0:
                y = use.cube(y * 0.5)
            case 1:
                z = use.exp(z)
            case 2:
                y = y * 1.0
                use.dirty(y[at : at + 2])
            case 3:
                y = y * 1.0
                y[2:].mul_(1.5)
                z = z * 1.0
                z[1:3].add_(use.head(y))
            case 4:
                y, z = use.pair(y, z)
            case 5:
                y = y * 1.0
                v = y[1:3]
                y = use.dirty(y)
                z = z * 1.0
                z[:2].mul_(v)
            case _:
                y = y * z + 1.0
    return (y * y).sum() * 0.5 + (z * y).sum()


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(6))
def test_chains_agree_with_torch(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    steps = [
        (int(k), int(at))
        for k, at in zip(rng.integers(0, 7, 5), rng.integers(0, 3, 5), strict=True)
    ]
    x, u = rng.standard_normal(4) * 0.6, rng.standard_normal(4)

    theirs = functions(torch.autograd.Function, torch.cat)
    tx = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad(run(steps, theirs, tx), tx, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(u)).sum(), tx)

    ours = functions(tg.Function, tg.cat)
    gradient = tg.grad(lambda x: run(steps, ours, x), arrays="torch")
    np.testing.assert_allclose(gradient(x), first.detach().numpy(), rtol=1e-9)
    twice = tg.grad(lambda x: (gradient(x) * u).sum(), arrays="torch")
    np.testing.assert_allclose(twice(x), second.numpy(), rtol=1e-9, atol=1e-12)
