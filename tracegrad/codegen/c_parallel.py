"""Loops on threads in C: a function that runs one chunk, and the call that runs them all.

The pool is a pointer that the loader sets, as it is for BLAS; without one, and in text that
stands alone, the chunks run in order, with the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracegrad.codegen.c_family import pointer
from tracegrad.codegen.c_library import define
from tracegrad.dims import Dim, largest, symbols
from tracegrad.dtypes import FLOATS
from tracegrad.loops.ir import Check
from tracegrad.loops.program import (
    Buffer,
    HostLoop,
    Launch,
    Place,
    Step,
    WhileLoop,
    Workers,
    all_steps,
    blocks,
    launches,
    named,
)
from tracegrad.loops.transform import statements

if TYPE_CHECKING:
    from tracegrad.codegen.unit import _Unit

INDENT = "  "
# Names of the chunk functions, which no buffer may have.
WORDS = frozenset(
    ("given", "context", "chunk", "worker", "trips", "first", "end", "k", "c", "detail")
)

define(
    "chunks_on_threads",
    (),
    """
/* Set by the loader: runs chunks 0 .. chunks-1 on up to `threads` threads. */
TG_EXPORT void (*tg_parallel)(void (*run)(void *, ptrdiff_t, ptrdiff_t), void *context,
    ptrdiff_t chunks, int threads);

static void tg_run_chunks(void (*run)(void *, ptrdiff_t, ptrdiff_t), void *context,
    ptrdiff_t chunks, int threads) {
  if (tg_parallel != NULL)
    tg_parallel(run, context, chunks, threads);
  else
    for (ptrdiff_t c = 0; c < chunks; ++c) run(context, c, 0);
}
""",
)
define(
    "chunks_in_order",
    (),
    """
static void tg_run_chunks(void (*run)(void *, ptrdiff_t, ptrdiff_t), void *context,
    ptrdiff_t chunks, int threads) {
  (void)threads;
  for (ptrdiff_t c = 0; c < chunks; ++c) run(context, c, 0);
}
""",
)
define(
    "join_parts",
    FLOATS,
    """
/* Add `chunks` arrays of n elements, `apart` elements from one to the next, in a fixed tree,
   neighbours first, and their sum to total. */
