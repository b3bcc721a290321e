"""Renders a program as one C translation unit and its header."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tracegrad.codegen.c import INDENT, CKernel, place, print_c_kernel
from tracegrad.codegen.c_family import CExpressions, literal, pointer
from tracegrad.codegen.c_library import with_dependencies
from tracegrad.codegen.c_names import CNames
from tracegrad.codegen.c_parallel import WORDS, ChunkPrinter, names_outside_chunks, runs_chunks
from tracegrad.dims import Symbol, format_dim, symbols
from tracegrad.dtypes import BOOL
from tracegrad.errors import VerifyError
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import Access, Kernel
from tracegrad.loops.program import (
    Branch,
    Buffer,
    Copy,
    Grow,
    HostLoop,
    Launch,
    Place,
    Program,
    Step,
    WhileLoop,
    all_steps,
    blocks,
    launches,
)
from tracegrad.loops.transform import is_scalar

if TYPE_CHECKING:
    import jinja2

EMBED_LIMIT = 1024
"""Elements up to which a constant is always part of the text."""


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """C source.

    `entry` is the shim's name when there is one, else the typed function's; `header` declares
    the typed function; `external_constants` are buffers the caller passes after the outputs;
    `uses_blas` says that the unit has the `tg_blas_*` pointers.
    """

    text: str
    entry: str
    header: str
    external_constants: tuple[Buffer, ...]
    uses_blas: bool = False
    statements: int = 0


def render(program: Program, *, shim: bool, embed_all: bool) -> SourceUnit:
    """The unit of `program`.

    `shim` adds ``int tg_entry(void *const *bufs, void *ws)`` with bufs = inputs, outputs,
    external constants.  `embed_all` makes the text stand alone: every constant inside, no BLAS
    pointers (exported code); otherwise constants beyond `EMBED_LIMIT` elements are passed.
    """
    return _Unit(program, shim, embed_all).render()


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # here, since nothing is rendered where nothing is compiled

    return jinja2.Environment(
        loader=jinja2.PackageLoader("tracegrad.codegen", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


class _Unit:
    def __init__(self, program: Program, shim: bool, embed_all: bool) -> None:
        self.program = program
        self.shim = shim
        self.embed_all = embed_all
        self.globals = CNames({"tg_entry"})
        # Behind the shim the name is free to choose, so it cannot be one of the C library's.
        self.entry = self.globals.fresh(f"{program.name}_program" if shim else program.name)
        constants = program.at(Place.CONSTANT)
        self.external = tuple(b for b in constants if not self.is_embedded(b))
        self.embedded = tuple(b for b in constants if self.is_embedded(b))
        self.params = (*program.at(Place.INPUT), *program.at(Place.OUTPUT), *self.external)
        self.names: dict[str, str] = {}
        for b in self.embedded:
            self.names[b.name] = self.globals.fresh(f"{self.entry}_{b.hint or b.name}")
        self.kernels = self.print_kernels()
        on_threads = any(map(runs_chunks, all_steps(program.steps)))
        self.locals = CNames(self.globals.taken | (WORDS if on_threads else set()))
        self.growing = program.at(Place.GROWING)
        for b in (*self.params, *program.at(Place.ARENA), *self.growing):
            self.names[b.name] = self.locals.fresh(b.hint or b.name)
        self.rooms = {b.name: self.locals.fresh(f"{b.hint or b.name}_room") for b in self.growing}
        self.dtypes = {b.name: b.dtype for b in program.buffers}
        self.exprs = CExpressions(self.locals)
        self.buffers = {b.name: b for b in program.buffers}
        self.chunks = ChunkPrinter(self)
        leaving = "{{ status = {0}; goto done; }}" if self.growing else "return {0};"
        self.leaving = leaving  # what a launch does that a check has stopped
        self.last_place = ""

    def is_embedded(self, b: Buffer) -> bool:
        assert b.data is not None, "a constant buffer has data"
        return self.embed_all or b.data.size <= EMBED_LIMIT

    def print_kernels(self) -> dict[Kernel, CKernel]:
        """Each distinct kernel once; a param is `restrict` if no launch makes it overlap.

        Scalar kernels inside loops may be inlined, so that the loop over their calls is a plain
        C loop; calls would dominate.
        """
        buffers = {b.name: b for b in self.program.buffers}
        distinct: dict[Kernel, set[str]] = {}
        for launch in self.program.launches():
            overlapping = distinct.setdefault(launch.kernel, set())
            overlapping |= overlaps(launch, buffers)
        looped = {
            launch.kernel
            for step in all_steps(self.program.steps)
            if isinstance(step, (HostLoop, WhileLoop))
            for block in blocks(step)
            for launch in launches(block)
        }
        printed = {}
        for kernel, overlapping in distinct.items():
            restrict = frozenset(p.name for p in kernel.params) - overlapping
            printed[kernel] = print_c_kernel(
                kernel,
                self.globals.fresh(kernel.name),
                restrict=restrict,
                blas=not self.embed_all,
                inline=kernel in looped and is_scalar(kernel.body),
            )
        return printed

    def render(self) -> SourceUnit:
        lines = list(self.steps(self.program.steps, ""))
        called = {name for k in self.kernels.values() for name in k.functions}
        functions = with_dependencies(called | self.exprs.functions | self.chunks.called)
        uses_blas = any(f.name == "blas" for f in functions)
        kernels = [k.text for k in self.kernels.values()] + self.chunks.functions
        text = (
            _environment()
            .get_template("unit.c.j2")
            .render(
                name=self.entry,
                functions=[f.text for f in functions],
                kernels=kernels,
                constants=[self.constant(b) for b in self.embedded],
                arguments=self.arguments(),
                has_status=any(line.lstrip().startswith("status = ") for line in lines),
                locals=[*self.arena_pointers(), *self.growing_pointers()],
                growing=[self.names[b.name] for b in self.growing],
                launches=lines,
                shim=self.shim,
                shim_arguments=self.shim_arguments(),
            )
        )
        header = (
            _environment()
            .get_template("unit.h.j2")
            .render(
                name=self.entry,
                upper=self.entry.upper(),
                arguments=self.arguments(),
                arena_nbytes=self.program.arena_nbytes,
                params=[self.documented(b) for b in self.params],
                checks=[comment_text(c.message) for c in self.program.checks],
            )
        )
        return SourceUnit(
            text,
            "tg_entry" if self.shim else self.entry,
            header,
            self.external,
            uses_blas,
            sum(k.count("\n") for k in kernels),
        )

    def is_const(self, b: Buffer) -> bool:
        return b.place is Place.CONSTANT or (b.place is Place.INPUT and not b.written)

    def arguments(self) -> str:
        args = [pointer(b.dtype, self.names[b.name], const=self.is_const(b)) for b in self.params]
        return ", ".join([*args, "void *ws"])

    def shim_arguments(self) -> str:
        return ", ".join([*(f"bufs[{k}]" for k in range(len(self.params))), "ws"])

    def documented(self, b: Buffer) -> str:
        role = {
            Place.INPUT: "in, out" if b.written else "in",
            Place.OUTPUT: "out",
            Place.CONSTANT: "constant",
        }[b.place]
        shape = ", ".join(map(format_dim, b.shape)) if b.shape else format_dim(b.size)
        return f"{self.names[b.name]}: {b.dtype}[{shape}], {role}"

    def constant(self, b: Buffer) -> str:
        assert b.data is not None, "a constant buffer has data"
        values = [literal(v, b.dtype)[0] for v in b.data.reshape(-1).tolist()] or ["0"]
        lines = [""]
        for v in values:
            if len(lines[-1]) + len(v) > 92:
                lines.append("")
            lines[-1] += f"{v}, "
        rows = "\n".join("  " + line.rstrip() for line in lines)
        return f"static const {b.dtype.c} {self.names[b.name]}[{len(values)}] = {{\n{rows}\n}};"

    def arena_pointers(self) -> Iterator[str]:
        used = set(names_outside_chunks(self.program.steps))
        for b in self.program.at(Place.ARENA):
            if b.name in used:
                place_of = f"(void *)((char *)ws + {b.offset})" if b.offset else "ws"
                yield f"{pointer(b.dtype, self.names[b.name], const=False)} = {place_of};"

    def growing_pointers(self) -> Iterator[str]:
        """Buffers that are empty at first, and their room in elements."""
        for b in self.growing:
            yield f"{pointer(b.dtype, self.names[b.name], const=False)} = NULL;"
            yield f"ptrdiff_t {self.rooms[b.name]} = 0;"

    def steps(self, steps: Sequence[Step], pad: str) -> Iterator[str]:
        """Launches and loops around them, with the user's line where it changes."""
        for step in steps:
            if step.loc is not None and place(step.loc) != self.last_place:
                self.last_place = place(step.loc)
                yield f"{pad}/* {self.last_place} */"
            if isinstance(step, HostLoop) and step.workers is not None:
                yield from self.chunks.loop(step, pad)
            elif isinstance(step, HostLoop):
                yield pad + self.loop_head(step)
                yield from self.steps(step.body, pad + INDENT)
                yield f"{pad}}}"
            elif isinstance(step, WhileLoop):
                yield from self.while_loop(step, pad)
            elif isinstance(step, Branch):
                yield from self.branch(step, pad)
            elif isinstance(step, Grow):
                need = self.exprs.index(step.size)
                yield from (pad + line for line in self.room(step.buffer, need, step.check))
            elif isinstance(step, Copy):
                yield from (pad + line for line in self.copy(step))
            else:
                yield from (pad + line for line in self.launch(step))

    def loop_head(self, loop: HostLoop) -> str:
        i = self.locals[loop.var.name]
        if loop.trips == GROWN:
            assert loop.count is not None, "verified"
            n = f"(ptrdiff_t){self.argument(loop.count)}[0]"
            if loop.reverse:
                return f"for (ptrdiff_t {i} = {n} - 1; {i} >= 0; --{i}) {{"
            return f"for (ptrdiff_t {i} = 0; {i} < {n}; ++{i}) {{"
        if loop.reverse:
            last = self.exprs.index(loop.trips - 1)
            if loop.count is not None:
                n = f"{self.argument(loop.count)}[0]"
                last = f"{n} < {self.exprs.index(loop.trips)} ? (ptrdiff_t){n} - 1 : {last}"
            return f"for (ptrdiff_t {i} = {last}; {i} >= 0; --{i}) {{"
        head = f"for (ptrdiff_t {i} = 0; {i} < {self.exprs.index(loop.trips)}"
        if loop.count is not None:
            head += f" && {i} < {self.argument(loop.count)}[0]"
        return f"{head}; ++{i}) {{"

    def while_loop(self, loop: WhileLoop, pad: str) -> Iterator[str]:
        """The variable is printed where something needs it."""
        i = self.locals[loop.var.name]
        inner = [f"if (!{self.argument(loop.flag)}[0]) break;"]
        test = list(self.steps(loop.test, pad + INDENT))
        body = list(self.steps(loop.body, pad + INDENT))
        limit = "" if loop.var.hi is None else f" {i} < {loop.var.hi + 1}"
        inside = all_steps((*loop.test, *loop.body))
        if limit or any(loop.var in _indices(s) for s in inside):
            yield f"{pad}for (ptrdiff_t {i} = 0;{limit}; ++{i}) {{"
        else:
            yield f"{pad}for (;;) {{"
        yield from (*test, *(pad + INDENT + line for line in inner), *body, f"{pad}}}")

    def branch(self, step: Branch, pad: str) -> Iterator[str]:
        """An `if` for each case; the last one takes all that is left."""
        value = f"{self.argument(step.selector)}[0]"
        tests = [f"{value} <= 0", *(f"{value} == {k}" for k in range(1, len(step.cases)))]
        if len(step.cases) == 2:
            tests[0] = f"!{value}" if self.dtypes[step.selector] is BOOL else tests[0]
        word = f"{pad}if"
        for k, case in enumerate(step.cases):
            last = k == len(step.cases) - 1
            if last and k == 0:
                yield f"{pad}{{"
            elif last:
                yield f"{pad}}} else {{"
            else:
                yield f"{word} ({tests[k]}) {{"
            yield from self.steps(case, pad + INDENT)
            word = f"{pad}}} else if"
            self.last_place = ""
        yield f"{pad}}}"

    def launch(self, launch: Launch) -> Iterator[str]:
        kernel = self.kernels[launch.kernel]
        args = [*map(self.argument, launch.args), *map(self.exprs.index, launch.indices)]
        call = f"{kernel.name}({', '.join(args)})"
        if kernel.has_status:
            yield f"status = {call};"
            yield f"if (status != 0) {self.leaving.format(f'{launch.check_base} + status')}"
        else:
            yield f"{call};"

    def room(self, buffer: str, need: str, check: int) -> Iterator[str]:
        """Room for `need` elements, or the error that there is no memory."""
        name, room, dtype = self.argument(buffer), self.rooms[buffer], self.dtypes[buffer]
        yield f"if ({room} < {need}) {{"
        yield f"{INDENT}void *tg_more = tg_grow({name}, &{room}, {need}, sizeof(*{name}));"
        yield f"{INDENT}if (tg_more == NULL) {{"
        yield f"{INDENT}  {self.argument('detail')}[0] = (int64_t)({need}) * {dtype.nbytes};"
        yield f"{INDENT}  status = {check};"
        yield f"{INDENT}  goto done;"
        yield f"{INDENT}}}"
        yield f"{INDENT}{name} = ({dtype.c} *)tg_more;"
        yield "}"

    def copy(self, step: Copy) -> Iterator[str]:
        source, target = self.argument(step.source), self.argument(step.target)
        room = self.rooms[step.source]
        yield from self.room(step.target, room, step.check)
        yield f"if ({room} > 0) memcpy({target}, {source}, (size_t){room} * sizeof(*{target}));"

    def argument(self, name: str) -> str:
        if name not in self.names:
            raise VerifyError(f"program {self.program.name}: no buffer {name}")
        return self.names[name]


