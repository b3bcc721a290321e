"""Custom functions that several test files use."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg

X = np.array([0.5, -1.5, 2.0, 3.0])


class Cube(tg.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class Tenfold(tg.Function):
    """Twice its input, with a rule that is not its derivative."""

    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, g):
        return g * 10.0


class Doubled(tg.Function):
    """Doubles its input in place; the rule says 20."""

    @staticmethod
    def forward(ctx, x):
        x *= 2.0
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 20.0


class Head(tg.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return x[:2]

    @staticmethod
    def backward(ctx, g):
        out = np.zeros(ctx.n)
        out[:2] = g * 10.0
        return out


class Scaled(tg.Function):
    """x * k for a number k that is not a tensor."""

    @staticmethod
    def forward(ctx, x, k, unused):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None, None


def both_faces(test):
    return pytest.mark.parametrize("face", ["numpy", "torch"])(test)


def gradient(f, *args, **options):
    return tg.grad(f, **options)(*args)
