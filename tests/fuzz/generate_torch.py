"""Random programs of the Tensor face: PyTorch's spellings around views, writes and modes."""

from __future__ import annotations

import re

import torch

from tests.fuzz.draw import Draw, Live, is_small
from tests.fuzz.judge_torch import saved_copies
from tests.fuzz.program import Arg, Program

_UNARY = (
    "{}.sin()",
    "{}.cos()",
    "{}.tanh()",
    "{}.square()",
    "-{}",
    "{}.sigmoid()",
    "({} * {}).exp().reciprocal()",
    "{}.abs()",
    "{}.clone()",
    "({} * 0.5)",
)
_BINARY = (
    "({} + {})",
    "({} - {})",
    "({} * {})",
    "({} / (2.0 + {}.square()))",
    "{}.maximum({})",
    "({} * {}.sin())",
)
_INPLACE = ("{}.mul_({})", "{}.add_({})", "{}.sub_({})", "{}.copy_({})", "{}.mul_({})")
_ALONE = (
    "{}.sin_()",
    "{}.tanh_()",
    "{}.zero_()",
    "{}.fill_(0.5)",
    "{}.sigmoid_()",
    "{}.neg_()",
    "{}.square_()",
    "{}.clamp_(min=-0.5)",
    "{}.masked_fill_({} > 0.1, 0.3)",
    "{}.mul_({})",
    "{}.cos_()",
    "{}.exp_().mul_(0.2)",
    "{}.add_({})",
)


