"""Judges of the Array face: plain NumPy for values, finite differences for gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tracegrad as tg
from tests.fuzz.laws import Disagreement, check_stages, same
from tests.fuzz.program import Arg, Program, function
from tracegrad.errors import TracegradError
from tracegrad.options import Options

# Errors that say "not this program" and not "this program fails": no answer to compare.
REFUSALS = frozenset({"data_dependent_shape", "concretization", "aliasing_args", "unsupported"})


class Refused(Exception):
    """The program is outside what is supported; `kind` is the error's."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Outcome:
    """What one way of running gave: results and arguments after the call, or an error."""

    def __init__(self, run: Callable[..., Any], args: Sequence[np.ndarray]) -> None:
        self.results: tuple[Any, ...] = ()
        self.error: Exception | None = None
        self.args = list(args)
        try:
            with np.errstate(all="ignore"):
                self.results = run(*args)
        except Exception as e:
            self.error = e


def check(
    text: str,
    *args: Arg,
    backend: str = "numpy",
    laws: bool = True,
    gradients: bool = True,
    second: bool = False,
) -> Outcome:
    """Run the function in `text` every way; Disagreement when two of them differ.

    `second`: differentiate the gradient too.

    Raises Refused where tracegrad says that it cannot run the program.
    """
    f = function(text)
    want = Outcome(f, [a.make() for a in args])
    compiled = tg.compile(f, backend=backend)
    got = Outcome(compiled, [a.make() for a in args])
    if not agree_on_error(got, want, [a.make() for a in args]):
        return want
    # Sums may add in another order, and what was single may have been widened since.
    rtol = 1e-4 if is_single(text, args) else 1e-9
    for k, (g, w) in enumerate(zip(got.results, want.results, strict=True)):
        same(f"result {k}", g, w, rtol)
        if isinstance(w, np.ndarray) != isinstance(g, np.ndarray):
            raise Disagreement(f"result {k}", f"{type(g).__name__}, not {type(w).__name__}")
    for a, g, w in zip(args, got.args, want.args, strict=True):
        same(f"argument {a.name} after the call", g, w, rtol)
    check_sharing(got, want)
    if laws:
        values = [a.make() for a in args]
        check_stages(compiled.lower(*values).specialisation.lowering, values)
    if gradients:
        check_gradients(text, args, backend, laws)
    if second and np.isfinite(objective(f)(*[a.make() for a in args])):
        check_second(text, args)
    return want


def is_single(text: str, args: Sequence[Arg]) -> bool:
    """Whether a program has float32 values."""
    return any(a.dtype == "float32" for a in args) or "float32" in text


def check_sharing(got: Outcome, want: Outcome) -> None:
    """Results share memory with arguments, or are arguments, where NumPy's do."""
    for k, (g, w) in enumerate(zip(got.results, want.results, strict=True)):
        for n, (a, b) in enumerate(zip(got.args, want.args, strict=True)):
            if np.shares_memory(g, a) != np.shares_memory(w, b) or (w is b) != (g is a):
                raise Disagreement(
                    "sharing",
                    f"result {k} and argument {n}: in NumPy "
                    f"{np.shares_memory(w, b)} ({w is b}), not "
                    f"{np.shares_memory(g, a)} ({g is a})",
                )


def agree_on_error(got: Outcome, want: Outcome, before: Sequence[np.ndarray]) -> bool:
    """True when both ran; an error must be of NumPy's class, and leave arguments alone."""
    if got.error is None and want.error is None:
        return True
    if got.error is not None and not isinstance(got.error, TracegradError):
        raise Disagreement("crash", f"{type(got.error).__name__}: {got.error}") from got.error
    if isinstance(got.error, TracegradError) and got.error.kind in REFUSALS:
        raise Refused(got.error.kind)
    if got.error is not None and "float16" in str(got.error):
        raise Refused("float16")
    if getattr(got.error, "kind", "") == "result_cast" and ".at(" in str(got.error):
        raise Refused("ufunc.at that rounds to integers")
    if "scatter_add: not defined for bool" in str(got.error):
        raise Refused("np.add.at on bool")
    if "collapsing index" in str(got.error) and "(0 != " in str(got.error):
        raise Refused("the diagonal of no rows, which NumPy's einsum reads past the end of")
    if want.error is None:
        raise Disagreement("refusal", f"[{got.error.kind}] {got.error}")  # type: ignore[union-attr]
    if got.error is None:
        raise Disagreement("error", f"nothing raised, NumPy: {want.error!r}")
    classes = [c for c in type(want.error).__mro__ if c.__module__ == "builtins"]
    if not isinstance(got.error, classes[0]):
        raise Disagreement("error", f"{got.error!r}, NumPy: {want.error!r}")
    for k, (a, b) in enumerate(zip(got.args, before, strict=True)):
        same(f"argument {k} after a failed call", a, b)
    return False


# ---------------------------------------------------------------------------------- gradients


def objective(
    f: Callable[..., Any], wrap: Callable[[Any], Any] = lambda x: x
) -> Callable[..., Any]:
    """The sum of all float results of `f`, each element with a weight of its own."""

    def value(*args: Any) -> Any:
        total: Any = 0.0
        for k, x in enumerate(f(*args)):
            if "float" not in str(getattr(x, "dtype", "")):
                continue
            size = int(np.prod(x.shape))
            w = np.cos(1.0 + k + 0.7 * np.arange(size)).reshape(x.shape)
            total = total + (x * wrap(w)).sum()
        return total

    return value