static TG_NOINLINE void tg_join_parts_$t($T *restrict total, $T *restrict parts, ptrdiff_t n,
    ptrdiff_t apart, ptrdiff_t chunks) {
  for (ptrdiff_t step = 1; step < chunks; step *= 2)
    for (ptrdiff_t c = 0; c + step < chunks; c += 2 * step) {
      $T *const one = parts + c * apart;
      const $T *const other = one + step * apart;
      for (ptrdiff_t k = 0; k < n; ++k) one[k] += other[k];
    }
  for (ptrdiff_t k = 0; k < n; ++k) total[k] += parts[k];
}
""",
)


def runs_chunks(step: Step) -> bool:
    return isinstance(step, HostLoop) and step.workers is not None


def names_outside_chunks(steps: Sequence[Step]) -> Iterator[str]:
    """The buffers that the function around the chunk functions has to point to."""
    for step in steps:
        yield from named(step)
        if runs_chunks(step):
            if _has_checks(blocks(step)[0]):
                yield "detail"
            continue
        for block in blocks(step):
            yield from names_outside_chunks(block)


def _has_checks(body: Sequence[Step]) -> bool:
    return any(
        isinstance(s, Check) for launch in launches(body) for s in statements(launch.kernel.body)
    )


def free_variables(body: Sequence[Step], own: str) -> list[str]:
    """The variables of loops around a loop over `own` that its body uses, by name."""
    steps = list(all_steps(body))
    defined = {own} | {s.var.name for s in steps if isinstance(s, (HostLoop, WhileLoop))}
    used: list[Dim] = []
    for s in steps:
        used += s.indices if isinstance(s, Launch) else ()
        used += (s.trips,) if isinstance(s, HostLoop) else ()
    return sorted({s.name for d in used for s in symbols(d)} - defined)


@dataclass(slots=True, eq=False)
class ChunkPrinter:
    """Prints the loops on threads of a unit; `functions` are the texts that stand before its
    entry, `called` what they call of the library."""

    unit: _Unit
    functions: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def loop(self, loop: HostLoop, pad: str) -> Iterator[str]:
        """The lines that run `loop`."""
        unit, workers = self.unit, loop.workers
        assert workers is not None
        self.called.add("chunks_in_order" if unit.embed_all else "chunks_on_threads")
        stem = f"{unit.entry}_chunk{len(self.functions)}"
        function, kind = unit.globals.fresh(stem), unit.globals.fresh(f"{stem}_context")
        passed = self._passed(loop)
        has_checks = _has_checks(loop.body)
        self.functions.append(self._function(loop, function, kind, passed, has_checks))
        context = unit.locals.fresh("context")
        values = [*(unit.names[b.name] for b in passed), "ws"]
        values += [unit.locals[v] for v in free_variables(loop.body, loop.var.name)]
        values.append(unit.exprs.index(loop.trips))
        inner = pad + INDENT
        yield f"{pad}{{"
        yield f"{inner}{kind} {context} = {{{', '.join(values)}{', {0}, {0}' * has_checks}}};"
        yield (
            f"{inner}tg_run_chunks({function}, &{context}, {workers.chunks}, {workers.threads});"
        )
        if has_checks:
            yield f"{inner}for (int c = 0; c < {workers.chunks}; ++c) {{"
            yield f"{inner}{INDENT}if ({context}.status[c] == 0) continue;"
            yield f"{inner}{INDENT}{unit.names['detail']}[0] = {context}.detail[c];"
            yield f"{inner}{INDENT}{unit.leaving.format(f'{context}.status[c]')}"
            yield f"{inner}}}"
        for total, parts in workers.sums:
            b = unit.buffers[total]
            self.called.add(f"join_parts_{b.dtype.name}")
            sizes = f"{b.size}, {self._apart(workers, parts)}, {workers.chunks}"
            call = f"{unit.names[total]}, {unit.names[parts]}, {sizes}"
            yield f"{inner}tg_join_parts_{b.dtype.name}({call});"
        yield f"{pad}}}"

    def _apart(self, workers: Workers, parts: str) -> int:
        """The elements of one part."""
        return largest(self.unit.buffers[parts].size) // workers.chunks

    def _passed(self, loop: HostLoop) -> list[Buffer]:
        """Arguments of the unit that the chunks use."""
        assert loop.workers is not None
        names = {n for s in all_steps(loop.body) for n in named(s)} - dict(loop.workers.sums).keys()
        return [b for b in self.unit.params if b.name in names]

    def _function(
        self, loop: HostLoop, name: str, kind: str, passed: Sequence[Buffer], has_checks: bool
    ) -> str:
        unit, workers = self.unit, loop.workers
        assert workers is not None
        fields = [pointer(b.dtype, unit.names[b.name], const=unit.is_const(b)) for b in passed]
        outer = [unit.locals[v] for v in free_variables(loop.body, loop.var.name)]
        fields += ["void *ws", *(f"ptrdiff_t {v}" for v in outer), "ptrdiff_t trips"]
        if has_checks:
            fields += [f"int status[{workers.chunks}]", f"int64_t detail[{workers.chunks}]"]
        lines = ["typedef struct {", *(f"{INDENT}{f};" for f in fields), f"}} {kind};", ""]
        lines.append(f"static void {name}(void *given, ptrdiff_t chunk, ptrdiff_t worker) {{")
        lines.append(f"{INDENT}{kind} *const context = given;")
        if has_checks:
            lines.append(f"{INDENT}int status;")
        for b, text in zip(passed, fields, strict=False):
            lines.append(f"{INDENT}{text} = context->{unit.names[b.name]};")
        lines += [f"{INDENT}const ptrdiff_t {v} = context->{v};" for v in outer]
        lines.append(f"{INDENT}char *const ws = context->ws;")
        lines += (INDENT + line for line in self._pointers(loop, workers))
        lines += (INDENT + line for line in self._iterations(loop, workers))
        return "\n".join([*lines, "}"])

    def _pointers(self, loop: HostLoop, workers: Workers) -> Iterator[str]:
        """Buffers in the arena: shared ones, those of the thread, those of the chunk."""
        unit, sums = self.unit, dict(workers.sums)
        used = {n for s in all_steps(loop.body) for n in named(s)}
        for b in unit.program.at(Place.ARENA):
            if b.name not in used or b.name in sums or b.name == "detail":
                continue
            at = f"ws + {b.offset}"
            at += f" + worker * {workers.stride}" if b.name in workers.private else ""
            yield f"{pointer(b.dtype, unit.names[b.name], const=False)} = (void *)({at});"
        for total, parts in workers.sums:
            b, base = unit.buffers[total], unit.buffers[parts].offset
            apart = self._apart(workers, parts)
            part = f"({b.dtype.c} *)(void *)(ws + {base}) + chunk * {apart}"
            yield f"{pointer(b.dtype, unit.names[total], const=False)} = {part};"
            yield f"for (ptrdiff_t k = 0; k < {b.size}; ++k) {unit.names[total]}[k] = -0.0;"
        yield "(void)ws;"
        yield "(void)worker;"

    def _iterations(self, loop: HostLoop, workers: Workers) -> Iterator[str]:
        unit = self.unit
        kept = unit.names.get("detail"), unit.leaving, unit.last_place
        unit.names["detail"] = "(context->detail + chunk)"
        unit.leaving = "{{ context->status[chunk] = {0}; return; }}"
        unit.last_place = ""
        i, trips = unit.locals[loop.var.name], "context->trips"
        yield f"const ptrdiff_t first = {trips} * chunk / {workers.chunks};"
        yield f"const ptrdiff_t end = {trips} * (chunk + 1) / {workers.chunks};"
        if loop.reverse:
            yield "for (ptrdiff_t k = first; k < end; ++k) {"
            yield f"{INDENT}const ptrdiff_t {i} = {trips} - 1 - k;"
        else:
            yield f"for (ptrdiff_t {i} = first; {i} < end; ++{i}) {{"
        yield from unit.steps(loop.body, INDENT)
        yield "}"
        detail, unit.leaving, unit.last_place = kept
        del unit.names["detail"]
        if detail is not None:
            unit.names["detail"] = detail
