"""`CompiledFunction`: a function that is traced and compiled anew for each kind of arguments."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from tracegrad import source
from tracegrad.errors import ArgumentError, RecompileWarning, ValueArgumentError
from tracegrad.graph.ir import Graph
from tracegrad.graph.text import print_graph
from tracegrad.options import Options
from tracegrad.trace.modes import STATE, current_trace, is_tracking
from tracegrad.trace.recompile import recompile_advice
from tracegrad.trace.signature import Signature

if TYPE_CHECKING:
    from tracegrad.specialise import Specialisation

# The compiler proper is imported when something is compiled, so that `import tracegrad` is quick.
_VARIANTS = 4
P = ParamSpec("P")
R = TypeVar("R")


class CacheInfo(NamedTuple):
    """As `functools.lru_cache` reports, for specialisations."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class GraphText(str):
    """A graph as text; `graph` is the object, with exports to other forms."""

    graph: Graph

    def to_dot(self) -> str:
        """Graphviz text."""
        from tracegrad.graph.export import to_dot

        return to_dot(self.graph)

    def to_json(self, *, indent: int | None = None) -> str:
        """JSON of the documented, versioned schema."""
        from tracegrad.graph.export import to_json

        return to_json(self.graph, indent=indent)

    def to_networkx(self) -> Any:
        """A ``networkx.MultiDiGraph``."""
        from tracegrad.graph.export import to_networkx

        return to_networkx(self.graph)


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A function lowered for one signature; arguments were only looked at."""

    specialisation: Specialisation
    owner: CompiledFunction[..., Any]

    def graph(self, stage: str = "traced") -> GraphText:
        """The graph of a stage: traced, functional, joint or optimized (or `scheduled`, the
        kernels as loop IR)."""
        from tracegrad.loops.text import print_program
        from tracegrad.pipeline import GRAPH_STAGES, STAGES

        if stage == "scheduled":
            return GraphText(print_program(self.specialisation.lowering.plan.program))
        if stage == "source":
            return GraphText(self.source())
        if stage not in GRAPH_STAGES:
            raise ValueArgumentError(
                f"unknown stage {stage!r}", remedy=f"Stages: {', '.join(STAGES)}."
            )
        graph = self.specialisation.lowering.graph(stage)
        text = GraphText(print_graph(graph, loc=False))
        text.graph = graph
        return text

    def source(self) -> str:
        """The C that runs."""
        return self.specialisation.lowering.unit.text

    def compile(self) -> CompiledFunction[..., Any]:
        """Build now what the first call would build; returns the function."""
        _ = self.specialisation.lowering.executable
        return self.owner


class CompiledFunction(Generic[P, R]):
    """A compiled function: call it as the function that it wraps.

    Made by `compile` and by the transforms.  It keeps the name, documentation and signature of
    the function; as a class attribute it is a method; it can be pickled where the function can.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        options: Options,
        static_argnums: int | Iterable[int] = (),
        static_argnames: str | Iterable[str] = (),
    ) -> None:
        if not callable(fn):
            raise ArgumentError(
                f"compile needs a function, not {type(fn).__name__}",
                loc=source.here(),
                remedy="Write tg.compile(f)(x), not tg.compile(f(x)).",
            )
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.options = options
        self._statics = (static_argnums, static_argnames)
        self._signature = Signature(fn, static_argnums, static_argnames)
        self._found: OrderedDict[Hashable, list[Specialisation]] = OrderedDict()
        self._lock = threading.RLock()
        self._hits = self._misses = 0
        self._quick: Callable[..., Any] | None = None

    # -- calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        quick = self._quick
        if (
            quick is not None
            and not STATE.traces
            and STATE.grad
            and not STATE.inference
            and not STATE.disabled
        ):
            try:
                found = (
                    quick(*args)
                    if not kwargs
                    else quick(*args, *self._signature.in_order(len(args), kwargs))
                )
            except TypeError:
                found = NotImplemented
            if found is not NotImplemented:
                self._hits += 1
                return found  # type: ignore[no-any-return]
        return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> R:
        trace = current_trace()
        if trace is not None:
            if trace.names is not None and isinstance(self.fn, FunctionType):
                return trace.names.call(self.fn, self.fn.__name__)(*args, **kwargs)  # type: ignore
            return self.fn(*args, **kwargs)
        if STATE.disabled:
            return self.fn(*args, **kwargs)
        key, leaves = self._signature.key(args, kwargs)
        key = (key, is_tracking())
        for specialisation in self._found.get(key, ()):
            found = specialisation(leaves)
            if found is not NotImplemented:
                self._hits += 1
                self._remember(key, specialisation)
                return found  # type: ignore[no-any-return]
        specialisation = self._specialise(key, args, kwargs, leaves)
        # No guards here: the trace itself may have changed what they look at (an outer list).
        found = specialisation.run(leaves, specialisation.traced.outside.fetch(leaves))
        self._remember(key, specialisation)
        return found  # type: ignore[no-any-return]

    def _remember(self, key: Hashable, specialisation: Specialisation) -> None:
        """Make this specialisation the one that the next call tries first."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
        if is_tracking():
            from tracegrad.quick import quick_call

            self._quick = quick_call(specialisation, self._signature.method)

    def _specialise(
        self, key: Hashable, args: Any, kwargs: Any, leaves: Sequence[Any]
    ) -> Specialisation:
        from tracegrad.specialise import Specialisation

        with self._lock:
            self._misses += 1
            call = self._signature.describe(args, kwargs)
            made = Specialisation(self.fn, call, self.options, leaves)
            _ = made.lowering.executable
            known = self._found.get(key, [])
            # A guard that keeps failing makes variants of one key and alias pattern: keep the
            # last few.
            same = [s for s in known if s.traced.groups == made.traced.groups]
            self._found[key] = [made, *(s for s in known if s not in same[_VARIANTS - 1 :])]
            while len(self._found) > self.options.cache_size:
                self._found.popitem(last=False)
            everything = [g[0].call_signature for g in self._found.values()]
        advice = recompile_advice(everything)
        if advice is not None:
            source.warn(RecompileWarning(advice))
        return made

    # -- looking

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """Trace and lower for these arguments, which are not written."""
        from tracegrad.specialise import Specialisation

        call = self._signature.describe(args, kwargs)
        leaves = self._signature.key(args, kwargs)[1]
        return Lowered(Specialisation(self.fn, call, self.options, leaves), self)

    def graph(self, *args: Any, stage: str = "traced", **kwargs: Any) -> GraphText:
        """The graph for these arguments at a stage, as text."""
        return self.lower(*args, **kwargs).graph(stage)

    def source(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The C that a call with these arguments runs."""
        return self.lower(*args, **kwargs).source()

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """A report on what a call with these arguments does, as text."""
        from tracegrad.inspect.explain import Circumstances, explain

        made = self.lower(*args, **kwargs).specialisation
        leaves = made.call_signature.leaves
        outside = made.traced.outside
        return explain(
            made.lowering,
            Circumstances(
                self._signature.name,
                [f"{x.name}: {x.type}" if x.is_traced else f"{x.name}={x.value!r}" for x in leaves],
                [
                    *(f"array {a.describe()}" for a in outside.arrays),
                    *(f"value of {g.path}" for g in outside.guards),
                ],
                [self._describe(s) for group in self._found.values() for s in group],
                made.traced.loops,
            ),
        )

    def _describe(self, s: Specialisation) -> str:
        leaves = s.call_signature.leaves
        text = ", ".join(str(x.type) if x.is_traced else repr(x.value) for x in leaves)
        names = [x.name for x in leaves] + [str(a.path) for a in s.traced.outside.arrays]
        for group in s.traced.groups:
            text += f"; {' and '.join(names[m.position] for m in group.members)} share memory"
        return text

    def cache_info(self) -> CacheInfo:
        """Calls that found a specialisation, that made one, and how many are kept."""
        return CacheInfo(
            self._hits, self._misses, self.options.cache_size, sum(map(len, self._found.values()))
        )

    def cache_clear(self) -> None:
        """Forget all specialisations."""
        with self._lock:
            self._found.clear()
            self._quick = None
            self._hits = self._misses = 0

    # -- looking like the function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundCompiled(self._method(), instance)

    def _method(self) -> CompiledFunction[..., Any]:
        if not self._signature.method:
            self._signature = Signature(self.fn, *self._statics, method=True)
        return self

    def __repr__(self) -> str:
        return f"<compiled {self.__qualname__}>"  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        import sys

        at: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):  # type: ignore[attr-defined]
            at = getattr(at, part, None)
        if at is self:
            return self.__qualname__  # type: ignore[attr-defined]
        return CompiledFunction, (self.fn, self.options, *self._statics)


class BoundCompiled:
    """A compiled method of one object."""

    def __init__(self, function: CompiledFunction[..., Any], instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance
        functools.update_wrapper(self, function.fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__func__, name)
        if name in ("lower", "graph", "source", "explain"):
            return functools.partial(attribute, self.__self__)
        return attribute


def compile(
    f: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    options: Options | None = None,
    **option: Any,
) -> Any:
    """Compile a NumPy function; also a decorator, with or without arguments.

    `static_argnums` and `static_argnames` name arguments whose value belongs to the
    specialisation; every field of `Options` may be given as a keyword.

    Raises:
        OptionError: an unknown option (the nearest name is given) or value.
        ArgumentError: static arguments that `f` does not have.
    """
    chosen = Options.make(options, **option)
    if f is None:
        return functools.partial(
            compile, static_argnums=static_argnums, static_argnames=static_argnames, options=chosen
        )
    return CompiledFunction(f, chosen, static_argnums, static_argnames)


@contextmanager
def disable_compile() -> Iterator[None]:
    """Inside, compiled functions run as the plain Python functions they wrap."""
    STATE.disabled += 1
    try:
        yield
    finally:
        STATE.disabled -= 1
