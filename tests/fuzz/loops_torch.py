"""Random programs of the Tensor face with loops: in-place methods on views, ragged ones included.

What stands in ``<<...>>`` is an operand of a write: PyTorch gets a clone of it, since it refuses
operands that overlap what is written.
"""

from __future__ import annotations

import re
import textwrap

import torch

from tests.fuzz.draw import Draw
from tests.fuzz.judge_torch import Answer
from tests.fuzz.program import Arg, Program, TooLong, run_short

LONGEST = 600  # lines that a program runs: unrolled, they are all in one trace

PARTS = {  # views of one length; {a} is a vector, {q} a square matrix, {j} another index
    "{i}": (
        "{a}[:{i}]",
        "{q}[{i}, :{i}]",
        "{q}[:{i}, {i}]",
        "{q}[{j}, :{i}]",
        "{q}.T[{j}, :{i}]",
        "{a}[n - {i}:]",
        "{a}.narrow(0, 0, {i})",
        "{q}[:{i}, :{i}].diagonal()",
        "{q}[{j}].narrow(0, n - {i}, {i})",
        "{a}.split([{i}, n - {i}])[0]",
    ),
    "n - {i}": ("{a}[{i}:]", "{q}[{i}, {i}:]", "{q}[{i}:, {j}]", "{a}[:n - {i}]"),
    "n - {i} - 1": (
        "{a}[{i} + 1:]",
        "{q}[{i} + 1:, {i}]",
        "{q}[{i}, {i} + 1:]",
        "{a}[:-{i} - 1]",
        "{q}[{i} + 1:].select(1, {j})",
    ),
    "3": ("{a}[1:4]", "{q}[{i}, :3]", "{q}[:3, {j}]", "{a}[-3:]", "{a}[::n // 2 - 1][:3]"),
    "2": ("{a}[{i} - 2:{i}]", "{q}[{i}:{i} + 2, {j}]", "{a}.narrow(0, {i} // 2, 2)", "{a}[:2]"),
    "n": ("{a}", "{q}[{i}]", "{q}[:, {i}]", "{q}.T[{i}]", "{q}.diagonal()", "{a}.flip(0)"),
}
ODD = ("{a}[-{i}:]", "{a}[:-{i}]", "{a}[{i}::2]", "{a}[{i} - 1:{i} + 2]", "{a}[:{i} * 2]")
INDEX = (
    "{i}",
    "{i}",
    "{i} - 1",
    "-{i} - 1",
    "n - 1 - {i}",
    "{i} % 3",
    "{i} - n",
    "k[{i}]",
    "{i} // 2",
)
MAPS = ("{0}.sin()", "{0} * {1}", "{0} + {2}", "{0}.tanh() * {2}", "{0}.clone()", "{0} - 0.5 * {1}")
MAPS += ("tg.where({0} > 0.1, {1}, {0})", "{0}.maximum({1})", "{0}.flip(0)", "{0}.clamp(min=-0.5)")
MAPS += ("{0}.exp() * 0.1", "{0}.cumsum(0) * 0.1", "{0}.abs()", "{0} / (2.0 + {1} * {1})")
TOTALS = (
    "{0}.sum()",
    "({0} @ {1}) * 0.1",
    "{0}.dot({1}) * 0.1",
    "({0} * {1}).sum()",
    "{0}.mean()",
    "{0}.prod()",
    "{0}.amax()",
    "{0}.std()",
    "{0}.square().sum()",
    "tg.cat(({0}, {1})).sum() * 0.3",
    "tg.stack(({0}, {1}))[0].sum() * 0.3",
    "{0}.outer({1}).sum() * 0.05",
    "{0}.logsumexp(0) * 0.1",
)
WRITES = (  # {p} and {r} of one length, {s} a scalar tensor
    "{p}.add_(<<{r}>>)",
    "{p}.mul_(<<{r}>>)",
    "{p}.copy_(<<{r}>>)",
    "{p} = <<{r}>>",
    "{p} += <<{r}>>",
    "{p} *= 0.5",
    "{p}.mul_(<<{s}>>)",
    "{p}.fill_(0.3)",
    "{p} = <<{s}>>",
    "{p} -= 0.1 * {r}",
    "{p}.sub_(0.1 * {r})",
    "{p}.sin_()",
    "{p}.zero_()",
    "{p}.clamp_(min=-0.4)",
    "{p}.masked_fill_({p} > 0.4, 0.3)",
    "{b} = {p}\n{b}.mul_(0.7)",
    "{b} = {p}\n{b} += <<{r}>>\ns = s + {b}.sum() * 0.1",
    "{b} = {p}.clone()\n{b}.mul_(<<{s}>>)\nt = t * 0.5 + {b}.sum()",
    "{b} = {r}\ns = s * 0.5 + ({b} * 1.0).sum()",
    "{b} = tg.zeros_like({p})\n{b}.add_(<<{r}>>)\n{p}.copy_(<<{b}>>)",
    "{p}.neg_().add_(0.1)",
    "with tg.no_grad():\n    {p}.mul_(0.9)",
    "{b} = {p}.detach()\ns = s + {b}.sum() * 0.1",
    "{p}.view(-1).mul_(0.9)",
    "{p}.unsqueeze(0).mul_(0.5)",
    "{p}[:] = <<{r}>>",
    "{p}[::2] *= 0.5",
)
STATEMENTS = (
    "s = 0.5 * s + {s}",
    "s += <<{s}>>",
    "s = s + {s} * {v}",
    "s, t = t * 0.5, s + {s}",
    "t = s\ns = 0.3 * s + {s}",
    "x[{e}] = <<{s}>>",
    "x[{e}] += <<{s}>>",
    "y[{e}].mul_(0.5)",
    "u[{e}].add_(<<{s}>>)",
    "S[{i}, {j}] = <<{s}>>",
    "S[{i}, {j}] -= 0.1 * (S[{i}, :{j}] @ S[:{j}, {j}])",
    "S[{i}, {j}].mul_(<<S[{j}, {i}]>>)",
    "A[{i}].add_(<<B[{i}] * 0.1>>)",
    "A[{i}] = <<A[{i} - 1] * 0.5>>",
    "A[:{i}].mul_(0.9)",
    "A[:{i}] *= x[:{i}].unsqueeze(1)",
    "S[{i} + 1:, {i} + 1:] -= 0.1 * S[{i} + 1:, {i}].outer(S[{i}, {i} + 1:])",
    "S[:{i}, :{i}].mul_(0.9)",
    "S[:{i}, {j}:] *= 0.8",
    "S[{i} + 1:, {i}] /= 2.0 + S[{i}, {i}] * S[{i}, {i}]",
    "x.add_(<<S[{i}] * 0.1>>)",
    "x = x + 0.1 * y",
    "x = 0.5 * x\nx[{e}] = 0.2",
    "u = u * 0.9\nu[:{i}].add_(<<x[:{i}]>>)",
    "x[1:-1] = 0.5 * (x[2:] + x[:-2])",
    "x, y = y, x",
    "y[1:-1] = 0.5 * (x[2:] + x[:-2])\nx, y = y, x",
    "u, x, y = y, u, x",
    "u = x",
    "u = x.clone()",
    "u = tg.zeros_like(x)\nu[{e}] = 0.4",
    "r = A[{i}]\nr.mul_(0.5)",
    "r = A[{i}]\nr[0] = <<{s}>>",
    "u = tg.cat((x[:{i}], y[{i}:]))",
    "u = u.roll(1)",
    "x.index_add_(0, k[:{i}], <<y[:{i}] * 0.1>>)",
    "s = s + x[k[{i}]] * 0.1 + x[k].sum() * 0.1",
    "x[k[:{i}]] = 0.1",
    "with tg.no_grad():\n    y[{e}] = <<x[{i}]>>",
    "q = x.detach()\ns = s + q[{i}] * 0.1",
    "box = [box[1], s * 0.5]",
    "box[0] = {s}",
    "old = x[{i}].clone()\nx[{i}] = <<{s}>>\ns = s + old",
    "h = last\nlast = {s}\ns = s + 0.1 * h",
    "x[:{i}] = <<y[:{i} + 1]>>",
    "if {i} == 5:\n    continue",
    "if {i} > 6:\n    break",
    "for e in x[:{i}]:\n    s = s + e * 0.1",
    "for e, h in zip(A, B):\n    s = s + (e * h).sum() * 0.05",
    "for e in A:\n    e.mul_(0.9)",
    "for e in S.unbind(0)[:{i}]:\n    s = s + e[0] * 0.1",
    "e = x.chunk(2)[{i} % 2]\ns = s + e.sum() * 0.1",
)
HEADS = ("range(n)", "range(n)", "range(1, n)", "range(1, n - 1)", "range(n - 1, -1, -1)")
HEADS += ("range(9)", "range(2)", "range(0)", "reversed(range(n))", "range(-3, n - 3)", "range(12)")
INNER = ("range({i})", "range({i} + 1, n)", "range({i}, n)", "range({i} - 1, -1, -1)")
INNER += ("range({i} + 1)", "range(n - {i})", "range(0, {i}, 2)", "range({i}, {i})")
TESTS = ("{i} > 0", "{i} == 4", "{i} % 2 == 0", "{i} < n - 1", "not {i}", "{i} >= {j}", "{i} % 3")


