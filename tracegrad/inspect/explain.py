"""`explain`: what a specialisation does with each write, and which kernels it runs, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tracegrad.dims import product
from tracegrad.graph.ir import Graph
from tracegrad.graph.op import Trait
from tracegrad.graph.walk import all_nodes
from tracegrad.loops.ir import For, If, Kernel, LoopTag, Reduce, Stmt
from tracegrad.loops.program import Buffer, Place, Program
from tracegrad.pipeline import Lowering
from tracegrad.types import sizes


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What only the caller knows: why the specialisation exists, what it depends on, and what
    became of each loop."""

    name: str
    arguments: Sequence[str]
    outside: Sequence[str] = ()
    history: Sequence[str] = ()
    loops: Sequence[str] = ()


def explain(lowering: Lowering, about: Circumstances) -> str:
    """The report; sizes are bytes."""
    program = lowering.plan.program
    lines = [f"{about.name}({', '.join(about.arguments)})"]
    lines += _section("depends on", about.outside)
    lines += _section("specialisations", about.history)
    lines += _section("graphs", _graphs(lowering))
    lines += _section("loops", (*about.loops, *lowering.plan.threads))
    lines += _section("writes", _writes(lowering))
    lines += _section("kernels", _kernels(program))
    lines += _section("memory", _memory(program))
    lines += _section("runs as", [_engine(lowering)])
    return "\n".join(lines) + "\n"


def _section(title: str, rows: Sequence[str]) -> list[str]:
    return [f"  {title}:", *(f"    {row}" for row in rows)] if rows else []


def _graphs(lowering: Lowering) -> list[str]:
    return [
        f"{stage:<11}{_size(lowering.graph(stage))} nodes"
        for stage in ("traced", "functional", "joint", "optimized")
    ]


def _size(graph: Graph) -> int:
    return len(graph.nodes) + sum(_size(r) for n in graph.nodes for r in n.regions)


def _writes(lowering: Lowering) -> list[str]:
    plan = lowering.plan
    updates = [n for n in all_nodes(lowering.optimized) if n.op.has(Trait.UPDATES_FIRST)]
    if not updates:
        return []
    copies = sum("copies its base" in note for note in plan.notes)
    rows = [
        f"{len(updates)} partial writes (forward and backward), "
        f"{len(updates) - copies} in place, {copies} after a copy of the base"
    ]
    counted = Counter(plan.notes)
    return rows + [note if n == 1 else f"{note} ({n} times)" for note, n in counted.items()]


def _kernels(program: Program) -> list[str]:
    launches = Counter(s.kernel.name for s in program.launches())
    return [
        f"{k.name:<5} {_shape(k.body)}{_times(launches[k.name])}{_where(k)}"
        for k in program.kernels()
    ]


def _times(n: int) -> str:
    return f", {n} launches" if n > 1 else ""


def _where(kernel: Kernel) -> str:
    return f"  {kernel.loc.file.rsplit('/', 1)[-1]}:{kernel.loc.line}" if kernel.loc else ""


def _shape(body: Sequence[Stmt]) -> str:
    """The loops of a kernel in a few words."""
    words = []
    for s in body:
        if isinstance(s, For):
            tag = " vector" if s.tag is LoopTag.VECTOR else ""
            inner = _shape(s.body)
            words.append(f"for {s.extent}{tag}" + (f" ({inner})" if inner else ""))
        elif isinstance(s, Reduce):
            size = " x ".join(str(n) for _, n in s.loops)
            words.append(f"reduce {size} into {len(s.accs)}")
        elif isinstance(s, If):
            words.append(f"if ({_shape(s.then)})")
    return ", ".join(words) or "scalars" if body and not words else ", ".join(words)


def _memory(program: Program) -> list[str]:
    rows = []
    for place in (Place.INPUT, Place.OUTPUT, Place.CONSTANT):
        buffers = program.at(place)
        if buffers:
            total = sum(map(_nbytes, buffers))
            rows.append(f"{place.value:<9}{total:>12,} bytes in {len(buffers)} buffers")
    temporary = [b for b in program.at(Place.ARENA) if b.index >= 0]
    rows.append(
        f"{'arena':<9}{program.arena_nbytes:>12,} bytes shared by {len(temporary)} "
        "temporary buffers"
    )
    for b in program.at(Place.GROWING):
        (row,) = sizes((product(b.shape[1:]),))
        rows.append(
            f"{'growing':<9}{row * b.dtype.nbytes:>12,} bytes for each iteration of a while_loop"
        )
    rows += [
        f"{'':<9}{_nbytes(b):>12,} bytes of it keep {b.hint.removesuffix('_tape')} of each "
        "iteration for the reverse loop"
        for b in temporary
        if b.hint.endswith("_tape")
    ]
    written = [b.hint for b in program.at(Place.INPUT) if b.written]
    if written:
        rows.append(f"written in the caller's memory: {', '.join(written)}")
    return rows


def _nbytes(b: Buffer) -> int:
    (size,) = sizes((b.size,))
    return size * b.dtype.nbytes


def _engine(lowering: Lowering) -> str:
    kind = lowering.executable.kind
    return {
        "launcher": "C, called through the compiled launcher",
        "ctypes": "C, called through ctypes (no Python.h: about 2 us a call more)",
        "reference": "the NumPy reference interpreter (no C compiler)",
    }[kind]