class TorchProgram:
    """Writes one program; `make` is the whole of it."""

    def __init__(self, seed: int) -> None:
        d = self.draw = Draw(seed)
        self.args = tuple(
            Arg("xyz"[k], d.shape(), seed=d.between(0, 99)) for k in range(d.between(1, 3))
        )
        self.statements: list[tuple[str, str]] = []
        self.live = Live({})
        self._start()

    def _start(self) -> None:
        leaves = {a.name: torch.from_numpy(a.make()).requires_grad_() for a in self.args}
        self.live.names = {"tg": torch, **{k: v.clone() for k, v in leaves.items()}}

    # -- what there is

    def tensors(self, rank: int = 0) -> list[str]:
        return [
            k for k, v in self.live.names.items() if isinstance(v, torch.Tensor) and v.ndim >= rank
        ]

    def tensor(self, rank: int = 0) -> str:
        names = self.tensors(rank)
        return names[-1] if self.draw.chance(0.35) else self.draw.pick(names)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.live.names[name].shape)

    def index(self, shape: tuple[int, ...]) -> str:
        """A basic index without negative steps."""
        for _ in range(20):
            text = self.draw.basic(shape)
            parts = [part.strip().split(":") for part in text.split(",")]
            if not any(len(p) == 3 and p[2].startswith("-") for p in parts):
                return text
        return "..."

    # -- expressions

    def leaf(self) -> str:
        name = self.tensor()
        shape = self.shape(name)
        return f"{name}[{self.index(shape)}]" if shape and self.draw.chance(0.4) else name

    def expression(self, depth: int) -> str:
        d = self.draw
        if depth == 0 or d.chance(0.15):
            return self.leaf()
        if d.chance(0.4):
            a = self.expression(depth - 1)
            return d.pick(_UNARY).format(a, a)
        if d.chance(0.1):
            return f"{self.tensor()}.{d.of('sum()', 'mean()', 'sum(0)', 'prod()', 'sum(-1)')}"
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        return d.pick(_BINARY).format(left, right)

    def fitting(self, shape: tuple[int, ...], depth: int) -> str:
        """An expression that broadcasts to `shape`, or a number."""
        for _ in range(10):
            text = self.expression(depth)
            value = self.live.value(text)
            if isinstance(value, torch.Tensor) and is_small(value.detach().numpy()):
                try:
                    if torch.broadcast_shapes(value.shape, shape) == torch.Size(shape):
                        return text
                except RuntimeError:
                    continue
        return self.draw.number()

    def operand(self, shape: tuple[int, ...], depth: int) -> tuple[str, str]:
        """An operand, and a copy of it."""
        text = self.fitting(shape, depth)
        is_number = not any(c.isalpha() for c in text)
        return text, text if is_number else f"({text}).clone()"

    # -- statements, each with the form in which operands are copied

    def statement(self) -> tuple[str, str]:
        found = self.draw.weighted(
            (
                (6, self.view),
                (2, self.piece),
                (3, self.binding),
                (1, self.buffer),
                (6, self.inplace),
                (5, self.assign),
                (2, self.shift),
                (3, self.without_grad),
                (2, self.detached),
                (2, self.loop),
                (1, self.joined),
                (1, self.rows),
            )
        )
        return found if isinstance(found, tuple) else (found, found)

    def view_of(self, name: str) -> str:
        d = self.draw
        t = self.live.names[name]
        shape, rank = self.shape(name), t.ndim
        forms = [
            f"{name}.reshape(-1)",
            f"{name}.flatten()",
            f"{name}.squeeze()",
            f"{name}.unsqueeze({d.between(0, rank)})",
            f"{name}.expand({(2, *shape)})",
            f"{name}.clone()",
            f"{name}.contiguous()",
            f"{name}.view({tuple(shape)})",
            f"{name}[...]",
            f"{name}.view(-1)",
            f"{name}.ravel()",
        ]
        if rank:
            n, axis = shape[0], d.between(0, rank - 1)
            forms += [
                f"{name}.narrow(0, {n // 2}, {n - n // 2})",
                f"{name}.transpose(0, -1)",
                f"{name}.unfold({axis}, 2, 1)",
                f"{name}.unfold({axis}, 1, 2)",
                f"{name}.tensor_split(2)[{d.between(0, 1)}]",
                f"{name}.movedim(0, -1)",
            ]
            if n:
                forms.append(f"{name}.select(0, {d.between(0, n - 1)})")
        if rank == 2:
            forms += [
                f"{name}.t()",
                f"{name}.diagonal()",
                f"{name}.permute(1, 0)",
                f"{name}.view({shape[1]}, {shape[0]})",
            ]
        if rank and not t._is_view() and t.is_contiguous() and t.numel() >= 4:
            forms += [
                f"{name}.as_strided((2, 2), (1, 2))",
                f"{name}.as_strided((2,), (1,), 1)",
                f"{name}.as_strided((2, 2), (1, 1), 1)",
            ]
        return f"{name}[{self.index(shape)}]" if rank and d.chance(0.45) else d.pick(forms)

    def view(self) -> str:
        return f"{self.live.fresh()} = {self.view_of(self.tensor())}"

    def piece(self) -> str:
        """One of several outputs."""
        d = self.draw
        name = self.tensor(1)
        form = d.of(
            "{}.split(2)[{}]",
            "{}.chunk(2)[{}]",
            "{}.unbind()[{}]",
            "{}.unbind(-1)[{}]",
            "{}.split(1, -1)[{}]",
        )
        return f"{self.live.fresh()} = {form.format(name, d.of(0, 0, 1))}"

    def binding(self) -> str:
        return f"{self.live.fresh()} = {self.expression(2)}"

    def buffer(self) -> str:
        shape = self.shape(self.tensor())
        form = self.draw.of("tg.zeros({}, dtype=tg.float64)", "tg.ones({}, dtype=tg.float64)")
        return f"{self.live.fresh('b')} = {form.format(shape)}"

    def inplace(self, name: str = "") -> tuple[str, str]:
        d = self.draw
        name = name or self.tensor()
        if d.chance(0.4):
            text = d.pick(_ALONE).format(name, name)
            return text, text
        form = d.pick(_INPLACE) if d.chance(0.7) else d.of("{} += {}", "{} *= {}")
        text, copied = self.operand(self.shape(name), d.between(0, 2))
        return form.format(name, text), form.format(name, copied)

    def assign(self) -> tuple[str, str]:
        d = self.draw
        name = self.tensor(1) if d.chance(0.9) else self.tensor()
        shape = self.shape(name)
        place = f"{name}[{self.index(shape)}]"
        if shape and shape[0] and d.chance(0.2):
            rows = d.random.sample(range(shape[0]), d.between(1, shape[0]))
            place = f"{name}[{rows}]"
        if d.chance(0.12):
            text = f"{name}[{name} > 0.2] = {d.number()}"
            return text, text
        value = self.live.value(place)
        op = d.of("=", "=", "+=", "*=")
        text, copied = self.operand(tuple(value.shape), d.between(0, 2))
        return f"{place} {op} {text}", f"{place} {op} {copied}"

    def shift(self) -> tuple[str, str]:
        name = self.tensor(1)
        op = self.draw.of("=", "+=", "*=")
        a, b = self.draw.of((f"{name}[1:]", f"{name}[:-1]"), (f"{name}[:-1]", f"{name}[1:]"))
        return f"{a} {op} {b}", f"{a} {op} {b}.clone()"

    def rows(self) -> tuple[str, str]:
        """A swap of rows through a temporary: views in PyTorch."""
        name = self.tensor(1)
        t = self.live.fresh("t")
        head = f"{t} = {name}[0]\n"
        return (
            f"{head}{name}[0] = {name}[-1]\n{name}[-1] = {t}",
            f"{head}{name}[0] = {name}[-1].clone()\n{name}[-1] = {t}.clone()",
        )

    def without_grad(self) -> tuple[str, str]:
        made = self.draw.of(self.view, self.inplace, self.assign, self.binding, self.piece)()
        text, copied = made if isinstance(made, tuple) else (made, made)
        mode = self.draw.of("no_grad", "no_grad", "no_grad", "inference_mode", "enable_grad")
        return f"with tg.{mode}():\n    {text}", f"with tg.{mode}():\n    {copied}"

    def detached(self) -> str:
        d = self.draw
        name = self.tensor()
        if d.chance(0.5):
            return f"{self.live.fresh()} = {name}.detach()"
        return f"{name}.detach(){d.of('', '[...]')}.mul_({d.number()})"

    def loop(self) -> tuple[str, str]:
        text, copied = self.draw.of(self.inplace, self.assign, self.shift)()
        head = f"for _ in range({self.draw.between(0, 3)}):\n    "
        return head + text, head + copied

    def joined(self) -> str:
        a = self.tensor()
        b = self.draw.pick(self.tensors(len(self.shape(a))))
        if len(self.shape(a)) != len(self.shape(b)):
            b = a
        form = self.draw.of("tg.stack(({}, {}))", "tg.cat(({}, {}))")
        return f"{self.live.fresh()} = {form.format(a, b)}"

    # -- the whole

    def append(self, pair: tuple[str, str]) -> bool:
        """Keep a statement that runs; one that is refused ends the program now and then."""
        try:
            self.live.run(pair[1])
        except Exception as e:
            self._replay()
            if re.search("view.*inplace|[Ii]nference", str(e), re.S) and self.draw.chance(0.4):
                self.statements.append(pair)
                return False
            return True
        values = [v for v in self.live.names.values() if isinstance(v, torch.Tensor)]
        if all(
            v.numel() <= 64
            and v.ndim <= 4
            and v.dtype == torch.float64
            and is_small(v.detach().numpy())
            for v in values
        ):
            self.statements.append(pair)
        else:
            self._replay()
        return True

    def _replay(self) -> None:
        self._start()
        for _, copied in self.statements:
            self.live.run(copied)

    def make(self) -> Program:
        d = self.draw
        wanted = d.between(2, 9)
        with saved_copies():
            for _ in range(6 * wanted):
                if len(self.statements) == wanted:
                    break
                try:
                    pair = self.statement()
                except (IndexError, ValueError, AttributeError):
                    continue  # nothing there that the statement needs
                if not self.append(pair):
                    break
        names = self.tensors()
        results = tuple(k for k in names if d.chance(0.6)) or (names[-1],)
        texts = tuple(t for t, _ in self.statements)
        copied = tuple(c for _, c in self.statements)
        return Program(self.args, texts, results, copied)


def make(seed: int) -> Program:
    return TorchProgram(seed).make()
