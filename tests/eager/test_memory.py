"""The eager graph is freed by reference counting, whatever its length."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.eager.history import Edge, Node


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def growth(step, count: int) -> int:
    """Objects that `count` calls leave behind, after a few to fill caches."""
    for _ in range(20):
        step()
    before = len(gc.get_objects())
    for _ in range(count):
        step()
    return len(gc.get_objects()) - before


def test_steps_without_gradients_do_not_grow(no_collector) -> None:
    state = [tg.ones((3,))]

    def step() -> None:
        with tg.no_grad():
            state[0] = state[0] * 0.999
            state[0][1:] += 0.001

    assert growth(step, 2000) <= 8


def test_training_steps_do_not_grow(no_collector) -> None:
    w = tg.tensor(np.ones(3), requires_grad=True)

    def step() -> None:
        w.grad = None
        y = w * w
        y[1:].mul_(2.0).exp_()
        y.register_hook(lambda g: None)
        y.retain_grad()
        y.sum().backward()
        with tg.no_grad():
            w.sub_(w.grad * 1e-3)

    assert growth(step, 300) <= 8


def test_a_graph_that_is_never_run_is_freed(no_collector) -> None:
    w = tg.tensor(np.ones(3), requires_grad=True)
    y = w * w
    v = y[1:]
    v.mul_(2.0)
    z = (y.exp() * v.sum()).sum()
    nodes = [weakref.ref(x.grad_fn) for x in (y, v, z)]
    accumulator = weakref.ref(w.accumulator())
    del y, v, z
    assert all(r() is None for r in nodes) and accumulator() is None


def test_a_million_nodes_are_freed_without_deep_recursion() -> None:
    node = (tg.tensor(1.0, requires_grad=True) * 2.0).grad_fn
    first = weakref.ref(node)
    for _ in range(1_000_000):
        node = Node("Step", (Edge(node, 0),), node.outputs, None)
    del node
    assert first() is None


def test_a_long_chain_runs_backward() -> None:
    x = tg.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1.0
    y.backward()
    assert float(x.grad) == 1.0
