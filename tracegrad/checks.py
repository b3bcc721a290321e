"""`check_grads`: derivatives against finite differences, first order and higher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from tracegrad import source
from tracegrad.errors import ArgumentError, GradientCheckError, ValueArgumentError
from tracegrad.pullbacks import jvp, vjp
from tracegrad.trace.signature import NAMESPACE

_STEP = {8: 1e-6, 4: 1e-2}  # bytes of a float -> step of the central difference
_TOLERANCE = {8: 2e-5, 4: 2e-2}


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    *,
    modes: Sequence[str] = ("fwd", "rev"),
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """Compare derivatives of `f` at `args` with central differences along random directions.

    Every inexact array, NumPy float and Python float in `args` is differentiated (complex ones
    in both parts); the arguments are not written.  `modes`: ``fwd`` checks `jvp`, ``rev`` checks
    `vjp` by the dot product with the difference.  `order` 2 checks the derivative of the
    derivative in the same way.

    Raises:
        GradientCheckError: a derivative disagrees; the text gives both numbers.
        ValueArgumentError: an order below 1, an unknown mode, arguments without floats.
        ArgumentError: `args` is no tuple.
    """
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(
            f"check_grads: args must be a tuple, not {type(args).__name__}",
            loc=source.here(),
            remedy="Write check_grads(f, (x,)).",
        )
    unknown = set(modes) - {"fwd", "rev"}
    if unknown or order < 1:
        raise ValueArgumentError(
            f"check_grads: {'unknown mode ' + repr(unknown.pop()) if unknown else 'order < 1'}",
            loc=source.here(),
            remedy="Modes are 'fwd' and 'rev'; order is 1 or more.",
        )
    _check(
        f,
        tuple(args),
        order,
        tuple(modes),
        _Numbers(eps, atol, rtol),
        np.random.default_rng(seed),
        getattr(f, "__name__", "f"),
    )


class _Numbers:
    """Step and tolerances for a dtype, with the user's choices."""

    def __init__(self, eps: float | None, atol: float | None, rtol: float | None) -> None:
        self.eps, self.atol, self.rtol = eps, atol, rtol

    def step(self, size: int) -> float:
        return self.eps if self.eps is not None else _STEP[size]

    def close(self, got: float, want: float, size: int) -> bool:
        a = self.atol if self.atol is not None else _TOLERANCE[size]
        r = self.rtol if self.rtol is not None else _TOLERANCE[size]
        return bool(abs(got - want) <= a + r * abs(want)) or (got != got and want != want)


def _check(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    order: int,
    modes: tuple[str, ...],
    numbers: _Numbers,
    rng: np.random.Generator,
    name: str,
) -> None:
    argnums = tuple(k for k, x in enumerate(args) if _floats(x))
    if not argnums:
        raise ValueArgumentError(
            "check_grads: no argument has a float in it",
            loc=source.here(),
            remedy="Pass floats: integers have no gradient.",
        )
    points = tuple(args[k] for k in argnums)

    def of_floats(*xs: Any) -> Any:
        full = list(args)
        for k, x in zip(argnums, xs, strict=True):
            full[k] = x
        return f(*_copied(tuple(full)))

    size = min(np.asarray(x).real.dtype.itemsize for x in _floats(points))
    direction = _random_like(points, rng)
    h = numbers.step(size)
    ahead = of_floats(*_moved(points, direction, h))
    behind = of_floats(*_moved(points, direction, -h))
    difference = [
        (_wide(a) - _wide(b)) / (2 * h)
        for a, b in zip(_floats(ahead), _floats(behind), strict=True)
    ]
    if "fwd" in modes:
        _, tangent = jvp(f, _with(args, argnums, points), _zeros_but(args, argnums, direction))
        for k, (made, moved) in enumerate(zip(_floats(tangent), difference, strict=True)):
            weight = _random_like(moved, rng)
            _compare(
                numbers, size, f"jvp of {name}, result {k}", _dot(weight, made), _dot(weight, moved)
            )
    if "rev" in modes:
        out, pullback = vjp(f, *_copied(args), argnums=argnums)
        cts = _random_like(out, rng)
        grads = pullback(cts)
        got: Any = sum(map(_dot, _floats(grads), _floats(direction)))
        want: Any = sum(map(_dot, _floats(cts), difference))
        _compare(numbers, size, f"vjp of {name}", got, want)
    if order > 1:

        def pulled(*xs: Any) -> Any:
            full = list(args)
            for k, x in zip(argnums, xs, strict=True):
                full[k] = x
            result, back = vjp(f, *full, argnums=argnums)
            return back(_constant_cts(result))

        _check(pulled, points, order - 1, modes, numbers, rng, f"the gradient of {name}")


def _compare(numbers: _Numbers, size: int, what: str, got: float, want: float) -> None:
    if not numbers.close(got, want, size):
        raise GradientCheckError(
            f"{what} along a random direction is {got:.10g}, by central differences {want:.10g}",
            remedy="If the function has a kink or a jump near this point, move the point.",
        )


def _floats(tree: Any) -> list[Any]:
    leaves = optree.tree_leaves(tree, namespace=NAMESPACE)
    return [x for x in leaves if _is_float(x)]


def _is_float(x: Any) -> bool:
    return type(x) in (float, complex) or getattr(getattr(x, "dtype", None), "kind", "-") in "fc"


def _wide(x: Any) -> np.ndarray:
    return np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64)


def _dot(x: Any, y: Any) -> float:
    """The inner product of numbers and, for complex ones, of both of their parts."""
    return float(np.sum(np.real(np.conj(_wide(x)) * _wide(y))))


def _map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    return optree.tree_map(fn, tree, *rest, namespace=NAMESPACE)


def _copied(tree: Any) -> Any:
    return _map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, tree)


def _random_like(tree: Any, rng: np.random.Generator) -> Any:
    def one(x: Any) -> Any:
        if not _is_float(x):
            return x
        value: Any = rng.standard_normal(np.shape(x))
        if np.iscomplexobj(x):
            value = value + 1j * rng.standard_normal(np.shape(x))
        return (
            type(x)(value)
            if type(x) in (float, complex)
            else np.asarray(x).dtype.type(value)
            if not isinstance(x, np.ndarray)
            else value.astype(x.dtype)
        )

    return _map(one, tree)


def _constant_cts(tree: Any) -> Any:
    """Cotangents that do not depend on the random generator, so that a trace can hold them."""
    return _map(lambda x: x * 0 + 1 if _is_float(x) else x, tree)


def _moved(points: Any, direction: Any, h: float) -> Any:
    return _map(
        lambda x, d: (
            type(x)(x + h * d)
            if type(x) in (float, complex) or isinstance(x, np.generic)
            else (x + h * d).astype(x.dtype)
            if _is_float(x)
            else x
        ),
        points,
        direction,
    )


def _with(
    args: tuple[Any, ...], argnums: tuple[int, ...], points: tuple[Any, ...]
) -> tuple[Any, ...]:
    full = list(_copied(args))
    for k, x in zip(argnums, points, strict=True):
        full[k] = _copied(x)
    return tuple(full)


def _zeros_but(
    args: tuple[Any, ...], argnums: tuple[int, ...], direction: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Tangents: `direction` for the differentiated arguments, None for the others."""
    out: list[Any] = [None] * len(args)
    for k, d in zip(argnums, direction, strict=True):
        out[k] = d
    return tuple(out)
