"""`Reduce` as C: fixed lanes inside fixed blocks, blocks joined as a tree.

The innermost loop is cut into blocks of 4096 elements, each accumulated in 64 lanes held in an
array, so that the association depends neither on the vector width nor on the compiler, and the
error is that of pairwise summation.  Block totals of float sums and products are joined by a
binary counter (`tg_push_*`); the others by one scalar.  It is printed here and not made by a
pass because the counter needs a loop that loop IR does not have, and because every target
associates in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracegrad.codegen.c_builtin import BLOCK, LANES
from tracegrad.codegen.c_family import ARGUMENT, PREFIX, literal, tightness
from tracegrad.dims import Dim, Symbol
from tracegrad.loops.combine import identity
from tracegrad.loops.ir import Accumulator, Combine, Reduce
from tracegrad.loops.transform import is_straight

if TYPE_CHECKING:
    from tracegrad.codegen.c import CStatements


@dataclass(slots=True)
class _Total:
    """The C variables of one accumulator.

    `result` is the value the kernel uses, `total` what is gathered so far (a struct when
    `is_tree`), `leaf` the total of one block.
    """

    acc: Accumulator
    result: str
    total: str
    leaf: str
    lanes: str
    is_tree: bool

    @property
    def start(self) -> str:
        dtype = self.acc.dtype
        return literal(identity(self.acc.combine, dtype).item(), dtype)[0]

    @property
    def key(self) -> str:
        return f"{self.acc.combine.value}_{self.acc.dtype.name}"


def reduce_lines(p: CStatements, s: Reduce, depth: int) -> Iterator[str]:
    """The lines of a Reduce; its accumulators are declared in the enclosing block."""
    pad = "  " * depth
    totals = [_total(p, acc, is_single_leaf(s)) for acc in s.accs]
    for t in totals:
        yield f"{pad}{t.acc.dtype.c} {t.result};"
    yield f"{pad}{{"
    inner = pad + "  "
    for t in totals:
        if t.is_tree:
            p.exprs.functions |= {f"push_{t.key}", f"total_{t.key}"}
            yield f"{inner}tg_pairs_{t.acc.dtype.name} {t.total} = {{{{0}}, 0, 0}};"
        else:
            yield f"{inner}{t.acc.dtype.c} {t.total} = {t.start};"
    yield from _nest(p, s, totals, depth + 1)
    for t in totals:
        yield f"{inner}{t.result} = {_finish(p, t)};"
    yield f"{pad}}}"


def _total(p: CStatements, acc: Accumulator, is_single: bool) -> _Total:
    is_tree = not is_single and acc.dtype.is_float and acc.combine in (Combine.ADD, Combine.MUL)
    result = p.names[acc.name]
    total, leaf, lanes = (
        p.names.fresh(f"{acc.name}_{word}")
        for word in ("tree" if is_tree else "all", "part", "lanes")
    )
    return _Total(acc, result, total, leaf, lanes, is_tree)


def has_lanes(s: Reduce) -> bool:
    """Whether the innermost loop is long enough for lanes and its body simple enough."""
    if not s.loops or not is_straight(s.body):
        return False
    extent = s.loops[-1][1]
    return not isinstance(extent, int) or extent >= LANES


def is_single_leaf(s: Reduce) -> bool:
    """Whether one running total does: at most a block with lanes, or few elements without."""
    sizes = [n if isinstance(n, int) else None for _, n in s.loops]
    if has_lanes(s):
        last = sizes[-1]
        return len(sizes) == 1 and last is not None and last <= BLOCK
    count = 1
    for n in sizes:
        if n is None:
            return False
        count *= n
    return count < LANES


def _nest(p: CStatements, s: Reduce, totals: list[_Total], depth: int) -> Iterator[str]:
    """The loops, from the outermost to a block, and the joining of its total."""
    if has_lanes(s):
        outer, leaf = s.loops[:-1], _blocks
    elif is_single_leaf(s):
        outer, leaf = s.loops, _direct
    elif len(s.loops) > 1 and _is_short(s.loops[-1][1]):
        outer, leaf = s.loops[:-1], _row
    else:
        outer, leaf = s.loops, _element
    for k, (var, extent) in enumerate(outer):
        yield "  " * (depth + k) + p.for_head(var.name, "0", p.exprs.index(extent))
    yield from leaf(p, s, totals, depth + len(outer))
    for k in reversed(range(len(outer))):
        yield "  " * (depth + k) + "}"


def _is_short(extent: Dim) -> bool:
    return isinstance(extent, int) and extent < LANES


def _accumulate(
    p: CStatements, s: Reduce, targets: list[tuple[_Total, str]], depth: int
) -> Iterator[str]:
    """The body, then ``target = target (+) value`` for each accumulator."""
    yield from p.block(s.body, depth)
    for t, target in targets:
        yield f"{'  ' * depth}{target} = {_combined(p, t, target)};"


def _combined(p: CStatements, t: _Total, target: str) -> str:
    dtype, combine = t.acc.dtype, t.acc.combine
    value = p.exprs.expr(t.acc.value, tightness(combine, dtype))
    return p.exprs.combine(combine, dtype, target, value)


def _join(p: CStatements, t: _Total, value: str, pad: str) -> str:
    """Add a finished leaf to the total."""
    if t.is_tree:
        return f"{pad}tg_push_{t.key}(&{t.total}, {value});"
    return f"{pad}{t.total} = {p.exprs.combine(t.acc.combine, t.acc.dtype, t.total, value)};"


def _direct(p: CStatements, s: Reduce, totals: list[_Total], depth: int) -> Iterator[str]:
    yield from _accumulate(p, s, [(t, t.total) for t in totals], depth)


def _element(p: CStatements, s: Reduce, totals: list[_Total], depth: int) -> Iterator[str]:
    """Every value is a leaf: the body is a nest of its own, so joining costs little."""
    pad = "  " * depth
    yield from p.block(s.body, depth)
    for t in totals:
        if t.is_tree:
            yield f"{pad}tg_push_{t.key}(&{t.total}, {p.exprs.expr(t.acc.value, ARGUMENT)});"
        else:
            yield f"{pad}{t.total} = {_combined(p, t, t.total)};"


def _row(p: CStatements, s: Reduce, totals: list[_Total], depth: int) -> Iterator[str]:
    """A short innermost loop is one leaf."""
    pad = "  " * depth
    var, extent = s.loops[-1]
    for t in totals:
        yield f"{pad}{t.acc.dtype.c} {t.leaf} = {t.start};"
    yield pad + p.for_head(var.name, "0", p.exprs.index(extent))
    yield from _accumulate(p, s, [(t, t.leaf) for t in totals], depth + 1)
    yield pad + "}"
    for t in totals:
        yield _join(p, t, t.leaf, pad)


def _blocks(p: CStatements, s: Reduce, totals: list[_Total], depth: int) -> Iterator[str]:
    """Blocks of the innermost loop, each a leaf accumulated in lanes."""
    pad = "  " * depth
    var, extent = s.loops[-1]
    if isinstance(extent, int) and extent <= BLOCK:
        yield from _lanes(p, s, totals, depth, "0", extent)
        return
    first, end = (p.names.fresh(f"{var.name}_{word}") for word in ("block", "end"))
    size = p.exprs.index(extent)
    yield f"{pad}for (ptrdiff_t {first} = 0; {first} < {size}; {first} += {BLOCK}) {{"
    if isinstance(extent, int) and extent % BLOCK == 0:
        yield from _lanes(p, s, totals, depth + 1, first, BLOCK)
    else:
        rest = f"{p.exprs.index(extent, PREFIX)} - {first}"
        yield (f"{pad}  const ptrdiff_t {end} = {first} + ({rest} < {BLOCK} ? {rest} : {BLOCK});")
        yield from _lanes(p, s, totals, depth + 1, first, end)
    yield f"{pad}}}"


def _lanes(
    p: CStatements, s: Reduce, totals: list[_Total], depth: int, first: str, end: int | str
) -> Iterator[str]:
    """One block from `first` to `end` (a length when an int): lanes, the rest, the fold."""
    pad = "  " * depth
    var: Symbol = s.loops[-1][0]
    base, j = p.names.fresh(f"{var.name}_base"), p.names.fresh("lane")
    name = p.names[var.name]
    p.exprs.counters.add(var.name)
    stop = end if isinstance(end, str) else (str(end) if first == "0" else f"{first} + {end}")
    yield f"{pad}ptrdiff_t {base} = {first};"
    for t in totals:
        p.exprs.functions.add(f"fold_{t.key}")
        yield f"{pad}{t.acc.dtype.c} {t.lanes}[{LANES}];"
        yield (f"{pad}for (int {j} = 0; {j} < {LANES}; ++{j}) {t.lanes}[{j}] = {t.start};")
    yield f"{pad}for (; {base} + {LANES} <= {stop}; {base} += {LANES}) {{"
    yield f"{pad}  TG_SIMD"
    yield f"{pad}  for (int {j} = 0; {j} < {LANES}; ++{j}) {{"
    yield f"{pad}    const ptrdiff_t {name} = {base} + {j};"
    yield from _accumulate(p, s, [(t, f"{t.lanes}[{j}]") for t in totals], depth + 2)
    yield f"{pad}  }}"
    yield f"{pad}}}"
    if not isinstance(end, int) or end % LANES:
        if not isinstance(end, int):
            yield f"{pad}TG_SIMD"
        yield pad + p.for_head(var.name, base, stop)
        yield from _accumulate(
            p, s, [(t, f"{t.lanes}[{name} - {base}]") for t in totals], depth + 1
        )
        yield f"{pad}}}"
    for t in totals:
        yield _join(p, t, f"tg_fold_{t.key}({t.lanes})", pad)


def _finish(p: CStatements, t: _Total) -> str:
    """The start combined with the total."""
    acc = t.acc
    init = p.exprs.expr(acc.init, tightness(acc.combine, acc.dtype))
    total = f"tg_total_{t.key}(&{t.total}, {t.start})" if t.is_tree else t.total
    return p.exprs.combine(acc.combine, acc.dtype, init, total)
