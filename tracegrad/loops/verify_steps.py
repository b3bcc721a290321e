"""The launches of a program and the loops around them, for `loops.verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracegrad.dims import Dim, Symbol, bounds, is_equal, largest, span_of, symbols
from tracegrad.dtypes import BOOL, I64, DType
from tracegrad.errors import VerifyError
from tracegrad.loops.grown import GROWN
from tracegrad.loops.ir import Access, Check
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
    Workers,
    all_steps,
)
from tracegrad.loops.transform import statements


def verify_steps(program: Program, buffers: Mapping[str, Buffer]) -> None:
    """Scoping and ranges of loop variables, and that each launch fits kernel and buffers.

    The range of a kernel's index must hold the value passed for every iteration, since the
    kernel's index expressions are simplified with it.
    """
    _verify_block(program, program.steps, buffers, {})


def _verify_block(
    program: Program,
    steps: Sequence[Step],
    buffers: Mapping[str, Buffer],
    scope: Mapping[str, Symbol],
) -> None:
    for step in steps:
        if isinstance(step, HostLoop):
            _verify_loop(program, step, scope)
            if step.count is not None:
                _verify_scalar(program, step, step.count, buffers, (I64,))
            if step.workers is not None:
                _verify_workers(program, step, step.workers, buffers)
            inner = {**scope, step.var.name: step.var}
            _verify_block(program, step.body, buffers, inner)
        elif isinstance(step, WhileLoop):
            _verify_variable(program, step, scope)
            if step.var.lo != 0:
                raise VerifyError(
                    f"program {program.name}: loop over {step.var} does not start at 0",
                    loc=step.loc,
                )
            _verify_scalar(program, step, step.flag, buffers, (BOOL,))
            inner = {**scope, step.var.name: step.var}
            _verify_block(program, step.test, buffers, inner)
            _verify_block(program, step.body, buffers, inner)
        elif isinstance(step, Branch):
            few = (BOOL, I64) if len(step.cases) == 2 else (I64,)
            _verify_scalar(program, step, step.selector, buffers, few)
            if not step.cases:
                raise VerifyError(f"program {program.name}: a branch has no cases", loc=step.loc)
            for case in step.cases:
                _verify_block(program, case, buffers, scope)
        elif isinstance(step, Grow):
            _verify_grown(program, step, (step.buffer,), buffers)
            _verify_scope(step.size, scope, f"program {program.name}: grow {step.buffer}", step)
        elif isinstance(step, Copy):
            _verify_grown(program, step, (step.source, step.target), buffers)
        else:
            _verify_launch(program, step, buffers, scope)


def _verify_workers(
    program: Program, loop: HostLoop, w: Workers, buffers: Mapping[str, Buffer]
) -> None:
    """That the memory of threads and chunks is there, and that no loop inside has threads too."""

    def fail(what: str) -> VerifyError:
        return VerifyError(f"program {program.name}: loop over {loop.var}: {what}", loc=loop.loc)

    if w.chunks < 1 or not 1 <= w.threads <= w.chunks or loop.count is not None:
        raise fail(f"{w.chunks} chunks cannot run on {w.threads} threads")
    if any(isinstance(s, HostLoop) and s.workers is not None for s in all_steps(loop.body)):
        raise fail("a loop inside runs on threads too")
    for name in w.private:
        b = buffers.get(name)
        if b is None or b.place is not Place.ARENA:
            raise fail(f"{name} is no buffer of the arena")
        end = b.offset + w.stride * (w.threads - 1) + largest(b.size) * b.dtype.nbytes
        if end > program.arena_nbytes:
            raise fail(f"the copies of {name} leave the arena")
    for total, parts in w.sums:
        a, b = buffers.get(total), buffers.get(parts)
        if a is None or b is None or b.place is not Place.ARENA:
            raise fail(f"no buffers {total} and {parts}")
        room = largest(b.size) // w.chunks
        if a.dtype is not b.dtype or largest(a.size) > room or room * w.chunks != b.size:
            raise fail(f"{parts} does not hold {w.chunks} times {total}")


def _verify_scalar(
    program: Program,
    step: Step,
    name: str,
    buffers: Mapping[str, Buffer],
    dtypes: Sequence[DType],
) -> None:
    """A buffer whose first element decides which steps run."""
    b = buffers.get(name)
    where = f"program {program.name}: {type(step).__name__}"
    if b is None:
        raise VerifyError(f"{where} reads {name}, which is no buffer", loc=step.loc)
    if b.dtype not in dtypes or is_equal(b.size, 0) is not False:
        raise VerifyError(f"{where} cannot read {name}, {b.dtype}[{b.size}]", loc=step.loc)


def _verify_grown(
    program: Program, step: Grow | Copy, names: Sequence[str], buffers: Mapping[str, Buffer]
) -> None:
    where = f"program {program.name}: {type(step).__name__}"
    for name in names:
        if name not in buffers or buffers[name].place is not Place.GROWING:
            raise VerifyError(f"{where} of {name}, which does not grow", loc=step.loc)
    if len({buffers[name].dtype for name in names}) > 1:
        raise VerifyError(f"{where} from {names[0]} to {names[1]} of another dtype", loc=step.loc)
    if not 1 <= step.check <= len(program.checks) or "detail" not in buffers:
        raise VerifyError(f"{where}: check {step.check} is not described", loc=step.loc)


def _verify_variable(
    program: Program, loop: HostLoop | WhileLoop, scope: Mapping[str, Symbol]
) -> None:
    where = f"program {program.name}: loop over {loop.var}"
    if not all(part.isidentifier() for part in loop.var.name.split(".")):
        raise VerifyError(f"{where}: not a name", loc=loop.loc)
    if loop.var.name in scope:
        raise VerifyError(f"{where} is inside a loop over {loop.var}", loc=loop.loc)


def _verify_loop(program: Program, loop: HostLoop, scope: Mapping[str, Symbol]) -> None:
    var = loop.var
    where = f"program {program.name}: loop over {var}"
    _verify_variable(program, loop, scope)
    if loop.trips == GROWN:
        if loop.count is None or (var.lo, var.hi) != (0, None):
            raise VerifyError(f"{where} has no number of trips", loc=loop.loc)
        return
    _verify_scope(loop.trips, scope, where, loop)
    most = bounds(loop.trips)[1]
    last = None if most is None else most - 1
    if isinstance(loop.trips, int):
        fits = (var.lo, var.hi) == (0, last)
    else:
        fits = _holds(var, (0, last))
    if not fits:
        raise VerifyError(
            f"{where} has range {var.lo}..{var.hi} and {loop.trips} trips", loc=loop.loc
        )


def _holds(s: Symbol, span: tuple[int | None, int | None]) -> bool:
    """Whether the range of `s` certainly holds `span`."""
    (lo, hi), (least, most) = span, span_of(s)
    above = least is None or (lo is not None and lo >= least)
    below = most is None or (hi is not None and hi <= most)
    return above and below


def _verify_scope(d: Dim, scope: Mapping[str, Symbol], where: str, step: Step) -> None:
    for s in symbols(d):
        if scope.get(s.name) != s:
            why = "with another range" if s.name in scope else "which is not in scope"
            raise VerifyError(f"{where}: {d} uses {s.name}, {why}", loc=step.loc)


def _verify_indices(launch: Launch, scope: Mapping[str, Symbol], where: str) -> None:
    wanted = launch.kernel.indices
    if len(launch.indices) != len(wanted):
        raise VerifyError(
            f"{where} has {len(launch.indices)} indices for {len(wanted)}", loc=launch.loc
        )
    never = any(hi is not None and hi < 0 for _, hi in map(span_of, scope.values()))
    for d, s in zip(launch.indices, wanted, strict=True):
        _verify_scope(d, scope, where, launch)
        if not (never or _holds(s, bounds(d))):
            raise VerifyError(
                f"{where}: {d} may leave the range {s.lo}..{s.hi} of {s}", loc=launch.loc
            )


def _verify_launch(
    program: Program, launch: Launch, buffers: Mapping[str, Buffer], scope: Mapping[str, Symbol]
) -> None:
    kernel = launch.kernel
    where = f"program {program.name}: launch of {kernel.name}"
    _verify_indices(launch, scope, where)
    if len(launch.args) != len(kernel.params):
        raise VerifyError(f"{where} has {len(launch.args)} arguments for {len(kernel.params)}")
    for name, p in zip(launch.args, kernel.params, strict=True):
        b = buffers.get(name)
        if b is None:
            raise VerifyError(f"{where}: no buffer {name}")
        if b.dtype is not p.dtype or is_equal(b.size, p.size) is False:
            raise VerifyError(
                f"{where}: {name} is {b.dtype}[{b.size}], {p.name} is {p.dtype}[{p.size}]"
            )
        read_only = b.place is Place.CONSTANT or (b.place is Place.INPUT and not b.written)
        if read_only and p.access is not Access.IN:
            raise VerifyError(f"{where} writes {name}, which is read only")
    codes = [s.code for s in statements(kernel.body) if isinstance(s, Check)]
    if codes and launch.check_base + max(codes) > len(program.checks):
        raise VerifyError(f"{where}: check {launch.check_base + max(codes)} is not described")
    if codes and launch.args[-1] != "detail":
        raise VerifyError(f"{where}: its detail param is bound to {launch.args[-1]}")