def _indices(step: Step) -> set[Symbol]:
    """The loop variables that a step itself uses."""
    dims = step.indices if isinstance(step, Launch) else ()
    dims = (step.trips,) if isinstance(step, HostLoop) else dims
    dims = (step.size,) if isinstance(step, Grow) else dims
    return {s for d in dims for s in symbols(d)}


def comment_text(text: str) -> str:
    """`text` made safe inside a C comment."""
    plain = re.sub(r"\s+", " ", text).encode("ascii", "replace").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def overlaps(step: Launch, buffers: dict[str, Buffer]) -> set[str]:
    """The params of a launch whose memory another param also covers, one of the two written."""
    found: set[str] = set()
    bound = list(zip(step.kernel.params, (buffers[a] for a in step.args), strict=True))
    for i, (p, a) in enumerate(bound):
        for q, b in bound[:i]:
            written = p.access is not Access.IN or q.access is not Access.IN
            if written and _share(a, b):
                found |= {p.name, q.name}
    return found


def _share(a: Buffer, b: Buffer) -> bool:
    if a is b:
        return True
    if a.place is not Place.ARENA or b.place is not Place.ARENA:
        return False
    assert isinstance(a.size, int) and isinstance(b.size, int), "arena sizes are known"
    return (
        a.offset < b.offset + b.size * b.dtype.nbytes
        and b.offset < a.offset + a.size * a.dtype.nbytes
    )
