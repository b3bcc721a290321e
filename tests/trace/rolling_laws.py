"""The law of rolled loops, for tests: rolled = unrolled = NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracegrad as tg
from tracegrad.trace.leaves import flatten


def copied(args: tuple[Any, ...]) -> list[Any]:
    return [np.array(a, order="K") if isinstance(a, np.ndarray) else a for a in args]


def loops_in(f: Callable[..., Any], *args: Any, **options: Any) -> int:
    """How many `loop` nodes, nested ones included, the traced graph of `f` holds."""
    text = tg.compile(f, backend="numpy", **options).graph(*copied(args))
    return sum("= loop(" in line or line.strip().startswith("loop(") for line in text.split("\n"))


def agrees(f: Callable[..., Any], *args: Any, loops: int | None = None, **options: Any) -> None:
    """`f` gives and writes the same three ways; it holds `loops` nodes (None: any)."""
    plain = copied(args)
    want = flatten(f(*plain))[0]
    for way in ("auto", "unroll"):
        given = copied(args)
        made = tg.compile(f, backend="numpy", loops=way, **options)
        got = flatten(made(*given))[0]
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, way)
        for g, w in zip(given, plain, strict=True):
            same(g, w, f"{way}: an argument")
    if loops is not None:
        assert loops_in(f, *args, **options) == loops


def same(got: Any, want: Any, where: str) -> None:
    assert type(got) is type(want), f"{where}: {got!r} and {want!r}"
    if isinstance(want, (np.ndarray, np.generic)):
        assert got.dtype == want.dtype, where
    if isinstance(want, (np.ndarray, np.generic, float)):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13, err_msg=where)
    else:
        assert got == want, where


def gradients_agree(f: Callable[..., Any], *args: np.ndarray) -> None:
    """Gradients of the sum of the results: rolled, unrolled, and central differences."""

    def total(*xs: Any) -> Any:
        out: Any = 0.0
        for x in flatten(f(*xs))[0]:
            out = out + np.sum(x)
        return out * 1.0

    wrt = tuple(k for k, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f")
    rolled, unrolled = (
        tg.grad(total, argnums=wrt, backend="numpy", loops=way)(*copied(args))
        for way in ("auto", "unroll")
    )
    for k, g, w in zip(wrt, rolled, unrolled, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-11)
        way = np.cos(np.arange(args[k].size)).reshape(args[k].shape)
        moved = [
            total(*[a + s * way if n == k else a for n, a in enumerate(copied(args))])
            for s in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(
            np.sum(g * way), (moved[0] - moved[1]) / 2e-6, rtol=2e-6, atol=1e-7
        )
