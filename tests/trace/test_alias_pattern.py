"""Groups of arrays that share memory, and the views that their members are of the base."""

from __future__ import annotations

import numpy as np

from tracegrad.graph.array_views import apply_view
from tracegrad.graph.storage import View
from tracegrad.trace.alias_pattern import copy_together, find_groups


def numbers(*shape):
    return np.sin(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def random_view(rng, x):
    for _ in range(rng.integers(0, 4)):
        kind = rng.integers(0, 5)
        if kind == 0 and x.ndim:
            axis = int(rng.integers(x.ndim))
            low, high = np.sort(rng.integers(0, x.shape[axis] + 1, 2))
            step = int(rng.choice([1, 2, -1, -2]))
            x = x[(slice(None),) * axis + (slice(low, high),)]
            x = x[(slice(None),) * axis + (slice(None, None, step),)]
        elif kind == 1:
            x = x.T
        elif kind == 2 and x.ndim > 1 and len(x):
            x = x[rng.integers(len(x))]
        elif kind == 3:
            x = x[None]
        elif kind == 4 and x.flags.c_contiguous:
            x = x.reshape(-1)
    return x


def test_groups_cover_what_shares_memory_and_nothing_is_in_two():
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(600):
        x = np.arange(float(rng.integers(1, 60)))
        sizes = [n for n in (1, 2, 3, 4) if x.size % n == 0]
        x = x.reshape(int(rng.choice(sizes)), -1)
        arrays = [random_view(rng, x) for _ in range(rng.integers(2, 5))]
        groups = find_groups(arrays, range(len(arrays)))
        inside = [m.position for g in groups for m in g.members]
        assert len(set(inside)) == len(inside)
        for i, a in enumerate(arrays):
            for j, b in enumerate(arrays[:i]):
                assert not np.shares_memory(a, b) or any(
                    {i, j} <= {m.position for m in g.members} for g in groups
                )
        for g in groups:
            base = g.base(arrays)
            assert (base.shape, base.strides) == (g.shape, g.strides)
            seen.add(g.root is None)
            for m in g.members:
                view = apply_view(m.view, base)
                np.testing.assert_array_equal(view, arrays[m.position])
                assert g.root != m.position or m.view == View()
        copies = copy_together(arrays)
        for i, (a, c) in enumerate(zip(arrays, copies, strict=True)):
            np.testing.assert_array_equal(a, c)
            assert not np.shares_memory(a, c)
            for b, d in zip(arrays[:i], copies[:i], strict=True):
                assert np.shares_memory(a, b) == np.shares_memory(c, d)
    assert seen == {True, False}


def test_only_groups_with_a_written_array_are_formed():
    x, y = numbers(6), numbers(4)
    arrays = [x, x[1:], y, y[::2], None, 3.0, numbers(0)]
    assert find_groups(arrays, ()) == ()
    assert [[m.position for m in g.members] for g in find_groups(arrays, {3})] == [[2, 3]]
    assert [g.root for g in find_groups(arrays, {1, 2})] == [0, 2]


def test_many_arguments_are_compared_by_their_ranges():
    x = numbers(400)
    arrays = [x[k : k + 1] for k in range(400)]
    assert find_groups(arrays, range(400)) == ()
    arrays[7] = x[3:9]
    (group,) = find_groups(arrays, range(400))
    assert [m.position for m in group.members] == [3, 4, 5, 6, 7, 8] and group.root == 7
