"""`checkpoint` and `memory_limit`: the same gradients in less memory, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import errors


def steps(u, k):
    for _ in range(300):
        u[1:-1] += k * np.sin(u[2:] - 2 * u[1:-1] + u[:-2])
    return np.sum(u**2)


def start():
    return np.random.default_rng(0).random(50)


def arena(f, *args):
    return f.lower(*args).specialisation.lowering.plan.program.arena_nbytes


@pytest.mark.parametrize("limit", ["60kB", "30kB", 20_000])
def test_a_limit_gives_the_same_gradient(limit):
    plain = tg.grad(steps, argnums=(0, 1))
    limited = tg.grad(steps, argnums=(0, 1), memory_limit=limit)
    for a, b in zip(plain(start(), 0.1), limited(start(), 0.1), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    most = tg.Options(memory_limit=limit).memory_limit
    assert arena(limited, start(), 0.1) <= most < arena(plain, start(), 0.1)


def test_second_derivatives_under_a_limit():
    def along(f):
        return tg.jvp(f, (start(), 0.1), (np.ones(50), None))[1]

    np.testing.assert_allclose(
        along(tg.grad(steps, memory_limit="60kB")), along(tg.grad(steps)), rtol=1e-9, atol=1e-12
    )


def test_a_limit_that_is_too_small_names_the_smallest():
    with pytest.raises(errors.MemoryLimitError) as e:
        tg.grad(steps, memory_limit=100)(start(), 0.1)
    smallest = int(str(e.value).split("memory_limit=")[1].rstrip("."))
    tg.grad(steps, memory_limit=smallest)(start(), 0.1)
    assert isinstance(e.value, MemoryError)


def test_limits_are_sizes():
    assert tg.Options(memory_limit="1.5MB").memory_limit == 1536 * 1024
    with pytest.raises(errors.OptionError, match="is not a size"):
        tg.compile(steps, memory_limit="much")


def test_checkpoint_keeps_values_and_gradients():
    def block(x, w):
        h = x
        for _ in range(4):
            h = np.tanh(h * w) + h
        return h

    def loss(x, w, block=block):
        return np.sum(block(block(x, w), w) ** 2)

    def kept(x, w):
        return loss(x, w, tg.checkpoint(block))

    x, w = start(), np.full(50, 0.3)
    np.testing.assert_allclose(tg.compile(kept)(x, w), tg.compile(loss)(x, w))
    for a, b in zip(
        tg.grad(kept, argnums=(0, 1))(x, w), tg.grad(loss, argnums=(0, 1))(x, w), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(
        tg.hvp(kept, (x, w), (x, w))[0], tg.hvp(loss, (x, w), (x, w))[0], rtol=1e-10
    )
    # Each block is computed twice: forward, and again for the gradient.
    tanhs = str(tg.grad(kept).graph(x, w, stage="optimized")).count("= tanh(")
    assert tanhs > str(tg.grad(loss).graph(x, w, stage="optimized")).count("= tanh(")
    np.testing.assert_allclose(tg.checkpoint(block)(x, w), block(x, w))