class TorchLoops:
    """Writes one program."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.n, self.m = draw.between(8, 11), draw.between(3, 5)
        self.indices: list[str] = []
        self.count = 0
        self.ragged = draw.of(0.2, 0.5, 0.8)

    def filled(self, form: str, **more: str) -> str:
        d = self.draw
        i, j = d.pick(self.indices), d.pick(self.indices)
        names = {"a": d.of("x", "y", "u"), "q": d.of("S", "S", "T"), "i": i, "j": j}
        return form.format(**{**names, **more})

    def parts(self, count: int) -> list[str]:
        """Vectors of one length."""
        d = self.draw
        i, j = d.pick(self.indices), d.pick(self.indices)
        if d.chance(0.12):
            form = d.pick(ODD)
            return [self.filled(form, i=i, j=j) for _ in range(count)]
        length = d.pick(tuple(PARTS)) if d.chance(self.ragged) else d.of("3", "2", "n")
        return [self.filled(d.pick(PARTS[length]), i=i, j=j) for _ in range(count)]

    def mapped(self, a: str, b: str) -> str:
        if self.draw.chance(0.4):
            return a
        return f"({self.draw.pick(MAPS).format(a, b, self.scalar(1))})"

    def scalar(self, depth: int = 0) -> str:
        """A tensor of shape ()."""
        d = self.draw
        if depth or d.chance(0.5):
            e = self.filled(d.pick(INDEX))
            return self.filled(
                d.of(f"x[{e}]", f"y[{e}]", "s", "t", "S[{i}, {j}]", "x.select(0, {i})", "A[{i}, 1]")
            )
        a, b = self.parts(2)
        return d.pick(TOTALS).format(self.mapped(a, b), b)

    def statement(self, depth: int) -> str:
        d = self.draw
        if depth < 3 and d.chance(0.3 if depth < 2 else 0.04):
            return self.loop(depth)
        if depth < 3 and d.chance(0.12):
            text = f"if {self.filled(d.pick(TESTS))}:\n{self.block(depth + 1, 1)}"
            return text + (f"\nelse:\n{self.block(depth + 1, 1)}" if d.chance(0.4) else "")
        self.count += 1
        if d.chance(0.5):
            p, a, b = self.parts(3)
            if "flip" in p:  # a copy
                p = "x"
            if p.endswith(")") or p.isidentifier():  # no place of an array to assign to
                p = f"{p}[:]"
            return d.pick(WRITES).format(
                p=p, r=self.mapped(a, b), s=self.scalar(), b=f"b{self.count}"
            )
        form = d.pick(STATEMENTS)
        e = self.filled(d.pick(INDEX))
        return self.filled(form, s=self.scalar(), v=self.scalar(1), e=e)

    def loop(self, depth: int) -> str:
        d = self.draw
        inner = self.indices and d.chance(0.25 + 0.7 * self.ragged)
        head = self.filled(d.pick(INNER)) if inner else d.pick(HEADS)
        i = "ijlq"[len(self.indices)]
        self.indices.append(i)
        body = self.block(depth + 1, d.between(1, 3))
        self.indices.pop()
        return f"for {i} in {head}:\n{body}"

    def block(self, depth: int, count: int) -> str:
        return textwrap.indent("\n".join(self.statement(depth) for _ in range(count)), "    ")

    def make(self) -> Program:
        d = self.draw
        n, m = self.n, self.m
        shapes = {"x": (n,), "y": (n,), "A": (n, m), "B": (n, m), "S": (n, n), "T": (n, n)}
        args = tuple(Arg(name, shape, seed=k) for k, (name, shape) in enumerate(shapes.items()))
        setup = (
            f"n, m = {n}, {m}",
            f"k = tg.asarray({[d.between(0, n - 1) for _ in range(n)]})",
            f"u = {d.of('x * 1.0', 'x', 'tg.zeros(n, dtype=tg.float64)', 'y[:]', 'x.clone()')}",
            f"s, t = {d.of('x[0] * 1.0', 'y.sum() * 0.1')}, {d.of('y[1] * 1.0', 'x[2]')}",
            "last = x[1]",
            "box, old, r = [x[0] * 0.5, y[0] * 0.5], y[0], A[0]",
        )
        body = [self.loop(0) for _ in range(d.between(1, 2))]
        text = (*setup, *(re.sub("<<|>>", lambda m: "()"[m[0] == ">>"], b) for b in body))
        copied = (*setup, *(b.replace("<<", "(").replace(">>", ").clone()") for b in body))
        results = ("s * 1.0", "t * 1.0", "x", "u", "y", "S", "last * 1.0", "old * 1.0", "r")
        return Program(args, text, (*results, "box[0] * 1.0", "box[1] * 1.0"), copied)


def make(seed: int) -> Program:
    """The program of one seed; most of those that PyTorch refuses are drawn again."""
    draw = Draw(seed)
    keeps_errors = draw.chance(0.15)
    for _ in range(30):
        p = TorchLoops(draw).make()
        try:
            with torch.enable_grad():  # what is stopped may not leave its no_grad() blocks
                found = run_short(lambda p=p: Answer(p.copied_text, p.args), LONGEST)
        except TooLong:
            continue
        if found.kind is None or keeps_errors:
            break
    return p