def check_gradients(text: str, args: Sequence[Arg], backend: str, laws: bool) -> None:
    """Reverse against forward mode, and both against central differences in float64.

    Differences are compared only where all floats are float64, and away from kinks, where the
    one-sided differences agree.
    """
    wrt = tuple(k for k, a in enumerate(args) if np.dtype(a.dtype).kind == "f")
    values = [a.make() for a in args]
    f = function(text)
    value = objective(f)
    found = value(*[a.make() for a in args])
    if not wrt or isinstance(found, float) and not isinstance(found, np.floating):
        return
    run = tg.value_and_grad(value, argnums=wrt, backend=backend)
    try:
        total, grads = run(*[a.make() for a in args])
    except TracegradError as e:
        raise Disagreement("gradient refused", f"[{e.kind}] {e}") from e
    single = is_single(text, args)
    same(
        "value beside the gradient",
        np.float64(total),
        np.float64(found),
        rtol=1e-4 if single else 1e-9,
    )
    for k, g in zip(wrt, grads, strict=True):
        if g.shape != args[k].shape or g.dtype != args[k].dtype:
            raise Disagreement(f"gradient of {args[k].name}", f"{g.dtype}{list(g.shape)}")
    if laws:
        check_stages(run.lower(*values).specialisation.lowering, values)
    if not single and np.isfinite(found):
        _check_directions(f, args, wrt, grads, laws and backend == "numpy")


def _check_directions(
    f: Callable[..., Any],
    args: Sequence[Arg],
    wrt: tuple[int, ...],
    grads: Sequence[np.ndarray],
    forward: bool,
) -> None:
    value = objective(f)
    rng = np.random.default_rng(7)
    for attempt in range(2):
        ways = [np.asarray(rng.uniform(-1, 1, args[k].shape)) for k in wrt]
        slope = float(sum(np.vdot(g, d) for g, d in zip(grads, ways, strict=True)))
        at = _along(value, args, wrt, ways)
        if at is not None and not abs(at - slope) <= 2e-5 * max(1.0, abs(at), abs(slope)):
            raise Disagreement("gradient", f"slope {slope!r}, finite differences {at!r}\n{grads}")
        if forward and attempt == 0:
            _check_forward(value, args, wrt, ways, slope)


def _along(
    value: Callable[..., Any],
    args: Sequence[Arg],
    wrt: tuple[int, ...],
    ways: Sequence[np.ndarray],
    h: float = 1e-5,
) -> float | None:
    """The slope of `value` along `ways`; None at a kink or a jump."""

    def moved(t: float) -> float:
        given = [a.make() for a in args]
        for k, d in zip(wrt, ways, strict=True):
            given[k] = args[k].laid_out(given[k] + t * d)
        with np.errstate(all="ignore"):
            return float(value(*given))

    right, left, middle, near = moved(h), moved(-h), moved(0.0), moved(h / 2) - moved(-h / 2)
    slope = (right - left) / (2 * h)
    scale = max(1.0, abs(slope))
    bend = abs(right + left - 2 * middle) / h
    if not np.isfinite(slope) or bend > 0.02 * scale or abs(near / h - slope) > 1e-6 * scale:
        return None
    return slope


def _check_forward(
    value: Callable[..., Any],
    args: Sequence[Arg],
    wrt: tuple[int, ...],
    ways: Sequence[np.ndarray],
    slope: float,
) -> None:
    given = [a.make() for a in args]
    fixed = [k for k in range(len(args)) if k not in wrt]

    def moving(*xs: Any) -> Any:
        full = dict(zip(wrt, xs, strict=True))
        for k in fixed:
            full[k] = np.array(given[k])
        return value(*[full[k] for k in range(len(args))])

    run = value if not fixed else moving
    run = tg.compile(run, backend="numpy")
    _, dot = tg.jvp(run, tuple(given[k] for k in wrt), tuple(ways))
    same("jvp against vjp", np.float64(dot), np.float64(slope), rtol=1e-8)


def weighted_gradient(
    value: Callable[..., Any], args: Sequence[Arg], wrt: tuple[int, ...], options: Options
) -> Callable[..., Any]:
    """A scalar function of the arguments: the gradient of `value` summed with fixed weights."""
    rng = np.random.default_rng(3)
    weights = [np.asarray(rng.uniform(-1, 1, args[k].shape)) for k in wrt]
    run = tg.grad(value, argnums=wrt, options=options)

    def slope(*given: Any) -> Any:
        total: Any = 0.0
        for w, g in zip(weights, run(*given), strict=True):
            total = total + (w * g).sum()
        return total

    return slope


def check_second(text: str, args: Sequence[Arg]) -> None:
    """The gradient of the gradient against differences of the gradient."""
    wrt = tuple(k for k, a in enumerate(args) if a.dtype == "float64")
    if not wrt or is_single(text, args):
        return
    options = tg.Options(backend="numpy")
    slope = weighted_gradient(objective(function(text)), args, wrt, options)
    try:
        found = tg.grad(slope, argnums=wrt, options=options)(*[a.make() for a in args])
    except TracegradError as e:
        raise Disagreement("second gradient refused", f"[{e.kind}] {e}") from e
    rng = np.random.default_rng(8)
    ways = [np.asarray(rng.uniform(-1, 1, args[k].shape)) for k in wrt]
    want = _along(slope, args, wrt, ways)
    got = float(sum(np.vdot(g, d) for g, d in zip(found, ways, strict=True)))
    if want is not None and not abs(want - got) <= 1e-4 * max(1.0, abs(want), abs(got)):
        raise Disagreement("second gradient", f"{got!r}, finite differences {want!r}")


def check_program(p: Program, *, backend: str, second: bool = False) -> None:
    check(p.text, *p.args, backend=backend, second=second)


def as_test(p: Program) -> str:
    return p.as_test("check")
